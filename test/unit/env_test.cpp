// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/error.hpp"

using namespace ucclep;
using Catch::Matchers::Contains;

namespace {

constexpr const char* name = "UCCLEP_TEST_VARIABLE";

struct Variable {
  explicit Variable(const char* value) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
};

template <class Read>
std::string refusal(const char* value, Read read) {
  Variable variable(value);
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.code() == ucclEpInvalidArgument);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("an unset or empty environment variable is nothing") {
  unsetenv(name);
  CHECK_FALSE(env::text(name));
  CHECK_FALSE(env::integer(name, 0, 9));
  Variable empty("");
  CHECK_FALSE(env::text(name));
  CHECK_FALSE(env::integer(name, 0, 9));
  CHECK_FALSE(env::flag(name));
  CHECK_FALSE(env::choice(name, {{"a", 1}}));
  CHECK_FALSE(env::integer_list(name, 0, 9));
  CHECK_FALSE(env::name_list(name));
}

TEST_CASE("an integer of the environment is decimal, whole and in range") {
  for (const char* bad :
       {"abc", "12x", " 12", "12 ", "0x10", "1e3", "1.5", "-1", "101", "99999999999999999999", "+5"}) {
    std::string message = refusal(bad, [] { env::integer(name, 0, 100); });
    CHECK_THAT(message, Contains(name));
    CHECK_THAT(message, Contains(std::string("\"") + bad + "\""));
    CHECK_THAT(message, Contains("from 0 to 100"));
  }
  Variable variable("100");
  CHECK(env::integer(name, 0, 100) == 100);
}

TEST_CASE("a flag of the environment is 0 or 1") {
  CHECK_THAT(refusal("yes", [] { env::flag(name); }), Contains("0 or 1"));
  {
    Variable variable("0");
    CHECK(env::flag(name) == false);
  }
  Variable variable("1");
  CHECK(env::flag(name) == true);
}

TEST_CASE("a choice of the environment is one of its names") {
  auto read = [] { return env::choice(name, {{"auto", 0}, {"host", 3}}); };
  CHECK_THAT(refusal("hosts", read), Contains("auto|host") && Contains("\"hosts\""));
  Variable variable("HOST");
  CHECK(read() == 3);
}

TEST_CASE("a list of the environment has only good entries") {
  auto read = [] { return env::integer_list(name, 1, 1000); };
  for (const char* bad : {",", "3,", ",3", "3,,5", "3;5", "0", "3,x"}) CHECK_THAT(refusal(bad, read), Contains(name));
  {
    Variable variable("3,5");
    CHECK(read() == std::vector<int64_t>{3, 5});
  }
  CHECK_THAT(refusal("mlx5_0,,mlx5_1", [] { env::name_list(name); }), Contains("without blanks"));
  CHECK_THAT(refusal("mlx5_0, mlx5_1", [] { env::name_list(name); }), Contains("without blanks"));
  Variable variable("mlx5_0,mlx5_1");
  CHECK(env::name_list(name) == std::vector<std::string>{"mlx5_0", "mlx5_1"});
}
