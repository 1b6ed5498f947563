// SPDX-License-Identifier: Apache-2.0
#include "topology/discover.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/node.hpp"
#include "topology/hwloc_xml.hpp"
#include "topology/machine_xml.hpp"
#include "topology/sysfs.hpp"

namespace ucclep::topology {
namespace {

constexpr size_t size_limit = size_t{16} << 20;  // a machine with 4096 CPUs takes 3 MiB

void apply(const std::vector<LinkedGpu>& linked, Machine& machine) {
  for (const LinkedGpu& given : linked) {
    const auto gpu = std::ranges::find(machine.gpus, given.gpu, [](const Gpu& g) { return g.place.address; });
    if (gpu != machine.gpus.end()) gpu->links = given.links;
  }
}

[[noreturn]] void refuse_unreadable(const std::string& path) {
  fail(ucclEpInvalidArgument, "the topology file {} cannot be read: {}", path, std::strerror(errno));
}

std::string text_of(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0) refuse_unreadable(path);
  if (!S_ISREG(status.st_mode)) fail(ucclEpInvalidArgument, "the topology file {} is no regular file", path);
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

Machine discover(const std::vector<LinkedGpu>& linked) {
  Machine machine = machine_from_xml(hwloc_xml(), "what hwloc says of this machine");
  machine.name = host_name();
  add_what_sysfs_knows(machine);
  apply(linked, machine);
  return machine;
}

Machine read_topology_file(const std::string& path, const std::vector<LinkedGpu>& linked) {
  Machine machine = machine_from_xml(text_of(path), "the topology file " + path);
  if (machine.name.empty()) machine.name = path;
  apply(linked, machine);
  return machine;
}

}  // namespace ucclep::topology
