// SPDX-License-Identifier: Apache-2.0
// Calls of the C API by one rank on the host device, in any order, on objects that live, that are gone, that are of
// another kind, or that never were; with structs of wrong sizes and magics, and numbers of all sorts. What the caller
// answers for is kept: memory of tensors is there. Each call ends with success, or with a code and an error message.
#include <cstdio>
#include <cstdlib>

#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "arena.hpp"
#include "target.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/ucclep.h"

using namespace ucclep;

namespace {

constexpr size_t max_calls = 64, max_comms = 3;
constexpr int max_size = 32;  // of a dimension: four of them, and strides, stay within the arena

// Structs with room behind them: a caller that says that his struct is larger has that memory.
class Structs {
 public:
  template <class T>
  T* keep(const T& value) {
    constexpr size_t room = 70000;
    char* const place = static_cast<char*>(std::calloc(1, room));
    std::memcpy(place, &value, sizeof value);
    kept_.push_back(place);
    return reinterpret_cast<T*>(place);
  }
  Structs() = default;
  Structs(const Structs&) = delete;
  Structs& operator=(const Structs&) = delete;
  ~Structs() {
    for (char* place : kept_) std::free(place);
  }

 private:
  std::vector<char*> kept_;
};

int allgather_of_one(void*, void*, size_t) {
  return 0;
}
int give(void** ptr, size_t bytes, void*) {
  *ptr = std::calloc(1, bytes + 1);
  return 0;
}
int refuse(void**, size_t, void*) {
  return 1;
}
int take_back(void* ptr, void*) {
  std::free(ptr);
  return 0;
}

struct CallCount {  // printed as the process ends
  unsigned long long calls = 0;
  ~CallCount() { std::fprintf(stderr, "%llu calls of the C API\n", calls); }
} count;

class Caller {
 public:
  explicit Caller(fuzz::Input& input) : input_(input) {}

  void run() {
    make_comm();
    for (size_t i = 0; i < max_calls && !input_.empty(); ++i) one_call();
    for (void* comm : comms_) destroy(static_cast<ucclEpComm_t>(comm));
  }

 private:
  // Nothing is left of an input: a stream that is being captured would keep its communicator.
  void destroy(ucclEpComm_t comm) {
    std::vector<void*> streams = streams_;
    streams.push_back(nullptr);
    for (ucclEpStream_t stream : streams) {
      ucclEpGraph_t graph = nullptr;
      if (ucclEpStreamEndCapture(comm, stream, &graph) == ucclEpSuccess) ucclEpGraphDestroy(comm, graph);
    }
    const ucclEpResult_t result = ucclEpCommDestroy(comm);
    fuzz::require(result == ucclEpSuccess || result == ucclEpInvalidArgument, "a communicator can be destroyed");
  }

  // Mostly the first of the choices.
  template <class T, size_t n>
  T pick(const T (&choices)[n]) {
    const uint8_t byte = input_.byte();
    return byte < 160 ? choices[0] : choices[byte % n];
  }
  bool rarely() { return input_.byte() >= 240; }

  // An object of the kind, mostly the newest; or one of any kind, alive or not; or none at all.
  template <class Object>
  Object object(const std::vector<void*>& of_kind) {
    const uint8_t byte = input_.byte();
    if (byte < 180 && !of_kind.empty()) return static_cast<Object>(of_kind.back());
    if (byte < 200 && !all_.empty()) return static_cast<Object>(all_[input_.byte() % all_.size()]);
    if (byte < 235 && !of_kind.empty()) return static_cast<Object>(of_kind[input_.byte() % of_kind.size()]);
    void* const others[] = {nullptr, reinterpret_cast<void*>(1), reinterpret_cast<void*>(0x1234), fuzz::arena(),
                            reinterpret_cast<void*>(~uintptr_t{0})};
    return static_cast<Object>(others[byte % std::size(others)]);
  }
  ucclEpComm_t comm() { return object<ucclEpComm_t>(comms_); }
  ucclEpGroup_t group() { return object<ucclEpGroup_t>(groups_); }
  ucclEpHandle_t handle() { return object<ucclEpHandle_t>(handles_); }
  ucclEpWindow_t window() { return object<ucclEpWindow_t>(windows_); }
  ucclEpGraph_t graph() { return object<ucclEpGraph_t>(graphs_); }
  ucclEpStream_t stream() { return input_.byte() < 100 ? nullptr : object<ucclEpStream_t>(streams_); }
  ucclEpEvent_t event() { return object<ucclEpEvent_t>(events_); }

