// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): how two sides prove to each other that they know a secret, which
// neither sends.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace ucclep {

using Mac = std::array<uint8_t, 32>;

Mac sha256(std::string_view text);
Mac hmac_sha256(std::string_view key, std::string_view text);

// Takes the same time wherever the first difference is.
bool same_mac(const Mac& a, const Mac& b) noexcept;

}  // namespace ucclep
