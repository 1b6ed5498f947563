// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls, drawn from a seed alike on all ranks: groups, handles of every layout, windows and graphs
// come and go, operations run in whatever order is legal, with routing and data of their own, and are compared with the
// reference bit for bit; calls in an illegal order get their documented code and leave everything usable.
//
// UCCLEP_TEST_SEQUENCE=n runs the sequence of one seed; what fails says that command.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "conformance/exchange.hpp"
#include "conformance/windows.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// The same on all ranks, as long as they ask for the same.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(mix(seed, 4711)) {}
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T>
  T any_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::mt19937_64 random_;
};

// A handle, and what was called on it since its last Update.
struct Routed {
  Scenario scenario;
  Handle handle;
  std::unique_ptr<Exchange> exchange;  // of the last Update
  bool dispatched = false;
  bool unchecked_dispatch = false, unchecked_combine = false;
};

struct Shape {
  Scenario scenario;  // of all its handles, but for the layout
  Group group;
  std::vector<std::unique_ptr<Routed>> handles;
};

struct Registered {
  std::unique_ptr<Block> block;
  ucclEpWindow_t window;
};

class Sequence {
 public:
  Sequence(Rank& rank, Comm& comm, uint64_t seed)
      : rank_(rank), comm_(comm), stream_(comm), together_(rank), dice_(seed) {}

  void run(int steps) {
    for (step_ = 0; step_ < steps; ++step_) {
      const Step& step = draw();
      name_ = step.name;
      (this->*step.act)();
    }
    name_ = "the end";
    settle();
    no_async_error(comm_);
  }
  std::string place() const { return "step " + std::to_string(step_) + " (" + name_ + ")"; }

  // What lies in memory of the communicator goes before it; some of the rest is left to it.
  void leave() {
    for (auto& shape : shapes_) {
      for (auto& routed : shape->handles) {
        routed->exchange.reset();
        if (dice_.one_in(2)) routed->handle.release();
      }
      if (dice_.one_in(2)) {
        for (auto& routed : shape->handles) routed->handle.release();
        shape->group.release();
      }
    }
    for (Registered& one : windows_) deregister(comm_, one.window);
    windows_.clear();
  }

 private:
  struct Step {
    const char* name;
    size_t weight;
    bool (Sequence::*possible)() const;
    void (Sequence::*act)();
  };

  const Step& draw() {
    static constexpr Step steps[] = {
        {"create a group", 2, &Sequence::few_groups, &Sequence::create_group},
        {"destroy a group", 1, &Sequence::has_handle, &Sequence::destroy_group},
        {"create a handle", 4, &Sequence::has_group, &Sequence::create_handle},
        {"destroy a handle", 2, &Sequence::has_handle, &Sequence::destroy_handle},
        {"update", 10, &Sequence::has_handle, &Sequence::route},
        {"dispatch", 14, &Sequence::has_handle, &Sequence::dispatch},
        {"combine", 14, &Sequence::has_handle, &Sequence::combine},
        {"replay a graph", 3, &Sequence::has_handle, &Sequence::replay},
        {"settle", 4, &Sequence::has_group, &Sequence::settle},
        {"register a window", 2, &Sequence::few_windows, &Sequence::register_window},
        {"use a window", 2, &Sequence::has_window, &Sequence::use_window},
        {"deregister a window", 2, &Sequence::has_window, &Sequence::deregister_window},
        {"an illegal call", 10, &Sequence::has_handle, &Sequence::break_a_rule},
    };
    size_t weights = 0;
    for (const Step& step : steps) weights += (this->*step.possible)() ? step.weight : 0;
    size_t place = dice_.below(weights);
    for (const Step& step : steps) {
      if (!(this->*step.possible)()) continue;
      if (place < step.weight) return step;
      place -= step.weight;
    }
    return steps[0];
  }

  bool few_groups() const { return shapes_.size() < 2; }
  bool has_group() const { return !shapes_.empty(); }
  bool has_handle() const {
    return std::ranges::any_of(shapes_, [](const auto& shape) { return !shape->handles.empty(); });
  }
  bool few_windows() const { return windows_.size() < 3; }
  bool has_window() const { return !windows_.empty(); }

  // ---- Objects ----

  void create_group() {
    auto shape = std::make_unique<Shape>();
    Scenario& scenario = shape->scenario;
    scenario.ranks = rank_.count;
    scenario.experts = rank_.count * dice_.any_of({1, 2, 3, 5});
    scenario.top_k = std::min(scenario.experts, dice_.any_of({1, 2, 4}));
    scenario.max_tokens = dice_.any_of({1, 7, 20});
    scenario.hidden = dice_.any_of<int64_t>({8, 64, 264});
    ucclEpGroupConfig_t config = group_config({scenario});
    config.max_in_flight = dice_.any_of({0, 2, 3, 8});
    shape->group = make_group(comm_, config);
    shapes_.push_back(std::move(shape));
  }

