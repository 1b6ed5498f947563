// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/structs.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "refusal.hpp"

namespace {

// A struct in its third form: released with `a`, grown by `b`, then by `c`.
struct Grown {
  unsigned size, magic;
  int a;
  int b;
  int64_t c;
};
constexpr unsigned grown_magic = 0x12340001;
constexpr unsigned first_form = 12, second_form = 16;

}  // namespace

template <>
inline constexpr ucclep::StructInfo ucclep::struct_info<Grown>{"GROWN_INIT", grown_magic, first_form};

namespace {

using ucclep::read_struct;
using ucclep::write_struct;
using ucclep::test::refusal;

// A caller's struct in memory of exactly `size` bytes, so that a sanitizer sees a read beyond it.
template <class T>
class Sized {
 public:
  explicit Sized(size_t size, unsigned char fill = 0) : bytes_(new unsigned char[size]), size_(size) {
    std::memset(bytes_.get(), fill, size);
    const unsigned head[] = {static_cast<unsigned>(size), ucclep::struct_info<T>.magic};
    std::memcpy(bytes_.get(), head, sizeof(head));
  }
  T* get() { return reinterpret_cast<T*>(bytes_.get()); }
  unsigned char& operator[](size_t i) { return bytes_[i]; }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<unsigned char[]> bytes_;
  size_t size_;
};

template <class T>
void check_first_form(size_t first = sizeof(T)) {
  CHECK(ucclep::struct_info<T>.first_bytes == first);
}

}  // namespace

TEST_CASE("C50 the first released sizes stay", "[structs]") {
  check_first_form<ucclEpTensor_t>();
  check_first_form<ucclEpCommConfig_t>();
  check_first_form<ucclEpBootstrap_t>();
  check_first_form<ucclEpCommInfo_t>();
  check_first_form<ucclEpAsyncError_t>();
  check_first_form<ucclEpStats_t>();
  check_first_form<ucclEpGroupConfig_t>(96);
  check_first_form<ucclEpGroupLimits_t>(72);
  check_first_form<ucclEpHandleConfig_t>(32);
  check_first_form<ucclEpCounters_t>();
  check_first_form<ucclEpRoutingCounts_t>(32);
  check_first_form<ucclEpDispatchInputs_t>();
  check_first_form<ucclEpDispatchOutputs_t>();
  check_first_form<ucclEpCombineInputs_t>();
  check_first_form<ucclEpCombineOutputs_t>();
  check_first_form<ucclEpDispatchConfig_t>();
  check_first_form<ucclEpCombineConfig_t>(20);
  check_first_form<ucclEpTiles_t>();
}

TEST_CASE("A NULL config or counters struct means its INIT value", "[structs]") {
  CHECK(read_struct<ucclEpCommConfig_t>(nullptr, "config").device_index == UCCLEP_DEVICE_INDEX_CURRENT);
  CHECK(read_struct<ucclEpGroupConfig_t>(nullptr, "config").num_experts == 0);
  CHECK(read_struct<ucclEpHandleConfig_t>(nullptr, "config").layout == 0);
  CHECK(read_struct<ucclEpDispatchConfig_t>(nullptr, "config").size == sizeof(ucclEpDispatchConfig_t));
  CHECK(read_struct<ucclEpCombineConfig_t>(nullptr, "config").magic == UCCLEP_COMBINE_CONFIG_MAGIC);
  CHECK(read_struct<ucclEpCounters_t>(nullptr, "counters").recv_total == nullptr);
  CHECK_NOTHROW(ucclep::check_magic<ucclEpCounters_t>(nullptr, "counters"));
}

TEST_CASE("A NULL struct of any other kind is refused by name", "[structs]") {
  CHECK(refusal([] { read_struct<ucclEpDispatchInputs_t>(nullptr, "inputs"); }) ==
        "inputs is NULL, expected a struct made by UCCLEP_DISPATCH_INPUTS_INIT");
  CHECK(refusal([] { ucclep::check_magic<ucclEpDispatchOutputs_t>(nullptr, "outputs"); }).rfind("outputs is NULL", 0) ==
        0);
  CHECK(refusal([] { read_struct<ucclEpBootstrap_t>(nullptr, "bootstrap"); }).rfind("bootstrap is NULL", 0) == 0);
  CHECK(refusal([] { read_struct<ucclEpRoutingCounts_t>(nullptr, "out"); }).rfind("out is NULL", 0) == 0);
  CHECK(refusal([] { ucclep::check_out_struct<ucclEpCommInfo_t>(nullptr, "info"); }).rfind("info is NULL", 0) == 0);
}

