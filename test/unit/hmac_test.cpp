// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

using namespace ucclep;

namespace {

std::string hex(const Mac& mac) {
  std::string text;
  for (const uint8_t byte : mac) text += fmt::format("{:02x}", byte);
  return text;
}

std::string bytes(size_t count, int value) {
  return std::string(count, static_cast<char>(value));
}

}  // namespace

// FIPS 180-4's examples, and NIST's CAVP vectors of byte-oriented messages (SHA256ShortMsg, SHA256LongMsg).
TEST_CASE("SHA-256 has the values that NIST gives") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
                   "pqrstnopqrstu")) == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(hex(sha256("\xd3")) == "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
  CHECK(hex(sha256(bytes(1000000, 'a'))) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("HMAC-SHA-256 has the values of RFC 4231") {
  const auto mac = [](const std::string& key, const std::string& text) { return hex(hmac_sha256(key, text)); };
  CHECK(mac(bytes(20, 0x0b), "Hi There") == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(mac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(mac(bytes(20, 0xaa), bytes(50, 0xdd)) == "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counted;
  for (int byte = 1; byte <= 25; ++byte) counted += static_cast<char>(byte);
  CHECK(mac(counted, bytes(50, 0xcd)) == "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(mac(bytes(20, 0x0c), "Test With Truncation").substr(0, 32) == "a3b6167473100ee06e0c796c2955552b");
  CHECK(mac(bytes(131, 0xaa), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(mac(bytes(131, 0xaa),
            "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
            "hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("proofs are equal only in every bit") {
  const Mac mac = hmac_sha256("key", "text");
  CHECK(same_mac(mac, hmac_sha256("key", "text")));
  for (size_t at : {0, 15, 31}) {
    Mac other = mac;
    other[at] ^= 0x80;
    CHECK_FALSE(same_mac(mac, other));
  }
}
