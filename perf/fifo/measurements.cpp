// SPDX-License-Identifier: Apache-2.0
#include "fifo/measurements.hpp"

#include <optional>

#include "measurement.hpp"

namespace ucclep::perf {
namespace {

FifoRow measure_rate(Bench& bench, const FifoOptions& options, const RateCase& what) {
  FifoRow row;
  row.name = what.ordered ? "push-ordered" : "push";
  row.unit = "M/s";
  row.what = what;
  for (int i = 0; i < options.warmup + options.repeats; ++i) {
    const Taken taken = bench.rate(what, options.commands);
    const std::optional<double> bare = bench.bare_rate(what, options.commands);
    row.verified += taken.commands;
    row.wrong += taken.wrong;
    if (i < options.warmup) continue;
    row.values.push_back(taken.millions_per_second());
    if (bare) row.bare.push_back(*bare);
  }
  return row;
}

FifoRow measure_trip(Bench& bench, const FifoOptions& options, bool ordered) {
  FifoRow row;
  row.name = ordered ? "trip-ordered" : "trip";
  row.unit = "us";
  row.what.ordered = ordered;
  for (int i = 0; i < options.warmup + options.repeats; ++i) {
    Taken taken;
    const auto rounds = static_cast<uint32_t>(options.rounds);
    const double us = bench.trip(rounds, ordered, &taken), bare = bench.flag(rounds, ordered);
    row.verified += taken.commands;
    row.wrong += taken.wrong;
    if (i < options.warmup) continue;
    row.values.push_back(us);
    row.bare.push_back(bare);
  }
  return row;
}

}  // namespace

double FifoRow::ratio() const {
  return bare.empty() ? 0 : statistics(values).p50 / statistics(bare).p50;
}

void measure_fifo(Bench& bench, const FifoOptions& options, const std::function<void(const FifoRow&)>& done) {
  const int forms = bench.has_order() ? 2 : 1;
  for (int producers : options.producers) {
    for (int rings : options.rings) {
      for (int batch : options.batches) {
        for (int form = 0; form < forms; ++form) {
          done(measure_rate(bench, options,
                            {static_cast<uint32_t>(producers), static_cast<uint32_t>(rings),
                             static_cast<uint32_t>(batch), form == 1}));
        }
      }
    }
  }
  for (int form = 0; form < forms; ++form) done(measure_trip(bench, options, form == 1));
}

}  // namespace ucclep::perf
