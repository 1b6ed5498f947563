// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that docs/from-nccl.md calls, with their types, among threads: sends and receives of a group
// meet at its end. A count that differs between the two ends is ncclInvalidArgument there.
#pragma once
#include <pthread.h>
#include <string.h>

#include "cuda_runtime.h"

enum { NCCL_DOUBLE_RANKS = 4 };
typedef enum { ncclSuccess = 0, ncclInvalidArgument = 4 } ncclResult_t;
typedef enum { ncclInt32 = 2, ncclFloat = 7 } ncclDataType_t;  // 4 bytes each

struct NcclTransfer {
  const void* from;
  void* to;
  size_t sent, received;  // bytes
};
struct NcclDouble {
  pthread_barrier_t meeting;
  struct NcclTransfer transfers[NCCL_DOUBLE_RANKS][NCCL_DOUBLE_RANKS];  // by source and destination
};
typedef struct ncclComm {
  struct NcclDouble* shared;
  int rank;
}* ncclComm_t;
static __thread ncclComm_t nccl_in_group;

static inline ncclResult_t ncclGroupStart(void) {
  return ncclSuccess;
}
static inline ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  (void)datatype, (void)stream;
  nccl_in_group = comm;
  struct NcclTransfer* transfer = &comm->shared->transfers[comm->rank][peer];
  transfer->from = sendbuff, transfer->sent = 4 * count;
  return ncclSuccess;
}
static inline ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  (void)datatype, (void)stream;
  struct NcclTransfer* transfer = &comm->shared->transfers[peer][comm->rank];
  transfer->to = recvbuff, transfer->received = 4 * count;
  return ncclSuccess;
}
static inline ncclResult_t ncclGroupEnd(void) {
  ncclComm_t comm = nccl_in_group;
  ncclResult_t result = ncclSuccess;
  pthread_barrier_wait(&comm->shared->meeting);
  for (int peer = 0; peer < NCCL_DOUBLE_RANKS; peer++) {
    struct NcclTransfer* transfer = &comm->shared->transfers[peer][comm->rank];
    if (transfer->sent != transfer->received) result = ncclInvalidArgument;
    if (result == ncclSuccess && transfer->received != 0) memcpy(transfer->to, transfer->from, transfer->received);
  }
  pthread_barrier_wait(&comm->shared->meeting);
  return result;
}
