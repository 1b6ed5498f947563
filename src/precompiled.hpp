// SPDX-License-Identifier: Apache-2.0
// What most files of a library include, compiled once for each library. No other file includes this one, hence no
// #pragma once: they include what they use nevertheless.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
