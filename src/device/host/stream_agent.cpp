// SPDX-License-Identifier: Apache-2.0
// Not instrumented: an instrumented function must begin and end as the same fibre.
#include "device/host/stream_agent.hpp"

#include <cstdlib>
#include <cstring>

#include "device/host/fiber.hpp"
#include "device/host/ordering.hpp"

namespace ucclep::executor {
namespace {

// While it lives, the thread acts as somebody else.
class Agent {
 public:
  Agent() {
    describe_identity(before_);
    create_identity(self_);
    assume_identity(self_);
  }
  ~Agent() {
    assume_identity(before_);
    destroy_identity(self_);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

 private:
  Fiber before_;
  Fiber self_;
};

}  // namespace

void copy_in_stream(void* stream, void* to, const void* from, size_t bytes) {
  const Agent agent;
  order_after(stream);
  std::memcpy(to, from, bytes);
  order_before(stream);
}

void free_in_stream(void* stream, void* data) {
  const Agent agent;
  order_after(stream);
  std::free(data);
}

void pass_on(void* before, void* after) {
  const Agent agent;
  order_after(before);
  order_before(after);
}

}  // namespace ucclep::executor
