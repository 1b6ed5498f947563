// SPDX-License-Identifier: Apache-2.0
// In groups with masks, a connection that is lost is told to the rank at its other end, through the bootstrap.
// Transports need not notice it there: who only waits for rows has nothing under way that could fail, and a word that
// it is masked would have to go by the connection that is lost. It would wait until its time is up, and the others for
// it.
#pragma once
#include <string>

struct ucclEpComm;
struct ucclEpGroup;

namespace ucclep {

// Any thread: this rank has lost its connection to the other one, which is masked and told. Does not wait.
void lose_connection(ucclEpGroup& group, int rank, const std::string& message);
// What a rank has told: the group masks it, if its own proxies have not seen the loss.
void hear_of_loss(ucclEpComm& comm, int rank, const std::string& text);

}  // namespace ucclep
