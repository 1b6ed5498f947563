// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "base/error.hpp"

namespace ucclep {
namespace {

struct PrivateDescriptors {
  std::mutex mutex;
  std::vector<int> fds;

  static PrivateDescriptors& instance();

  PrivateDescriptors() {
    // The lock is held over the fork, so that the child finds a consistent list.
    pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                   [] {
                     for (int fd : instance().fds) ::close(fd);
                     instance().fds.clear();
                     instance().mutex.unlock();
                   });
  }

  void add(int fd) {
    std::lock_guard lock(mutex);
    fds.push_back(fd);
  }

  // False in a child: the descriptor is closed already, and its number may be someone else's.
  bool remove(int fd) {
    std::lock_guard lock(mutex);
    auto found = std::find(fds.begin(), fds.end(), fd);
    if (found == fds.end()) return false;
    *found = fds.back();
    fds.pop_back();
    return true;
  }
};

// Never destroyed: threads of the library may still close descriptors while the process exits.
PrivateDescriptors& private_descriptors = *new PrivateDescriptors;

PrivateDescriptors& PrivateDescriptors::instance() {
  return private_descriptors;
}

}  // namespace

int Fd::move_up(int fd) noexcept {
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, last_standard + 1);
  if (higher < 0) return fd;
  ::close(fd);
  return higher;
}

Fd Fd::process_private(int fd) {
  Fd owner(fd);
  if (owner) {
    PrivateDescriptors::instance().add(owner.get());
    owner.private_ = true;
  }
  return owner;
}

int Fd::release() noexcept {
  if (std::exchange(private_, false) && !PrivateDescriptors::instance().remove(fd_)) fd_ = -1;
  return std::exchange(fd_, -1);
}

void Fd::reset() noexcept {
  int fd = release();
  if (fd >= 0) ::close(fd);
}

Fd open_to_append(const std::string& name) {
  return Fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600));
}

std::string why_not_opened(int error) {
  if (error == ELOOP) return "it is a symbolic link, and symbolic links are not followed";
  if (error == ENXIO) return "it is a pipe without a reader";
  return errno_text(error);
}

}  // namespace ucclep
