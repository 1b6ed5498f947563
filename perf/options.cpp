// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "gpu_count.hpp"
#include "parse.hpp"
#include "version.hpp"

namespace ucclep::perf {
namespace {

const std::map<std::string, int> modes = {{"ll", UCCLEP_MODE_LL}, {"ht", UCCLEP_MODE_HT}};
const std::map<std::string, int> known_layouts = {{"expert_major", UCCLEP_LAYOUT_EXPERT_MAJOR},
                                                  {"rank_major", UCCLEP_LAYOUT_RANK_MAJOR},
                                                  {"flat", UCCLEP_LAYOUT_FLAT}};
const std::map<std::string, ucclEpDataType_t> known_dtypes = {
    {"bf16", ucclEpBfloat16}, {"fp16", ucclEpFloat16}, {"fp32", ucclEpFloat32}, {"fp8", ucclEpFloat8e4m3}};
const std::map<std::string, int> devices = {{"auto", UCCLEP_DEVICE_AUTO},
                                            {"host", UCCLEP_DEVICE_HOST},
                                            {"cuda", UCCLEP_DEVICE_CUDA},
                                            {"hip", UCCLEP_DEVICE_HIP}};

constexpr int most_rounds = 1 << 16;
const std::vector<std::string> clocks = {"auto", "clock", "events"};

template <class Map>
std::vector<std::string> names(const Map& map) {
  std::vector<std::string> result;
  for (const auto& [name, value] : map) result.push_back(name);
  return result;
}

const char* const calls_footer = R"(Times are those of the slowest rank of each iteration. Every iteration has fresh
routing and data. In LL a dispatch carries its routing; in HT an update exchanges
the counts of rows before, alone or inside the time as the table's titles say.
  --time events  by events on the rank's stream. The operation is enqueued twice, and
                 the first, on other tensors, is not timed: the ranks meet inside
                 it, and the timed one waits behind it, so the host's delays are not
                 in the time. With --late the ranks start from a barrier instead.
  --time clock   by the clock around call and synchronisation, from a barrier on.

Three bandwidths, per rank (mean over the ranks), at the median time,
1 GB = 1e9 bytes:
  wire       rows that cross to another rank, one per (token, rank)
  logical    the same with the rows that stay on their rank
  selection  rows, one per (token, expert)

Where ranks are in several nodes, lines below those of a size say for each operation
what it put on the wire, all ranks together, as the mean of an operation: bytes and
messages, and by how many commands of kernels (ucclEpCommGetStats), beside the bytes
of the rows that must cross and the messages that are allowed: for each pair of ranks
that are not of one node, and each way, 2, and one for every 32 KiB that rows begin
for a rank, or for a node where they cross once for each (in HT; in LL a dispatch, as
UCCLEP_LL_COPIES says).

#wrong counts rows that differ in any bit from what the routing of all ranks
says, or are missing, or too many. Exit code: 0 = rows were verified and none is
wrong, 2 = bad command line, 1 = all else, nothing verified (-c 0) included.

A size has a line for each operation that is timed. The JSON file (-J) has all samples,
the least time, and what the calls cost the host. With --ceiling the ratio column is
the median time over that of ceiling_perf, for the sizes that it measured. Before each
operation on a GPU a large copy empties its caches. Lists as in --sms 16,24
--dtype bf16,fp8 make one run per combination; -J then writes an array of them.

--corrupt flips one byte of a row after its expected value is fixed and before
the operation carries it, so that what arrives is as wrong as if the wire had
damaged it: of rank 0's first token (dispatch_perf), or of the row that this
token's first expert returns (combine_perf). Such a run has to report #wrong.

)";

const char* const rounds_footer =
    R"(A user's kernel runs rounds of dispatch and combine through the device API, all in one
launch: it sends tokens, receives rows for the experts, sends them back unchanged, and
receives the results. Rows of the table for each size:
  library        ucclEpDispatch and ucclEpCombine of the same rows, as many times: captured
                 into one graph, on the host device as plain calls
  whole grid     bf16, ranks that reach each other's memory: ll::dispatch and ll::combine
                 (HT: ht::) by all blocks (--scope grid)
  counted        rows are received and sent back as dispatch_rows and combine_rows count
                 them (HT: as ucclEpHandleUpdate does)
  all            every row for which the output has room is asked for and sent
  bare           LL, bf16, ranks that reach each other's memory: each row once to a peer
                 as lines that carry their epoch, and back, summed there; no protocol
A name goes on with the scope that sends and receives, and with blocks x threads. A time
is that of a launch over its rounds, of the slowest rank; the median of the launches
counts, which take turns with those of the other lines. The ratio is that to the
library's time. On a GPU each launch stands behind another one that is not timed, in
which the ranks meet.

Rounds alternate between two sets of tokens, in LL of routing, too. The rows that the last
round received, and those returned to it, are compared bit for bit: #wrong counts rows
that differ, are missing, or too many. Exit code: 0 = rows were verified and none is wrong, 2 = bad
command line, 1 = all else. --corrupt flips one byte of rank 0's first token after its
expected value is fixed: such a run has to report #wrong.

All blocks have to be resident at once: --blocks has at most the rank's SMs. On the host
device the defaults are small: 2 ranks, 8 tokens, 512 elements, top-4 of 32 experts.

)";

