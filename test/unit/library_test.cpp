// SPDX-License-Identifier: Apache-2.0
#include <ucclep/ucclep.h>

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace {

// The address of an object of the API; the functions below do not look behind it.
template <class Object>
Object fake() {
  static char byte;
  return reinterpret_cast<Object>(&byte);
}

struct Function {
  const char* name;
  std::function<ucclEpResult_t(ucclEpGroup_t group)> call;
};

const std::vector<Function>& mask_functions() {
  static const std::vector<Function> functions = {
      {"ucclEpMaskQuery", [](ucclEpGroup_t group) { return ucclEpMaskQuery(group, nullptr, nullptr); }},
      {"ucclEpMaskUpdate", [](ucclEpGroup_t group) { return ucclEpMaskUpdate(group, nullptr, nullptr); }},
      {"ucclEpMaskClear", [](ucclEpGroup_t group) { return ucclEpMaskClear(group, nullptr); }},
  };
  return functions;
}

}  // namespace

TEST_CASE("GetVersion has the version of the header", "[api]") {
  int version = -1;
  CHECK(ucclEpGetVersion(&version) == ucclEpSuccess);
  CHECK(version == UCCLEP_VERSION);
  CHECK(ucclEpGetVersion(nullptr) == ucclEpInvalidArgument);
  CHECK(std::string(ucclEpGetLastError(nullptr)) == "ucclEpGetVersion: version is NULL");
}

TEST_CASE("Every code has words of its own", "[api]") {
  std::set<std::string> words;
  for (int code = ucclEpSuccess; code <= ucclEpOverflow; code++) {
    words.insert(ucclEpGetErrorString(static_cast<ucclEpResult_t>(code)));
  }
  CHECK(words.size() == 13);
  CHECK(std::string(ucclEpGetErrorString(static_cast<ucclEpResult_t>(15))) == "unknown result code");
}

TEST_CASE("GetBuildInfo says how many bytes it needs, and writes no more", "[api]") {
  size_t needed = 0;
  REQUIRE(ucclEpGetBuildInfo(nullptr, &needed) == ucclEpSuccess);
  REQUIRE(needed > 1);

  std::string text(needed + 8, '#');
  size_t len = needed - 1;
  CHECK(ucclEpGetBuildInfo(text.data(), &len) == ucclEpInvalidArgument);
  CHECK(len == needed);
  CHECK(text == std::string(needed + 8, '#'));
  CHECK(std::string(ucclEpGetLastError(nullptr)) == "ucclEpGetBuildInfo: *len is " + std::to_string(needed - 1) +
                                                        ", expected at least " + std::to_string(needed) +
                                                        " (the bytes of text)");

  len = text.size();
  REQUIRE(ucclEpGetBuildInfo(text.data(), &len) == ucclEpSuccess);
  CHECK(len == needed);
  CHECK(text[needed - 1] == '\0');
  CHECK(text.substr(needed) == "########");
  text.resize(needed - 1);
  CHECK(text.find("libucclep ") == 0);
  CHECK(text.find("\nGPU code: " UCCLEP_TEST_GPU_CODE "\n") != std::string::npos);  // the line that the build ends with
  CHECK(text.find("\ntransports: ") != std::string::npos);

  CHECK(ucclEpGetBuildInfo(nullptr, nullptr) == ucclEpInvalidArgument);
}

TEST_CASE("Functions of masks refuse a NULL group by name", "[api]") {
  for (const Function& one : mask_functions()) {
    INFO(one.name);
    CHECK(one.call(nullptr) == ucclEpInvalidArgument);
    const std::string message = ucclEpGetLastError(nullptr);
    CHECK(message.rfind(one.name, 0) == 0);
    CHECK(message.find(" is NULL") != std::string::npos);
  }
}

TEST_CASE("Destroying a NULL graph or window is success", "[api]") {
  CHECK(ucclEpGraphDestroy(fake<ucclEpComm_t>(), nullptr) == ucclEpSuccess);
  CHECK(ucclEpWindowDeregister(fake<ucclEpComm_t>(), nullptr) == ucclEpSuccess);
}
