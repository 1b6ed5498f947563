// SPDX-License-Identifier: Apache-2.0
// In groups with masks, a connection that is lost is reported to the rank at its other end, through the bootstrap.
// Transports need not notice it there: who only waits for rows has nothing under way that could fail, and a word that
// it is masked would have to go by the connection that is lost. It would wait until its time is up, and the others for
// it.
#pragma once
#include <string>

struct ucclEpComm;
struct ucclEpGroup;

namespace ucclep {

// Any thread: this rank has lost its connection to the other one, which is masked and notified. Does not wait.
void lose_connection(ucclEpGroup& group, int rank, const std::string& message);
// Handles what a rank has reported: the group masks it, if its own proxies have not seen the loss.
void handle_peer_loss(ucclEpComm& comm, int rank, const std::string& text);

}  // namespace ucclep
