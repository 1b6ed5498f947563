// SPDX-License-Identifier: Apache-2.0
// The providers that the double plays, and fi_info: what they say of themselves.
#pragma once
#include <string>

#include "doubles/fabric/double.hpp"

namespace ucclep::test {

// Of the info of a domain that fi_getinfo gave.
const ProviderRow& row_of(const fi_info& info);

}  // namespace ucclep::test
