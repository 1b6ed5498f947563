// SPDX-License-Identifier: Apache-2.0
// What groups with masks do besides their operations: a mend after each, and the three functions of masks. One block.
#include "ucclep/device/recovery/ht.hpp"
#include "ucclep/device/recovery/ll.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_mend_dispatch, LlDispatchArgs) {
  mending::after_dispatch(args);
}
UCCLEP_KERNEL(ll_mend_weights, CombineArgs) {
  mending::after_weights(args);
}
UCCLEP_KERNEL(ll_mend_combine, CombineArgs) {
  mending::after_combine(args);
}
UCCLEP_KERNEL(ht_mend_update, HtUpdateArgs) {
  mending::after_update(args);
}
UCCLEP_KERNEL(ht_mend_dispatch, HtDispatchArgs) {
  mending::after_dispatch(args);
}
UCCLEP_KERNEL(ht_mend_combine, HtCombineArgs) {
  mending::after_combine(args);
}
UCCLEP_KERNEL(mask_update, MaskArgs) {
  mending::update_masks(args);
}
UCCLEP_KERNEL(mask_query, MaskArgs) {
  mending::query_masks(args);
}
UCCLEP_KERNEL(mask_clear, MaskArgs) {
  mending::clear_masks(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
