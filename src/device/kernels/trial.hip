// SPDX-License-Identifier: Apache-2.0
// Can this clang compile and link for AMD GPUs without any HIP header?
extern "C" __attribute__((global)) void trial(unsigned* to) {
  __hip_atomic_store(to, __builtin_amdgcn_workgroup_size_x(), __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
