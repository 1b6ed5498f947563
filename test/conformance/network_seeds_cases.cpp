// SPDX-License-Identifier: Apache-2.0
// Conformance over a network that reorders, delays, repeats, drops links and stands still, from seeds. Every ten seeds
// in a row share out all pairs of a case and a shape among themselves at random, and in every fifty each pair takes all
// manners in turn. What ranks say that they ran, and what the faulty transport says that it did, is read at the end:
// each pair ran once in every ten seeds, in each manner once in every fifty, at least 30 % of the writes were applied
// out of order, and faults of every kind struck.
//
// UCCLEP_TEST_SEEDS=n, UCCLEP_TEST_FIRST_SEED=n, UCCLEP_TEST_TRANSPORT: what is made faulty (loopback).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>

#include "conformance/in_nodes.hpp"
#include "conformance/network_batch.hpp"
#include "conformance/network_scenarios.hpp"
#include "conformance/nodes.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr unsigned together = 10;  // seeds that share out all pairs
constexpr const char* directory_variable = "UCCLEP_TEST_SEEDS_DIRECTORY";

const std::vector<Nodes>& shapes() {
  static const std::vector<Nodes> all{{2, 2}, {2, 2, 2, 2}, {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 5}};
  return all;
}

struct Pair {
  size_t number, shape;
  Scenario scenario;
};

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  for (size_t shape = 0; shape < shapes().size(); ++shape) {
    const int ranks = ranks_of(shapes()[shape]);
    std::vector<Scenario> scenarios = some_of_everything(ranks);
    for (const auto& more : {the_rest(ranks), with_limits(ranks)}) {
      scenarios.insert(scenarios.end(), more.begin(), more.end());
    }
    for (const Scenario& one : scenarios) {
      for (Scenario in_layout : in_all_layouts(one)) {
        in_layout.ranks = ranks;
        in_layout.nodes = shapes()[shape];
        if (exists(in_layout)) pairs.push_back({pairs.size(), shape, in_layout});
      }
    }
  }
  return pairs;
}

Manner manner_of(const Pair& pair, unsigned seed) {
  return static_cast<Manner>(((seed - 1) / together + pair.number) % all_manners);
}

// A tenth of them, by shape. The same for each rank's process.
std::map<size_t, std::vector<Pair>> share_of(unsigned seed) {
  std::vector<Pair> pairs = all_pairs();
  const unsigned turn = (seed - 1) / together;
  for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[mix(turn, i) % i]);
  std::map<size_t, std::vector<Pair>> share;
  const size_t end = reduced() ? 4 * together : pairs.size();
  for (size_t i = (seed - 1) % together; i < end; i += together) share[pairs[i].shape].push_back(pairs[i]);
  return share;
}

