// SPDX-License-Identifier: Apache-2.0
#include "base/token.hpp"

#include <sys/random.h>

#include <cerrno>

#include "base/error.hpp"

namespace ucclep {

Token Token::random() {
  Token token;
  size_t have = 0;
  while (have < token.bytes.size()) {
    ssize_t got = getrandom(token.bytes.data() + have, token.bytes.size() - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      fail(ucclEpSystemError, "cannot generate random bytes: getrandom: {}", errno_text(errno));
    }
  }
  return token;
}

std::string Token::hex() const {
  std::string text;
  for (uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool same_secret(const Token& a, const Token& b) noexcept {
  unsigned difference = 0;
  for (size_t i = 0; i < a.bytes.size(); ++i) difference |= static_cast<unsigned>(a.bytes[i] ^ b.bytes[i]);
  return difference == 0;
}

}  // namespace ucclep
