/* SPDX-License-Identifier: Apache-2.0
 * A user's program in C99: four processes send tokens to experts and back, in both modes. "Expert e" multiplies a row
 * by e + 1, all numbers are small integers or halves of them, so every result is exact. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucclep/ucclep.h>
#include <unistd.h>

enum { RANKS = 4, EXPERTS = 8, LOCAL = EXPERTS / RANKS, TOKENS = 5, TOP_K = 2, HIDDEN = 32 };

static const float weights[TOP_K] = {0.5f, 2.0f};

#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    ucclEpResult_t result_ = (call);                                                                   \
    if (result_ != ucclEpSuccess) {                                                                    \
      fprintf(stderr, "%s: %s: %s\n", #call, ucclEpGetErrorString(result_), ucclEpGetLastError(NULL)); \
      return 1;                                                                                        \
    }                                                                                                  \
  } while (0)

typedef struct {
  ucclEpComm_t comm;
  ucclEpStream_t stream;
  int rank;
} Rank;

static int tokens_of(int rank) {
  return TOKENS - rank;
}
static float element(int rank, int token, int column) {
  return (float)(rank * 8 + token + column % 3);
}
static int expert_of(int rank, int token, int k) {
  return (rank + token * 3 + k * 5) % EXPERTS;
}
static float expected(int rank, int token, int column) {
  float sum = 0;
  int k;
  for (k = 0; k < TOP_K; k++) sum += weights[k] * element(rank, token, column) * (float)(expert_of(rank, token, k) + 1);
  return sum;
}

static ucclEpTensor_t tensor(ucclEpDataType_t dtype, void* data, int ndim, int64_t a, int64_t b, int64_t c) {
  ucclEpTensor_t t = UCCLEP_TENSOR_INIT;
  t.dtype = dtype;
  t.data = data;
  t.ndim = ndim;
  t.sizes[0] = a;
  t.sizes[1] = b;
  t.sizes[2] = c;
  return t;
}

static int to_device(const Rank* self, void** device, const void* host, size_t bytes) {
  CHECK(ucclEpMemAlloc(self->comm, device, bytes));
  if (host != NULL) CHECK(ucclEpMemcpy(self->comm, *device, host, bytes, self->stream));
  return 0;
}

static int to_host(const Rank* self, void* host, const void* device, size_t bytes) {
  CHECK(ucclEpMemcpy(self->comm, host, device, bytes, self->stream));
  CHECK(ucclEpStreamSynchronize(self->comm, self->stream));
  return 0;
}

/* This rank's tokens, choices and weights in device memory. */
typedef struct {
  void *tokens, *topk_idx, *topk_weights, *result;
} Inputs;

static int make_inputs(const Rank* self, Inputs* in) {
  float tokens[TOKENS][HIDDEN], factors[TOKENS][TOP_K];
  int64_t choices[TOKENS][TOP_K];
  int t, i;
  for (t = 0; t < TOKENS; t++) {
    for (i = 0; i < HIDDEN; i++) tokens[t][i] = element(self->rank, t, i);
    for (i = 0; i < TOP_K; i++) choices[t][i] = expert_of(self->rank, t, i);
    for (i = 0; i < TOP_K; i++) factors[t][i] = weights[i];
  }
  return to_device(self, &in->tokens, tokens, sizeof(tokens)) ||
         to_device(self, &in->topk_idx, choices, sizeof(choices)) ||
         to_device(self, &in->topk_weights, factors, sizeof(factors)) ||
         to_device(self, &in->result, NULL, sizeof(tokens));
}

static int check_result(const Rank* self, const char* what, const void* device) {
  float result[TOKENS][HIDDEN];
  int t, i;
  if (to_host(self, result, device, sizeof(result))) return 1;
  for (t = 0; t < tokens_of(self->rank); t++) {
    for (i = 0; i < HIDDEN; i++) {
      if (result[t][i] == expected(self->rank, t, i)) continue;
      fprintf(stderr, "%s: rank %d, token %d, element %d is %g, expected %g\n", what, self->rank, t, i,
              (double)result[t][i], (double)expected(self->rank, t, i));
      return 1;
    }
  }
  return 0;
}