  void destroy_group() {
    Shape& shape = any_shape_with_handles();
    for (auto& routed : shape.handles) {
      settle_later(*routed);
      routed->handle.release();  // destroyed by the group
    }
    ok(ucclEpGroupDestroy(shape.group.release()), "ucclEpGroupDestroy");
    std::erase_if(shapes_, [&](const auto& one) { return one.get() == &shape; });
  }

  void create_handle() {
    Shape& shape = *shapes_[dice_.below(shapes_.size())];
    if (shape.handles.size() >= 3) return;
    auto routed = std::make_unique<Routed>();
    routed->scenario = shape.scenario;
    Scenario& scenario = routed->scenario;
    scenario.layout = all_layouts[dice_.below(std::size(all_layouts))];
    scenario.carried = dice_.one_in(3);
    scenario.global_ids = dice_.one_in(2);
    scenario.biases = static_cast<int>(dice_.below(3));
    const Weights weights = dice_.any_of({Weights::with_dispatch, Weights::with_combine, Weights::with_both});
    scenario.weights = scenario.layout == Layout::ll_expert_major ? weights : Weights::with_dispatch;
    scenario.combine_dtype = dice_.any_of({ucclEpBfloat16, ucclEpFloat16});
    scenario.rule = uniform(static_cast<int>(dice_.below(2)) * 30);
    if (scenario.layout == Layout::ht_expert_major) scenario.alignment = dice_.any_of<int64_t>({1, 4, 16});
    scenario.fixed_capacity = scenario.ll() ? 0 : max_rows(scenario);
    routed->handle = make_handle(shape.group, handle_config(scenario));
    shape.handles.push_back(std::move(routed));
  }

  // What a rank can receive, in zones that are all padded.
  static int64_t max_rows(const Scenario& scenario) {
    const int64_t rows = int64_t{scenario.ranks} * scenario.max_tokens * scenario.top_k;
    return rows + scenario.local_experts() * (scenario.alignment - 1);
  }

  void destroy_handle() {
    auto& handles = any_shape_with_handles().handles;
    const size_t which = dice_.below(handles.size());
    settle_later(*handles[which]);
    handles.erase(handles.begin() + static_cast<ptrdiff_t>(which));
  }

  Shape& any_shape_with_handles() {
    std::vector<Shape*> some;
    for (auto& shape : shapes_) {
      if (!shape->handles.empty()) some.push_back(shape.get());
    }
    return *some[dice_.below(some.size())];
  }
  Routed& any_handle() {
    auto& handles = any_shape_with_handles().handles;
    return *handles[dice_.below(handles.size())];
  }

  // ---- Operations ----