  // Out-parameters are written on success only.
  template <class Object, class Make>
  void make(std::vector<void*>& of_kind, Make&& make) {
    Object made = nullptr;
    const bool wants = !rarely();
    const ucclEpResult_t result = make(wants ? &made : nullptr);
    fuzz::require((made != nullptr) == (wants && result == ucclEpSuccess), "an object is made on success only");
    if (made != nullptr) {
      of_kind.push_back(made);
      all_.push_back(made);
    }
    check(result);
  }
  void check(ucclEpResult_t result) const {
    fuzz::require(result >= ucclEpSuccess && result <= ucclEpOverflow, "a call ends with a code");
    fuzz::require(result == ucclEpSuccess || *ucclEpGetLastError(nullptr) != '\0', "a code has a message");
  }

  template <class T>
  T* struct_of(T value) {
    if (rarely()) return nullptr;
    if (rarely()) value.size = input_.object<unsigned>();
    if (rarely())
      value.size = pick({0u, 8u, static_cast<unsigned>(sizeof(T)) - 4, static_cast<unsigned>(sizeof(T)) + 8});
    if (rarely()) value.magic ^= 1u << (input_.byte() % 32);
    return structs_.keep(value);
  }
  const ucclEpTensor_t* tensor(ucclEpDataType_t dtype, std::vector<int64_t> sizes) {
    if (rarely()) return nullptr;
    ucclEpTensor_t t = UCCLEP_TENSOR_INIT;
    t.dtype = rarely() ? static_cast<ucclEpDataType_t>(input_.byte() % 16) : dtype;
    t.ndim = rarely() ? static_cast<int8_t>(input_.byte()) : static_cast<int>(sizes.size());
    for (size_t d = 0; d < 4; ++d) {
      t.sizes[d] = d < sizes.size() ? sizes[d] : 0;
      if (rarely()) t.sizes[d] = static_cast<int64_t>(input_.byte() % (max_size + 2)) - 1;
      if (rarely()) t.strides[d] = static_cast<int64_t>(input_.byte() % 66) - 1;
    }
    t.data = rarely() ? nullptr : fuzz::arena() + 4096 * (input_.byte() % 64) + (rarely() ? 4 : 0);
    return struct_of(t);
  }
  const ucclEpTensor_t* maybe(ucclEpDataType_t dtype, std::vector<int64_t> sizes) {
    return input_.byte() < 170 ? nullptr : tensor(dtype, std::move(sizes));
  }

