// SPDX-License-Identifier: Apache-2.0
// The two blocks of docs/from-nccl.md as before.h and after.h, on four ranks that are threads. Their results have the
// same bits, and are those that the routing asks for: expert e multiplies a row by e + 1.
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <ucclep/ucclep.h>

enum { R = NCCL_DOUBLE_RANKS, E = 8, L = E / R, K = 2, T = 16, H = 64 };

struct layer {
  int rank;
  ucclEpComm_t comm;
  ucclEpTensor_t tokens, experts, weights, slabs, counts, sums;
  float *sorted, *rows, *result;
  int *sent, *received;
};

static void sort_by_expert(const struct layer* m, float* sorted, int* sent, cudaStream_t stream) {
  const int32_t* ids = m->experts.data;
  (void)stream;
  for (int e = 0; e < E; e++) {
    sent[e] = 0;
    for (int i = 0; i < T * K; i++) {
      if (ids[i] != e) continue;
      memcpy(sorted, (const float*)m->tokens.data + i / K * H, H * sizeof(float));
      sorted += H, sent[e]++;
    }
  }
}

static void run_experts(const struct layer* m, int local, float* rows, int count, void* stream) {
  (void)stream;
  for (int i = 0; i < count * H; i++) rows[i] *= (float)(m->rank * L + local + 1);
}

static void add_up(const struct layer* m, const float* sorted, float* result, cudaStream_t stream) {
  (void)stream;
  const int32_t* ids = m->experts.data;
  const float* weights = m->weights.data;
  for (int i = 0; i < T * H; i++) result[i] = 0;
  for (int e = 0; e < E; e++) {
    for (int i = 0; i < T * K; i++) {
      if (ids[i] != e) continue;
      for (int h = 0; h < H; h++) result[i / K * H + h] += weights[i] * sorted[h];
      sorted += H;
    }
  }
}

static void run_experts_of_slabs(const struct layer* m, ucclEpStream_t stream) {
  if (ucclEpStreamSynchronize(m->comm, stream) != ucclEpSuccess) return;
  for (int l = 0; l < L; l++)
    run_experts(m, l, (float*)m->slabs.data + l * R * T * H, ((int32_t*)m->counts.data)[l], stream);
}

#include "before.h"

#include "after.h"

static ucclEpUniqueId id;
static struct NcclDouble nccl;

#define CHECK(call)                                                                                             \
  do {                                                                                                          \
    if ((call) != ucclEpSuccess) return fprintf(stderr, "%s: %s\n", #call, ucclEpGetLastError(NULL)), (void*)1; \
  } while (0)

static ucclEpResult_t tensor(ucclEpComm_t comm, ucclEpTensor_t* made, ucclEpDataType_t dtype, int ndim, int64_t a,
                             int64_t b, int64_t c) {
  *made = UCCLEP_TENSOR_INIT;
  made->dtype = dtype, made->ndim = ndim, made->sizes[0] = a, made->sizes[1] = b, made->sizes[2] = c;
  return ucclEpMemAllocHost(comm, &made->data, 4 * (size_t)(a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1)));
}

static void* rank_main(void* argument) {
  struct layer m = {.rank = (int)(intptr_t)argument};
  CHECK(ucclEpCommInitRank(&m.comm, R, id, m.rank, NULL));
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpGroup_t group;
  CHECK(ucclEpGroupCreate(&group, m.comm, &shape));
  ucclEpHandleConfig_t routing = UCCLEP_HANDLE_CONFIG_INIT;
  routing.mode = UCCLEP_MODE_LL, routing.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
  ucclEpHandle_t handle;
  CHECK(ucclEpHandleCreate(&handle, group, &routing));

  CHECK(tensor(m.comm, &m.tokens, ucclEpFloat32, 2, T, H, 0));
  CHECK(tensor(m.comm, &m.experts, ucclEpInt32, 2, T, K, 0));
  CHECK(tensor(m.comm, &m.weights, ucclEpFloat32, 2, T, K, 0));
  CHECK(tensor(m.comm, &m.slabs, ucclEpFloat32, 3, L, R * T, H));
  CHECK(tensor(m.comm, &m.counts, ucclEpInt32, 1, L, 0, 0));
  CHECK(tensor(m.comm, &m.sums, ucclEpFloat32, 2, T, H, 0));
  float *tokens = m.tokens.data, *weights = m.weights.data;
  int32_t* ids = m.experts.data;
  for (int i = 0; i < T * H; i++) tokens[i] = (float)(1000 * m.rank + i % 997);
  for (int t = 0; t < T; t++) { /* tokens whose experts are on one rank, and on two */
    ids[t * K] = (m.rank + t * t) % E, ids[t * K + 1] = (ids[t * K] + 1 + t % 3) % E;
    weights[t * K] = 0.25f, weights[t * K + 1] = 0.75f;
  }

  static float sorted[R][T * K * H], rows[R][R * T * K * H], result[R][T * H];
  static int sent[R][E], received[R][E];
  m.sorted = sorted[m.rank], m.rows = rows[m.rank], m.result = result[m.rank], m.sent = sent[m.rank],
  m.received = received[m.rank];
  struct ncclComm nccl_comm = {&nccl, m.rank};
  layer_by_nccl(&m, &nccl_comm, NULL);
  CHECK(layer_by_ucclep(&m, handle, NULL));
  CHECK(ucclEpStreamSynchronize(m.comm, NULL));

  int wrong = 0;
  for (int i = 0; i < T * H; i++) {
    const int t = i / H;
    const float expected =
        tokens[i] * (0.25f * (float)(ids[t * K] + 1) + 0.75f * (float)(ids[t * K + 1] + 1)); /* exact */
    wrong += m.result[i] != expected || ((float*)m.sums.data)[i] != expected;
  }
  printf("rank %d: %d of %d values are wrong\n", m.rank, wrong, T * H);
  CHECK(ucclEpCommDestroy(m.comm));
  return (void*)(intptr_t)wrong;
}

int main(void) {
  pthread_t threads[R];
  int failed = 0;
  if (ucclEpGetUniqueId(&id) != ucclEpSuccess || pthread_barrier_init(&nccl.meeting, NULL, R) != 0) return 1;
  for (int rank = 0; rank < R; rank++) {
    if (pthread_create(&threads[rank], NULL, rank_main, (void*)(intptr_t)rank) != 0) return 1;
  }
  for (int rank = 0; rank < R; rank++) {
    void* result;
    pthread_join(threads[rank], &result);
    failed |= result != NULL;
  }
  return failed;
}
