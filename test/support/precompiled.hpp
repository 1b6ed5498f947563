// SPDX-License-Identifier: Apache-2.0
// What most tests include, compiled once for each executable of many files: Catch2's header is half of a test's compile
// time. No other file includes this one, hence no #pragma once: they include what they use nevertheless.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
