// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/tensor.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "host/boundary/structs.hpp"

namespace ucclep {
namespace {

constexpr int64_t row_alignment = 16;

struct Dtype {
  const char* name;
  size_t bytes;
};
// Indexed by ucclEpDataType_t.
constexpr Dtype dtypes[] = {{"ucclEpNoDataType", 0}, {"ucclEpBfloat16", 2},     {"ucclEpFloat16", 2},
                            {"ucclEpFloat32", 4},    {"ucclEpFloat8e4m3", 1},   {"ucclEpFloat8e5m2", 1},
                            {"ucclEpFloat8e8m0", 1}, {"ucclEpFloat4e2m1x2", 1}, {"ucclEpUint8", 1},
                            {"ucclEpInt32", 4},      {"ucclEpInt64", 8}};

constexpr const char* unknown_dtype = "an unknown dtype";

const Dtype* find_dtype(int index) {
  return index >= 0 && index < static_cast<int>(std::size(dtypes)) ? &dtypes[index] : nullptr;
}

// " (reason)", or nothing.
std::string in_brackets(std::string_view reason) {
  return reason.empty() ? "" : fmt::format(" ({})", reason);
}

[[noreturn]] void fail_too_large(const char* name) {
  fail(ucclEpInvalidArgument, "{} has sizes and strides that span 2^63 bytes or more", name);
}

int64_t multiply(int64_t a, int64_t b, const char* name) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) fail_too_large(name);
  return product;
}

int64_t add(int64_t a, int64_t b, const char* name) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) fail_too_large(name);
  return sum;
}

}  // namespace

size_t dtype_bytes(ucclEpDataType_t dtype) noexcept {
  const Dtype* found = find_dtype(number_of(dtype));
  return found == nullptr ? 0 : found->bytes;
}

const char* dtype_name(ucclEpDataType_t dtype) noexcept {
  const Dtype* found = find_dtype(number_of(dtype));
  return found == nullptr ? unknown_dtype : found->name;
}

TensorView required_tensor(const ucclEpTensor_t* tensor, const char* name) {
  if (tensor == nullptr) fail(ucclEpInvalidArgument, "{} is NULL, expected a tensor", name);
  return optional_tensor(tensor, name);
}

TensorView optional_tensor(const ucclEpTensor_t* tensor, const char* name) {
  TensorView view;
  view.name_ = name;
  if (tensor == nullptr) return view;
  const ucclEpTensor_t copy = read_struct(tensor, name);
  const int dtype = number_of(copy.dtype);
  const Dtype* const known = find_dtype(dtype);
  if (known == nullptr || known->bytes == 0) {
    fail(ucclEpInvalidArgument, "{}.dtype is {} ({}), expected one of ucclEpDataType_t", name, dtype,
         known == nullptr ? unknown_dtype : known->name);
  }
  if (copy.ndim < 1 || copy.ndim > TensorView::max_dims) {
    fail(ucclEpInvalidArgument, "{}.ndim is {}, expected 1 to {}", name, copy.ndim, TensorView::max_dims);
  }
  view.data_ = copy.data;
  view.dtype_ = copy.dtype;
  view.ndim_ = copy.ndim;
  view.count_ = 1;
  for (int i = 0; i < copy.ndim; i++) {
    if (copy.sizes[i] < 0)
      fail(ucclEpInvalidArgument, "{}.sizes[{}] is {}, expected 0 or more", name, i, copy.sizes[i]);
    view.sizes_[view.at(i)] = copy.sizes[i];
  }
  if (std::find(copy.sizes, copy.sizes + copy.ndim, 0) != copy.sizes + copy.ndim) view.count_ = 0;
  for (int i = 0; i < copy.ndim; i++) view.count_ = multiply(view.count_, copy.sizes[i], name);
  view.set_strides(copy);
  view.set_extent();
  view.check_data();
  return view;
}

// A dimension with at most one element has no distance to speak of: frameworks put any value there.
void TensorView::set_strides(const ucclEpTensor_t& tensor) {
  const bool all_zero = std::all_of(tensor.strides, tensor.strides + ndim_, [](int64_t stride) { return stride == 0; });
  int64_t inner = 1;
  for (int i = ndim_ - 1; i >= 0; i--) {
    strides_[at(i)] = all_zero || size(i) <= 1 ? inner : tensor.strides[i];
    inner = multiply(strides_[at(i)], std::max<int64_t>(size(i), 1), name_);
  }
}

// Afterwards no sum or product of sizes and strides, in elements or bytes, can overflow.
void TensorView::set_extent() {
  if (empty()) return;
  int64_t span = static_cast<int64_t>(element_bytes());
  end_byte_ = span;
  for (int i = 0; i < ndim_; i++) {
    if (stride(i) == INT64_MIN) fail_too_large(name_);
    const int64_t distance = multiply(size(i) - 1, stride(i) < 0 ? -stride(i) : stride(i), name_);
    const int64_t reach = multiply(distance, static_cast<int64_t>(element_bytes()), name_);
    span = add(span, reach, name_);
    if (stride(i) < 0) {
      first_byte_ -= reach;
    } else {
      end_byte_ += reach;
    }
  }
}

