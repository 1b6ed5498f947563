// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
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

std::string value_of(__rlimit_resource resource) {
  rlimit limit{};
  const bool known = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::to_string(limit.rlim_cur) : "unlimited";
}

}  // namespace

std::string errno_text(int error) {
  const std::string text = std::strerror(error);
  switch (error) {
    case EMFILE:
      return fmt::format("{}: the process has too many open files (RLIMIT_NOFILE, ulimit -n, is {})", text,
                         value_of(RLIMIT_NOFILE));
    case ENFILE:
      return text + ": the machine has too many open files (sysctl fs.file-max)";
    case ENOMEM:
      return fmt::format(
          "{}: the machine's memory is used up, or a limit of the process (RLIMIT_AS, ulimit -v, is {}; sysctl "
          "vm.max_map_count)",
          text, value_of(RLIMIT_AS));
    case EFBIG:
      return fmt::format("{} (RLIMIT_FSIZE, ulimit -f, is {})", text, value_of(RLIMIT_FSIZE));
    default:
      return text;
  }
}

Error current_error() noexcept {
  try {
    return described();
  } catch (...) {  // the sentence itself found no memory
    return no_memory;
  }
}

}  // namespace ucclep
