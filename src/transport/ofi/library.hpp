// SPDX-License-Identifier: Apache-2.0
// libfabric, opened at run time. These are all its symbols that are real functions; the rest of its API are inline
// calls through the tables of its objects.
#pragma once
#include <rdma/fabric.h>

#include <memory>
#include <string>

namespace ucclep::transport::ofi {

struct Library {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_freeinfo) freeinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_strerror) strerror;
  decltype(&fi_version) version;

  // The machine's; opened once, never closed. Throws Error(ucclEpNotSupported) without it.
  static const Library& get();
  // For tests: any file.
  static Library open(const char* file);

  // What this library is asked to behave as: 1.18, where EFA writes by RDMA, or the 1.17 of Debian 12.
  uint32_t api_version() const;
  std::string words(int64_t code) const;  // code: as functions return it, negative or not

  struct Free {
    const Library* library;
    void operator()(fi_info* info) const { library->freeinfo(info); }
  };
};
using Info = std::unique_ptr<fi_info, Library::Free>;

}  // namespace ucclep::transport::ofi