/* LL: rows arrive in one slab for each expert; the library applies the weights. */
static int low_latency(const Rank* self, ucclEpGroup_t group, const Inputs* in) {
  enum { SLAB = RANKS * TOKENS };
  static float rows[LOCAL][SLAB][HIDDEN];
  int32_t counts[LOCAL];
  const int64_t T = tokens_of(self->rank);
  void *rows_memory, *counts_memory;
  ucclEpHandle_t handle = NULL;
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  ucclEpCounters_t counters = UCCLEP_COUNTERS_INIT;
  ucclEpDispatchInputs_t send = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t receive = UCCLEP_DISPATCH_OUTPUTS_INIT;
  ucclEpCombineInputs_t back = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t out = UCCLEP_COMBINE_OUTPUTS_INIT;
  ucclEpTensor_t tokens = tensor(ucclEpFloat32, in->tokens, 2, T, HIDDEN, 0);
  ucclEpTensor_t topk_idx = tensor(ucclEpInt64, in->topk_idx, 2, T, TOP_K, 0);
  ucclEpTensor_t topk_weights = tensor(ucclEpFloat32, in->topk_weights, 2, T, TOP_K, 0);
  ucclEpTensor_t result = tensor(ucclEpFloat32, in->result, 2, T, HIDDEN, 0);
  ucclEpTensor_t received, per_expert;
  int e, r, i;
  if (to_device(self, &rows_memory, NULL, sizeof(rows)) || to_device(self, &counts_memory, NULL, sizeof(counts)))
    return 1;
  received = tensor(ucclEpFloat32, rows_memory, 3, LOCAL, SLAB, HIDDEN);
  per_expert = tensor(ucclEpInt32, counts_memory, 1, LOCAL, 0, 0);

  config.mode = UCCLEP_MODE_LL;
  config.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
  CHECK(ucclEpHandleCreate(&handle, group, &config));
  counters.tokens_per_expert = &per_expert;
  CHECK(ucclEpHandleUpdate(handle, &topk_idx, &counters, self->stream));
  send.tokens = &tokens;
  send.topk_weights = &topk_weights;
  receive.tokens = &received;
  CHECK(ucclEpDispatch(handle, &send, &receive, NULL, self->stream));

  if (to_host(self, counts, counts_memory, sizeof(counts)) || to_host(self, rows, rows_memory, sizeof(rows))) return 1;
  for (e = 0; e < LOCAL; e++) {
    for (r = 0; r < counts[e]; r++) {
      for (i = 0; i < HIDDEN; i++) rows[e][r][i] *= (float)(self->rank * LOCAL + e + 1);
    }
  }
  CHECK(ucclEpMemcpy(self->comm, rows_memory, rows, sizeof(rows), self->stream));
  back.tokens = &received;
  out.tokens = &result;
  CHECK(ucclEpCombine(handle, &back, &out, NULL, self->stream));
  if (check_result(self, "LL", in->result)) return 1;
  CHECK(ucclEpHandleDestroy(handle));
  CHECK(ucclEpMemFree(self->comm, rows_memory));
  CHECK(ucclEpMemFree(self->comm, counts_memory));
  return 0;
}

