// SPDX-License-Identifier: Apache-2.0
// What a test can ask of a double that is loaded in its process, beyond what a driver offers.
#pragma once

extern "C" {
// On the calling thread: so many calls succeed, the next one answers the code. Functions that undo something are
// neither counted nor refused: when they fail, nobody can repair it. calls < 0: none fails.
using UcclepDoubleFailAfter = void(int calls, int code);
// Whether the call that fail_after asked for has failed.
using UcclepDoubleHasFailed = bool();
// Allocations, mappings, streams, events, modules and retained contexts that nobody has given back.
using UcclepDoubleLiveObjects = int();

UcclepDoubleFailAfter ucclep_double_fail_after;
UcclepDoubleHasFailed ucclep_double_has_failed;
UcclepDoubleLiveObjects ucclep_double_live_objects;
}
