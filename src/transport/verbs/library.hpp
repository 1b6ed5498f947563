// SPDX-License-Identifier: Apache-2.0
// libibverbs, opened at run time: its symbols that setup needs. Posting and polling are inline calls through the tables
// of its objects.
#pragma once
#include <infiniband/verbs.h>

#include <memory>

namespace ucclep::transport::verbs {

struct Library {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  decltype(&ibv_query_device) query_device;
  decltype(&ibv_query_port) query_port;
  decltype(&_ibv_query_gid_ex) query_gid_ex;
  decltype(&ibv_alloc_pd) alloc_pd;
  decltype(&ibv_dealloc_pd) dealloc_pd;
  decltype(&ibv_create_cq) create_cq;
  decltype(&ibv_destroy_cq) destroy_cq;
  decltype(&ibv_create_srq) create_srq;
  decltype(&ibv_destroy_srq) destroy_srq;
  decltype(&ibv_create_qp) create_qp;
  decltype(&ibv_modify_qp) modify_qp;
  decltype(&ibv_destroy_qp) destroy_qp;
  decltype(&ibv_reg_mr_iova2) reg_mr;
  decltype(&ibv_reg_dmabuf_mr) reg_dmabuf_mr;  // null before rdma-core 34
  decltype(&ibv_dereg_mr) dereg_mr;
  decltype(&ibv_wc_status_str) status_words;

  // The machine's; opened once, never closed. Throws Error(ucclEpNotSupported) without it.
  static const Library& get();
  // For tests: any file.
  static Library open(const char* file);
};

// Objects of libibverbs with an owner.
template <auto Function>
struct Destroy {
  const Library* library = nullptr;
  template <class Object>
  void operator()(Object* object) const {
    (library->*Function)(object);
  }
};
using Context = std::unique_ptr<ibv_context, Destroy<&Library::close_device>>;
using Domain = std::unique_ptr<ibv_pd, Destroy<&Library::dealloc_pd>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<&Library::destroy_cq>>;
using SharedReceives = std::unique_ptr<ibv_srq, Destroy<&Library::destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<&Library::destroy_qp>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<&Library::dereg_mr>>;

}  // namespace ucclep::transport::verbs
