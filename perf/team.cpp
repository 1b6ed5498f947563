// SPDX-License-Identifier: Apache-2.0
#include "team.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "api.hpp"

namespace ucclep::perf {
namespace {

constexpr size_t slot_bytes = 16384;  // of one rank in one round of a gather
constexpr size_t page = 4096;
constexpr int barrier_seconds = 900;  // far above any sensible timeout of the library: its own report comes first

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(uint32_t));

// The shared variants, as std::atomic::wait works inside one process only.
void futex_wait(Word& word, uint32_t value, const timespec& longest) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
}
void futex_wake(Word& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

[[noreturn]] void system_failure(const char* call) {
  throw PerfError(std::string(call) + ": " + std::strerror(errno));
}

}  // namespace

struct SharedMemoryTeam::Header {
  Word arrived{0};     // members at the current barrier
  Word generation{0};  // barriers passed
  Word failed{0};      // 0 none, 1 somebody writes the message, 2 it is written
  char failure[2048] = {};
};

SharedMemoryTeam::SharedMemoryTeam(int ranks) : ranks_(ranks), fd_(memfd_create("ucclep_perf", MFD_CLOEXEC)) {
  if (fd_ < 0) system_failure("memfd_create");
  if (ftruncate(fd_, static_cast<off_t>(page + ranks * slot_bytes)) != 0) system_failure("ftruncate");
  map();
  new (header_) Header;
}

SharedMemoryTeam::SharedMemoryTeam(int ranks, int inherited_fd) : ranks_(ranks), fd_(inherited_fd) {
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
  map();
}

SharedMemoryTeam::~SharedMemoryTeam() {
  munmap(header_, bytes_);
  close(fd_);
}

void SharedMemoryTeam::map() {
  static_assert(sizeof(Header) <= page);
  bytes_ = page + ranks_ * slot_bytes;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) system_failure("mmap");
  header_ = static_cast<Header*>(memory);
}

std::byte* SharedMemoryTeam::slot(int rank) const {
  return reinterpret_cast<std::byte*>(header_) + page + rank * slot_bytes;
}

void SharedMemoryTeam::fail(const std::string& message) {
  uint32_t none = 0;
  if (!header_->failed.compare_exchange_strong(none, 1)) return;
  std::snprintf(header_->failure, sizeof header_->failure, "%s", message.c_str());
  header_->failed.store(2);
  futex_wake(header_->generation);
}

std::string SharedMemoryTeam::failure() const {
  return header_->failed.load() == 2 ? header_->failure : "";
}

void SharedMemoryTeam::check_failed() const {
  if (header_->failed.load() != 0) throw TeamFailed("another rank failed");
}

void SharedMemoryTeam::barrier() {
  check_failed();
  const uint32_t generation = header_->generation.load();
  if (header_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(ranks_)) {
    header_->arrived.store(0);
    header_->generation.fetch_add(1);
    futex_wake(header_->generation);
    return;
  }
  // A failure does not change the generation: it is seen at the latest after one nap.
  const timespec nap{0, 50'000'000};
  for (int naps = 0; header_->generation.load() == generation; ++naps) {
    check_failed();
    if (naps > barrier_seconds * 20) throw PerfError("a barrier of the ranks timed out");
    futex_wait(header_->generation, generation, nap);
  }
}

class SharedMemoryMember : public Team {
 public:
  SharedMemoryMember(SharedMemoryTeam& team, int rank) : team_(team), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return team_.ranks_; }
  int gpu() const override { return rank_; }
  void barrier() override { team_.barrier(); }
  void fail(const std::string& message) override { team_.fail(message); }

  void allgather(void* buffer, size_t bytes_per_rank) override {
    auto* bytes = static_cast<std::byte*>(buffer);
    for (size_t done = 0; done < bytes_per_rank; done += slot_bytes) {
      const size_t part = std::min(slot_bytes, bytes_per_rank - done);
      std::memcpy(team_.slot(rank_), bytes + rank_ * bytes_per_rank + done, part);
      team_.barrier();
      for (int r = 0; r < size(); ++r) std::memcpy(bytes + r * bytes_per_rank + done, team_.slot(r), part);
      team_.barrier();
    }
  }

  ucclEpResult_t init_communicator(ucclEpComm_t* comm, const ucclEpCommConfig_t& config) override {
    ucclEpUniqueId id = {};
    if (rank_ == 0) check(ucclEpGetUniqueId(&id), "ucclEpGetUniqueId");
    return ucclEpCommInitRank(comm, size(), gather(id)[0], rank_, &config);
  }

 private:
  SharedMemoryTeam& team_;
  int rank_;
};

std::unique_ptr<Team> SharedMemoryTeam::member(int rank) {
  return std::make_unique<SharedMemoryMember>(*this, rank);
}

}  // namespace ucclep::perf
