// SPDX-License-Identifier: Apache-2.0
#include "ceiling/ceilings.hpp"

#include <algorithm>

#include "ceiling/copy_run.hpp"

namespace ucclep::perf {
namespace {

class Measurement {
 public:
  Measurement(Machine& machine, const CeilingOptions& options, const std::function<void(const Ceiling&)>& done)
      : machine_(machine),
        options_(options),
        done_(done),
        shape_(options.shape(machine.ranks())),
        floors_(floors_apply(machine, options)) {}

  void high_throughput(int tokens) {
    const Placement placement = place_routing(shape_, tokens);
    const bool known = floors_ && tokens == 4096;
    copy("ht-dispatch", "bf16", placement, {Operation::push, bf16(), 1, ht_sms()}, known ? 485 : 0);
    copy("ht-dispatch", "fp8", placement, {Operation::push, fp8(), 1, ht_sms()}, known ? 280 : 0);
    copy("ht-combine", "bf16", placement, {Operation::pull, bf16(), 1, ht_sms()}, known ? 495 : 0);
  }

  void low_latency(int tokens) {
    const Placement placement = place_routing(shape_, tokens), expanded = place_copies(shape_, tokens);
    for (int rounds : {1, options_.rounds}) {  // floors are known without a launch
      const bool known = floors_ && tokens == 128 && rounds > 1;
      copy("ll-dispatch", "bf16", placement, {Operation::ll_dispatch, bf16(), rounds, ll_sms()}, known ? 17.3 : 0);
      copy("ll-dispatch", "fp8", placement, {Operation::ll_dispatch, fp8(), rounds, ll_sms()}, known ? 9.3 : 0);
      copy("ll-dispatch-experts", "bf16", expanded, {Operation::ll_dispatch, bf16(), rounds, ll_sms()}, 0);
      copy("ll-dispatch-experts", "fp8", expanded, {Operation::ll_dispatch, fp8(), rounds, ll_sms()}, 0);
      copy("ll-dispatch-cast", "fp8", expanded, {Operation::ll_cast, fp8(), rounds, ll_sms()}, 0);
      copy("ll-combine", "bf16", placement, {Operation::ll_combine, bf16(), rounds, ll_sms()}, known ? 18.9 : 0);
    }
  }

  void all_to_all() {
    const Placement placement = place_all_to_all(machine_.ranks(), options_.ht_tokens.back());
    copy("all-to-all push", "bf16", placement, {Operation::push, bf16(), 1, machine_.sms()}, 0);
    copy("all-to-all pull", "bf16", placement, {Operation::pull, bf16(), 1, machine_.sms()}, 0);
  }

  void flags() {
    flag("flag bare", {"ceiling_flag_bare", false});
    flag("flag ordered", {"ceiling_flag_ordered", false});
  }

  // What every call that launches one kernel costs the host at least: here the kernel does nothing.
  void launch() {
    Ceiling result;
    result.name = "launch, host";
    result.dtype = "-";
    result.sms = machine_.sms();
    for (int i = -options_.warmup; i < options_.iterations; ++i) {
      const double us = machine_.launch_cost({"ceiling_flag_bare", false}, result.sms);
      if (i >= 0) result.us.push_back(us);
    }
    done_(result);
  }

 private:
  size_t bf16() const { return shape_.combine_row_bytes(); }
  size_t fp8() const {
    Shape shape = shape_;
    shape.dtype = ucclEpFloat8e4m3;
    return shape.wire_row_bytes();
  }
  unsigned at_most_all(int sms) const {
    const unsigned all = machine_.sms();
    return sms > 0 ? std::min(static_cast<unsigned>(sms), all) : all;
  }
  unsigned ht_sms() const { return at_most_all(options_.sms); }
  unsigned ll_sms() const { return at_most_all(options_.ll_sms); }

  void copy(const char* name, const char* dtype, const Placement& placement, CopyCase request, double floor_us) {
    request.corrupt = options_.corrupt;
    CopyRun run(machine_, shape_, placement, request);
    Ceiling result{name,
                   dtype,
                   placement.tokens,
                   request.row_bytes,
                   request.sms,
                   request.rounds,
                   placement.remote_rows(),
                   placement.all_rows(),
                   floor_us,
                   {},
                   {}};
    result.us = run.times(options_.warmup, options_.iterations);
    result.tally = run.verify();
    done_(result);
  }

  // There and back is two ways.
  void flag(const char* name, const Kernel& kernel) {
    constexpr int rounds = 100;
    Ceiling result;
    result.name = name;
    result.dtype = "-";
    result.sms = 1;
    result.rounds = rounds;
    for (int i = -options_.warmup; i < options_.iterations; ++i) {
      const uint64_t epoch = machine_.new_epochs(rounds);
      const double us = machine_.time(1, [&](int rank, int, Device& device, ucclEpStream_t stream) {
        CeilingFlagArgs args = machine_.flags(rank);
        args.epoch = epoch;
        args.rounds = rounds;
        device.launch(kernel, {1, device.traits().wave, 0}, &args, sizeof args, stream);
      });
      if (i >= 0) result.us.push_back(us / (2 * rounds));
    }
    done_(result);
  }

  Machine& machine_;
  const CeilingOptions& options_;
  const std::function<void(const Ceiling&)>& done_;
  const Shape shape_;
  const bool floors_;
};

}  // namespace

void measure_ceilings(Machine& machine, const CeilingOptions& options,
                      const std::function<void(const Ceiling&)>& done) {
  Measurement measurement(machine, options, done);
  for (int tokens : options.ht_tokens) measurement.high_throughput(tokens);
  for (int tokens : options.ll_tokens) measurement.low_latency(tokens);
  measurement.all_to_all();
  measurement.flags();
  measurement.launch();
}

bool floors_apply(const Machine& machine, const CeilingOptions& options) {
  const CeilingOptions usual;
  const std::vector<std::string> names = machine.device_names();
  const bool h200 = std::all_of(names.begin(), names.end(),
                                [](const std::string& name) { return name.find("H200") != std::string::npos; });
  return h200 && machine.ranks() == 4 && options.hidden == usual.hidden && options.experts == usual.experts &&
         options.topk == usual.topk && options.skew == usual.skew && options.sms == usual.sms && !machine.shared() &&
         options.ll_sms == usual.ll_sms;
}

}  // namespace ucclep::perf
