// SPDX-License-Identifier: Apache-2.0
// The middle of the star: a thread in the process of rank 0. It knows every rank's connection, collects the rounds, and
// spreads the news of lost ranks. Rank 0 itself is connected to it like everybody else, through a socket pair.
#pragma once
#include <memory>

#include "base/fd.hpp"
#include "base/thread.hpp"
#include "base/token.hpp"

namespace ucclep {

class Hub {
 public:
  // The other ranks connect to the listener and greet with the secret. rank0: the hub's end of the pair; when its other
  // end closes or says goodbye, the hub says goodbye to all and ends.
  Hub(Fd listener, const Token& secret, int nranks, Fd rank0);
  ~Hub();  // waits for the end: close rank 0's connection first
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  ServiceThread thread_;
};

}  // namespace ucclep
