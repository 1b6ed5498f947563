// SPDX-License-Identifier: Apache-2.0
// Threads of the library: named, deaf to the program's signals, and never the end of the process.
#pragma once
#include <functional>
#include <string>
#include <thread>

namespace ucclep {

// An exception that leaves body ends the thread with a warning. name: at most 15 characters. rank heads its log lines.
std::thread start_service_thread(const std::string& name, int rank, std::function<void()> body);

}  // namespace ucclep