const char* const layers_footer =
    R"(A layer: dispatch, two grouped GEMMs with SwiGLU between them, combine; bf16, tensor cores
of Hopper. --ways:
  sequential  one after the other
  waves       dispatch and combine in phases; the GEMMs of a wave of experts run beside the
              rows of the next one (--waves)
  tiles       LL: the first GEMM takes tiles of rows as they arrive (layout TILES)
  fused       all in one kernel (ucclep/device/tiles.hpp)
Each is captured into a graph. A time is that of a replay behind another replay that is not
timed, in which the ranks meet, of the slowest rank, by events; the ways take turns. The ratio
is the median over that of the first way.

Results are compared with a reference that computes the same tokens in fp32 without the
library: an error is at most 1/64 of |expected| + rms(expected). The ways have to agree in
every bit. Exit code: 0 = all are right, 2 = bad command line, 1 = all else.

--gemm-only times the two GEMMs by themselves, -b rows for each expert, beside CUTLASS's own
grouped GEMM without SwiGLU.

)";

const char* const ranks_footer = R"(Ranks: --procs P starts P processes of T x G threads, each thread one rank;
without it the ranks are threads of this process. Started by mpirun or srun,
each process is one rank; that needs the plugin ucclep_perf_mpi.so beside this
program, which is built where the build finds MPI. This program links no MPI.

Each rank takes a GPU of its own. With --share-gpus rank r takes GPU r modulo the
number of GPUs, and ranks that share one are processes (--procs). They run beside each
other under NVIDIA's MPS alone (nvidia-cuda-mps-control -d); without it they take
turns, some hundred times slower. Each may use its part of the SMs. Such times do
not apply to ranks that have a GPU each.)";

int environment_int(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : 0;
}

// The size of the MPI job that started this process, or 0. A batch script of Slurm is no member of a job step.
int launcher_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (environment_int(name) > 1) return environment_int(name);
  }
  return 0;
}

