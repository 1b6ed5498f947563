// SPDX-License-Identifier: Apache-2.0
// Stream capture of the double: what is enqueued in a captured stream becomes a step of a graph, in the order of the
// calls, which is one that the streams and events of the capture allow. A launch of the graph enqueues all steps.
#pragma once
#include <functional>

#include "doubles/double.hpp"

namespace ucclep::doubles {

constexpr Code capture_unsupported = 900, capture_invalidated = 901, capture_unmatched = 903, captured_event = 907;

using Step = std::function<void(Device&, Stream)>;

// Enqueues the step now, or puts it into the graph that the stream is captured into.
void enqueue(Stream stream, Step step);
bool is_captured(Stream stream);
// An event recorded in a capture joins the streams that wait for it to the capture. True: the capture took it.
bool capture_record(Event event, Stream stream);
bool capture_wait(Stream stream, Event event);
void expect_not_captured(Event event);  // refuses one that was recorded last in a capture
void forget_captured(Event event);
// Refuses, and breaks the captures, where a driver forbids what could disturb them.
void expect_no_capture();

}  // namespace ucclep::doubles
