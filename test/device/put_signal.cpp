// SPDX-License-Identifier: Apache-2.0
#include "put_signal_body.hpp"

namespace ucclep {

UCCLEP_KERNEL(put_signal, PutSignalArgs) {
  put_signal<PutSignalSteps>(args);
}

}  // namespace ucclep