void parse_pair(const std::string& text, const char* option, int* first, int* second) {
  char end = 0;
  if (std::sscanf(text.c_str(), "%d:%d%c", first, second, &end) != 2 || *first < 0 || *second < 0) {
    throw UsageError(fmt::format("{} {}: expected two numbers as in 3:500", option, text));
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <class Map>
std::vector<std::string> parse_names(const std::string& text, const char* option, const Map& known) {
  const std::vector<std::string> list = split(text);
  for (const std::string& name : list) {
    if (known.count(name) > 0) continue;
    std::string expected;
    for (const std::string& each : names(known)) expected += (expected.empty() ? "" : ", ") + each;
    throw UsageError(fmt::format("{} {}: expected one of {}", option, name, expected));
  }
  return list;
}

std::vector<int> parse_numbers(const std::string& text, const char* option) {
  std::vector<int> list;
  for (const std::string& part : split(text)) {
    char end = 0;
    int number = 0;
    if (std::sscanf(part.c_str(), "%d%c", &number, &end) != 1) {
      throw UsageError(fmt::format("{} {}: expected numbers as in 16,24", option, text));
    }
    list.push_back(number);
  }
  return list;
}

// What is parsed further.
struct Texts {
  std::string late, child, layout, dtype = "bf16", sms = "0";
  bool sweep = false;
};

// Of all tools.
void add_options(CLI::App& app, Options& o, Texts& texts) {
  app.option_defaults()->take_last();  // as getopt: what is given later wins
  const std::map<std::string, int> units = {{"K", 1 << 10}, {"M", 1 << 20}};
  const CLI::AsNumberWithUnit tokens(units, CLI::AsNumberWithUnit::CASE_INSENSITIVE, "tokens");
  app.add_option("-b,--min-tokens", o.min_tokens, "Smallest size: tokens per rank (128 in LL, 4096 in HT)")
      ->transform(tokens);
  app.add_option("-e,--max-tokens", o.max_tokens, "Largest size (default: the smallest)")->transform(tokens);
  app.add_option("-i,--step", o.step, "Increment between sizes")->transform(tokens);
  app.add_option("-f,--factor", o.factor, "Factor between sizes (2)");
  app.add_option("-t,--threads", o.threads, "Threads per process (1)");
  app.add_option("-g,--gpus", o.gpus,
                 "Ranks per thread, each on a thread of its own (1; alone: one for each GPU, or 8 on the host device)");
  app.add_option("--procs", o.processes, "Processes that hold the ranks (0 = this one)");
  app.add_option("-n,--iters", o.iterations, "Timed iterations per size")->capture_default_str();
  app.add_option("-w,--warmup", o.warmup, "Warm-up iterations")->capture_default_str();
  app.add_option("-c,--check", o.check, "Check every n-th timed iteration and the last; 0 = none")
      ->capture_default_str();
  app.add_option("-J,--json", o.json, json_help);
  app.add_option("--mode", o.mode, "ll (low latency) or ht (high throughput)")
      ->check(CLI::IsMember(names(modes)))
      ->capture_default_str();
  app.add_option("--layout", texts.layout,
                 o.rounds > 0 ? "expert_major or flat (ht), or a list of them (ll: expert_major, ht: flat)"
                              : "expert_major, rank_major (ll) or flat (ht), or a list of them (ll: expert_major, ht: "
                                "flat)");
  app.add_option("--hidden", o.hidden, "Elements per row")->capture_default_str();
  app.add_option("--experts", o.experts, "Experts of all ranks together")->capture_default_str();
  app.add_option("--topk", o.topk, "Experts per token")->capture_default_str();
  app.add_option("--dtype", texts.dtype,
                 o.rounds > 0 ? "bf16, fp16 or fp32, or a list of them"
                              : "bf16, fp16, fp32, or fp8 (e4m3 with fp32 scales per 128; combine is then bf16), or a "
                                "list of them")
      ->capture_default_str();
  app.add_option("--skew", o.skew, "Rank 0 is chosen this many times as often as the average rank (0 = uniform)")
      ->capture_default_str();
  app.add_option("--device", o.device, "auto, host, cuda or hip; of GPUs each rank takes one, in order")
      ->check(CLI::IsMember(names(devices)))
      ->capture_default_str();
  app.add_flag("--share-gpus", o.share_gpus,
               "More ranks than GPUs: rank r takes GPU r modulo their number; with --procs (see below)");
  app.add_option("--sms", texts.sms, "Maximum number of SMs of an operation, or a list (0 = the library's choice)")
      ->capture_default_str();
  app.add_flag("--sweep", texts.sweep, "Sizes in powers of two: 1 to 8192 tokens per rank in HT, to 1024 in LL");
  app.add_flag("--corrupt", o.corrupt, "Flip a byte in every iteration: the run must fail (see below)");
  app.add_option("--seed", o.seed, "Seed of routing and data")->check(not_negative())->capture_default_str();
  app.add_option("--timeout-ms", o.timeout_ms, "Timeout of the library (0 = its default)")->capture_default_str();
  app.add_option("--child", texts.child, "")->group("");  // fd:index, given by the process that started this one
}

// Of operations that the host calls.
void add_options_of_calls(CLI::App& app, Options& o, Texts& texts) {
  app.add_flag("--quant", o.quant, "With bf16: dispatch sends fp8 and computes the scales, combine stays bf16");
  app.add_option("--late", texts.late, "r:us, rank r enters every iteration us microseconds late");
  app.add_option("--nodes", o.nodes, "Divide the ranks into this many virtual nodes (0 = real nodes); see below")
      ->capture_default_str();
  app.add_option(
      "--transport", o.transport,
      "Transport between nodes, as UCCLEP_TRANSPORT (default: loopback with --nodes, else the library's choice)");
  app.add_flag("--graph", o.graph, "Capture each operation once, and time replays of the graph (GPUs)");
  app.add_flag("--windows", o.windows, "Register dispatch's outputs and combine's input as windows");
  app.add_option("--ceiling", o.ceiling,
                 "JSON file of ceiling_perf: also prints each time as a ratio to the speed-of-light bound");
  app.add_option("--time", o.time, "events, clock or auto: events on a GPU, clock on the host device")
      ->check(CLI::IsMember(clocks))
      ->capture_default_str();
}

// Of kernels that run rounds.
void add_options_of_rounds(CLI::App& app, Options& o) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* text) {
    app.add_option(name, values, text)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(CLI::IsMember(values))
        ->capture_default_str();
  };
  app.add_option("--rounds", o.rounds, "Rounds of dispatch and combine in one launch (200; on the host device 10)");
  list("--form", o.forms, "How rows are received and sent back: counted, all, or a list (see below)");
  list("--scope", o.scopes, "Scope that sends and receives: grid, block, warp, or a list (see below)");
  app.add_option("--blocks", o.blocks, "Blocks of a kernel (0 = as the library's; on the host device 2)")
      ->capture_default_str();
  app.add_option("--block-threads", o.block_threads, "Threads of a block (as the library's)");
}

