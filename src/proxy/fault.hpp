// SPDX-License-Identifier: Apache-2.0
// How the proxy threads tell their communicator that something is wrong.
#pragma once
#include <functional>
#include <string>

#include "ucclep/ucclep.h"

namespace ucclep::proxy {

struct Fault {
  ucclEpResult_t code = ucclEpSuccess;
  const char* operation = "proxy";  // "dispatch", or "proxy" where it concerns none alone
  int peer = -1;                    // its rank; -1: no single one
  std::string message;
};

// Called by any proxy thread, once for each peer that is lost and for each command that is wrong. It does not wait.
using FaultSink = std::function<void(const Fault&)>;

}  // namespace ucclep::proxy
