// SPDX-License-Identifier: Apache-2.0
// The ABI of section 10 of the contract: no size, offset, type or value below ever changes. Fields may be appended.
#include <ucclep/ucclep.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

extern "C" int ucclep_test_header_use(void);

namespace {

using Tensor = const ucclEpTensor_t*;
using AllocFn = int (*)(void** ptr, size_t bytes, void* ctx);
using FreeFn = int (*)(void* ptr, void* ctx);
using Allgather = int (*)(void* ctx, void* buf, size_t bytes_per_rank);

#define PIN(type, field, offset, field_type)                        \
  static_assert(offsetof(type, field) == offset, #type "." #field); \
  static_assert(std::is_same_v<decltype(type::field), field_type>, #type "." #field)
#define PIN_STRUCT(type, bytes)                \
  static_assert(sizeof(type) == bytes, #type); \
  PIN(type, size, 0, unsigned);                \
  PIN(type, magic, 4, unsigned)

static_assert(sizeof(void*) == 8 && sizeof(int) == 4 && sizeof(ucclEpResult_t) == 4 && sizeof(ucclEpDataType_t) == 4);
static_assert(sizeof(ucclEpUniqueId) == 128);

PIN_STRUCT(ucclEpTensor_t, 88);
PIN(ucclEpTensor_t, data, 8, void*);
PIN(ucclEpTensor_t, dtype, 16, ucclEpDataType_t);
PIN(ucclEpTensor_t, ndim, 20, int);
PIN(ucclEpTensor_t, sizes, 24, int64_t[4]);
PIN(ucclEpTensor_t, strides, 56, int64_t[4]);

PIN_STRUCT(ucclEpCommConfig_t, 48);
PIN(ucclEpCommConfig_t, device, 8, int);
PIN(ucclEpCommConfig_t, device_index, 12, int);
PIN(ucclEpCommConfig_t, transport, 16, const char*);
PIN(ucclEpCommConfig_t, nics, 24, const char*);
PIN(ucclEpCommConfig_t, ranks_per_node, 32, int);
PIN(ucclEpCommConfig_t, ranks_per_domain, 36, int);
PIN(ucclEpCommConfig_t, proxy_threads, 40, int);
PIN(ucclEpCommConfig_t, timeout_ms, 44, int);

PIN_STRUCT(ucclEpBootstrap_t, 24);
PIN(ucclEpBootstrap_t, ctx, 8, void*);
PIN(ucclEpBootstrap_t, allgather, 16, Allgather);

PIN_STRUCT(ucclEpCommInfo_t, 464);
PIN(ucclEpCommInfo_t, rank, 8, int);
PIN(ucclEpCommInfo_t, nranks, 12, int);
PIN(ucclEpCommInfo_t, device, 16, int);
PIN(ucclEpCommInfo_t, device_index, 20, int);
PIN(ucclEpCommInfo_t, node, 24, int);
PIN(ucclEpCommInfo_t, num_nodes, 28, int);
PIN(ucclEpCommInfo_t, domain_size, 32, int);
PIN(ucclEpCommInfo_t, proxy_threads, 36, int);
PIN(ucclEpCommInfo_t, transport, 40, char[32]);
PIN(ucclEpCommInfo_t, nics, 72, char[256]);
PIN(ucclEpCommInfo_t, node_name, 328, char[64]);
PIN(ucclEpCommInfo_t, device_name, 392, char[64]);
PIN(ucclEpCommInfo_t, window_bytes, 456, uint64_t);

PIN_STRUCT(ucclEpAsyncError_t, 616);
PIN(ucclEpAsyncError_t, code, 8, ucclEpResult_t);
PIN(ucclEpAsyncError_t, op, 12, char[32]);
PIN(ucclEpAsyncError_t, phase, 44, char[32]);
PIN(ucclEpAsyncError_t, rank, 76, int);
PIN(ucclEpAsyncError_t, peer, 80, int);
PIN(ucclEpAsyncError_t, epoch, 88, uint64_t);
PIN(ucclEpAsyncError_t, waited_ms, 96, uint64_t);
PIN(ucclEpAsyncError_t, text, 104, char[512]);

PIN_STRUCT(ucclEpStats_t, 72);
PIN(ucclEpStats_t, commands, 8, uint64_t);
PIN(ucclEpStats_t, messages, 16, uint64_t);
PIN(ucclEpStats_t, bytes_sent, 24, uint64_t);
PIN(ucclEpStats_t, bytes_received, 32, uint64_t);
PIN(ucclEpStats_t, ring_full_stalls, 40, uint64_t);
PIN(ucclEpStats_t, credit_stalls, 48, uint64_t);
PIN(ucclEpStats_t, nic_stalls, 56, uint64_t);
PIN(ucclEpStats_t, reorder_depth_max, 64, uint64_t);

PIN_STRUCT(ucclEpGroupConfig_t, 120);
PIN(ucclEpGroupConfig_t, num_experts, 8, int);
PIN(ucclEpGroupConfig_t, top_k, 12, int);
PIN(ucclEpGroupConfig_t, max_tokens_per_rank, 16, int);
PIN(ucclEpGroupConfig_t, ll_max_tokens_per_rank, 20, int);
PIN(ucclEpGroupConfig_t, max_token_bytes, 24, int64_t);
PIN(ucclEpGroupConfig_t, max_recv_tokens_per_rank, 32, int64_t);
PIN(ucclEpGroupConfig_t, num_sms, 40, int);
PIN(ucclEpGroupConfig_t, timeout_ms, 44, int);
PIN(ucclEpGroupConfig_t, enable_mask, 48, int);
PIN(ucclEpGroupConfig_t, overflow, 52, int);
PIN(ucclEpGroupConfig_t, alloc_fn, 56, AllocFn);
PIN(ucclEpGroupConfig_t, free_fn, 64, FreeFn);
PIN(ucclEpGroupConfig_t, alloc_ctx, 72, void*);
PIN(ucclEpGroupConfig_t, num_signals, 80, int);
PIN(ucclEpGroupConfig_t, max_in_flight, 84, int);
PIN(ucclEpGroupConfig_t, nranks, 88, int);  // and padding up to where the first released form ended
PIN(ucclEpGroupConfig_t, window_bytes, 96, int64_t);
PIN(ucclEpGroupConfig_t, experts_per_rank, 104, const int*);
PIN(ucclEpGroupConfig_t, num_logical_experts, 112, int);
PIN(ucclEpGroupConfig_t, replica_choice, 116, int);

PIN_STRUCT(ucclEpGroupLimits_t, 88);
PIN(ucclEpGroupLimits_t, device_bytes, 8, int64_t);
PIN(ucclEpGroupLimits_t, host_bytes, 16, int64_t);
PIN(ucclEpGroupLimits_t, max_top_k, 24, int64_t);
PIN(ucclEpGroupLimits_t, max_experts, 32, int64_t);
PIN(ucclEpGroupLimits_t, max_tokens_per_rank, 40, int64_t);
PIN(ucclEpGroupLimits_t, max_token_bytes, 48, int64_t);
PIN(ucclEpGroupLimits_t, max_ranks, 56, int64_t);
PIN(ucclEpGroupLimits_t, epoch_bits, 64, int64_t);
PIN(ucclEpGroupLimits_t, tokens_per_round, 72, int64_t);
PIN(ucclEpGroupLimits_t, whole_bytes, 80, int64_t);

PIN_STRUCT(ucclEpHandleConfig_t, 48);
PIN(ucclEpHandleConfig_t, mode, 8, int);
PIN(ucclEpHandleConfig_t, layout, 12, int);
PIN(ucclEpHandleConfig_t, expert_alignment, 16, int);
PIN(ucclEpHandleConfig_t, expert_ids, 20, int);
PIN(ucclEpHandleConfig_t, handle_mem, 24, Tensor);
PIN(ucclEpHandleConfig_t, tile_rows, 32, int);
PIN(ucclEpHandleConfig_t, waves, 36, int);
PIN(ucclEpHandleConfig_t, max_tokens, 40, int64_t);

PIN_STRUCT(ucclEpCounters_t, 64);
PIN(ucclEpCounters_t, tokens_per_expert, 8, Tensor);
PIN(ucclEpCounters_t, expert_offsets, 16, Tensor);
PIN(ucclEpCounters_t, tokens_per_rank, 24, Tensor);
PIN(ucclEpCounters_t, recv_total, 32, Tensor);
PIN(ucclEpCounters_t, recv_total_host, 40, int64_t*);
PIN(ucclEpCounters_t, tokens_per_expert_unpadded, 48, Tensor);
PIN(ucclEpCounters_t, tokens_per_expert_rank, 56, Tensor);

PIN_STRUCT(ucclEpRoutingCounts_t, 40);
PIN(ucclEpRoutingCounts_t, tokens_per_rank, 8, Tensor);
PIN(ucclEpRoutingCounts_t, tokens_per_expert, 16, Tensor);
PIN(ucclEpRoutingCounts_t, is_token_in_rank, 24, Tensor);
PIN(ucclEpRoutingCounts_t, tokens_per_logical_expert, 32, Tensor);

PIN_STRUCT(ucclEpDispatchInputs_t, 40);
PIN(ucclEpDispatchInputs_t, tokens, 8, Tensor);
PIN(ucclEpDispatchInputs_t, scales, 16, Tensor);
PIN(ucclEpDispatchInputs_t, topk_weights, 24, Tensor);
PIN(ucclEpDispatchInputs_t, topk_idx, 32, Tensor);

PIN_STRUCT(ucclEpDispatchOutputs_t, 72);
PIN(ucclEpDispatchOutputs_t, tokens, 8, Tensor);
PIN(ucclEpDispatchOutputs_t, scales, 16, Tensor);
PIN(ucclEpDispatchOutputs_t, topk_idx, 24, Tensor);
PIN(ucclEpDispatchOutputs_t, topk_weights, 32, Tensor);
PIN(ucclEpDispatchOutputs_t, src_info, 40, Tensor);
PIN(ucclEpDispatchOutputs_t, cumulative_tokens_per_expert, 48, Tensor);
PIN(ucclEpDispatchOutputs_t, wait_ns, 56, Tensor);
PIN(ucclEpDispatchOutputs_t, counters, 64, const ucclEpCounters_t*);

PIN_STRUCT(ucclEpCombineInputs_t, 48);
PIN(ucclEpCombineInputs_t, tokens, 8, Tensor);
PIN(ucclEpCombineInputs_t, scales, 16, Tensor);
PIN(ucclEpCombineInputs_t, topk_weights, 24, Tensor);
PIN(ucclEpCombineInputs_t, bias, 32, Tensor);
PIN(ucclEpCombineInputs_t, bias2, 40, Tensor);

PIN_STRUCT(ucclEpCombineOutputs_t, 32);
PIN(ucclEpCombineOutputs_t, tokens, 8, Tensor);
PIN(ucclEpCombineOutputs_t, topk_weights, 16, Tensor);
PIN(ucclEpCombineOutputs_t, wait_ns, 24, Tensor);

PIN_STRUCT(ucclEpDispatchConfig_t, 28);
PIN(ucclEpDispatchConfig_t, send_only, 8, int);
PIN(ucclEpDispatchConfig_t, quant, 12, int);
PIN(ucclEpDispatchConfig_t, round_scale, 16, int);
PIN(ucclEpDispatchConfig_t, pass, 20, int);
PIN(ucclEpDispatchConfig_t, num_sms, 24, int);

PIN_STRUCT(ucclEpCombineConfig_t, 28);
PIN(ucclEpCombineConfig_t, send_only, 8, int);
PIN(ucclEpCombineConfig_t, pass, 12, int);
PIN(ucclEpCombineConfig_t, num_sms, 16, int);
PIN(ucclEpCombineConfig_t, quant, 20, int);
PIN(ucclEpCombineConfig_t, done_target, 24, int);

PIN_STRUCT(ucclEpTiles_t, 96);
PIN(ucclEpTiles_t, tile_ready, 8, uint32_t*);
PIN(ucclEpTiles_t, tile_done, 16, uint32_t*);
PIN(ucclEpTiles_t, rows_final, 24, int32_t*);
PIN(ucclEpTiles_t, tile_expert, 32, int32_t*);
PIN(ucclEpTiles_t, first_row, 40, int64_t*);
PIN(ucclEpTiles_t, src_info, 48, int64_t*);
PIN(ucclEpTiles_t, weights, 56, float*);
PIN(ucclEpTiles_t, row_at, 64, uint64_t*);
PIN(ucclEpTiles_t, scales_at, 72, uint64_t*);
PIN(ucclEpTiles_t, capacity, 80, int64_t);
PIN(ucclEpTiles_t, tiles, 88, int64_t);

static_assert(ucclEpSuccess == 0 && ucclEpUnhandledDeviceError == 1 && ucclEpSystemError == 2 &&
              ucclEpInternalError == 3 && ucclEpInvalidArgument == 4 && ucclEpInvalidUsage == 5 &&
              ucclEpRemoteError == 6 && ucclEpInProgress == 7 && ucclEpTimeout == 8 && ucclEpAborted == 9 &&
              ucclEpNotSupported == 10 && ucclEpOutOfMemory == 11 && ucclEpOverflow == 12);
static_assert(ucclEpNoDataType == 0 && ucclEpBfloat16 == 1 && ucclEpFloat16 == 2 && ucclEpFloat32 == 3 &&
              ucclEpFloat8e4m3 == 4 && ucclEpFloat8e5m2 == 5 && ucclEpFloat8e8m0 == 6 && ucclEpFloat4e2m1x2 == 7 &&
              ucclEpUint8 == 8 && ucclEpInt32 == 9 && ucclEpInt64 == 10);
static_assert(UCCLEP_DEVICE_AUTO == 0 && UCCLEP_DEVICE_CUDA == 1 && UCCLEP_DEVICE_HIP == 2 && UCCLEP_DEVICE_HOST == 3 &&
              UCCLEP_DEVICE_INDEX_CURRENT == -1);
static_assert(UCCLEP_MODE_AUTO == 0 && UCCLEP_MODE_LL == 1 && UCCLEP_MODE_HT == 2);
static_assert(UCCLEP_LAYOUT_EXPERT_MAJOR == 1 && UCCLEP_LAYOUT_RANK_MAJOR == 2 && UCCLEP_LAYOUT_FLAT == 3 &&
              UCCLEP_LAYOUT_TILES == 4);
static_assert(UCCLEP_EXPERT_IDS_LOCAL == 0 && UCCLEP_EXPERT_IDS_GLOBAL == 1);
static_assert(UCCLEP_OVERFLOW_ERROR == 0 && UCCLEP_OVERFLOW_DROP == 1);
static_assert(UCCLEP_PASS_FORWARD == 0 && UCCLEP_PASS_BACKWARD == 1);
static_assert(UCCLEP_QUANT_NONE == 0 && UCCLEP_QUANT_FP8_128 == 1);

// A program built years ago carries these numbers.
static_assert(UCCLEP_TENSOR_MAGIC == 0x55450001 && UCCLEP_COMM_CONFIG_MAGIC == 0x55450002 &&
              UCCLEP_BOOTSTRAP_MAGIC == 0x55450003 && UCCLEP_COMM_INFO_MAGIC == 0x55450004 &&
              UCCLEP_ASYNC_ERROR_MAGIC == 0x55450005 && UCCLEP_STATS_MAGIC == 0x55450006 &&
              UCCLEP_GROUP_CONFIG_MAGIC == 0x55450007 && UCCLEP_GROUP_LIMITS_MAGIC == 0x55450008 &&
              UCCLEP_HANDLE_CONFIG_MAGIC == 0x55450009 && UCCLEP_COUNTERS_MAGIC == 0x5545000a &&
              UCCLEP_ROUTING_COUNTS_MAGIC == 0x5545000b && UCCLEP_DISPATCH_INPUTS_MAGIC == 0x5545000c &&
              UCCLEP_DISPATCH_OUTPUTS_MAGIC == 0x5545000d && UCCLEP_COMBINE_INPUTS_MAGIC == 0x5545000e &&
              UCCLEP_COMBINE_OUTPUTS_MAGIC == 0x5545000f && UCCLEP_DISPATCH_CONFIG_MAGIC == 0x55450010 &&
              UCCLEP_COMBINE_CONFIG_MAGIC == 0x55450011 && UCCLEP_TILES_MAGIC == 0x55450012);

template <class T>
void check_init(T object, unsigned magic) {
  CHECK(object.size == sizeof(T));
  CHECK(object.magic == magic);
}

}  // namespace

TEST_CASE("C50 INIT macros in C++ set size and magic, and device_index of the communicator's", "[abi]") {
  check_init(UCCLEP_TENSOR_INIT, UCCLEP_TENSOR_MAGIC);
  check_init(UCCLEP_COMM_CONFIG_INIT, UCCLEP_COMM_CONFIG_MAGIC);
  check_init(UCCLEP_BOOTSTRAP_INIT, UCCLEP_BOOTSTRAP_MAGIC);
  check_init(UCCLEP_COMM_INFO_INIT, UCCLEP_COMM_INFO_MAGIC);
  check_init(UCCLEP_ASYNC_ERROR_INIT, UCCLEP_ASYNC_ERROR_MAGIC);
  check_init(UCCLEP_STATS_INIT, UCCLEP_STATS_MAGIC);
  check_init(UCCLEP_GROUP_CONFIG_INIT, UCCLEP_GROUP_CONFIG_MAGIC);
  check_init(UCCLEP_GROUP_LIMITS_INIT, UCCLEP_GROUP_LIMITS_MAGIC);
  check_init(UCCLEP_HANDLE_CONFIG_INIT, UCCLEP_HANDLE_CONFIG_MAGIC);
  check_init(UCCLEP_COUNTERS_INIT, UCCLEP_COUNTERS_MAGIC);
  check_init(UCCLEP_ROUTING_COUNTS_INIT, UCCLEP_ROUTING_COUNTS_MAGIC);
  check_init(UCCLEP_DISPATCH_INPUTS_INIT, UCCLEP_DISPATCH_INPUTS_MAGIC);
  check_init(UCCLEP_DISPATCH_OUTPUTS_INIT, UCCLEP_DISPATCH_OUTPUTS_MAGIC);
  check_init(UCCLEP_COMBINE_INPUTS_INIT, UCCLEP_COMBINE_INPUTS_MAGIC);
  check_init(UCCLEP_COMBINE_OUTPUTS_INIT, UCCLEP_COMBINE_OUTPUTS_MAGIC);
  check_init(UCCLEP_DISPATCH_CONFIG_INIT, UCCLEP_DISPATCH_CONFIG_MAGIC);
  check_init(UCCLEP_COMBINE_CONFIG_INIT, UCCLEP_COMBINE_CONFIG_MAGIC);
  check_init(UCCLEP_TILES_INIT, UCCLEP_TILES_MAGIC);

  const ucclEpCommConfig_t config = UCCLEP_COMM_CONFIG_INIT;
  CHECK(config.device == UCCLEP_DEVICE_AUTO);
  CHECK(config.device_index == UCCLEP_DEVICE_INDEX_CURRENT);
  CHECK(config.timeout_ms == 0);
}

TEST_CASE("C50 INIT macros in C initialise and assign, with all other fields zero", "[abi]") {
  CHECK(ucclep_test_header_use() == 0);
}