// Where ranks, of this process or others, leave what they ran, and the library its log. Of the process that began.
class Record {
 public:
  Record() {
    if (const char* known = std::getenv(directory_variable)) {
      directory_ = known;
      return;
    }
    std::string path = std::filesystem::temp_directory_path() / "ep-test-seeds-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    directory_ = path;
    own_ = true;
    setenv(directory_variable, directory_.c_str(), 1);
    setenv("UCCLEP_DEBUG", "INFO", 1);
    setenv("UCCLEP_DEBUG_FILE", (directory_ / "log").c_str(), 1);
  }
  ~Record() {
    if (!own_) return;
    for (const char* variable : {directory_variable, "UCCLEP_DEBUG", "UCCLEP_DEBUG_FILE"}) unsetenv(variable);
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  void add(size_t pair, Manner manner) const {
    std::ofstream(directory_ / "ran", std::ios::app) << pair << ' ' << static_cast<unsigned>(manner) << '\n';
  }
  // How often each pair ran in each manner.
  using Times = std::array<unsigned, all_manners>;
  std::map<size_t, Times> ran() const {
    std::map<size_t, Times> times;
    std::ifstream file(directory_ / "ran");
    for (size_t pair, manner; file >> pair >> manner;) ++times[pair].at(manner);
    return times;
  }
  // Sums of the numbers of all endpoints of `faulty`, by name: "payloads overtaken".
  std::map<std::string, uint64_t> faults() const {
    std::map<std::string, uint64_t> sums;
    std::ifstream log(directory_ / "log");
    for (std::string line; std::getline(log, line);) {
      const size_t begin = line.find("faulty] writes");
      if (begin == std::string::npos) continue;
      std::istringstream parts(line.substr(line.find(' ', begin) + 1));
      for (std::string part; std::getline(parts >> std::ws, part, ',');) {
        const size_t number = part.rfind(' ');
        sums[part.substr(0, number)] += std::stoull(part.substr(number + 1));
      }
    }
    return sums;
  }

 private:
  std::filesystem::path directory_;
  bool own_ = false;
};

// Two rounds on as many handles as may be in flight; the second one backward, where the manner and the layout have it.
// One rank begins each time when the others have sent all that they could.
void run_pair(Rank& rank, ucclEpComm_t comm, Stream& stream, const Pair& pair, unsigned seed, const Record& record) {
  const Manner manner = manner_of(pair, seed);
  const uint64_t draw = mix(seed, pair.number);
  ucclEpGroupConfig_t config = group_config({pair.scenario});
  // A group for rows as long as a chunk: each of the short ones is a message of its own.
  if (draw % 8 != 0) config.max_token_bytes = 1 << 16;
  config.max_in_flight = has_phases(manner) && draw / 8 % 4 == 0 ? 4 : 2;
  config.num_sms = sms_of(draw / 32);
  const Group group = make_group(comm, config);
  std::vector<Handle> handles;
  for (int i = 0; i < config.max_in_flight; ++i) handles.push_back(make_handle(group, handle_config(pair.scenario)));
  if (rank.rank == 0) record.add(pair.number, manner);
  for (unsigned round = 0; round < 2; ++round) {
    const bool back = round == 1 && goes_back(manner) && pair.scenario.layout != Layout::ll_rank_major;
    Scenario scenario = back ? backward_of(pair.scenario) : pair.scenario;
    scenario.num_sms = sms_of(mix(draw, static_cast<uint64_t>(rank.rank), round));
    Batch batch(rank, comm, handles, scenario, draw + (back ? 0 : 4 * round));
    if (has_phases(manner)) batch.split(draw + round);
    if (manner == Manner::in_windows) batch.register_windows(draw + round);
    const bool late =
        static_cast<unsigned>(rank.rank) == mix(seed, pair.number, round) % static_cast<unsigned>(rank.count);
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    batch.enqueue(stream);
    stream.synchronize();
    batch.check();
  }
}

// Seeds in a row, with a communicator each.
struct Seeds {
  unsigned first;
  int count;
};

// The one command that repeats them.
std::string again(const Seeds& seeds, const std::string& inner) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string processes = ranks_are_processes() ? "UCCLEP_TEST_PROCESSES=1 " : "";
  return "again: " + processes + "UCCLEP_DEVICE=host UCCLEP_TEST_TRANSPORT=" + inner +
         " UCCLEP_TEST_SEEDS=" + std::to_string(seeds.count) +
         " UCCLEP_TEST_FIRST_SEED=" + std::to_string(seeds.first) + " " + program + " '[seeds]'";
}

// run_ranks that says, in one line, how to repeat what failed.
void run_ranks_of(const Seeds& seeds, int ranks, const std::string& inner, const std::function<void(Rank&)>& body) {
  struct Say {
    std::string how;
    ~Say() {
      const bool failed = std::uncaught_exceptions() > 0 || !Catch::getResultCapture().lastAssertionPassed();
      if (failed && !is_rank_process()) std::fprintf(stderr, "%s\n", how.c_str());
    }
  } const say{again(seeds, inner)};
  run_ranks(ranks, {.communicators = seeds.count, .seconds = 60.0 * seeds.count}, body);
}

// A connection breaks, or a NIC dies, somewhere on the way; every other time in phases.
void run_to_the_end(unsigned seed, const std::string& inner) {
  const char* what = seed % 2 == 0 ? ",break=" : ",kill=";
  const std::string transport =
      "faulty:seed=" + std::to_string(seed) + what + std::to_string(5 + mix(seed) % 60) + ":" + inner;
  run_ranks_of({seed, 1}, 4, inner, [&](Rank& rank) {
    const Scenario scenario{.layout = Layout::ll_expert_major, .ranks = 4, .experts = 8};
    Comm comm(rank, in_nodes_of(rank, 2, transport.c_str()));
    const Group group = make_group(comm, group_config({scenario}));
    const Handle handle = make_handle(group, handle_config(scenario));
    Stream stream(comm);
    Exchange exchange(rank, comm, scenario);
    exchange.dispatch_config.send_only = exchange.combine_config.send_only = seed / 2 % 2 == 0 ? 0 : 1;
    ucclEpResult_t result = exchange.try_update(handle, stream);
    for (int i = 0; i < 1000 && result == ucclEpSuccess; ++i) {
      result = i % 2 == 0 ? exchange.try_dispatch(handle, stream) : exchange.try_combine(handle, stream);
      if (result == ucclEpSuccess) result = ucclEpComplete(handle, stream);
      if (result == ucclEpSuccess) result = ucclEpStreamSynchronize(comm, stream);
    }
    require(result == ucclEpRemoteError || result == ucclEpSystemError, transport + ": " + async_error(comm).text);
    require(async_error(comm).code == result, "the record has another code");
  });
}

