// SPDX-License-Identifier: Apache-2.0
#include "topology/words.hpp"

#include <algorithm>
#include <charconv>

namespace ucclep::topology {

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string ranges(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  std::vector<std::string> parts;
  for (size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
    while (last + 1 < numbers.size() && numbers[last + 1] <= numbers[last] + 1) ++last;
    std::string part = std::to_string(numbers[first]);
    if (numbers[last] != numbers[first]) part += "-" + std::to_string(numbers[last]);
    parts.push_back(std::move(part));
  }
  return join(parts, ",");
}

// Not strtod, which goes by the program's locale.
double leading_number(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string plural(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace ucclep::topology