  void make_comm() {
    if (comms_.size() >= max_comms) return;
    ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
    config.device = pick({int{UCCLEP_DEVICE_HOST}, int{UCCLEP_DEVICE_AUTO}, -1, 99});
    config.device_index = pick({-1, 0, -2, 7});
    config.timeout_ms = pick({2000, 1, -1});
    config.ranks_per_node = pick({0, 1, -1});
    config.ranks_per_domain = pick({0, 1, -1});
    config.proxy_threads = pick({0, 1, -1});
    ucclEpBootstrap_t bootstrap = UCCLEP_BOOTSTRAP_INIT;
    bootstrap.allgather = rarely() ? nullptr : allgather_of_one;
    make<ucclEpComm_t>(comms_, [&](ucclEpComm_t* out) {
      return ucclEpCommInitBootstrap(out, pick({1, 0, -1, 1 << 20}), pick({0, 1, -1}), struct_of(bootstrap),
                                     struct_of(config));
    });
  }
  ucclEpGroupConfig_t* group_config() {
    ucclEpGroupConfig_t config = UCCLEP_GROUP_CONFIG_INIT;
    config.num_experts = pick({4, 1, 0, -1, 7, INT32_MAX});
    config.top_k = pick({2, 1, 0, -1, 33});
    config.max_tokens_per_rank = pick({8, 1, 0, -1});
    config.ll_max_tokens_per_rank = pick({0, 4, -1});
    config.max_token_bytes = pick({int64_t{64}, int64_t{16}, int64_t{0}, int64_t{-1}, int64_t{17}, INT64_MAX});
    config.max_recv_tokens_per_rank = pick({int64_t{0}, int64_t{3}, int64_t{-1}});
    config.num_sms = pick({0, 1, -1, 1000});
    config.timeout_ms = pick({0, 100, -1});
    config.enable_mask = pick({0, 1, 2});
    config.overflow = pick({0, 1, 2});
    config.num_signals = pick({0, 2, -1});
    config.max_in_flight = pick({0, 8, 9, -1});
    config.nranks = pick({1, 2, 0, -1});
    config.alloc_fn = pick({static_cast<decltype(config.alloc_fn)>(nullptr), &give, &refuse});
    if (config.alloc_fn != nullptr && !rarely()) config.free_fn = take_back;
    return struct_of(config);
  }
  ucclEpHandleConfig_t* handle_config() {
    ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
    config.layout = 1 + input_.byte() % 3;
    config.mode = config.layout == UCCLEP_LAYOUT_RANK_MAJOR ? UCCLEP_MODE_LL
                  : config.layout == UCCLEP_LAYOUT_FLAT     ? UCCLEP_MODE_HT
                                                            : UCCLEP_MODE_LL + input_.byte() % 2;
    if (rarely()) config.mode = input_.byte() % 5 - 1;
    if (rarely()) config.layout = input_.byte() % 6 - 1;
    config.expert_alignment = pick({0, 1, 4, 3, -1});
    config.expert_ids = pick({0, 1, 2});
    config.waves = pick({0, 0, 2, 33});
    config.tile_rows = config.layout == UCCLEP_LAYOUT_TILES ? pick({0, 16, 256, 24}) : pick({0, 0, 0, 16});
    return struct_of(config);
  }
  ucclEpCounters_t* counters() {
    if (input_.byte() < 170) return nullptr;
    ucclEpCounters_t all = UCCLEP_COUNTERS_INIT;
    all.tokens_per_expert = maybe(ucclEpInt32, {4});
    all.expert_offsets = maybe(ucclEpInt32, {5});
    all.tokens_per_rank = maybe(ucclEpInt64, {1});
    all.recv_total = maybe(ucclEpInt32, {1});
    all.recv_total_host = rarely() ? reinterpret_cast<int64_t*>(fuzz::arena()) : nullptr;
    all.tokens_per_expert_unpadded = maybe(ucclEpInt32, {4});
    all.tokens_per_expert_rank = maybe(ucclEpInt32, {4, 1});
    return struct_of(all);
  }

  // Rows of a dispatch in the shape of any layout.
  std::vector<int64_t> rows(int64_t last) {
    switch (input_.byte() % 4) {
      case 0:
        return {4, 8, last};
      case 1:
        return {1, 8, last};
      default:
        return {max_size, last};
    }
  }
  int64_t tokens() { return pick({int64_t{8}, int64_t{0}, int64_t{3}, int64_t{9}}); }

