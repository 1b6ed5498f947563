// SPDX-License-Identifier: Apache-2.0
// Where workers with nothing to do sleep. One place for the process: a kernel that stores a word does not know who
// waits.
#pragma once
#include <atomic>
#include <cstdint>

namespace ucclep::executor {

extern constinit std::atomic<uint32_t> sleepers;  // not 0: somebody may sleep
void wake_sleepers();

// Announces a sleeper; the value is to be given to sleep_for. Between the two the caller looks for work once more.
uint32_t announce_sleep();
// Until wake_sleepers() or for ns; at once if it was called since the announcement.
void sleep_for(uint32_t announced, int64_t ns);

}  // namespace ucclep::executor
