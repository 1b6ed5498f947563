// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/tensor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <initializer_list>
#include <string>

#include "refusal.hpp"

namespace {

using namespace ucclep;
using ucclep::test::refusal;

alignas(64) char memory[4096];

ucclEpTensor_t tensor(ucclEpDataType_t dtype, std::initializer_list<int64_t> sizes,
                      std::initializer_list<int64_t> strides = {}, void* data = memory) {
  ucclEpTensor_t made = UCCLEP_TENSOR_INIT;
  made.data = data;
  made.dtype = dtype;
  made.ndim = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), made.sizes);
  std::copy(strides.begin(), strides.end(), made.strides);
  return made;
}

TensorView view(const ucclEpTensor_t& made) {
  return required_tensor(&made, "inputs.tokens");
}

std::string refusal_of(const ucclEpTensor_t& made) {
  return refusal([&] { view(made); });
}
bool begins(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

}  // namespace

TEST_CASE("Every dtype has a size and a name; fp4 pairs count storage elements", "[tensor]") {
  const size_t bytes[] = {0, 2, 2, 4, 1, 1, 1, 1, 1, 4, 8};
  for (int i = 0; i <= 10; i++) CHECK(dtype_bytes(static_cast<ucclEpDataType_t>(i)) == bytes[i]);
  CHECK(std::string(dtype_name(ucclEpFloat4e2m1x2)) == "ucclEpFloat4e2m1x2");
  CHECK(std::string(dtype_name(ucclEpInt64)) == "ucclEpInt64");
  const ucclEpTensor_t packed = tensor(ucclEpFloat4e2m1x2, {3, 64});
  CHECK(view(packed).end_byte() == 3 * 64);
}

TEST_CASE("A required tensor that is NULL is refused by name, an optional one passes every check", "[tensor]") {
  CHECK(refusal([] { required_tensor(nullptr, "inputs.tokens"); }) == "inputs.tokens is NULL, expected a tensor");
  const TensorView none = optional_tensor(nullptr, "inputs.scales");
  CHECK_FALSE(none.given());
  CHECK_NOTHROW(none.dtype({ucclEpInt32}).shape({exactly(3, "")}).token_rows().adjacent_elements().no_overlap());
}

TEST_CASE("A descriptor with a wrong magic, dtype, ndim or negative size is refused", "[tensor]") {
  ucclEpTensor_t made = tensor(ucclEpBfloat16, {4, 8});
  made.magic = 0;
  CHECK(begins(refusal_of(made), "inputs.tokens.magic is 0x0, expected 0x55450001"));
  CHECK(refusal_of(tensor(ucclEpNoDataType, {4, 8})) ==
        "inputs.tokens.dtype is 0 (ucclEpNoDataType), expected one of ucclEpDataType_t");
  made = tensor(ucclEpBfloat16, {4, 8});
  const int unknown = 11;
  std::memcpy(&made.dtype, &unknown, sizeof(unknown));
  CHECK(begins(refusal_of(made), "inputs.tokens.dtype is 11 (an unknown dtype)"));
  CHECK(refusal_of(tensor(ucclEpBfloat16, {})) == "inputs.tokens.ndim is 0, expected 1 to 4");
  made = tensor(ucclEpBfloat16, {4, 8});
  made.ndim = 5;
  CHECK(refusal_of(made) == "inputs.tokens.ndim is 5, expected 1 to 4");
  CHECK(refusal_of(tensor(ucclEpBfloat16, {4, -8})) == "inputs.tokens.sizes[1] is -8, expected 0 or more");
}

TEST_CASE("Strides that are all zero mean contiguous", "[tensor]") {
  const TensorView made = view(tensor(ucclEpFloat32, {2, 3, 4}));
  CHECK(made.contiguous());
  CHECK(made.count() == 24);
  CHECK(made.stride(0) == 12);
  CHECK(made.stride(1) == 4);
  CHECK(made.stride(2) == 1);
  CHECK(made.stride_bytes(1) == 16);
  CHECK(made.first_byte() == 0);
  CHECK(made.end_byte() == 96);
}