  ucclEpDispatchOutputs_t* dispatch_outputs() {
    ucclEpDispatchOutputs_t out = UCCLEP_DISPATCH_OUTPUTS_INIT;
    out.tokens = tensor(ucclEpFloat32, rows(16));
    out.scales = maybe(ucclEpFloat32, rows(1));
    out.topk_idx = maybe(ucclEpInt64, rows(2));
    out.topk_weights = maybe(ucclEpFloat32, rows(2));
    out.src_info = maybe(ucclEpInt64, {max_size});
    out.cumulative_tokens_per_expert = maybe(ucclEpInt32, {4});
    out.wait_ns = maybe(ucclEpInt64, {1});
    out.counters = counters();
    return struct_of(out);
  }
  ucclEpDispatchConfig_t* dispatch_config() {
    if (input_.byte() < 100) return nullptr;
    ucclEpDispatchConfig_t config = UCCLEP_DISPATCH_CONFIG_INIT;
    config.send_only = pick({0, 1, 2});
    config.quant = pick({0, 1, 9});
    config.round_scale = pick({0, 1, 2});
    config.pass = pick({0, 1, 2});
    config.num_sms = pick({0, 1, -1});
    return struct_of(config);
  }
  ucclEpCombineInputs_t* combine_inputs() {
    ucclEpCombineInputs_t in = UCCLEP_COMBINE_INPUTS_INIT;
    in.tokens = tensor(ucclEpFloat32, rows(16));
    in.scales = rarely() ? tensor(ucclEpFloat32, rows(1)) : nullptr;
    in.topk_weights = maybe(ucclEpFloat32, {8, 2});
    in.bias = maybe(ucclEpFloat32, {8, 16});
    in.bias2 = maybe(ucclEpFloat32, {8, 16});
    return struct_of(in);
  }
  ucclEpCombineOutputs_t* combine_outputs() {
    ucclEpCombineOutputs_t out = UCCLEP_COMBINE_OUTPUTS_INIT;
    out.tokens = tensor(ucclEpFloat32, {tokens(), 16});
    out.topk_weights = maybe(ucclEpFloat32, {8, 2});
    out.wait_ns = maybe(ucclEpInt64, {1});
    return struct_of(out);
  }
  ucclEpCombineConfig_t* combine_config() {
    if (input_.byte() < 100) return nullptr;
    ucclEpCombineConfig_t config = UCCLEP_COMBINE_CONFIG_INIT;
    config.send_only = pick({0, 1, 2});
    config.pass = pick({0, 1, 2});
    config.num_sms = pick({0, 1, -1});
    config.quant = pick({0, 0, 0, 1});
    config.done_target = pick({0, 0, 1, -1});
    return struct_of(config);
  }
  void dispatch() {
    ucclEpDispatchInputs_t in = UCCLEP_DISPATCH_INPUTS_INIT;
    const int64_t t = tokens();
    in.tokens = tensor(ucclEpFloat32, {t, 16});
    in.scales = rarely() ? tensor(ucclEpFloat32, {t, 1}) : nullptr;
    in.topk_weights = rarely() ? nullptr : tensor(ucclEpFloat32, {t, 2});
    in.topk_idx = input_.byte() < 100 ? nullptr : tensor(ucclEpInt64, {t, 2});
    if (rarely()) {
      ucclEpDeviceDispatch out;
      check(ucclEpDispatchGetDevice(handle(), struct_of(in), dispatch_outputs(), dispatch_config(), &out));
      return;
    }
    check(ucclEpDispatch(handle(), struct_of(in), dispatch_outputs(), dispatch_config(), stream()));
  }
  void routing_counts() {
    ucclEpRoutingCounts_t out = UCCLEP_ROUTING_COUNTS_INIT;
    out.tokens_per_rank = maybe(ucclEpInt32, {1});
    out.tokens_per_expert = maybe(ucclEpInt32, {4});
    out.is_token_in_rank = maybe(ucclEpUint8, {8, 1});
    out.tokens_per_logical_expert = maybe(ucclEpInt64, {4});
    check(ucclEpGetRoutingCounts(group(), tensor(ucclEpInt64, {8, 2}), struct_of(out), stream()));
  }
  // Of whatever is in the arena: seldom a good map.
  void expert_map() {
    check(ucclEpGroupSetExpertMap(group(), maybe(ucclEpInt32, {4, 2}), maybe(ucclEpInt32, {4}), stream()));
  }
  void* memory() { return object<void*>(memories_); }
  size_t bytes() { return pick({size_t{4096}, size_t{0}, size_t{1}, size_t{65536}, SIZE_MAX}); }