// The pairs of one seed and one shape.
void run_share(Rank& rank, unsigned seed, int id, size_t shape, const std::string& inner, const Record& record) {
  const std::string transport = "faulty:delay=2000,seed=" + std::to_string(seed) +
                                ",outage=" + std::to_string(3 + seed % 20) + ",stall=" + std::to_string(3 + seed % 17) +
                                ",ms=5" + (seed % 3 == 0 ? ",hide=both:" : ":") + inner;
  ucclEpCommConfig_t config = in_nodes(rank, shapes()[shape], transport.c_str());
  config.proxy_threads = seed % 5 == 0 ? 2 : 1;
  Comm comm(rank, config, id);
  Stream stream(comm);
  const std::vector<Pair> pairs = share_of(seed)[shape];
  for (const Pair& pair : pairs) {
    try {
      run_pair(rank, comm, stream, pair, seed, record);
    } catch (const Failure& failure) {
      throw Failure("pair " + std::to_string(pair.number) + ": " + failure.what() + "; " + again({seed, 1}, inner));
    }
  }
}

// Ranks that are processes take long to start: they stay for all of these seeds.
void run_seeds(const Seeds& seeds, const std::string& inner, const Record& record) {
  for (size_t shape = 0; shape < shapes().size(); ++shape) {
    bool any = false;  // of few pairs, in short runs
    for (int i = 0; i < seeds.count; ++i) any |= share_of(seeds.first + static_cast<unsigned>(i)).count(shape) != 0;
    if (!any) continue;
    run_ranks_of(seeds, ranks_of(shapes()[shape]), inner, [&](Rank& rank) {
      for (int i = 0; i < seeds.count; ++i) {
        run_share(rank, seeds.first + static_cast<unsigned>(i), i, shape, inner, record);
      }
    });
  }
  for (int i = 0; i < seeds.count; ++i) run_to_the_end(seeds.first + static_cast<unsigned>(i), inner);
}

// Of what each `turns` turns of ten seeds in a row have once: as often as it must and can come in these seeds.
void check_times(unsigned times, unsigned first, unsigned count, unsigned turns) {
  const unsigned begin = first - 1, end = begin + count;
  const unsigned whole = end / together - std::min(end / together, (begin + together - 1) / together);
  const unsigned touched = (end + together - 1) / together - begin / together;
  CHECK(times >= whole / turns);
  CHECK(times <= (touched + turns - 1) / turns);
}

void check_record(const Record& record, unsigned first, unsigned count) {
  const std::map<size_t, Record::Times> ran = record.ran();
  const size_t pairs = all_pairs().size();
  size_t in_manners = 0;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const Record::Times times = ran.count(pair) ? ran.at(pair) : Record::Times{};
    INFO("pair " << pair);
    check_times(std::accumulate(times.begin(), times.end(), 0u), first, count, 1);
    for (const unsigned in_manner : times) check_times(in_manner, first, count, all_manners);
    in_manners += all_manners - static_cast<size_t>(std::count(times.begin(), times.end(), 0u));
  }
  std::map<std::string, uint64_t> faults = record.faults();
  const double overtaken = static_cast<double>(faults["payloads overtaken"]) / static_cast<double>(faults["writes"]);
  std::ostringstream text;
  text << count << " seeds, " << ran.size() << " of " << pairs << " pairs ran, " << in_manners << " of their "
       << pairs * all_manners << " manners; out of order: " << 100 * overtaken << " % of " << faults["writes"]
       << " writes";
  for (const auto& [name, sum] : faults) text << "; " << name << " " << sum;
  WARN(text.str());
  CHECK(!ran.empty());
  CHECK(overtaken >= 0.3);
  for (const char* kind : {"payloads overtaken", "immediates overtaken", "withheld", "repeated", "outages", "stalls"}) {
    INFO(kind);
    CHECK(faults[kind] > 0);
  }
  if (count >= 2) CHECK((faults["broken"] > 0 && faults["killed"] > 0));
}

TEST_CASE("network seeds: every pair of a case and a shape, over a network that does what it likes", "[seeds]") {
  const Record record;
  const unsigned first = first_seed(), count = seeds();
  const std::string inner = transport_under_test();
  const unsigned batch = ranks_are_processes() ? 4 : 1;
  for (unsigned seed = first; seed < first + count; seed += batch) {
    run_seeds({seed, static_cast<int>(std::min(batch, first + count - seed))}, inner, record);
  }
  if (!reduced()) check_record(record, first, count);
}

}  // namespace
}  // namespace ucclep::test
