// SPDX-License-Identifier: Apache-2.0
// Writes one line per test case to the file named by UCCLEP_TEST_REPORT, for tools/test_summary.py:
//   begin TAB case      passed TAB case [TAB ranks]      failed TAB case TAB reason      skipped TAB case TAB reason
//   end
// A case is written when it begins and when it ends, so a crash leaves the name of the case that it happened in.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "support/test_env.hpp"

namespace {

class ReportListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo& info) override {
    TestEventListenerBase::testRunStarting(info);
    const char* path = std::getenv("UCCLEP_TEST_REPORT");
    if (path == nullptr) return;
    owner_ = getpid();
    file_.open(path);
    // A process that a case starts from the same executable must not write over this report.
    unsetenv("UCCLEP_TEST_REPORT");
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    ucclep::test::note_tags(info.tags);
    write("begin", info.name);
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (!result.isOk() && failure_.empty()) {
      std::ostringstream text;
      text << result.getSourceInfo() << ' ' << result.getExpandedExpression() << ' ' << result.getMessage();
      for (const Catch::MessageInfo& info : stats.infoMessages) text << ' ' << info.message;
      failure_ = on_one_line(text.str());
    }
    return TestEventListenerBase::assertionEnded(stats);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    const std::string reason = ucclep::test::take_skip_reason();
    const int ranks = ucclep::test::take_ranks();
    if (!stats.totals.assertions.allOk()) {
      write("failed", stats.testInfo.name + '\t' + std::exchange(failure_, {}));
    } else if (!reason.empty()) {
      std::cout << "skipped: " << stats.testInfo.name << ": " << reason << std::endl;
      write("skipped", stats.testInfo.name + '\t' + reason);
    } else {
      write("passed", stats.testInfo.name + (ranks > 0 ? '\t' + std::to_string(ranks) : ""));
    }
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    TestEventListenerBase::testRunEnded(stats);
    write("end", "");
  }

 private:
  // The start of a text, with a blank for each line break and tab.
  static std::string on_one_line(std::string text) {
    constexpr size_t most = 600;
    if (text.size() > most) text = text.substr(0, most) + "...";
    for (char& c : text) {
      if (c == '\n' || c == '\t') c = ' ';
    }
    return text;
  }

  void write(const char* event, const std::string& text) {
    if (getpid() == owner_ && file_.is_open()) file_ << event << '\t' << text << std::endl;
  }

  pid_t owner_ = 0;
  std::ofstream file_;
  std::string failure_;  // the first of the running case
};

CATCH_REGISTER_LISTENER(ReportListener)

}  // namespace
