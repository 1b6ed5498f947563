// SPDX-License-Identifier: Apache-2.0
// The baseline of transport_perf: the same messages over libfabric alone, between two processes, with nothing around
// it. usage: bare_ofi PROVIDER write|trip BYTES WINDOW MESSAGES [CPU CPU]; prints the seconds that they took.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void check(int64_t code, const char* what) {
  if (code >= 0) return;
  std::fprintf(stderr, "bare_ofi: %s: %s\n", what, fi_strerror(static_cast<int>(-code)));
  std::exit(1);
}

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) std::fprintf(stderr, "bare_ofi: CPU %d cannot be used\n", cpu);
}

struct Card {
  char name[256];
  uint64_t name_bytes, key, base;
};

struct Bench {
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* mr = nullptr;
  std::vector<char> memory;
  std::vector<fi_context2> contexts;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  Card theirs{};
  uint64_t posted = 0, done = 0, arrived = 0;

  Bench(const std::string& provider, int socket, uint64_t bytes, uint64_t window)
      : memory(std::max<uint64_t>(bytes, 64) * window), contexts(std::max<uint64_t>(window, 64)) {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_RMA | FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->cq_data_size = 4;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    fi_info* info = nullptr;
    check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_av_attr av_attributes{};
    av_attributes.type = FI_AV_TABLE;
    check(fi_av_open(domain, &av_attributes, &av, nullptr), "fi_av_open");
    fi_cq_attr cq_attributes{};
    cq_attributes.format = FI_CQ_FORMAT_DATA;
    cq_attributes.size = 4096;
    check(fi_cq_open(domain, &cq_attributes, &cq, nullptr), "fi_cq_open");
    check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    check(fi_mr_reg(domain, memory.data(), memory.size(), FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1,
                    0, &mr, nullptr),
          "fi_mr_reg");
    const bool absolute = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    Card mine{{}, sizeof(mine.name), fi_mr_key(mr), absolute ? reinterpret_cast<uint64_t>(memory.data()) : 0};
    check(fi_getname(&ep->fid, mine.name, &mine.name_bytes), "fi_getname");
    if (write(socket, &mine, sizeof(mine)) != sizeof(mine)) std::exit(1);
    if (read(socket, &theirs, sizeof(theirs)) != sizeof(theirs)) std::exit(1);
    if (fi_av_insert(av, theirs.name, 1, &peer, 0, nullptr) != 1) std::exit(1);
  }

  // Without this the provider shm leaves its files behind.
  ~Bench() {
    fi_close(&ep->fid);
    fi_close(&mr->fid);
    fi_close(&cq->fid);
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void poll() {
    fi_cq_data_entry entries[64];
    const ssize_t count = fi_cq_read(cq, entries, 64);
    if (count != -FI_EAGAIN) check(count, "fi_cq_read");
    for (ssize_t i = 0; i < count; ++i) ((entries[i].flags & FI_REMOTE_WRITE) != 0 ? arrived : done) += 1;
  }

  bool post(uint64_t slot, uint64_t bytes) {
    void* descriptor = fi_mr_desc(mr);
    const iovec local{memory.data() + slot * bytes, bytes};
    const fi_rma_iov remote{theirs.base + slot * bytes, bytes, theirs.key};
    fi_msg_rma message{&local, &descriptor, 1, peer, &remote, 1, &contexts[posted % contexts.size()], posted};
    const ssize_t code = fi_writemsg(ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
    if (code == -FI_EAGAIN) return false;
    check(code, "fi_writemsg");
    ++posted;
    return true;
  }
};

void write_all(Bench& bench, uint64_t bytes, uint64_t window, uint64_t messages) {
  while (bench.posted < messages) {
    while (bench.posted < messages && bench.posted - bench.done < window && bench.post(bench.posted % window, bytes)) {
    }
    bench.poll();
  }
  while (bench.arrived == 0) bench.poll();
}

void receive_all(Bench& bench, uint64_t messages) {
  while (bench.arrived < messages) bench.poll();
  while (!bench.post(0, 0)) bench.poll();
  while (bench.done < bench.posted) bench.poll();
}

void trips(Bench& bench, bool first, uint64_t bytes, uint64_t messages) {
  for (uint64_t i = 0; i < messages; ++i) {
    while (first && !bench.post(0, bytes)) bench.poll();
    while (bench.arrived <= i) bench.poll();
    while (!first && !bench.post(0, bytes)) bench.poll();
  }
  while (bench.done < bench.posted) bench.poll();
}

// Until both are here: a process that is gone makes no progress for the other.
void meet(Bench& bench, int socket) {
  char byte = 0;
  if (write(socket, &byte, 1) != 1) std::exit(1);
  while (recv(socket, &byte, 1, MSG_DONTWAIT) != 1) bench.poll();
}

struct Job {
  uint64_t bytes, window, messages;
};

double run(const std::string& provider, int socket, bool first, bool write_test, const Job& job) {
  Bench bench(provider, socket, job.bytes, job.window);
  meet(bench, socket);
  // A few messages connect the two before the time begins.
  trips(bench, first, job.bytes, 10);
  bench.posted = bench.done = bench.arrived = 0;
  meet(bench, socket);
  const auto begin = std::chrono::steady_clock::now();
  if (!write_test) {
    trips(bench, first, job.bytes, job.messages);
  } else if (first) {
    write_all(bench, job.bytes, job.window, job.messages);
  } else {
    receive_all(bench, job.messages);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  meet(bench, socket);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 8) {
    std::fprintf(stderr, "usage: bare_ofi PROVIDER write|trip BYTES WINDOW MESSAGES [CPU CPU]\n");
    return 2;
  }
  const bool write_test = std::string(argv[2]) == "write";
  const uint64_t bytes = std::strtoull(argv[3], nullptr, 10), window = std::strtoull(argv[4], nullptr, 10);
  const uint64_t messages = std::strtoull(argv[5], nullptr, 10);
  alarm(120);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  const pid_t child = fork();
  const bool first = child != 0;
  const int socket = ends[first ? 0 : 1];
  if (argc == 8) stay_on(std::atoi(argv[first ? 6 : 7]));
  const double seconds = run(argv[1], socket, first, write_test, {bytes, window, messages});
  if (!first) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("%.9f\n", seconds);
  return status == 0 ? 0 : 1;
}
