// SPDX-License-Identifier: Apache-2.0
#include "device/host/capture.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace ucclep::executor {
namespace {

void merge(Known& known, const Known& other) {
  known.resize(std::max(known.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) known[i] = std::max(known[i], other[i]);
}

}  // namespace

void Capture::begin(const std::shared_ptr<Stream>& origin) {
  if (origin->capture) fail(ucclEpInvalidUsage, "the stream is being captured already");
  origin->capture = std::make_shared<Capture>();
  origin->capture->add_branch(origin);
}

void Capture::add_branch(const std::shared_ptr<Stream>& stream) {
  stream->branch = branches_.size();
  stream->known.assign(branches_.size() + 1, 0);
  branches_.push_back(stream);
  work_.push_back(0);
}

bool Capture::take(const std::shared_ptr<Stream>& stream, Operation& operation) {
  Event* event = operation.event.get();
  if (operation.kind == Operation::Kind::wait && event->capture != stream->capture) {
    if (stream->capture) {
      fail(ucclEpInvalidUsage,
           "the stream is being captured, but the event was not recorded in that capture: a graph can wait for events "
           "of its own capture only");
    }
    if (event->capture->over_)
      fail(ucclEpInvalidUsage, "the event was last recorded inside a finished stream capture: record it again");
    event->capture->add_branch(stream);
    stream->capture = event->capture;
  }
  if (operation.kind == Operation::Kind::record && !operation.at_replay) event->capture = stream->capture;
  if (!stream->capture) return false;
  stream->capture->add_step(*stream, operation);
  return true;
}

// The caller's events are not a graph's: each record has one of its own.
void Capture::add_step(Stream& stream, Operation& operation) {
  Event* event = operation.event.get();
  if (operation.kind == Operation::Kind::record && !operation.at_replay) {
    event->known = stream.known;
    operation.event = event->in_graph = std::make_shared<Event>();
  } else if (operation.kind == Operation::Kind::wait) {
    merge(stream.known, event->known);
    operation.event = event->in_graph;
  } else {
    stream.known[stream.branch] = ++work_[stream.branch];
  }
  steps_.push_back({stream.branch, std::move(operation)});
}

void Capture::keep_lifetimes_of(const Graph& graph) {
  lifetimes_.insert(lifetimes_.end(), graph.lifetimes.begin(), graph.lifetimes.end());
}

bool Capture::joined(const Stream& origin) const {
  for (size_t i = 0; i < work_.size(); ++i) {
    if (work_[i] > (i < origin.known.size() ? origin.known[i] : 0)) return false;
  }
  return true;
}

std::shared_ptr<Graph> Capture::end(Stream& origin) {
  const std::shared_ptr<Capture> capture = origin.capture;
  if (!capture) fail(ucclEpInvalidUsage, "the stream is not being captured");
  if (origin.branch != 0) fail(ucclEpInvalidUsage, "the capture of the stream began on another stream: end it there");
  for (const std::weak_ptr<Stream>& branch : capture->branches_) {
    if (const auto stream = branch.lock()) stream->capture.reset();
  }
  capture->over_ = true;
  auto graph = std::make_shared<Graph>();
  graph->steps.swap(capture->steps_);
  graph->lifetimes.swap(capture->lifetimes_);
  graph->branches = capture->branches_.size();
  if (!capture->joined(origin)) {
    fail(ucclEpInvalidUsage,
         "the stream did not wait for all work of the capture's other streams: no graph was made, and the capture has "
         "ended");
  }
  return graph;
}

Operation copy_of(const Operation& operation) {
  Operation copy{.kind = operation.kind, .to = operation.to, .from = operation.from, .bytes = operation.bytes};
  copy.event = operation.event;
  copy.at_replay = operation.at_replay;
  if (operation.launch) copy.launch = copy_of(*operation.launch);
  return copy;
}

}  // namespace ucclep::executor