void TensorView::check_data() const {
  if (empty()) return;
  if (data_ == nullptr) fail(ucclEpInvalidArgument, "{}.data is NULL, but the tensor has {} elements", name_, count_);
  if (reinterpret_cast<uintptr_t>(data_) % element_bytes() != 0) {
    fail(ucclEpInvalidArgument, "{}.data is {}, expected a multiple of {} bytes (the size of {})", name_,
         fmt::ptr(data_), element_bytes(), dtype_name(dtype_));
  }
}

bool TensorView::contiguous() const {
  int64_t inner = 1;
  for (int i = ndim_ - 1; i >= 0; i--) {
    if (stride(i) != inner && !empty()) return false;
    inner *= std::max<int64_t>(size(i), 1);
  }
  return true;
}

const TensorView& TensorView::dtype(std::initializer_list<ucclEpDataType_t> allowed, std::string_view reason) const {
  if (!given() || std::find(allowed.begin(), allowed.end(), dtype_) != allowed.end()) return *this;
  std::string names;
  for (auto it = allowed.begin(); it != allowed.end(); ++it) {
    if (it != allowed.begin()) names += it + 1 == allowed.end() ? " or " : ", ";
    names += dtype_name(*it);
  }
  fail(ucclEpInvalidArgument, "{}.dtype is {}, expected {}{}", name_, dtype_name(dtype_), names, in_brackets(reason));
}

const TensorView& TensorView::dims(int expected) const {
  if (given() && ndim_ != expected) fail(ucclEpInvalidArgument, "{}.ndim is {}, expected {}", name_, ndim_, expected);
  return *this;
}

const TensorView& TensorView::shape(std::initializer_list<SizeRule> rules) const {
  if (!given()) return *this;
  dims(static_cast<int>(rules.size()));
  int i = 0;
  for (const SizeRule& rule : rules) {
    if (size(i) < rule.min || size(i) > rule.max) {
      const char* bound = rule.min == rule.max ? "" : size(i) < rule.min ? "at least " : "at most ";
      fail(ucclEpInvalidArgument, "{}.sizes[{}] is {}, expected {}{}{}", name_, i, size(i), bound,
           size(i) < rule.min ? rule.min : rule.max, in_brackets(rule.reason));
    }
    i++;
  }
  return *this;
}

const TensorView& TensorView::token_rows() const {
  if (!given()) return *this;
  adjacent_elements();
  const int64_t row_bytes = multiply(size(ndim_ - 1), static_cast<int64_t>(element_bytes()), name_);
  if (row_bytes % row_alignment != 0) {
    fail(ucclEpInvalidArgument, "{}.sizes[{}] is {}, {} bytes a row, expected a multiple of {} bytes", name_, ndim_ - 1,
         size(ndim_ - 1), row_bytes, row_alignment);
  }
  if (empty()) return *this;
  if (reinterpret_cast<uintptr_t>(data_) % row_alignment != 0) {
    fail(ucclEpInvalidArgument, "{}.data is {}, expected a multiple of {} bytes", name_, fmt::ptr(data_),
         row_alignment);
  }
  for (int i = 0; i + 1 < ndim_; i++) {
    if (stride_bytes(i) % row_alignment != 0) {
      fail(ucclEpInvalidArgument, "{}.strides[{}] is {}, {} bytes, expected a multiple of {} bytes", name_, i,
           stride(i), stride_bytes(i), row_alignment);
    }
  }
  return *this;
}

const TensorView& TensorView::adjacent_elements() const {
  if (given() && !empty() && stride(ndim_ - 1) != 1) {
    fail(ucclEpInvalidArgument, "{}.strides[{}] is {}, expected 1 (the last dimension has to be adjacent in memory)",
         name_, ndim_ - 1, stride(ndim_ - 1));
  }
  return *this;
}

const TensorView& TensorView::no_overlap() const {
  if (!given() || empty()) return *this;
  const auto distance = [this](int dim) { return stride(dim) < 0 ? -stride(dim) : stride(dim); };
  for (int i = 0; i < ndim_; i++) {
    if (size(i) == 1) continue;
    // How far the dimensions inside this one reach; inside is what has the smaller stride.
    int64_t reach = 0;
    for (int j = 0; j < ndim_; j++) {
      if (std::pair(distance(j), j) < std::pair(distance(i), i)) reach += (size(j) - 1) * distance(j);
    }
    if (distance(i) <= reach) {
      fail(ucclEpInvalidArgument, "{}.strides[{}] is {}, expected at least {} (elements of an output share memory)",
           name_, i, stride(i), reach + 1);
    }
  }
  return *this;
}

}  // namespace ucclep
