// SPDX-License-Identifier: Apache-2.0
// An exchange with device-initiated operations: their arguments, and the calls, with the receive phases.
#pragma once
#include <functional>

#include "conformance/exchange.hpp"
#include "initiated_kernels.hpp"
#include "launch_user.hpp"

namespace ucclep::test {

void launch_round(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, const RoundArgs& args,
                  ucclEpStream_t stream, UserGrid grid = {});
// The send phase alone.
void launch_initiated(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedDispatchArgs& args, ucclEpStream_t stream, UserGrid grid = {});
void launch_initiated(const Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedCombineArgs& args, ucclEpStream_t stream);

// seed: of the order in which rows are sent.
InitiatedDispatchArgs dispatch_args(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed);
void initiate_dispatch(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                       const InitiatedDispatchArgs& args, ucclEpStream_t stream, UserGrid grid = {});
void initiate_dispatch(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, uint32_t seed,
                       ucclEpStream_t stream);

// All rows of the tensor, those that hold nothing as well.
InitiatedCombineArgs combine_args(Exchange& exchange, ucclEpHandle_t handle, uint32_t seed);
void initiate_combine(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope,
                      const InitiatedCombineArgs& args, ucclEpStream_t stream);
void initiate_combine(Exchange& exchange, ucclEpHandle_t handle, const std::string& scope, uint32_t seed,
                      ucclEpStream_t stream);

// Which operations of a round are device-initiated; the others are the host's calls.
struct DeviceInitiated {
  bool dispatch = true, combine = true;
};

// Dispatch and combine, checked.
void there_and_home(Exchange& exchange, Session& at, const std::string& scope, uint32_t seed,
                    const DeviceInitiated& device_initiated);

// One routing of HT, forward and backward. The host's calls expose nothing: they have no windows.
void routed_round(const Rank& rank, Session& at, const Scenario& scenario, const std::string& scope, uint32_t seed,
                  const DeviceInitiated& device_initiated);

// All scopes; under a sanitizer one of less than a warp, and one of more.
std::vector<std::string> scopes_of_run();

// Rounds from each of them, the host's calls in between. A failure says which round it was.
using InitiatedRound =
    std::function<void(const std::string& scope, uint32_t seed, const DeviceInitiated& device_initiated)>;
void from_every_scope(const InitiatedRound& round);

// The record of what went wrong, which is gone then.
void left_record(const Session& at, const char* phase, const char* words);

}  // namespace ucclep::test
