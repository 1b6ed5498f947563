// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"

#include <libtomcrypt/sha256.h>

#include <algorithm>

namespace ucclep {
namespace {

class Hash {
 public:
  Hash() { tomcrypt_sha256_init(&state_); }
  Hash& add(const void* data, size_t bytes) {
    tomcrypt_sha256_process(&state_, static_cast<const unsigned char*>(data), bytes);
    return *this;
  }
  Mac end() {
    Mac digest;
    tomcrypt_sha256_done(&state_, digest.data());
    return digest;
  }

 private:
  tomcrypt_sha256_state state_;
};

}  // namespace

Mac sha256(std::string_view text) {
  return Hash().add(text.data(), text.size()).end();
}

Mac hmac_sha256(std::string_view key, std::string_view text) {
  std::array<uint8_t, 64> inner{};  // the key, made as long as a block of the hash
  if (key.size() > inner.size()) {
    const Mac digest = sha256(key);
    std::copy(digest.begin(), digest.end(), inner.begin());
  } else {
    std::copy(key.begin(), key.end(), inner.begin());
  }
  std::array<uint8_t, 64> outer = inner;
  for (uint8_t& byte : inner) byte ^= 0x36;
  for (uint8_t& byte : outer) byte ^= 0x5c;
  const Mac digest = Hash().add(inner.data(), inner.size()).add(text.data(), text.size()).end();
  return Hash().add(outer.data(), outer.size()).add(digest.data(), digest.size()).end();
}

bool same_mac(const Mac& a, const Mac& b) noexcept {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace ucclep