  void call_of_comm(uint8_t which) {
    switch (which % 12) {
      case 0:
        return check(ucclEpCommCount(comm(), rarely() ? nullptr : &number_));
      case 1:
        return check(ucclEpCommUserRank(comm(), rarely() ? nullptr : &number_));
      case 2:
        return check(ucclEpCommGetInfo(comm(), struct_of(ucclEpCommInfo_t(UCCLEP_COMM_INFO_INIT))));
      case 3: {
        size_t length = input_.byte();
        return check(ucclEpCommGetTopology(comm(), rarely() ? nullptr : text_, rarely() ? nullptr : &length));
      }
      case 4:
        return check(ucclEpCommGetAsyncError(comm(), struct_of(ucclEpAsyncError_t(UCCLEP_ASYNC_ERROR_INIT))));
      case 5:
        return check(ucclEpCommClearAsyncError(comm()));
      case 6:
        return check(ucclEpCommGetStats(comm(), struct_of(ucclEpStats_t(UCCLEP_STATS_INIT))));
      case 7:
        return rarely() ? check(ucclEpCommAbort(comm())) : void();
      case 8:
        return rarely() ? check(ucclEpCommDestroy(comm())) : void();
      case 9:
        fuzz::require(ucclEpGetLastError(comm()) != nullptr, "GetLastError is never NULL");
        return;
      case 10:
        return make_comm();
      default:
        return check(
            ucclEpGroupQuery(comm(), group_config(), struct_of(ucclEpGroupLimits_t(UCCLEP_GROUP_LIMITS_INIT))));
    }
  }
  void call_of_streams(uint8_t which) {
    float ms = 0;
    switch (which % 12) {
      case 0:
        return make<ucclEpStream_t>(streams_, [&](ucclEpStream_t* out) { return ucclEpStreamCreate(comm(), out); });
      case 1:
        return check(ucclEpStreamDestroy(comm(), stream()));
      case 2:
        return check(ucclEpStreamSynchronize(comm(), stream()));
      case 3:
        return check(ucclEpStreamWaitEvent(comm(), stream(), event()));
      case 4:
        return make<ucclEpEvent_t>(events_, [&](ucclEpEvent_t* out) { return ucclEpEventCreate(comm(), out); });
      case 5:
        return check(ucclEpEventDestroy(comm(), event()));
      case 6:
        return check(ucclEpEventRecord(comm(), event(), stream()));
      case 7:
        return check(ucclEpEventSynchronize(comm(), event()));
      case 8:
        return check(ucclEpEventElapsed(comm(), event(), event(), rarely() ? nullptr : &ms));
      case 9:
        return check(ucclEpStreamBeginCapture(comm(), stream()));
      case 10:
        return make<ucclEpGraph_t>(graphs_,
                                   [&](ucclEpGraph_t* out) { return ucclEpStreamEndCapture(comm(), stream(), out); });
      default:
        return check(rarely() ? ucclEpGraphDestroy(comm(), graph()) : ucclEpGraphLaunch(comm(), graph(), stream()));
    }
  }
  void call_of_memory(uint8_t which) {
    ucclEpDeviceWindow on_device{};
    on_device.size = sizeof on_device;
    switch (which % 9) {
      case 0:
      case 1: {
        void* made = nullptr;
        const size_t wanted = bytes();
        const ucclEpResult_t result =
            which % 9 == 0 ? ucclEpMemAlloc(comm(), &made, wanted) : ucclEpMemAllocHost(comm(), &made, wanted);
        if (made != nullptr) memories_.push_back(made);
        return check(result);
      }
      case 2:
        return check(ucclEpMemFree(comm(), memory()));
      case 3:
        return check(ucclEpMemFreeHost(comm(), memory()));
      case 4:
        return check(ucclEpMemcpy(comm(), rarely() ? nullptr : fuzz::arena(), fuzz::arena(), input_.byte(), stream()));
      case 5:
        return make<ucclEpWindow_t>(windows_, [&](ucclEpWindow_t* out) {
          return ucclEpWindowRegister(comm(), rarely() ? nullptr : fuzz::arena() + 4096 * input_.byte(), bytes(), out);
        });
      case 6:
        return check(ucclEpWindowDeregister(comm(), window()));
      case 7:
        return check(ucclEpWindowGetDevice(window(), rarely() ? nullptr : &on_device));
      default:
        if (rarely()) return check(ucclEpMemPoolOpen(window()));
        return ucclEpMemPoolFree(ucclEpMemPoolAlloc(bytes() / 2, 0, nullptr), 1, 0, nullptr);
    }
  }
  void call_of_group(uint8_t which) {
    ucclEpDeviceGroup on_device{};
    on_device.size = sizeof on_device;
    size_t size = 0;
    int masks[] = {pick({1, 0, 2})};
    switch (which % 9) {
      case 0:
        return make<ucclEpGroup_t>(groups_,
                                   [&](ucclEpGroup_t* out) { return ucclEpGroupCreate(out, comm(), group_config()); });
      case 1:
        return rarely() ? check(ucclEpGroupDestroy(group())) : void();
      case 2:
        return routing_counts();
      case 3:
        return check(ucclEpMaskQuery(group(), rarely() ? nullptr : reinterpret_cast<int*>(fuzz::arena()), stream()));
      case 4:
        return check(ucclEpMaskUpdate(group(), rarely() ? nullptr : masks, stream()));
      case 5:
        return check(ucclEpMaskClear(group(), stream()));
      case 6:
        return check(ucclEpHandleMemSize(group(), handle_config(), rarely() ? nullptr : &size));
      case 7:
        return expert_map();
      default:
        return check(ucclEpGroupGetDevice(group(), rarely() ? nullptr : &on_device));
    }
  }
  void call_of_handle(uint8_t which) {
    ucclEpDeviceHandle on_device{};
    on_device.size = sizeof on_device;
    int64_t total = 0;
    std::array<int64_t, 64> per_expert{};
    switch (which % 10) {
      case 0:
        return make<ucclEpHandle_t>(
            handles_, [&](ucclEpHandle_t* out) { return ucclEpHandleCreate(out, group(), handle_config()); });
      case 1:
        return check(ucclEpHandleDestroy(handle()));
      case 2:
        return check(ucclEpHandleUpdate(handle(), tensor(ucclEpInt64, {tokens(), 2}), counters(), stream()));
      case 3:
        return check(
            ucclEpHandleWaitCounts(handle(), rarely() ? nullptr : &total, rarely() ? nullptr : per_expert.data()));
      case 4:
      case 5:
        return dispatch();
      case 6:
        return check(ucclEpCombine(handle(), combine_inputs(), combine_outputs(), combine_config(), stream()));
      case 7:
        if (rarely()) return check(ucclEpCompleteWave(handle(), input_.byte() % 6 - 1, stream()));
        if (rarely()) return check(ucclEpWaveDone(handle(), input_.byte() % 6 - 1, stream()));
        return check(ucclEpComplete(handle(), stream()));
      case 8:
        return rarely() ? check(ucclEpCompleteCombine(handle(), combine_inputs(), combine_outputs(), combine_config(),
                                                      stream()))
                        : check(ucclEpCompleteDispatch(handle(), dispatch_outputs(), dispatch_config(), stream()));
      default: {
        ucclEpTiles_t tiles = UCCLEP_TILES_INIT;
        ucclEpDeviceCombine whole;
        if (rarely()) return check(ucclEpHandleGetTiles(handle(), rarely() ? nullptr : &tiles));
        return rarely() ? check(ucclEpCombineGetDevice(handle(), combine_inputs(), combine_outputs(), combine_config(),
                                                       rarely() ? nullptr : &whole))
                        : check(ucclEpHandleGetDevice(handle(), rarely() ? nullptr : &on_device));
      }
    }
  }
  void one_call() {
    ++count.calls;
    const uint8_t which = input_.byte();
    switch (which % 8) {
      case 0:
        return call_of_comm(which / 8);
      case 1:
        return call_of_streams(which / 8);
      case 2:
        return call_of_memory(which / 8);
      case 3:
      case 4:
        return call_of_group(which / 8);
      default:
        return call_of_handle(which / 8);
    }
  }

  fuzz::Input& input_;
  Structs structs_;
  std::vector<void*> comms_, groups_, handles_, windows_, streams_, events_, graphs_, memories_;
  std::vector<void*> all_;  // that were ever made
  int number_ = 0;
  char text_[256] = {};
};

// The threads of the host device stay between inputs.
bool prepare() {
  setenv("UCCLEP_DEVICE", "host", 1);
  ucclEpBootstrap_t bootstrap = UCCLEP_BOOTSTRAP_INIT;
  bootstrap.allgather = allgather_of_one;
  static ucclEpComm_t kept = nullptr;
  return ucclEpCommInitBootstrap(&kept, 1, 0, &bootstrap, nullptr) == ucclEpSuccess;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool prepared = prepare();
  fuzz::require(prepared, "there is a host device");
  fuzz::Input input(data, size);
  Caller(input).run();
  return 0;
}
