// SPDX-License-Identifier: Apache-2.0
#include "topology/discover.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/node.hpp"
#include "topology/hwloc_xml.hpp"
#include "topology/machine_xml.hpp"
#include "topology/sysfs.hpp"

namespace ucclep::topology {
namespace {

constexpr size_t size_limit = size_t{16} << 20;  // a machine with 4096 CPUs takes 3 MiB

[[noreturn]] void refuse_unreadable(const std::string& path) {
  fail(ucclEpInvalidArgument, "cannot read the topology file {}: {}", path, errno_text(errno));
}

std::string text_of(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block
  struct stat status = {};
  if (!file || fstat(file.get(), &status) != 0) refuse_unreadable(path);
  if (!S_ISREG(status.st_mode)) fail(ucclEpInvalidArgument, "the topology file {} is not a regular file", path);
  if (status.st_size > static_cast<off_t>(size_limit)) {
    fail(ucclEpInvalidArgument, "the topology file {} has {} bytes, expected at most {}", path, status.st_size,
         size_limit);
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(file.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_unreadable(path);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace

Machine discover() {
  Machine machine = machine_from_xml(hwloc_xml(), "hwloc's XML of this machine");
  machine.name = host_name();
  add_what_sysfs_knows(machine);
  return machine;
}

Machine discover_without_hwloc() {
  Machine machine;
  machine.name = host_name();
  NumaNode& all = machine.numa_nodes.emplace_back();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);  // fails beyond CPU_SETSIZE CPUs: then none is known
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) all.cores.push_back({cpu});
  }
  add_what_sysfs_knows(machine);
  return machine;
}

Machine read_topology_file(const std::string& path) {
  Machine machine = machine_from_xml(text_of(path), "the topology file " + path);
  if (machine.name.empty()) machine.name = path;
  return machine;
}

}  // namespace ucclep::topology