struct Model {
  int experts, topk, hidden, intermediate;
};
const std::map<std::string, Model> models = {{"qwen3-30b", {128, 8, 2048, 768}},
                                             {"qwen2-moe", {60, 4, 2048, 1408}},
                                             {"mixtral", {8, 2, 4096, 14336}},
                                             {"phi-3.5", {16, 2, 4096, 6400}},
                                             {"deepseek-v3", {256, 8, 7168, 2048}}};

// Of whole layers.
void add_options_of_layers(CLI::App& app, Options& o) {
  app.add_option("--model", o.model, "Sets --experts, --topk, --hidden and --intermediate where they are not given")
      ->check(CLI::IsMember(names(models)))
      ->capture_default_str();
  app.add_option("--intermediate", o.intermediate, "Elements between the two GEMMs of an expert");
  app.add_option("--ways", o.ways, "How the layer is computed, a list (see below)")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember(o.ways))
      ->capture_default_str();
  app.add_option("--waves", o.waves, "Waves of experts (4, or as many as experts of a rank)");
  app.add_option("--gemm-sms", o.gemm_sms, "SMs that the GEMMs may use (0 = all that are left)")->capture_default_str();
  app.add_option("--tile-rows", o.tile_rows, "Rows of a tile of the GEMMs, 64 or 128 (0 = by the rows of an expert)")
      ->capture_default_str();
  app.add_flag("--gemm-only", o.gemm_only, "Time the GEMMs alone (see below)");
}

void set_model(const CLI::App& app, Options& o) {
  const Model& model = models.at(o.model);
  const auto set = [&](const char* name, int& value, int of_model) {
    if (app.count(name) == 0) value = of_model;
  };
  set("--experts", o.experts, model.experts);
  set("--topk", o.topk, model.topk);
  set("--hidden", o.hidden, model.hidden);
  set("--intermediate", o.intermediate, model.intermediate);
}