/* HT: one row for each token and rank; this program applies the weights of its experts before it returns the row. */
static int high_throughput(const Rank* self, ucclEpGroup_t group, const Inputs* in) {
  static float rows[RANKS * TOKENS][HIDDEN];
  int32_t experts[RANKS * TOKENS][TOP_K];
  float factors[RANKS * TOKENS][TOP_K];
  const int64_t T = tokens_of(self->rank);
  int64_t N = 0;
  void *rows_memory, *experts_memory, *factors_memory;
  ucclEpHandle_t handle = NULL;
  ucclEpHandleConfig_t config = UCCLEP_HANDLE_CONFIG_INIT;
  ucclEpDispatchInputs_t send = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t receive = UCCLEP_DISPATCH_OUTPUTS_INIT;
  ucclEpCombineInputs_t back = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t out = UCCLEP_COMBINE_OUTPUTS_INIT;
  ucclEpTensor_t tokens = tensor(ucclEpFloat32, in->tokens, 2, T, HIDDEN, 0);
  ucclEpTensor_t topk_idx = tensor(ucclEpInt64, in->topk_idx, 2, T, TOP_K, 0);
  ucclEpTensor_t topk_weights = tensor(ucclEpFloat32, in->topk_weights, 2, T, TOP_K, 0);
  ucclEpTensor_t result = tensor(ucclEpFloat32, in->result, 2, T, HIDDEN, 0);
  ucclEpTensor_t received, received_idx, received_weights;
  int64_t n;
  int i, k;
  if (to_device(self, &rows_memory, NULL, sizeof(rows)) || to_device(self, &experts_memory, NULL, sizeof(experts)) ||
      to_device(self, &factors_memory, NULL, sizeof(factors))) {
    return 1;
  }

  config.mode = UCCLEP_MODE_HT;
  config.layout = UCCLEP_LAYOUT_FLAT;
  CHECK(ucclEpHandleCreate(&handle, group, &config));
  CHECK(ucclEpHandleUpdate(handle, &topk_idx, NULL, self->stream));
  CHECK(ucclEpHandleWaitCounts(handle, &N, NULL));
  if (N > RANKS * TOKENS) {
    fprintf(stderr, "HT: rank %d receives %lld rows\n", self->rank, (long long)N);
    return 1;
  }
  received = tensor(ucclEpFloat32, rows_memory, 2, N, HIDDEN, 0);
  received_idx = tensor(ucclEpInt32, experts_memory, 2, N, TOP_K, 0);
  received_weights = tensor(ucclEpFloat32, factors_memory, 2, N, TOP_K, 0);
  send.tokens = &tokens;
  send.topk_weights = &topk_weights;
  receive.tokens = &received;
  receive.topk_idx = &received_idx;
  receive.topk_weights = &received_weights;
  CHECK(ucclEpDispatch(handle, &send, &receive, NULL, self->stream));

  if (to_host(self, rows, rows_memory, sizeof(rows)) || to_host(self, experts, experts_memory, sizeof(experts)) ||
      to_host(self, factors, factors_memory, sizeof(factors))) {
    return 1;
  }
  for (n = 0; n < N; n++) {
    float factor = 0;
    for (k = 0; k < TOP_K; k++) {
      if (experts[n][k] >= 0) factor += factors[n][k] * (float)(self->rank * LOCAL + experts[n][k] + 1);
    }
    for (i = 0; i < HIDDEN; i++) rows[n][i] *= factor;
  }
  CHECK(ucclEpMemcpy(self->comm, rows_memory, rows, sizeof(rows), self->stream));
  back.tokens = &received;
  out.tokens = &result;
  CHECK(ucclEpCombine(handle, &back, &out, NULL, self->stream));
  if (check_result(self, "HT", in->result)) return 1;
  CHECK(ucclEpHandleDestroy(handle));
  CHECK(ucclEpMemFree(self->comm, rows_memory));
  CHECK(ucclEpMemFree(self->comm, experts_memory));
  CHECK(ucclEpMemFree(self->comm, factors_memory));
  return 0;
}

static int run(ucclEpUniqueId id, int rank) {
  Rank self = {NULL, NULL, 0};
  Inputs in;
  ucclEpGroup_t group = NULL;
  ucclEpCommConfig_t comm_config = UCCLEP_COMM_CONFIG_INIT;
  ucclEpGroupConfig_t group_config = UCCLEP_GROUP_CONFIG_INIT;
  self.rank = rank;
  comm_config.timeout_ms = 30000;
  CHECK(ucclEpCommInitRank(&self.comm, RANKS, id, rank, &comm_config));
  CHECK(ucclEpStreamCreate(self.comm, &self.stream));
  group_config.num_experts = EXPERTS;
  group_config.top_k = TOP_K;
  group_config.max_tokens_per_rank = TOKENS;
  group_config.max_token_bytes = HIDDEN * sizeof(float);
  CHECK(ucclEpGroupCreate(&group, self.comm, &group_config));
  if (make_inputs(&self, &in) || low_latency(&self, group, &in) || high_throughput(&self, group, &in)) return 1;
  CHECK(ucclEpGroupDestroy(group));
  CHECK(ucclEpStreamDestroy(self.comm, self.stream));
  CHECK(ucclEpCommDestroy(self.comm));
  return 0;
}

int main(void) {
  ucclEpUniqueId id;
  int rank, failed = 0;
  CHECK(ucclEpGetUniqueId(&id));
  for (rank = 0; rank < RANKS; rank++) {
    const pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) _exit(run(id, rank));
  }
  for (rank = 0; rank < RANKS; rank++) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) failed++;
  }
  if (failed == 0) printf("%d ranks, LL and HT: all results are exact\n", RANKS);
  return failed == 0 ? 0 : 1;
}
