// SPDX-License-Identifier: Apache-2.0
// Wraps any transport and does to it what networks do, from a seed: "faulty:SETTINGS:INNER", for example
// "faulty:seed=7,delay=100:loopback". Settings, all optional:
//
//   seed=N       what the dice are thrown with; each connection has its own
//   delay=N      a payload waits for up to N polls before it leaves, and its immediate for as many again (default 40);
//                so both overtake each other, and an immediate the payloads of others. It never overtakes its own
//   withhold=N   the completion of an operation waits for up to N polls (default 40)
//   repeat=N     N percent of the arrivals are reported twice (default 10)
//   hide=source, hide=length, hide=both
//   break=N      a connection breaks at its N-th operation; its other end hears of it as the inner transport tells it
//   kill=N       the endpoint dies at its N-th operation: its peers hear nothing of it any more
//   outage=N     a connection carries nothing from its N-th operation on, for `ms`; then all of it goes on
//   stall=N      whoever polls the endpoint when its N-th operation, and all else that it took, has ended stands still
//                for `ms`
//   ms=N         milliseconds (default 2000), the only time that is not counted in polls
//   at=N         break, kill, outage and stall only at the endpoint that its peers know as N
//   peer=N       break, outage: only of the connection to peer N
//
// An immediate leaves apart from its payload where the inner transport keeps the order of a connection; then no arrival
// has a length.
#pragma once
#include <memory>
#include <string>

#include "transport/faulty/settings.hpp"
#include "transport/transport.hpp"

namespace ucclep::transport {

std::unique_ptr<Transport> make_faulty(const std::string& argument);

// Of an endpoint of this transport.
const FaultStatistics& fault_statistics(const Endpoint& endpoint);

}  // namespace ucclep::transport