void check_layers(const Options& o) {
  const int local = o.experts / o.ranks();
  require(o.mode == "ll", "--mode ht: layers are measured in ll");
  require(o.layout == "expert_major" && o.dtype == "bf16" && !o.corrupt && o.skew == 0,
          "--layout, --dtype, --corrupt and --skew: a layer needs bf16 by expert, with uniform routing");
  require(o.intermediate > 0 && o.intermediate % 128 == 0,
          fmt::format("--intermediate {}: expected a multiple of 128", o.intermediate));
  require(o.hidden % 256 == 0, fmt::format("--hidden {}: expected a multiple of 256", o.hidden));
  require(
      o.waves >= 1 && o.waves <= std::min(local, 32),
      fmt::format("--waves {}: expected 1 to {}, the experts of a rank and at most 32", o.waves, std::min(local, 32)));
  require(o.gemm_sms >= 0, fmt::format("--gemm-sms {}: expected at least 0", o.gemm_sms));
  require(o.tile_rows == 0 || o.tile_rows == 64 || o.tile_rows == 128,
          fmt::format("--tile-rows {}: expected 64 or 128", o.tile_rows));
  require(!o.ways.empty(), "--ways: expected at least one value");
  require(o.gpus_here > 0, "a layer needs a Hopper GPU, and this machine has no GPU with a driver");
}

void set_defaults(Options& o) {
  const bool ll = o.mode == "ll";
  if (o.layouts.empty()) o.layouts = {ll ? "expert_major" : "flat"};
  o.layout = o.layouts.front();
  o.dtype = o.dtypes.front();
  o.sms = o.sms_choices.front();
  if (o.min_tokens == 0) o.min_tokens = o.max_tokens > 0 ? o.max_tokens : ll ? 128 : 4096;
  if (o.max_tokens == 0) o.max_tokens = o.min_tokens;
  if (o.step == 0 && o.factor == 0) o.factor = 2;
  if (o.processes == 0 && o.child_fd < 0) o.mpi_ranks = launcher_ranks();
  const bool alone = o.processes == 0 && o.threads == 0 && o.mpi_ranks == 0;
  o.gpus_here = gpu_count(o.device);
  if (o.gpus == 0 && alone) o.gpus = o.gpus_here;
  if (o.gpus == 0) o.gpus = alone ? 8 : 1;
  if (o.threads == 0) o.threads = 1;
  if (o.nodes > 1 && o.transport.empty()) o.transport = "loopback";
}

// The host device is there to test the kernels.
void set_host_defaults(const CLI::App& app, Options& o) {
  const bool host = gpu_count(o.device) == 0;
  const auto set = [&](const char* name, int& value, int small) {
    if (host && app.count(name) == 0) value = small;
  };
  set("--hidden", o.hidden, 512);
  set("--experts", o.experts, 32);
  set("--topk", o.topk, 4);
  set("--rounds", o.rounds, 10);
  if (app.count("-b") == 0 && app.count("-e") == 0) set("-b", o.min_tokens, 8);
  if (o.processes == 0 && o.threads == 0 && launcher_ranks() == 0) set("-g", o.gpus, 2);
}

