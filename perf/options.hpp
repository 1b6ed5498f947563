// SPDX-License-Identifier: Apache-2.0
// The command line of dispatch_perf, combine_perf and device_perf, in the manner of nccl-tests.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ucclep/ucclep.h"
#include "workload.hpp"

namespace ucclep::perf {

// An option that does not parse or does not fit the others. main() prints it and returns 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string tool;
  std::vector<std::string> arguments;  // as given, for the JSON file

  int min_tokens = 0;  // sizes are tokens per rank; 0 = 128 in LL, 4096 in HT
  int max_tokens = 0;
  int step = 0;
  int factor = 0;
  int processes = 0;  // 0 = all ranks in this process
  int threads = 0;
  int gpus = 0;
  int iterations = 20;
  int warmup = 1;
  int check = 1;  // results of every n-th timed iteration are checked, those of the last always; 0 = none
  std::string json;

  std::string mode = "ll";
  std::string layout;  // empty: expert_major in LL, flat in HT
  std::string dtype = "bf16";
  std::string device = "auto";
  bool share_gpus = false;
  int gpus_here = 0;      // of this machine, as --device chooses them; 0 = the host device
  int nodes = 0;          // virtual ones; 0 = as the ranks really are
  std::string transport;  // empty: loopback with --nodes, else the library's choice
  std::string time = "auto";
  int sms = 0;  // 0 = as the library likes
  bool graph = false;
  bool windows = false;
  std::string ceiling;  // file of ceiling_perf
  bool quant = false;
  int hidden = 7168;
  int experts = 256;
  int topk = 8;
  double skew = 0;
  uint64_t seed = 1;
  int late_rank = -1;
  int late_us = 0;
  bool corrupt = false;
  int timeout_ms = 0;

  // Of device_perf.
  int rounds = 0;  // in one launch; 0: of the other tools
  std::vector<std::string> forms = {"counted", "all"}, scopes = {"grid", "block", "warp"};
  int blocks = 0, block_threads = 0;  // of its kernels; 0 = as the library's

  // Of layer_perf.
  std::string model = "qwen3-30b";
  int intermediate = 0;  // elements between an expert's two GEMMs; 0: of the other tools
  std::vector<std::string> ways = {"sequential", "waves", "tiles", "fused"};
  int waves = 0;      // of the way by waves
  int gemm_sms = 0;   // that the GEMMs may use; 0 = all that the operations beside them leave
  int tile_rows = 0;  // of the GEMMs, 64 or 128; 0 = by the rows of an expert
  bool gemm_only = false;

  // Lists; a run has one of each in the fields above.
  std::vector<std::string> layouts, dtypes;
  std::vector<int> sms_choices;

  // How this process was started.
  int child_fd = -1;  // in a process that --procs started: the memory shared with the others
  int child_index = 0;
  int mpi_ranks = 0;  // above 0: an MPI launcher started us, one rank per process

  int ranks_per_process() const { return threads * gpus; }
  int ranks() const { return mpi_ranks > 0 ? mpi_ranks : ranks_per_process() * (processes > 0 ? processes : 1); }
  // Of a rank that is the index-th of this machine. Throws UsageError where that needs --share-gpus, which is not
  // given.
  int gpu_of(int index) const;
  std::vector<int> sizes() const;
  // One run for each combination of what was given in lists; their options have single values.
  std::vector<Options> runs() const;
  Shape shape() const;
  int api_device() const;
};

// What a tool times: calls of the C API, rounds of the device API in one launch, whole MoE layers.
enum class Timed { calls, rounds, layers };

// Parses, fills in the defaults that depend on other options, and checks what fits together. Throws UsageError.
// --help and --version print and leave `done` set.
Options parse_options(int argc, char** argv, const std::string& tool, const std::string& description, bool* done,
                      Timed timed = Timed::calls);

}  // namespace ucclep::perf
