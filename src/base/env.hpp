// SPDX-License-Identifier: Apache-2.0
// Typed environment variables, parsed strictly: a value that does not parse throws Error(ucclEpInvalidArgument) with
// the variable, the value and what was expected. A variable that is unset or empty is nullopt,
// and so is each in a program that runs with more rights than its user (secure_getenv). Nothing depends on the locale.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ucclep::env {

std::optional<std::string> text(const char* variable);
// Decimal, in [min, max]; no blanks, no trailing letters.
std::optional<int64_t> integer(const char* variable, int64_t min, int64_t max);
// "0" or "1".
std::optional<bool> flag(const char* variable);
// One of the names, whatever its case.
std::optional<int> choice(const char* variable, std::initializer_list<std::pair<const char*, int>> choices);
// "3,5": at least one integer, each in [min, max].
std::optional<std::vector<int64_t>> integer_list(const char* variable, int64_t min, int64_t max);
// "mlx5_0,mlx5_1": no empty entries, no blanks; nullopt is what does not parse.
std::optional<std::vector<std::string>> parse_names(const std::string& text);
std::optional<std::vector<std::string>> name_list(const char* variable);

}  // namespace ucclep::env