void set_sweep(Options& o) {
  if (o.min_tokens == 0) o.min_tokens = 1;
  if (o.max_tokens == 0) o.max_tokens = std::max(o.min_tokens, o.mode == "ll" ? 1024 : 8192);
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Of an MPI job only the ranks themselves know how many of them are on this machine: gpu_of.
void check_gpus(const Options& o) {
  const int here = o.gpus_here;
  if (here == 0 || o.mpi_ranks > 0 || o.ranks() <= here) return;
  require(
      o.share_gpus,
      fmt::format(
          "{} and {}: each rank needs one; use --share-gpus to let processes share them, as in --procs {} --share-gpus",
          counted(o.ranks(), "rank"), counted(here, "GPU"), o.ranks()));
  require(
      o.ranks_per_process() <= here,
      fmt::format("--share-gpus: a process has {} and the machine {}, but ranks that share a GPU are processes: use "
                  "--procs {} without -t and -g",
                  counted(o.ranks_per_process(), "rank"), counted(here, "GPU"), o.ranks()));
}

void check_rounds(const Options& o) {
  require(o.rounds >= 1 && o.rounds <= most_rounds,
          fmt::format("--rounds {}: expected 1 to {}", o.rounds, most_rounds));
  require(o.dtype != "fp8",
          "--dtype fp8: experts send back the rows that they received, and combine does not accept fp8");
  require(o.layout != "rank_major", "--layout rank_major: expected expert_major, or flat in --mode ht");
  require(!o.forms.empty() && !o.scopes.empty(), "--form and --scope: expected at least one value");
  constexpr int most = 512, warp = 32;
  require(o.block_threads >= 0 && o.block_threads <= most && o.block_threads % warp == 0,
          fmt::format("--block-threads {}: expected a multiple of {} up to {}", o.block_threads, warp, most));
}

void check_options(const Options& o) {
  for (auto [name, value, min] : {std::tuple{"-b", o.min_tokens, 1},
                                  {"-g", o.gpus, 1},
                                  {"-t", o.threads, 1},
                                  {"--procs", o.processes, 0},
                                  {"-n", o.iterations, 1},
                                  {"-w", o.warmup, 0},
                                  {"-c", o.check, 0},
                                  {"-i", o.step, 0},
                                  {"--hidden", o.hidden, 1},
                                  {"--experts", o.experts, 1},
                                  {"--topk", o.topk, 1},
                                  {"--nodes", o.nodes, 0},
                                  {"--sms", o.sms, 0},
                                  {"--blocks", o.blocks, 0},
                                  {"--timeout-ms", o.timeout_ms, 0}}) {
    require(value >= min, fmt::format("{} {}: expected at least {}", name, value, min));
  }
  require(o.max_tokens >= o.min_tokens, fmt::format("-e {}: expected at least -b {}", o.max_tokens, o.min_tokens));
  require(o.step > 0 || o.factor > 1, fmt::format("-f {}: expected at least 2", o.factor));
  const Shape shape = o.shape();
  require(o.skew >= 0 && o.skew <= shape.ranks,
          fmt::format("--skew {}: expected 0 to {}, the number of ranks", o.skew, shape.ranks));
  require(o.nodes == 0 || shape.ranks % o.nodes == 0,
          fmt::format("--nodes {}: the {} ranks are not a multiple of it", o.nodes, shape.ranks));
  require(o.experts % shape.ranks == 0,
          fmt::format("--experts {} is not a multiple of the {} ranks", o.experts, shape.ranks));
  require(o.topk <= o.experts, fmt::format("--topk {}: expected at most --experts {}", o.topk, o.experts));
  require(shape.row_bytes() % 16 == 0, fmt::format("--hidden {}: a row has {} bytes, expected a multiple of 16",  //
                                                   o.hidden, shape.row_bytes()));
  require(!o.quant || o.dtype == "bf16", fmt::format("--quant: --dtype is {}, expected bf16", o.dtype));
  require(shape.received_dtype() != ucclEpFloat8e4m3 || o.hidden % 128 == 0,
          fmt::format("--hidden {}: expected a multiple of 128 with fp8", o.hidden));
  require(!o.graph || o.device != "host", "--graph needs a GPU: it times launches of a GPU's driver");
  require(o.mode == "ll" ? o.layout != "flat" : o.layout != "rank_major",
          fmt::format("--layout {} is not supported in --mode {}", o.layout, o.mode));
  require(o.late_rank < shape.ranks,
          fmt::format("--late: rank {} does not exist among {} ranks", o.late_rank, shape.ranks));
  require(!o.corrupt || o.check > 0, "--corrupt needs checks: -c must not be 0");
  require(o.mpi_ranks == 0 || o.ranks_per_process() == 1,
          "an MPI launcher starts one rank per process: leave out -t and -g");
  check_gpus(o);
}

}  // namespace

