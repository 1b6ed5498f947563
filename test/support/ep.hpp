// SPDX-License-Identifier: Apache-2.0
// The C API for tests: objects that destroy themselves, results that become Failure, and tensors that are compared
// byte for byte with what they should hold, the bytes that nobody may touch included.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"
#include "ucclep/ucclep.h"

namespace ucclep::test {

// Throws Failure unless the condition holds.
void require(bool condition, const std::string& what);

// Returns when condition() holds. After half a minute the rank fails: it has waited for `what`.
template <class Condition>
void wait_until(const std::string& what, Condition&& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    require(std::chrono::steady_clock::now() < limit, "waited 30 s for " + what);
    std::this_thread::yield();
  }
}
// The call must have succeeded; the failure carries the library's error message.
void ok(ucclEpResult_t result, const char* call);
// The call must have answered `expected`, and its message must contain all the words.
void refused(ucclEpResult_t result, ucclEpResult_t expected, const char* call,
             const std::vector<std::string>& words = {});
// The call must have answered `expected`; the failure carries the communicator's error record.
void answered(ucclEpResult_t result, ucclEpResult_t expected, ucclEpComm_t comm, const char* call);

// Owns one object of the C API.
template <class Object, ucclEpResult_t (*destroy)(Object)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Object object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    reset();
    object_ = other.release();
    return *this;
  }
  ~Owned() { reset(); }

  operator Object() const { return object_; }
  Object release() {
    Object object = object_;
    object_ = nullptr;
    return object;
  }
  // "Destroy always returns ucclEpSuccess" is checked where a case says so; here nothing can be thrown.
  void reset() {
    if (object_ != nullptr) destroy(release());
  }

 private:
  Object object_ = nullptr;
};

using Group = Owned<ucclEpGroup_t, ucclEpGroupDestroy>;
using Handle = Owned<ucclEpHandle_t, ucclEpHandleDestroy>;

// UCCLEP_TEST_GPUS: so many GPUs are shared out to the ranks, of NVIDIA, or with UCCLEP_TEST_DEVICE=hip of AMD. 0, or
// not set: the host device.
int test_gpus();
// Of which kind: UCCLEP_DEVICE_CUDA or UCCLEP_DEVICE_HIP.
int test_device();
// Ranks of one process that share a GPU wait for each other in driver calls that wait for the whole device.
bool shares_gpus(int ranks);

// UCCLEP_TEST_RANKS_PER_NODE: virtual nodes of so many ranks. Are so many ranks in several nodes?
bool crosses_nodes(int ranks);
// The node of each of so many ranks. Empty: one.
std::vector<int> nodes_of_environment(int ranks);

// That device, of GPUs the rank's own, those nodes, and a time limit of 20 s (more under a sanitizer).
ucclEpCommConfig_t comm_config(const Rank& rank);

class Comm {
 public:
  explicit Comm(const Rank& rank) : Comm(rank, comm_config(rank)) {}
  Comm(const Rank& rank, const ucclEpCommConfig_t& config, int id = 0);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() { reset(); }
  void reset();
  operator ucclEpComm_t() const { return comm_; }

 private:
  ucclEpComm_t comm_ = nullptr;
};

Group make_group(ucclEpComm_t comm, const ucclEpGroupConfig_t& config);
Handle make_handle(ucclEpGroup_t group, const ucclEpHandleConfig_t& config);

// The record of the first asynchronous error; code ucclEpSuccess when there is none.
ucclEpAsyncError_t async_error(ucclEpComm_t comm);
void no_async_error(ucclEpComm_t comm);

class Stream {
 public:
  explicit Stream(ucclEpComm_t comm);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { ucclEpStreamDestroy(comm_, stream_); }
  operator ucclEpStream_t() const { return stream_; }
  void synchronize() { ok(ucclEpStreamSynchronize(comm_, stream_), "ucclEpStreamSynchronize"); }

 private:
  ucclEpComm_t comm_;
  ucclEpStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(ucclEpComm_t comm);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { ucclEpEventDestroy(comm_, event_); }
  operator ucclEpEvent_t() const { return event_; }

 private:
  ucclEpComm_t comm_;
  ucclEpEvent_t event_ = nullptr;
};

// Where tensors lie: ucclEpMemAlloc's memory, or any memory of the process (host device only).
enum class Memory { device, plain };

// A device tensor and the bytes that it should hold: its image. Both begin as a pattern that no result resembles, with
// a margin before and behind. An input is filled in the image and uploaded; of an output, the image is made what is
// expected, and verify() compares all bytes.
class Tensor {
 public:
  using Shape = std::vector<int64_t>;
  // strides in elements, empty: contiguous. A tensor without elements carries NULL.
  Tensor(ucclEpComm_t comm, std::string name, ucclEpDataType_t dtype, Shape sizes, Shape strides = {},
         Memory memory = Memory::device);

  const ucclEpTensor_t* get() const { return &tensor_; }
  ucclEpDataType_t dtype() const { return tensor_.dtype; }
  const Shape& sizes() const { return sizes_; }

  // In the image: row r counted through all but the last dimension, and an element of it.
  uint8_t* row(int64_t row);
  uint8_t* element(int64_t row, int64_t column);
  void fill_row(int64_t row, const void* bytes);
  void zero_row(int64_t row);
  // Integer tensors: element i of a one-dimensional one, or (row, column).
  void set_integer(int64_t row, int64_t column, int64_t value);
  void set_integers(const std::vector<int64_t>& values);
  int64_t rows() const;
  int64_t columns() const { return sizes_.back(); }

  void poison();  // image and memory
  void upload();
  // Throws Failure with rank, row, column, expected and got of the first difference.
  void verify(int rank) const;
  // As verify, of some rows alone.
  void verify_rows(int rank, const std::vector<int64_t>& rows) const;
  // As verify, but any two NaNs of bf16, fp16 or fp32 are equal.
  void verify_numbers(int rank) const;
  // The tensor as it is now, margins included.
  std::vector<uint8_t> download() const;
  std::vector<int64_t> integers() const;

 private:
  size_t offset(int64_t row, int64_t column) const;  // in the image
  bool same_nan(const std::vector<uint8_t>& got, size_t at) const;
  void compare(int rank, bool any_nan) const;
  [[noreturn]] void report(int rank, const std::vector<uint8_t>& got, size_t at) const;

  ucclEpComm_t comm_;
  std::string name_;
  Shape sizes_, strides_;
  ucclEpTensor_t tensor_;
  std::vector<uint8_t> image_;
  struct Free {
    ucclEpComm_t comm;
    Memory memory;
    void operator()(uint8_t* base) const;
  };
  std::unique_ptr<uint8_t, Free> base_;  // margins included; null without elements
};

}  // namespace ucclep::test
