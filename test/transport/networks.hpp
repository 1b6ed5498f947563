// SPDX-License-Identifier: Apache-2.0
// Two networks of this machine with a link between them: namespaces and a pair of virtual Ethernet devices. They last
// as long as this process and leave nothing behind. Needs root.
#pragma once
#include <functional>
#include <string>

#include "base/fd.hpp"
#include "transport/team.hpp"

namespace ucclep::test {

class Networks : public Stage {
 public:
  static constexpr const char *address[2] = {"10.79.0.1", "10.79.0.2"}, *nobodys_address = "10.79.0.99";

  void prepare() override;
  void enter(int rank) override;
  // The cable is pulled out, or put in again.
  void link(bool up);

 private:
  void make();
  void inside(int network, const std::function<void()>& body);
  void run(int network, const std::string& command);  // of ip; throws Failure unless it ends well

  Fd network_[2];
};

}  // namespace ucclep::test
