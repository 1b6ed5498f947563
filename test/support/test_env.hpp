// SPDX-License-Identifier: Apache-2.0
// What the run asks of a test case, what the process has, and how a case says that it cannot run.
#pragma once
#include <string>
#include <vector>

namespace ucclep::test {

// True under a sanitizer: use the smaller sizes.
bool reduced();

// How many seeds a case that tries several should try.
unsigned seeds();
// The first of them.
unsigned first_seed();

// How often a case that repeats itself should do so: UCCLEP_TEST_ITERATIONS, or else what is usual for it.
unsigned iterations(unsigned usual);

// How many descriptors this process has open, for comparison: counting takes some.
int open_files();

// The tags of the running case, which the listener notes.
void note_tags(std::vector<std::string> tags);
bool case_has_tag(const std::string& tag);

// The most ranks that a case has run since the last take_ranks. For the listener.
void note_ranks(int ranks);
int take_ranks();

// Marks the running case as skipped, unless a check fails. The caller returns from the case afterwards.
void skip_case(const std::string& reason);

// The reason given by skip_case since the last call, empty if none. For the listener.
std::string take_skip_reason();

}  // namespace ucclep::test
