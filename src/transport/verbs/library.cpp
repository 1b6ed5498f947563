// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/library.hpp"

#include <dlfcn.h>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace ucclep::transport::verbs {
namespace {

template <class Function>
void load_if_there(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

template <class Function>
void load(void* library, const char* file, const char* name, Function& function) {
  load_if_there(library, name, function);
  if (function == nullptr)
    fail(ucclEpNotSupported, "verbs: {} has no function {}: install a newer libibverbs", file, name);
}

}  // namespace

const Library& Library::get() {
  constinit static MadeOnce<Library> library;
  return library.get([] { return open("libibverbs.so.1"); });
}

Library Library::open(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(ucclEpNotSupported, "verbs: cannot open libibverbs: {}", dlerror());
  Library library{};
  load(handle, file, "ibv_get_device_list", library.get_device_list);
  load(handle, file, "ibv_free_device_list", library.free_device_list);
  load(handle, file, "ibv_get_device_name", library.get_device_name);
  load(handle, file, "ibv_open_device", library.open_device);
  load(handle, file, "ibv_close_device", library.close_device);
  load(handle, file, "ibv_query_device", library.query_device);
  load(handle, file, "ibv_query_port", library.query_port);
  load(handle, file, "_ibv_query_gid_ex", library.query_gid_ex);
  load(handle, file, "ibv_alloc_pd", library.alloc_pd);
  load(handle, file, "ibv_dealloc_pd", library.dealloc_pd);
  load(handle, file, "ibv_create_cq", library.create_cq);
  load(handle, file, "ibv_destroy_cq", library.destroy_cq);
  load(handle, file, "ibv_create_srq", library.create_srq);
  load(handle, file, "ibv_destroy_srq", library.destroy_srq);
  load(handle, file, "ibv_create_qp", library.create_qp);
  load(handle, file, "ibv_modify_qp", library.modify_qp);
  load(handle, file, "ibv_destroy_qp", library.destroy_qp);
  load(handle, file, "ibv_reg_mr_iova2", library.reg_mr);
  load_if_there(handle, "ibv_reg_dmabuf_mr", library.reg_dmabuf_mr);
  load(handle, file, "ibv_dereg_mr", library.dereg_mr);
  load(handle, file, "ibv_wc_status_str", library.status_words);
  return library;
}

}  // namespace ucclep::transport::verbs