TEST_CASE("Strides are taken as given, column-major and negative ones too", "[tensor]") {
  const TensorView columns = view(tensor(ucclEpFloat32, {5, 3}, {1, 8}));
  CHECK_FALSE(columns.contiguous());
  CHECK(columns.end_byte() == (4 + 2 * 8 + 1) * 4);
  const TensorView backwards = view(tensor(ucclEpFloat32, {5}, {-2}, memory + 512));
  CHECK(backwards.first_byte() == -32);
  CHECK(backwards.end_byte() == 4);
}

TEST_CASE("The stride of a dimension of one element does not matter", "[tensor]") {
  const TensorView one = view(tensor(ucclEpBfloat16, {1, 8}, {3, 1}));
  CHECK(one.contiguous());
  CHECK_NOTHROW(one.token_rows().no_overlap());
  CHECK_NOTHROW(view(tensor(ucclEpInt64, {5, 1}, {1, 7})).adjacent_elements());
}

TEST_CASE("Data is aligned to its element, and NULL only when there is none", "[tensor]") {
  CHECK(begins(refusal_of(tensor(ucclEpFloat32, {4}, {}, memory + 2)), "inputs.tokens.data is 0x"));
  CHECK(refusal_of(tensor(ucclEpUint8, {4}, {}, memory + 1)) == "accepted");
  CHECK(refusal_of(tensor(ucclEpFloat32, {4, 2}, {}, nullptr)) ==
        "inputs.tokens.data is NULL, but the tensor has 8 elements");
  const TensorView empty = view(tensor(ucclEpBfloat16, {0, 8}, {}, nullptr));
  CHECK(empty.given());
  CHECK(empty.empty());
  CHECK(empty.end_byte() == 0);
  CHECK_NOTHROW(empty.shape({at_most(4, ""), exactly(8, "")}).token_rows().no_overlap());
}

TEST_CASE("Sizes and strides that overflow 64 bits are refused", "[tensor]") {
  const std::string message = "inputs.tokens has sizes and strides that span 2^63 bytes or more";
  CHECK(refusal_of(tensor(ucclEpInt64, {int64_t{1} << 31, int64_t{1} << 32})) == message);
  CHECK(refusal_of(tensor(ucclEpInt64, {int64_t{1} << 60})) == message);
  CHECK(refusal_of(tensor(ucclEpInt64, {2}, {INT64_MAX})) == message);
  CHECK(refusal_of(tensor(ucclEpUint8, {2}, {INT64_MIN})) == message);
  CHECK(refusal_of(tensor(ucclEpUint8, {2, 2}, {INT64_MAX / 2 + 1, INT64_MAX / 2 + 1})) == message);
  CHECK(refusal_of(tensor(ucclEpUint8, {2, 2}, {INT64_MAX / 4, -INT64_MAX / 4})) == "accepted");
}

TEST_CASE("A dtype that a call does not take is refused with those that it takes", "[tensor]") {
  const TensorView made = view(tensor(ucclEpInt32, {4}));
  CHECK_NOTHROW(made.dtype({ucclEpInt64, ucclEpInt32}));
  CHECK(refusal([&] { made.dtype({ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32}); }) ==
        "inputs.tokens.dtype is ucclEpInt32, expected ucclEpBfloat16, ucclEpFloat16 or ucclEpFloat32");
  CHECK(refusal([&] { made.dtype({ucclEpFloat8e4m3}, "quant is UCCLEP_QUANT_FP8_128"); }) ==
        "inputs.tokens.dtype is ucclEpInt32, expected ucclEpFloat8e4m3 (quant is UCCLEP_QUANT_FP8_128)");
}

