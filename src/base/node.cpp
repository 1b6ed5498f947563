// SPDX-License-Identifier: Apache-2.0
#include "base/node.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"

namespace ucclep {

NodeId this_node() {
  NodeId id;
  Fd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file && (errno == EMFILE || errno == ENFILE)) {
    fail(ucclEpSystemError, "cannot identify this machine: {}", errno_text(errno));
  }
  // Without /proc this process cannot know whom it shares a kernel with: many machines have the same name.
  if (!file || read(file.get(), id.boot_id.data(), id.boot_id.size() - 1) <= 0) {
    this_process().hex().copy(id.boot_id.data(), id.boot_id.size() - 1);
  }
  struct stat status = {};
  if (stat("/proc/self/ns/net", &status) == 0) id.network_namespace = status.st_ino;
  return id;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Token this_process() {
  struct Name {
    const Token token = Token::random();
  };
  constinit static PerProcess<Name> name;
  return name.get().token;
}

}  // namespace ucclep
