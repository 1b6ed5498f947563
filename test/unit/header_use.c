/* SPDX-License-Identifier: Apache-2.0 */
/* Every INIT macro as an initialiser and as an assignment, valid in C and C++. The compilers of header_compiles.sh see
 * it in every language version; test_abi.cpp runs the C form of it. Returns how many of the objects came out wrong. */
#include <string.h>
#include <ucclep/ucclep.h>

#ifdef __cplusplus
extern "C"
#endif
    int
    ucclep_test_header_use(void);

/* dirty is assigned over bytes that are all ones, so that a field which the macro leaves alone is seen. The padding
 * [pad, pad_end) may hold anything. */
#define CHECK_PADDED(type, initial, magic_number, pad, pad_end)           \
  do {                                                                    \
    type fresh = initial;                                                 \
    type dirty;                                                           \
    memset(&dirty, 0xff, sizeof(dirty));                                  \
    dirty = initial;                                                      \
    wrong += fresh.size != sizeof(type) || fresh.magic != (magic_number); \
    wrong += dirty.size != sizeof(type) || dirty.magic != (magic_number); \
    wrong += !rest_is_zero(&fresh, sizeof(type), pad, pad_end);           \
    wrong += !rest_is_zero(&dirty, sizeof(type), pad, pad_end);           \
  } while (0)
#define CHECK_INIT(type, initial, magic_number) CHECK_PADDED(type, initial, magic_number, 0, 0)

static int rest_is_zero(const void* object, size_t bytes, size_t pad, size_t pad_end) {
  const unsigned char* byte = (const unsigned char*)object;
  size_t i;
  for (i = 2 * sizeof(unsigned); i < bytes; i++) {
    if (byte[i] != 0 && !(i >= pad && i < pad_end)) return 0;
  }
  return 1;
}

static int comm_config_is_right(const ucclEpCommConfig_t* config) {
  ucclEpCommConfig_t rest = *config;
  rest.device_index = 0;
  return config->size == sizeof(*config) && config->magic == UCCLEP_COMM_CONFIG_MAGIC &&
         config->device_index == UCCLEP_DEVICE_INDEX_CURRENT && rest_is_zero(&rest, sizeof(rest), 0, 0);
}

int ucclep_test_header_use(void) {
  int wrong = 0;
  ucclEpCommConfig_t comm_config = UCCLEP_COMM_CONFIG_INIT;
  wrong += !comm_config_is_right(&comm_config);
  memset(&comm_config, 0xff, sizeof(comm_config));
  comm_config = UCCLEP_COMM_CONFIG_INIT;
  wrong += !comm_config_is_right(&comm_config);

  CHECK_INIT(ucclEpTensor_t, UCCLEP_TENSOR_INIT, UCCLEP_TENSOR_MAGIC);
  CHECK_INIT(ucclEpBootstrap_t, UCCLEP_BOOTSTRAP_INIT, UCCLEP_BOOTSTRAP_MAGIC);
  CHECK_INIT(ucclEpCommInfo_t, UCCLEP_COMM_INFO_INIT, UCCLEP_COMM_INFO_MAGIC);
  CHECK_PADDED(ucclEpAsyncError_t, UCCLEP_ASYNC_ERROR_INIT, UCCLEP_ASYNC_ERROR_MAGIC,
               offsetof(ucclEpAsyncError_t, peer) + sizeof(int), offsetof(ucclEpAsyncError_t, epoch));
  CHECK_INIT(ucclEpStats_t, UCCLEP_STATS_INIT, UCCLEP_STATS_MAGIC);
  CHECK_PADDED(ucclEpGroupConfig_t, UCCLEP_GROUP_CONFIG_INIT, UCCLEP_GROUP_CONFIG_MAGIC,
               offsetof(ucclEpGroupConfig_t, nranks) + sizeof(int), sizeof(ucclEpGroupConfig_t));
  CHECK_INIT(ucclEpGroupLimits_t, UCCLEP_GROUP_LIMITS_INIT, UCCLEP_GROUP_LIMITS_MAGIC);
  CHECK_INIT(ucclEpHandleConfig_t, UCCLEP_HANDLE_CONFIG_INIT, UCCLEP_HANDLE_CONFIG_MAGIC);
  CHECK_INIT(ucclEpCounters_t, UCCLEP_COUNTERS_INIT, UCCLEP_COUNTERS_MAGIC);
  CHECK_INIT(ucclEpRoutingCounts_t, UCCLEP_ROUTING_COUNTS_INIT, UCCLEP_ROUTING_COUNTS_MAGIC);
  CHECK_INIT(ucclEpDispatchInputs_t, UCCLEP_DISPATCH_INPUTS_INIT, UCCLEP_DISPATCH_INPUTS_MAGIC);
  CHECK_INIT(ucclEpDispatchOutputs_t, UCCLEP_DISPATCH_OUTPUTS_INIT, UCCLEP_DISPATCH_OUTPUTS_MAGIC);
  CHECK_INIT(ucclEpCombineInputs_t, UCCLEP_COMBINE_INPUTS_INIT, UCCLEP_COMBINE_INPUTS_MAGIC);
  CHECK_INIT(ucclEpCombineOutputs_t, UCCLEP_COMBINE_OUTPUTS_INIT, UCCLEP_COMBINE_OUTPUTS_MAGIC);
  CHECK_INIT(ucclEpDispatchConfig_t, UCCLEP_DISPATCH_CONFIG_INIT, UCCLEP_DISPATCH_CONFIG_MAGIC);
  CHECK_INIT(ucclEpCombineConfig_t, UCCLEP_COMBINE_CONFIG_INIT, UCCLEP_COMBINE_CONFIG_MAGIC);
  CHECK_INIT(ucclEpTiles_t, UCCLEP_TILES_INIT, UCCLEP_TILES_MAGIC);
  return wrong;
}
