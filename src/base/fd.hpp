// SPDX-License-Identifier: Apache-2.0
// A file descriptor with an owner. Every descriptor of the library is close-on-exec; those marked process_private are
// also closed in a child that forks without exec, because a child that keeps a rank's socket open hides the rank's
// death. None has the number of standard input, output or error: where a program has closed these, what it prints must
// not go to a rank.
#pragma once
#include <string>
#include <utility>

namespace ucclep {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd <= last_standard && fd >= 0 ? move_up(fd) : fd) {}
  static Fd process_private(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), private_(std::exchange(other.private_, false)) {}
  Fd& operator=(Fd&& other) noexcept {
    Fd old(std::move(*this));
    fd_ = std::exchange(other.fd_, -1);
    private_ = std::exchange(other.private_, false);
    return *this;
  }
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept;  // the caller closes it
  void reset() noexcept;

 private:
  static constexpr int last_standard = 2;
  static int move_up(int fd) noexcept;  // as it is where no other number is free
  int fd_ = -1;
  bool private_ = false;
};

// A file to which the library writes, at its end, for this user's eyes only. No link is followed to another file, and
// not even for a reader of a pipe does anybody wait. Empty: it cannot be opened, and errno says why.
Fd open_to_append(const std::string& name);
std::string why_not_opened(int error);  // in words

}  // namespace ucclep
