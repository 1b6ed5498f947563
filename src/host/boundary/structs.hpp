// SPDX-License-Identifier: Apache-2.0
// The versioned structs of the C API: {size, magic, fields}, of the caller's version, turned into today's form and
// back.
//
//   ucclEpGroupConfig_t config = read_struct(caller_config, "config");   // a complete copy, or Error
//   write_struct(caller_info, info, "info");                             // as much as the caller knows of it
#pragma once
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

enum class NullStruct { refused, means_init };

struct StructInfo {
  const char* init = nullptr;  // the macro that makes one
  unsigned magic = 0;
  unsigned first_bytes = 0;  // the size of the first released form: it never changes, the struct may grow
  NullStruct null = NullStruct::refused;
};

template <class T>
inline constexpr StructInfo struct_info{};
template <>
inline constexpr StructInfo struct_info<ucclEpTensor_t>{"UCCLEP_TENSOR_INIT", UCCLEP_TENSOR_MAGIC, 88};
template <>
inline constexpr StructInfo struct_info<ucclEpCommConfig_t>{"UCCLEP_COMM_CONFIG_INIT", UCCLEP_COMM_CONFIG_MAGIC, 48,
                                                            NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpBootstrap_t>{"UCCLEP_BOOTSTRAP_INIT", UCCLEP_BOOTSTRAP_MAGIC, 24};
template <>
inline constexpr StructInfo struct_info<ucclEpCommInfo_t>{"UCCLEP_COMM_INFO_INIT", UCCLEP_COMM_INFO_MAGIC, 464};
template <>
inline constexpr StructInfo struct_info<ucclEpAsyncError_t>{"UCCLEP_ASYNC_ERROR_INIT", UCCLEP_ASYNC_ERROR_MAGIC, 616};
template <>
inline constexpr StructInfo struct_info<ucclEpStats_t>{"UCCLEP_STATS_INIT", UCCLEP_STATS_MAGIC, 72};
template <>
inline constexpr StructInfo struct_info<ucclEpGroupConfig_t>{"UCCLEP_GROUP_CONFIG_INIT", UCCLEP_GROUP_CONFIG_MAGIC, 96,
                                                             NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpGroupLimits_t>{"UCCLEP_GROUP_LIMITS_INIT", UCCLEP_GROUP_LIMITS_MAGIC, 72};
template <>
inline constexpr StructInfo struct_info<ucclEpHandleConfig_t>{"UCCLEP_HANDLE_CONFIG_INIT", UCCLEP_HANDLE_CONFIG_MAGIC,
                                                              32, NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpCounters_t>{"UCCLEP_COUNTERS_INIT", UCCLEP_COUNTERS_MAGIC, 64,
                                                          NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpRoutingCounts_t>{"UCCLEP_ROUTING_COUNTS_INIT",
                                                               UCCLEP_ROUTING_COUNTS_MAGIC, 32};
template <>
inline constexpr StructInfo struct_info<ucclEpDispatchInputs_t>{"UCCLEP_DISPATCH_INPUTS_INIT",
                                                                UCCLEP_DISPATCH_INPUTS_MAGIC, 40};
template <>
inline constexpr StructInfo struct_info<ucclEpDispatchOutputs_t>{"UCCLEP_DISPATCH_OUTPUTS_INIT",
                                                                 UCCLEP_DISPATCH_OUTPUTS_MAGIC, 72};
template <>
inline constexpr StructInfo struct_info<ucclEpCombineInputs_t>{"UCCLEP_COMBINE_INPUTS_INIT",
                                                               UCCLEP_COMBINE_INPUTS_MAGIC, 48};
template <>
inline constexpr StructInfo struct_info<ucclEpCombineOutputs_t>{"UCCLEP_COMBINE_OUTPUTS_INIT",
                                                                UCCLEP_COMBINE_OUTPUTS_MAGIC, 32};
template <>
inline constexpr StructInfo struct_info<ucclEpDispatchConfig_t>{
    "UCCLEP_DISPATCH_CONFIG_INIT", UCCLEP_DISPATCH_CONFIG_MAGIC, 28, NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpCombineConfig_t>{"UCCLEP_COMBINE_CONFIG_INIT",
                                                               UCCLEP_COMBINE_CONFIG_MAGIC, 20, NullStruct::means_init};
template <>
inline constexpr StructInfo struct_info<ucclEpTiles_t>{"UCCLEP_TILES_INIT", UCCLEP_TILES_MAGIC, 96};

namespace detail {
void check_struct_magic(const void* object, const StructInfo& info, const char* name);
void check_struct(const void* object, size_t known_bytes, const StructInfo& info, const char* name);
void read_struct_fields(void* out, const void* object, size_t known_bytes);
void write_struct_fields(void* out, const void* value, size_t known_bytes);
}  // namespace detail

// What a caller has put into a field of an enumeration: any int, also one that the enumeration does not have, which
// must not be read as one of its values.
template <class Enum>
int number_of(const Enum& field) noexcept {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(int));
  int number;
  std::memcpy(&number, &field, sizeof number);
  return number;
}

// Only the mistakes for which a collective call fails alone and at once: a NULL that is not allowed, a wrong magic.
// What read_struct refuses beyond that is a bad argument, which the other ranks are to hear of.
template <class T>
void check_magic(const T* object, const char* name) {
  if (object == nullptr && struct_info<T>.null == NullStruct::means_init) return;
  detail::check_struct_magic(object, struct_info<T>, name);
}

// name: the argument, for the message. Fields that the caller's version does not know have their INIT value.
template <class T>
T read_struct(const T* object, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && struct_info<T>.magic != 0 &&
                sizeof(T) >= struct_info<T>.first_bytes);
  T copy = ucclEpInit<T>(struct_info<T>.magic);
  if (object == nullptr && struct_info<T>.null == NullStruct::means_init) return copy;
  detail::check_struct(object, sizeof(T), struct_info<T>, name);
  detail::read_struct_fields(&copy, object, sizeof(T));
  return copy;
}

// Before the work whose result write_struct delivers, so that a call with a bad struct does nothing.
template <class T>
void check_out_struct(const T* out, const char* name) {
  detail::check_struct(out, sizeof(T), struct_info<T>, name);
}

template <class T>
void write_struct(T* out, const T& value, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && struct_info<T>.magic != 0 &&
                sizeof(T) >= struct_info<T>.first_bytes);
  check_out_struct(out, name);
  detail::write_struct_fields(out, &value, sizeof(T));
}

// The structs of ucclep/device.hpp carry the layout of kernels: {size, magic, abi} must be today's.
template <class T>
void check_device_struct(const T* out) {
  if (out == nullptr) fail(ucclEpInvalidArgument, "out is NULL");
  const T known;
  if (out->magic == known.magic && out->size == known.size && out->abi == known.abi) return;
  fail(ucclEpInvalidArgument,
       "out has size {}, magic {:#x} and ABI {}, expected {}, {:#x} and {}: it was not initialised, or the program was "
       "compiled with the device headers of another version",
       out->size, out->magic, out->abi, known.size, known.magic, known.abi);
}

}  // namespace ucclep
