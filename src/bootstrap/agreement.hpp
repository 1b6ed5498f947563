// SPDX-License-Identifier: Apache-2.0
// The end of the checks of a collective create: every rank brings its error, if it has one, and the settings that must
// be equal everywhere. If anything is wrong anywhere, every rank throws the same Error, which names rank and field.
//
//   Agreement agreement("ucclEpGroupCreate");
//   agreement.attempt([&] { validate(config); });
//   agreement.field("top_k", config.top_k).field("max_tokens_per_rank", config.max_tokens_per_rank);
//   agreement.settle(bootstrap, deadline);
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/attempt.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"

namespace ucclep {

class Agreement {
 public:
  explicit Agreement(std::string call) : call_(std::move(call)) {}

  template <class T>
  Agreement& field(std::string_view name, const T& value) {
    fields_.emplace_back(name, fmt::format("{}", value));
    return *this;
  }
  // The first error counts.
  Agreement& error(const Error& error);
  // Runs a step that only this rank may fail; what it throws is kept until settle().
  template <class Step>
  Agreement& attempt(Step&& step) {
    if (const auto failed = ucclep::attempt(std::forward<Step>(step))) error(*failed);
    return *this;
  }
  bool failed() const { return code_ != ucclEpSuccess; }

  // Collective. The bootstrap's agree() passes contributions to judge() and throws what it says.
  template <class Bootstrap>
  void settle(Bootstrap& bootstrap, Deadline deadline) const {
    try {
      bootstrap.agree(contribution(), deadline);
    } catch (const Error& error) {
      if (call_.starts_with("ucclEp")) throw;  // the boundary of the API puts the name of the function first
      throw Error(error.code(), call_ + ": " + error.what());
    }
  }

  // What the hub does with the contributions, in rank order; exposed for tests.
  struct Verdict {
    ucclEpResult_t code = ucclEpSuccess;
    std::string message;
  };
  std::string contribution() const;
  static Verdict judge(const std::vector<std::string>& contributions);

 private:
  std::string call_;
  ucclEpResult_t code_ = ucclEpSuccess;
  std::string message_;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace ucclep
