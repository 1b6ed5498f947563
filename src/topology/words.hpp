// SPDX-License-Identifier: Apache-2.0
// Lists and counts in words.
#pragma once
#include <string>
#include <vector>

namespace ucclep::topology {

std::string join(const std::vector<std::string>& words, const std::string& separator);
std::string ranges(std::vector<int> numbers);               // "0-3,8": ascending, whatever their order
double leading_number(const std::string& text);             // 400 of "400 Gb/sec", in any locale; 0: there is none
std::string plural(size_t count, const std::string& noun);  // "1 GPU", "8 GPUs"

}  // namespace ucclep::topology
