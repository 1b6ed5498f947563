/* SPDX-License-Identifier: Apache-2.0 */
#include <ucclep/ucclep.h>

int main(void) {
  int version = 0;
  return ucclEpGetVersion(&version) == ucclEpSuccess && version == UCCLEP_VERSION ? 0 : 1;
}
