/* SPDX-License-Identifier: Apache-2.0 */
/* Four processes send tokens to their experts (dispatch) and get the weighted sums back (combine). */
#define _POSIX_C_SOURCE 200809L /* kill */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucclep/ucclep.h>
#include <unistd.h>

enum { R = 4, E = 8, L = E / R, K = 2, T = 16, H = 64 }; /* ranks, experts, per rank, top-k, tokens, row elements */

#define CHECK(call) \
  if ((call) != ucclEpSuccess) return fprintf(stderr, "%s: %s\n", #call, ucclEpGetLastError(NULL)), 1

static int run(int rank, ucclEpUniqueId id) {
  ucclEpComm_t comm;
  CHECK(ucclEpCommInitRank(&comm, R, id, rank, NULL));
  ucclEpGroupConfig_t shape = UCCLEP_GROUP_CONFIG_INIT;
  shape.num_experts = E, shape.top_k = K, shape.max_tokens_per_rank = T, shape.max_token_bytes = H * sizeof(float);
  ucclEpGroup_t group;
  CHECK(ucclEpGroupCreate(&group, comm, &shape));
  ucclEpHandleConfig_t routing = UCCLEP_HANDLE_CONFIG_INIT;
  routing.mode = UCCLEP_MODE_LL, routing.layout = UCCLEP_LAYOUT_EXPERT_MAJOR;
  ucclEpHandle_t handle;
  CHECK(ucclEpHandleCreate(&handle, group, &routing));

  const int sizes[5][4] = {{2, T, K}, {2, T, K}, {2, T, H}, {3, L, R * T, H}, {2, T, H}}; /* ndim, sizes */
  ucclEpTensor_t ids, weights, tokens, rows, result, *all[5] = {&ids, &weights, &tokens, &rows, &result};
  for (int i = 0; i < 5; i++) { /* memory that the host and the device can access */
    *all[i] = UCCLEP_TENSOR_INIT;
    all[i]->dtype = i == 0 ? ucclEpInt32 : ucclEpFloat32, all[i]->ndim = sizes[i][0];
    for (int d = 0; d < 3; d++) all[i]->sizes[d] = sizes[i][d + 1];
    CHECK(ucclEpMemAllocHost(comm, &all[i]->data, sizeof(float) * L * R * T * H));
  }
  for (int t = 0; t < T; t++) {
    for (int k = 0; k < K; k++) ((int32_t*)ids.data)[t * K + k] = (rank + t + 3 * k) % E;
    for (int k = 0; k < K; k++) ((float*)weights.data)[t * K + k] = k == 0 ? 0.25f : 0.75f;
    for (int h = 0; h < H; h++) ((float*)tokens.data)[t * H + h] = (float)(1000 * rank + 10 * t + h);
  }

  ucclEpDispatchInputs_t sent = UCCLEP_DISPATCH_INPUTS_INIT;
  ucclEpDispatchOutputs_t received = UCCLEP_DISPATCH_OUTPUTS_INIT;
  sent.tokens = &tokens, sent.topk_idx = &ids, sent.topk_weights = &weights, received.tokens = &rows;
  CHECK(ucclEpDispatch(handle, &sent, &received, NULL, NULL));
  /* The experts would change the rows here. They leave them as they are, so 0.25 x + 0.75 x comes back. */
  ucclEpCombineInputs_t partial = UCCLEP_COMBINE_INPUTS_INIT;
  ucclEpCombineOutputs_t combined = UCCLEP_COMBINE_OUTPUTS_INIT;
  partial.tokens = &rows, combined.tokens = &result;
  CHECK(ucclEpCombine(handle, &partial, &combined, NULL, NULL));
  CHECK(ucclEpStreamSynchronize(comm, NULL));
  int wrong = 0;
  for (int i = 0; i < T * H; i++) wrong += ((float*)result.data)[i] != ((float*)tokens.data)[i];
  printf("rank %d: %d of %d values are wrong\n", rank, wrong, T * H);
  CHECK(ucclEpCommDestroy(comm)); /* with all that was made from it */
  return wrong != 0;
}

int main(void) {
  ucclEpUniqueId id;
  pid_t ranks[R], ended;
  int failed = 0, status;
  CHECK(ucclEpGetUniqueId(&id)); /* any process may call it; it has to live until all ranks have joined */
  for (int rank = 0; rank < R; rank++)
    if ((ranks[rank] = fork()) == 0) return run(rank, id);
  while ((ended = wait(&status)) > 0) {
    failed |= status != 0;
    for (int rank = 0; rank < R; rank++) {
      if (ranks[rank] == ended) ranks[rank] = 0;
      if (failed && ranks[rank] > 0) kill(ranks[rank], SIGTERM); /* it would wait for the one that failed */
    }
  }
  return failed;
}
