// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/structs.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace ucclep::detail {
namespace {

struct Head {
  unsigned size, magic;
};

// No struct comes near it: a larger size is a struct that was never initialised, and its tail is not ours to read.
constexpr unsigned max_struct_bytes = 65536;

Head read_head(const void* object) {
  Head head;
  std::memcpy(&head, object, sizeof(head));
  return head;
}

}  // namespace

void check_struct_magic(const void* object, const StructInfo& info, const char* name) {
  if (object == nullptr) fail(ucclEpInvalidArgument, "{} is NULL, expected a struct made by {}", name, info.init);
  const Head head = read_head(object);
  if (head.magic != info.magic) {
    fail(ucclEpInvalidArgument, "{}.magic is {:#x}, expected {:#x} (initialise the struct with {})", name, head.magic,
         info.magic, info.init);
  }
}

void check_struct(const void* object, size_t known_bytes, const StructInfo& info, const char* name) {
  check_struct_magic(object, info, name);
  const size_t size = read_head(object).size;
  if (size < info.first_bytes || size > max_struct_bytes) {
    fail(ucclEpInvalidArgument, "{}.size is {}, expected at least {} and at most {} (initialise the struct with {})",
         name, size, info.first_bytes, max_struct_bytes, info.init);
  }
  const char* bytes = static_cast<const char*>(object);
  for (size_t i = known_bytes; i < size; i++) {
    if (bytes[i] != 0) {
      fail(ucclEpInvalidArgument,
           "{} has a field at byte {} that this libucclep does not know, and it is not zero ({}.size is {}, {} bytes "
           "are "
           "known): the program was built for a newer version",
           name, i, name, size, known_bytes);
    }
  }
}

void read_struct_fields(void* out, const void* object, size_t known_bytes) {
  const size_t end = std::min<size_t>(read_head(object).size, known_bytes);
  std::memcpy(static_cast<char*>(out) + sizeof(Head), static_cast<const char*>(object) + sizeof(Head),
              end - sizeof(Head));
}

void write_struct_fields(void* out, const void* value, size_t known_bytes) {
  const size_t end = std::min<size_t>(read_head(out).size, known_bytes);
  std::memcpy(static_cast<char*>(out) + sizeof(Head), static_cast<const char*>(value) + sizeof(Head),
              end - sizeof(Head));
}

}  // namespace ucclep::detail
