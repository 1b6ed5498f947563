// SPDX-License-Identifier: Apache-2.0
// Times and verifies rounds of dispatch and combine by the device API in one launch, beside the library's own.
#include "rounds/device_rounds.hpp"
#include "runner.hpp"

using namespace ucclep::perf;

int main(int argc, char** argv) {
  return run_tool(
      argc, argv,
      {"device_perf",
       "Times rounds of MoE dispatch and combine that a user's kernel runs in one launch by the device API of "
       "libucclep, and verifies every row of the last.",
       true, plan_rounds, Timed::rounds});
}
