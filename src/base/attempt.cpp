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
  log::warn("error", "an unexpected exception: {}", what);
  return {ucclEpInternalError, "an unexpected exception inside the library, which UCCLEP_DEBUG=WARN describes"};
}

Error described() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::length_error&) {
    return {ucclEpOutOfMemory, "a size is larger than any memory of the host"};
  } catch (const std::filesystem::filesystem_error& error) {
    return {ucclEpSystemError,
            fmt::format("the file system refused {}: {}", error.path1().native(), error.code().message())};
  } catch (const std::system_error& error) {
    return {ucclEpSystemError, "a call of the operating system failed: " + error.code().message()};
  } catch (const std::exception& error) {
    return unexpected(error.what());
  } catch (...) {
    return unexpected("of unknown type");
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
