// SPDX-License-Identifier: Apache-2.0
// A communicator: the ranks, this rank's device, and everything that was made from it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "bootstrap/bootstrap.hpp"
#include "device/device.hpp"
#include "host/context/config.hpp"
#include "host/context/device_memory.hpp"
#include "host/context/fault.hpp"
#include "host/context/live_objects.hpp"
#include "host/context/topology_exchange.hpp"
#include "host/context/trace.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {
class CommNetwork;
class StatsFile;
class WindowTable;
}  // namespace ucclep

struct ucclEpGraph : ucclep::LiveObject {
  explicit ucclEpGraph(std::unique_ptr<ucclep::Graph> graph) : recorded(std::move(graph)) {}
  std::unique_ptr<ucclep::Graph> recorded;
};

struct ucclEpComm : ucclep::LiveObject {
  ucclEpComm();
  ~ucclEpComm();

  ucclep::Config config;
  int configured_timeout_ms = 0;  // of ucclEpCommConfig_t; 0: not given
  std::string transport;          // what crosses domains; empty: there is one domain
  std::unique_ptr<ucclep::Bootstrap> bootstrap;
  ucclep::ExchangedTopology topology;
  std::unique_ptr<ucclep::Device> device;
  bool shares_device = false;              // with another rank
  ucclep::DeviceTraits traits;             // of the device; the SMs are this rank's part of them
  ucclep::DeviceErrors* errors = nullptr;  // device-mapped host memory
  uint32_t* abort_word = nullptr;          // device memory, polled by kernels
  std::unique_ptr<ucclep::FaultLog> faults;
  std::unique_ptr<ucclep::Trace> trace;          // UCCLEP_TRACE
  std::unique_ptr<ucclep::CommNetwork> network;  // where not all ranks are in one domain

  // Made from this communicator, destroyed with it.
  std::vector<ucclEpGroup_t> groups;
  mutable std::mutex groups_mutex;  // of who changes `groups`, and of other threads that read it
  bool stopped = false;             // kernels were notified that everything is over; under groups_mutex
  bool in_use = false;      // something did not end in time: what the device may still use is not freed any more
  std::vector<void*> kept;  // groups and windows that are gone, but for their memory
  std::unique_ptr<ucclep::WindowTable> windows;
  std::map<void*, std::shared_ptr<ucclep::DeviceMemory>> device_memory;  // by address
  std::set<void*> host_memory;
  std::set<ucclEpStream_t> streams;
  std::set<ucclEpEvent_t> events;
  std::set<ucclEpEvent_t> captured_events;  // recorded last in a capture: nobody can wait for them
  std::map<ucclEpGraph_t, std::unique_ptr<ucclEpGraph>> graphs;
  uint64_t next_object = 0;  // numbers collective objects, alike on all ranks

  std::unique_ptr<ucclep::StatsFile> stats;  // UCCLEP_STATS_DIR; last, as its thread reads the others

  int rank() const { return bootstrap->rank(); }
  int nranks() const { return bootstrap->nranks(); }
  bool one_process() const;  // all ranks are threads of this process
  int timeout_ms(int group_timeout_ms = 0) const {
    return ucclep::resolve_timeout_ms(config, group_timeout_ms, configured_timeout_ms);
  }
  ucclep::Deadline deadline() const { return ucclep::Deadline::after_ms(timeout_ms()); }
};

namespace ucclep {

// What a stream operation begins with: the communicator is there and has no fatal record.
ucclEpComm& usable(ucclEpComm_t comm);

// A stream that this communicator made, or NULL, the device's default stream.
ucclEpStream_t checked_stream(const ucclEpComm& comm, ucclEpStream_t stream);

// What allocates or waits cannot be part of a graph: ucclEpInvalidUsage while a stream of this communicator is
// captured.
void refuse_in_capture(const ucclEpComm& comm);
// The same for what destroys. A device that does not even answer is no reason to refuse.
void refuse_destruction_in_capture(const ucclEpComm& comm);

// A host's wait for work on the stream: the code of a fatal record, if one ended that work, before a plain timeout.
void check_wait(const ucclEpComm& comm, ucclEpResult_t waited, const char* what);

}  // namespace ucclep
