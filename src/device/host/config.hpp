// SPDX-License-Identifier: Apache-2.0
// How the host device behaves. Read from the environment, or set by a test.
//
// UCCLEP_HOST_WAVE=32|64       lanes of a warp (default 32)
// UCCLEP_HOST_WORKERS=n        threads that run all lanes of the process (default: one per core; 1 with a seed)
// UCCLEP_HOST_SEED=n           not 0: lanes and blocks run in an order drawn from this seed. With one worker a schedule
//                              replays exactly, as far as its launches were queued before all devices were waited for
// UCCLEP_HOST_MODE=a,b,c       what a GPU does and a CPU would hide:
//   residency=n                at most n blocks of a device are resident, in index order; the rest queue
//   sms=n                      the device has n SMs (default: as many as may be resident). With fewer resident blocks
//                              another kernel holds the other SMs
//   lockstep                   a diverged warp runs one side until it reconverges at a warp or block verb, or ends
//   deferred                   bulk copies read and write some time between their issue and the wait that needs them
//   apart                      NICs do not reach the user's windows, and copies of a queue take their time
//   torn, torn=16              only 8 bytes of a store arrive whole, or 16: parts of a line become visible in any order
// UCCLEP_HOST_WATCHDOG_MS=n    a launch that does nothing but spin for so long is ended and reported; 0: never, since
//                              the library's kernels bound their waits themselves (default 0, with lockstep 10000)
#pragma once
#include <cstdint>

namespace ucclep {

struct HostDeviceConfig {
  unsigned wave = 32;
  unsigned workers = 0;  // 0: one per core, 1 with a seed
  uint64_t seed = 0;
  unsigned residency = 0;  // 0: all blocks
  unsigned sms = 0;        // 0: as many as may be resident
  bool lockstep = false;
  bool deferred = false;
  bool apart = false;
  unsigned torn = 0;  // bytes of a store that arrive whole, 8 or 16; 0: a line does
  int64_t watchdog_ms = 0;

  static HostDeviceConfig from_environment();
};

}  // namespace ucclep
