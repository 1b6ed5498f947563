// SPDX-License-Identifier: Apache-2.0
#include "support/test_env.hpp"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ucclep::test {
namespace {

std::string skip_reason;
std::vector<std::string> case_tags;
int largest_ranks = 0;

}  // namespace

bool reduced() {
  return std::getenv("UCCLEP_TEST_REDUCED") != nullptr;
}

unsigned seeds() {
  const char* text = std::getenv("UCCLEP_TEST_SEEDS");
  const unsigned long asked = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  if (asked > 0) return static_cast<unsigned>(asked);
  return reduced() ? 1 : 3;
}

unsigned first_seed() {
  const char* first = std::getenv("UCCLEP_TEST_FIRST_SEED");
  return first == nullptr ? 1 : static_cast<unsigned>(std::strtoul(first, nullptr, 10));
}

unsigned iterations(unsigned usual) {
  const char* text = std::getenv("UCCLEP_TEST_ITERATIONS");
  const unsigned long asked = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  return asked > 0 ? static_cast<unsigned>(asked) : usual;
}

int open_files() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

void note_tags(std::vector<std::string> tags) {
  case_tags = std::move(tags);
}

bool case_has_tag(const std::string& tag) {
  return std::find(case_tags.begin(), case_tags.end(), tag) != case_tags.end();
}

void note_ranks(int ranks) {
  largest_ranks = std::max(largest_ranks, ranks);
}

int take_ranks() {
  return std::exchange(largest_ranks, 0);
}

void skip_case(const std::string& reason) {
  skip_reason = reason.empty() ? "no reason given" : reason;
}

std::string take_skip_reason() {
  return std::exchange(skip_reason, {});
}

}  // namespace ucclep::test