  // As many tokens as it likes, differently on each rank.
  Scenario with_tokens(Scenario scenario) {
    scenario.tokens.clear();
    const size_t limit = static_cast<size_t>(scenario.max_tokens) + 1;
    const bool full = dice_.one_in(4);
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      scenario.tokens.push_back(full ? scenario.max_tokens : static_cast<int64_t>(dice_.below(limit)));
    }
    return scenario;
  }

  void route() { route(any_handle()); }
  void route(Routed& routed) {
    settle();
    routed.exchange = std::make_unique<Exchange>(rank_, comm_, with_tokens(routed.scenario), ++contents_);
    routed.dispatched = false;
    if (!routed.scenario.carried) routed.exchange->update(routed.handle, stream_);
  }

  void dispatch() { dispatch(any_handle()); }
  void dispatch(Routed& routed) {
    if (!routed.exchange) route(routed);
    if (routed.dispatched) {
      settle();
      routed.exchange->refresh(++contents_);
    }
    routed.exchange->dispatch(routed.handle, stream_);
    routed.dispatched = routed.unchecked_dispatch = true;
  }

  void combine() {
    Routed& routed = any_handle();
    if (!routed.dispatched) dispatch(routed);
    routed.exchange->combine(routed.handle, stream_);
    routed.unchecked_combine = true;
  }

  // Update, dispatch and combine of one handle, captured and replayed with other routing.
  void replay() {
    Routed& routed = any_handle();
    route(routed);
    settle();
    ok(ucclEpStreamBeginCapture(comm_, stream_), "ucclEpStreamBeginCapture");
    if (!routed.scenario.carried) routed.exchange->update(routed.handle, stream_);
    routed.exchange->dispatch(routed.handle, stream_);
    if (dice_.one_in(2)) refuse_while_capturing();
    routed.exchange->combine(routed.handle, stream_);
    ucclEpGraph_t graph = nullptr;
    ok(ucclEpStreamEndCapture(comm_, stream_, &graph), "ucclEpStreamEndCapture");
    routed.dispatched = true;
    for (size_t replays = dice_.below(4); replays > 0; --replays) {
      routed.exchange->reroute(++contents_);
      ok(ucclEpGraphLaunch(comm_, graph, stream_), "ucclEpGraphLaunch");
      routed.unchecked_dispatch = routed.unchecked_combine = true;
      settle();
    }
    ok(ucclEpGraphDestroy(comm_, graph), "ucclEpGraphDestroy");
    route(routed);
  }

  // Everything enqueued is done, and right.
  void settle() {
    stream_.synchronize();
    for (auto& shape : shapes_) {
      for (auto& routed : shape->handles) check(*routed);
    }
    for (auto& routed : orphans_) check(*routed);
    orphans_.clear();
  }

  static void check(Routed& routed) {
    if (routed.unchecked_dispatch) routed.exchange->check_counters();
    if (routed.unchecked_dispatch) routed.exchange->check_dispatch();
    if (routed.unchecked_combine) routed.exchange->check_combine();
    routed.unchecked_dispatch = routed.unchecked_combine = false;
  }

  // Its handle goes with operations in flight.
  void settle_later(Routed& routed) {
    if (!routed.exchange) return;
    auto orphan = std::make_unique<Routed>();
    orphan->exchange = std::move(routed.exchange);
    orphan->unchecked_dispatch = routed.unchecked_dispatch;
    orphan->unchecked_combine = routed.unchecked_combine;
    orphans_.push_back(std::move(orphan));
  }

  // ---- Windows ----

  void register_window() {
    auto block = std::make_unique<Block>(comm_, 2 * page);
    char* const data = block->data();
    windows_.push_back({std::move(block), registered(comm_, data, page)});
  }
  void use_window() {
    const Registered& one = windows_[dice_.below(windows_.size())];
    exchange_through(rank_, together_, comm_, one.window, one.block->data());
  }
  void deregister_window() {
    const size_t which = dice_.below(windows_.size());
    const ucclEpWindow_t window = windows_[which].window;
    deregister(comm_, window);
    windows_.erase(windows_.begin() + static_cast<ptrdiff_t>(which));
    refused(ucclEpWindowDeregister(comm_, window), ucclEpInvalidArgument, "ucclEpWindowDeregister",
            {"it was deregistered"});
  }

  // ---- What is refused ----

  void break_a_rule() {
    static constexpr void (Sequence::* rules[])() = {
        &Sequence::combine_too_early,    &Sequence::dispatch_too_early, &Sequence::wait_for_counts_that_are_not,
        &Sequence::route_too_many,       &Sequence::use_what_is_gone,   &Sequence::end_what_was_not_begun,
        &Sequence::create_what_cannot_be};
    (this->*rules[dice_.below(std::size(rules))])();
  }

  void combine_too_early() {
    Routed& routed = any_handle();
    if (!routed.exchange)
      routed.exchange = std::make_unique<Exchange>(rank_, comm_, with_tokens(routed.scenario), ++contents_);
    else
      route(routed);
    // A handle whose routing comes with its next dispatch has that of the last one till then.
    if (routed.scenario.carried) return;
    refused(routed.exchange->try_combine(routed.handle, stream_), ucclEpInvalidUsage, "ucclEpCombine");
    route(routed);
  }

  void dispatch_too_early() {
    Shape& shape = any_shape_with_handles();
    Scenario scenario = shape.handles.front()->scenario;
    scenario.carried = false;
    const Handle fresh = make_handle(shape.group, handle_config(scenario));
    Exchange exchange(rank_, comm_, scenario, ++contents_);
    refused(exchange.try_dispatch(fresh, stream_), ucclEpInvalidUsage, "ucclEpDispatch", {"no routing"});
    refused(exchange.try_combine(fresh, stream_), ucclEpInvalidUsage, "ucclEpCombine");
    exchange.check_untouched();
  }

  void wait_for_counts_that_are_not() {
    Shape& shape = any_shape_with_handles();
    const Handle fresh = make_handle(shape.group, handle_config(shape.handles.front()->scenario));
    int64_t total = -5;
    refused(ucclEpHandleWaitCounts(fresh, &total, nullptr), ucclEpInvalidUsage, "ucclEpHandleWaitCounts");
    require(total == -5, "a refused call wrote its out-parameter");
  }

  void route_too_many() {
    Routed& routed = any_handle();
    Scenario many = routed.scenario;
    many.max_tokens += 1;
    many.tokens.clear();
    many.fixed_capacity = 0;
    many.carried = false;
    Exchange exchange(rank_, comm_, many, ++contents_);
    refused(exchange.try_update(routed.handle, stream_), ucclEpInvalidArgument, "ucclEpHandleUpdate", {"topk_idx"});
  }

  void use_what_is_gone() {
    Event event(comm_);
    const ucclEpEvent_t gone_event = event;
    ok(ucclEpEventRecord(comm_, event, stream_), "ucclEpEventRecord");
    ucclEpStream_t gone_stream = nullptr;
    ok(ucclEpStreamCreate(comm_, &gone_stream), "ucclEpStreamCreate");
    ok(ucclEpStreamDestroy(comm_, gone_stream), "ucclEpStreamDestroy");
    refused(ucclEpStreamSynchronize(comm_, gone_stream), ucclEpInvalidArgument, "ucclEpStreamSynchronize");
    refused(ucclEpEventRecord(comm_, gone_event, gone_stream), ucclEpInvalidArgument, "ucclEpEventRecord");
    void* memory = nullptr;
    ok(ucclEpMemAlloc(comm_, &memory, 64), "ucclEpMemAlloc");
    ok(ucclEpMemFree(comm_, memory), "ucclEpMemFree");
    refused(ucclEpMemFree(comm_, memory), ucclEpInvalidArgument, "ucclEpMemFree");
  }

  void end_what_was_not_begun() {
    ucclEpGraph_t graph = nullptr;
    refused(ucclEpStreamEndCapture(comm_, stream_, &graph), ucclEpInvalidUsage, "ucclEpStreamEndCapture");
    require(graph == nullptr, "a refused call wrote its out-parameter");
  }

  void create_what_cannot_be() {
    ucclEpGroupConfig_t config = group_config({any_shape_with_handles().scenario});
    if (rank_.rank == rank_.count - 1) config.top_k = -1;
    ucclEpGroup_t group = nullptr;
    refused(ucclEpGroupCreate(&group, comm_, &config), ucclEpInvalidArgument, "ucclEpGroupCreate",
            {"rank " + std::to_string(rank_.count - 1), "top_k"});
    require(group == nullptr, "a refused call wrote its out-parameter");
  }

  // The capture goes on as if nothing had been asked.
  void refuse_while_capturing() {
    void* memory = nullptr;
    refused(ucclEpMemAlloc(comm_, &memory, 64), ucclEpInvalidUsage, "ucclEpMemAlloc");
    refused(ucclEpStreamSynchronize(comm_, stream_), ucclEpInvalidUsage, "ucclEpStreamSynchronize");
    Shape& shape = any_shape_with_handles();
    ucclEpHandle_t handle = nullptr;
    const ucclEpHandleConfig_t config = handle_config(shape.handles.front()->scenario);
    refused(ucclEpHandleCreate(&handle, shape.group, &config), ucclEpInvalidUsage, "ucclEpHandleCreate");
  }

  Rank& rank_;
  Comm& comm_;
  Stream stream_;
  Meeting together_;
  Dice dice_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  std::vector<std::unique_ptr<Routed>> orphans_;  // of handles that are gone
  std::vector<Registered> windows_;
  uint64_t contents_ = 0;  // routing and data: none twice
  int step_ = 0;
  const char* name_ = "the beginning";
};