TEST_CASE("A shape is refused with index, value, expectation and reason", "[tensor]") {
  const TensorView made = view(tensor(ucclEpBfloat16, {4, 80}));
  CHECK_NOTHROW(made.shape({at_most(4, ""), any_size()}));
  CHECK_NOTHROW(made.shape({at_least(4, ""), exactly(80, "")}));
  CHECK(refusal([&] { made.shape({any_size(), exactly(72, "hidden of inputs.tokens")}); }) ==
        "inputs.tokens.sizes[1] is 80, expected 72 (hidden of inputs.tokens)");
  CHECK(refusal([&] { made.shape({at_most(3, "max_tokens_per_rank"), any_size()}); }) ==
        "inputs.tokens.sizes[0] is 4, expected at most 3 (max_tokens_per_rank)");
  CHECK(refusal([&] { made.shape({at_least(5, "rows received"), any_size()}); }) ==
        "inputs.tokens.sizes[0] is 4, expected at least 5 (rows received)");
  CHECK(refusal([&] { made.shape({exactly(4, "")}); }) == "inputs.tokens.ndim is 2, expected 1");
  CHECK(refusal([&] { made.dims(3); }) == "inputs.tokens.ndim is 2, expected 3");
}

TEST_CASE("Token rows are adjacent elements at multiples of 16 bytes", "[tensor]") {
  CHECK_NOTHROW(view(tensor(ucclEpBfloat16, {4, 8})).token_rows());
  CHECK_NOTHROW(view(tensor(ucclEpBfloat16, {2, 4, 8}, {64, 16, 1})).token_rows());
  CHECK_NOTHROW(view(tensor(ucclEpUint8, {4, 16}, {}, memory + 16)).token_rows());
  const auto refused = [](const ucclEpTensor_t& made) { return refusal([&] { view(made).token_rows(); }); };
  CHECK(refused(tensor(ucclEpBfloat16, {4, 12})) ==
        "inputs.tokens.sizes[1] is 12, 24 bytes a row, expected a multiple of 16 bytes");
  CHECK(refused(tensor(ucclEpBfloat16, {0, 12}, {}, nullptr)) ==
        "inputs.tokens.sizes[1] is 12, 24 bytes a row, expected a multiple of 16 bytes");
  CHECK(refused(tensor(ucclEpBfloat16, {4, 8}, {12, 1})) ==
        "inputs.tokens.strides[0] is 12, 24 bytes, expected a multiple of 16 bytes");
  CHECK(refused(tensor(ucclEpBfloat16, {4, 8}, {1, 4})) ==
        "inputs.tokens.strides[1] is 4, expected 1 (the last dimension has to be adjacent in memory)");
  const std::string misaligned = refused(tensor(ucclEpBfloat16, {4, 8}, {}, memory + 8));
  CHECK(begins(misaligned, "inputs.tokens.data is 0x"));
  CHECK(misaligned.find("expected a multiple of 16 bytes") != std::string::npos);
}

TEST_CASE("Index, weight and counter tensors have adjacent elements", "[tensor]") {
  CHECK_NOTHROW(view(tensor(ucclEpInt64, {4, 2}, {9, 1})).adjacent_elements());
  CHECK(refusal([&] { view(tensor(ucclEpInt32, {4}, {2})).adjacent_elements(); }) ==
        "inputs.tokens.strides[0] is 2, expected 1 (the last dimension has to be adjacent in memory)");
}

TEST_CASE("Elements of an output do not share memory", "[tensor]") {
  CHECK_NOTHROW(view(tensor(ucclEpFloat32, {5, 3}, {1, 5})).no_overlap());
  CHECK_NOTHROW(view(tensor(ucclEpFloat32, {5, 3}, {-1, 5}, memory + 64)).no_overlap());
  CHECK(begins(refusal([] { view(tensor(ucclEpFloat32, {5, 3}, {1, 4})).no_overlap(); }),
               "inputs.tokens.strides[1] is 4, expected at least 5 (elements of an output share memory)"));
  CHECK(begins(refusal([] { view(tensor(ucclEpFloat32, {5, 3}, {0, 1})).no_overlap(); }),
               "inputs.tokens.strides[0] is 0"));
}
