// SPDX-License-Identifier: Apache-2.0
// Does this nvcc know what the kernels need: C++20, sm_90a, bulk copies, 16-byte atomic accesses?
template <class T>
concept word = sizeof(T) == 4;

template <word T>
__device__ void copy(T* to, const T* from) {
  asm volatile("{ .reg .b128 both; ld.relaxed.sys.b128 both, [%1]; st.relaxed.sys.b128 [%0], both; }" ::"l"(to),
               "l"(from)
               : "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

struct Args {
  int* words;
};

extern "C" __global__ void trial(const __grid_constant__ Args args) {
  copy(args.words, args.words + 4);
}