void run_sequence(uint64_t seed, int steps) {
  const int ranks = 2 + static_cast<int>(seed % 3);
  run_ranks(ranks, {.seconds = 300}, [&](Rank& rank) {
    Comm comm(rank);
    std::string place;
    try {
      Sequence sequence(rank, comm, seed);
      try {
        sequence.run(steps);
        sequence.leave();
      } catch (const Failure& failure) {
        throw Failure(sequence.place() + ": " + failure.what());
      }
    } catch (const Failure& failure) {
      throw Failure(std::string(failure.what()) + "; again: UCCLEP_DEVICE=host UCCLEP_TEST_SEQUENCE=" +
                    std::to_string(seed) + " UCCLEP_TEST_ITERATIONS=" + std::to_string(steps) + " sequence_test");
    }
  });
}

void run_sequences(uint64_t first, uint64_t count, int steps) {
  if (const char* one = std::getenv("UCCLEP_TEST_SEQUENCE")) {
    first = std::strtoull(one, nullptr, 10);
    count = 1;
  }
  const int asked = static_cast<int>(iterations(static_cast<unsigned>(steps)));
  for (uint64_t seed = first; seed < first + count; ++seed) run_sequence(seed, asked);
}

TEST_CASE("sequences: calls in whatever order", "[sequences]") {
  run_sequences(1, reduced() ? 3 : 12, reduced() ? 40 : 80);
}

TEST_CASE("sequences: many, and long ones", "[sequences][long]") {
  run_sequences(100, 10 * seeds(), 200);
}

}  // namespace
}  // namespace ucclep::test
