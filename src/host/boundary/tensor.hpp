// SPDX-License-Identifier: Apache-2.0
// A caller's tensor, checked. Reading it checks the descriptor alone; what a call asks of it is said in a chain:
//
//   TensorView tokens = required_tensor(inputs.tokens, "inputs.tokens")
//                           .dtype({ucclEpBfloat16, ucclEpFloat16, ucclEpFloat32})
//                           .shape({at_most(b, "max_tokens_per_rank"), exactly(h, "hidden of this operation")})
//                           .token_rows();
//
// Each check returns the view, or throws ucclEpInvalidArgument with an error message that names the field, its value
// and what was expected. A tensor that was not given (optional_tensor of NULL) passes every check.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "ucclep/ucclep.h"

namespace ucclep {

size_t dtype_bytes(ucclEpDataType_t dtype) noexcept;      // of a storage element; 0 for a value that is no dtype
const char* dtype_name(ucclEpDataType_t dtype) noexcept;  // "ucclEpBfloat16"; "an unknown dtype"

// What the size of one dimension has to be, and why: the reason stands in the message.
struct SizeRule {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  std::string_view reason;
};
constexpr SizeRule exactly(int64_t size, std::string_view reason) {
  return {size, size, reason};
}
constexpr SizeRule at_least(int64_t size, std::string_view reason) {
  return {size, INT64_MAX, reason};
}
constexpr SizeRule at_most(int64_t size, std::string_view reason) {
  return {0, size, reason};
}
constexpr SizeRule any_size() {
  return {};
}

class TensorView {
 public:
  static constexpr int max_dims = 4;

  TensorView() = default;  // a tensor that was not given

  bool given() const { return ndim_ != 0; }
  const char* name() const { return name_; }
  void* data() const { return data_; }  // of element (0, 0, ..); may be NULL when empty
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  ucclEpDataType_t dtype() const { return dtype_; }
  size_t element_bytes() const { return dtype_bytes(dtype_); }
  int ndim() const { return ndim_; }
  int64_t size(int dim) const { return sizes_[at(dim)]; }
  // In elements; of a dimension with at most one element it is what a contiguous tensor would have.
  int64_t stride(int dim) const { return strides_[at(dim)]; }
  int64_t stride_bytes(int dim) const { return stride(dim) * static_cast<int64_t>(element_bytes()); }
  int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool contiguous() const;
  // The memory that elements lie in, as offsets from data(): [first_byte(), end_byte()).
  int64_t first_byte() const { return first_byte_; }
  int64_t end_byte() const { return end_byte_; }

  const TensorView& dtype(std::initializer_list<ucclEpDataType_t> allowed, std::string_view reason = {}) const;
  const TensorView& dims(int expected) const;
  const TensorView& shape(std::initializer_list<SizeRule> rules) const;  // dims() too
  // A token or bias tensor: elements of a row adjacent; address, row bytes and the other strides multiples of 16 bytes.
  const TensorView& token_rows() const;
  // An index, weight or counter tensor: elements of the last dimension adjacent.
  const TensorView& adjacent_elements() const;
  // An output: no two elements share memory.
  const TensorView& no_overlap() const;

 private:
  friend TensorView optional_tensor(const ucclEpTensor_t* tensor, const char* name);
  static size_t at(int dim) { return static_cast<size_t>(dim); }
  void set_strides(const ucclEpTensor_t& tensor);
  void set_extent();
  void check_data() const;

  const char* name_ = "";
  void* data_ = nullptr;
  ucclEpDataType_t dtype_ = ucclEpNoDataType;
  int ndim_ = 0;
  std::array<int64_t, max_dims> sizes_{};
  std::array<int64_t, max_dims> strides_{};
  int64_t count_ = 0;
  int64_t first_byte_ = 0;
  int64_t end_byte_ = 0;
};

// name: the argument's path in the call; it outlives the view.
TensorView required_tensor(const ucclEpTensor_t* tensor, const char* name);
TensorView optional_tensor(const ucclEpTensor_t* tensor, const char* name);

}  // namespace ucclep
