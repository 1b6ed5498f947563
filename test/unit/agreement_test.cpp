// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/agreement.hpp"

#include <catch2/catch.hpp>

using namespace ucclep;
using Catch::Matchers::Contains;

namespace {

std::string with_top_k(int top_k, const std::string& transport = "verbs") {
  return Agreement("create").field("top_k", top_k).field("transport", transport).contribution();
}

}  // namespace

TEST_CASE("equal settings agree") {
  CHECK(Agreement::judge({with_top_k(8), with_top_k(8), with_top_k(8)}).code == ucclEpSuccess);
  CHECK(Agreement::judge({with_top_k(8)}).code == ucclEpSuccess);
}

TEST_CASE("a setting that differs is named with the ranks that differ") {
  auto verdict = Agreement::judge({with_top_k(8), with_top_k(8), with_top_k(4)});
  CHECK(verdict.code == ucclEpInvalidArgument);
  CHECK(verdict.message == "top_k differs between ranks: rank 2 gave 4, ranks 0 and 1 gave 8");
  verdict = Agreement::judge({with_top_k(4), with_top_k(8), with_top_k(8)});
  CHECK(verdict.message == "top_k differs between ranks: rank 0 gave 4, ranks 1 and 2 gave 8");
  verdict = Agreement::judge({with_top_k(4), with_top_k(8)});
  CHECK(verdict.message == "top_k differs between ranks: rank 1 gave 8, rank 0 gave 4");
  verdict = Agreement::judge({with_top_k(4), with_top_k(4, "")});
  CHECK(verdict.message == "transport differs between ranks: rank 1 gave nothing, rank 0 gave verbs");
}

TEST_CASE("the error of one rank comes before differences, with its code") {
  Agreement failed("create");
  failed.attempt([] { fail(ucclEpOutOfMemory, "no room for {} bytes", 17); });
  failed.attempt([] { fail(ucclEpSystemError, "a later error"); });
  CHECK(failed.failed());
  failed.field("top_k", 3);
  auto verdict = Agreement::judge({with_top_k(8), failed.contribution()});
  CHECK(verdict.code == ucclEpOutOfMemory);
  CHECK(verdict.message == "rank 1: no room for 17 bytes");
}

TEST_CASE("a timeout gives way to another rank's error") {
  Agreement late("create");
  late.error(Error(ucclEpTimeout, "too late"));
  Agreement failed("create");
  failed.error(Error(ucclEpSystemError, "the cause"));
  CHECK(Agreement::judge({late.contribution(), failed.contribution()}).message == "rank 1: the cause");
  CHECK(Agreement::judge({late.contribution(), with_top_k(8)}).message == "rank 0: too late");
}

TEST_CASE("different calls and versions do not agree") {
  auto verdict = Agreement::judge({with_top_k(8), Agreement("register").contribution()});
  CHECK(verdict.code == ucclEpInvalidUsage);
  CHECK_THAT(verdict.message, Contains("rank 0 is in create") && Contains("rank 1 in register"));
  verdict = Agreement::judge({with_top_k(8), Agreement("create").field("top_k", 8).contribution()});
  CHECK(verdict.code == ucclEpInvalidArgument);
  CHECK_THAT(verdict.message, Contains("rank 1") && Contains("need the same version"));
  std::string cut = with_top_k(8);
  cut.pop_back();
  verdict = Agreement::judge({with_top_k(8), cut});
  CHECK(verdict.code == ucclEpInternalError);
  CHECK_THAT(verdict.message, Contains("rank 1"));
}
