// SPDX-License-Identifier: Apache-2.0
#include "base/attempt.hpp"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/log.hpp"

namespace ucclep {
namespace {

// Made before memory can run out, and never destroyed: a copy of it allocates nothing.
const Error& no_memory = *new Error(ucclEpOutOfMemory, "out of memory on the host");

Error unexpected(const char* what) {
  log::warn("error", "caught an unexpected exception: {}", what);
  return {ucclEpInternalError, "the library caught an unexpected exception: set UCCLEP_DEBUG=WARN to log what it was"};
}

Error described() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::length_error&) {
    return {ucclEpOutOfMemory, "a size exceeds the largest possible allocation of the host"};
  } catch (const std::filesystem::filesystem_error& error) {
    return {ucclEpSystemError, fmt::format("cannot access {}: {}", error.path1().native(), error.code().message())};
  } catch (const std::system_error& error) {
    return {ucclEpSystemError, "a system call failed: " + error.code().message()};
  } catch (const std::exception& error) {
    return unexpected(error.what());
  } catch (...) {
    return unexpected("its type is unknown");
  }
}

}  // namespace

Error current_error() noexcept {
  try {
    return described();
  } catch (...) {  // the sentence itself found no memory
    return no_memory;
  }
}

}  // namespace ucclep