int Options::gpu_of(int index) const {
  if (gpus_here == 0 || index < gpus_here) return index;
  require(share_gpus,
          fmt::format(
              "rank {} of this machine has no GPU of its own, as there {} {}: use --share-gpus to let ranks share them",
              index, gpus_here == 1 ? "is" : "are", counted(gpus_here, "GPU")));
  return index % gpus_here;
}

std::vector<int> Options::sizes() const {
  std::vector<int> result;
  for (int64_t tokens = min_tokens; tokens <= max_tokens; tokens = step > 0 ? tokens + step : tokens * factor) {
    result.push_back(static_cast<int>(tokens));
  }
  return result;
}

std::vector<Options> Options::runs() const {
  std::vector<Options> result;
  for (const std::string& one_layout : layouts) {
    for (const std::string& one_dtype : dtypes) {
      for (int one_sms : sms_choices) {
        Options& run = result.emplace_back(*this);
        run.layout = one_layout;
        run.dtype = one_dtype;
        run.sms = one_sms;
      }
    }
  }
  return result;
}

Shape Options::shape() const {
  Shape shape;
  shape.ranks = ranks();
  shape.experts = experts;
  shape.topk = topk;
  shape.hidden = hidden;
  shape.mode = modes.at(mode);
  shape.layout = known_layouts.at(layout);
  shape.dtype = known_dtypes.at(dtype);
  shape.quant = quant;
  shape.skew = skew;
  shape.seed = seed;
  shape.returns_tokens = rounds > 0;
  return shape;
}

int Options::api_device() const {
  return devices.at(device);
}

Options parse_options(int argc, char** argv, const std::string& tool, const std::string& description, bool* done,
                      Timed timed) {
  Options options;
  options.tool = tool;
  options.arguments.assign(argv + 1, argv + argc);
  Texts texts;
  CLI::App app(description, tool);
  const bool rounds = timed == Timed::rounds, layers = timed == Timed::layers;
  app.footer(std::string(rounds ? rounds_footer : layers ? layers_footer : calls_footer) + ranks_footer);
  app.set_version_flag("--version", std::string(version));
  if (rounds) options.rounds = 200, options.iterations = 7;
  add_options(app, options, texts);
  if (rounds) add_options_of_rounds(app, options);
  if (layers) add_options_of_layers(app, options);
  if (timed == Timed::calls) add_options_of_calls(app, options, texts);
  *done = !parse(app, argc, argv);
  if (*done) return options;
  for (auto [name, value] : {std::pair{"-b", options.min_tokens},
                             {"-e", options.max_tokens},
                             {"-t", options.threads},
                             {"-g", options.gpus}}) {
    require_not_zero(app, name, static_cast<uint64_t>(value));
  }
  require_not_zero(app, "-f", static_cast<uint64_t>(options.factor), 2);
  if (rounds) {
    require_not_zero(app, "--block-threads", static_cast<uint64_t>(options.block_threads), 32);
    set_host_defaults(app, options);
  }
  if (layers) set_model(app, options);
  if (!texts.late.empty()) parse_pair(texts.late, "--late", &options.late_rank, &options.late_us);
  if (!texts.child.empty()) parse_pair(texts.child, "--child", &options.child_fd, &options.child_index);
  options.layouts = parse_names(texts.layout, "--layout", known_layouts);
  options.dtypes = parse_names(texts.dtype, "--dtype", known_dtypes);
  options.sms_choices = parse_numbers(texts.sms, "--sms");
  require(!options.dtypes.empty() && !options.sms_choices.empty(), "--dtype and --sms: expected at least one value");
  if (texts.sweep) set_sweep(options);
  set_defaults(options);
  if (layers && app.count("--waves") == 0) options.waves = std::clamp(options.experts / options.ranks(), 1, 4);
  options.graph = options.graph || (rounds && options.gpus_here > 0);
  for (const Options& run : options.runs()) {
    check_options(run);
    if (rounds) check_rounds(run);
    if (layers) check_layers(run);
  }
  return options;
}

}  // namespace ucclep::perf