TEST_CASE("Fields are copied as they are", "[structs]") {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.num_experts = 256;
  config.max_token_bytes = int64_t{1} << 40;
  config.nranks = 8;
  const ucclEpGroupConfig_t copy = read_struct(&config, "config");
  CHECK(copy.num_experts == 256);
  CHECK(copy.max_token_bytes == int64_t{1} << 40);
  CHECK(copy.nranks == 8);
}

TEST_CASE("C51 a wrong magic is refused, whatever the size says", "[structs]") {
  ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
  config.magic = UCCLEP_TENSOR_MAGIC;
  CHECK(refusal([&] { read_struct(&config, "config"); }) ==
        "config.magic is 0x55450001, expected 0x55450007 (initialise the struct with UCCLEP_GROUP_CONFIG_INIT)");
  config.magic = 0;
  config.size = 0;
  CHECK(refusal([&] { read_struct(&config, "config"); }).rfind("config.magic is 0x0", 0) == 0);
  CHECK(refusal([&] { ucclep::check_magic(&config, "config"); }).rfind("config.magic is 0x0", 0) == 0);
}

TEST_CASE("C51 a struct smaller than its first released form is refused, one byte is enough", "[structs]") {
  Sized<Grown> caller(first_form - 1);
  CHECK(refusal([&] { read_struct(caller.get(), "grown"); }) ==
        "grown.size is 11, expected at least 12 and at most 65536 (initialise the struct with GROWN_INIT)");
  CHECK_NOTHROW(ucclep::check_magic(caller.get(), "grown"));  // a bad argument, not one that fails alone
  CHECK(refusal([&] { write_struct(caller.get(), Grown{}, "grown"); }) != "accepted");
}

TEST_CASE("A size that no struct has is refused without reading that far", "[structs]") {
  Sized<Grown> caller(sizeof(Grown));
  const unsigned size = ~0u;
  std::memcpy(&caller[0], &size, sizeof(size));
  CHECK(refusal([&] { read_struct(caller.get(), "grown"); }).rfind("grown.size is 4294967295, ", 0) == 0);
}

TEST_CASE("C51 a struct between its first and today's form is read as far as it goes", "[structs]") {
  for (const size_t size : {first_form, second_form}) {
    Sized<Grown> caller(size, 0x11);
    const Grown read = read_struct(caller.get(), "grown");
    CHECK(read.size == sizeof(Grown));
    CHECK(read.magic == grown_magic);
    CHECK(read.a == 0x11111111);
    CHECK(read.b == (size == second_form ? 0x11111111 : 0));
    CHECK(read.c == 0);
  }
}

TEST_CASE("C51 a larger struct is accepted when its unknown tail is zero", "[structs]") {
  Sized<Grown> caller(sizeof(Grown) + 24);
  caller[8] = 5;
  CHECK(read_struct(caller.get(), "grown").a == 5);
  for (const size_t at : {sizeof(Grown), sizeof(Grown) + 23}) {
    caller[at] = 1;
    CHECK(refusal([&] { read_struct(caller.get(), "grown"); }) ==
          "grown has a field at byte " + std::to_string(at) +
              " that this libucclep does not know, and it is not zero (grown.size is 48, 24 bytes are known): the "
              "program was built for a newer version");
    caller[at] = 0;
  }
}

TEST_CASE("A struct is written up to the caller's size, which stays as it was", "[structs]") {
  const Grown value{sizeof(Grown), grown_magic, 1, 2, 3};
  SECTION("an older caller") {
    Sized<Grown> caller(first_form, 0xee);
    write_struct(caller.get(), value, "grown");
    Grown seen{};  // the caller's memory is too small for a Grown
    std::memcpy(&seen, caller.get(), first_form);
    CHECK(seen.size == first_form);
    CHECK(seen.magic == grown_magic);
    CHECK(seen.a == 1);
  }
  SECTION("what lies behind an older caller's struct stays") {
    Sized<Grown> caller(sizeof(Grown), 0xee);
    caller.get()->size = first_form;
    write_struct(caller.get(), value, "grown");
    CHECK(caller.get()->a == 1);
    for (size_t i = first_form; i < caller.size(); i++) CHECK(caller[i] == 0xee);
  }
  SECTION("a caller of today") {
    Sized<Grown> caller(sizeof(Grown), 0xee);
    write_struct(caller.get(), value, "grown");
    CHECK(caller.get()->size == sizeof(Grown));
    CHECK(caller.get()->b == 2);
    CHECK(caller.get()->c == 3);
  }
  SECTION("a newer caller") {
    Sized<Grown> caller(sizeof(Grown) + 8);
    write_struct(caller.get(), value, "grown");
    CHECK(caller.get()->size == sizeof(Grown) + 8);
    CHECK(caller.get()->c == 3);
    for (size_t i = sizeof(Grown); i < caller.size(); i++) CHECK(caller[i] == 0);
  }
}
