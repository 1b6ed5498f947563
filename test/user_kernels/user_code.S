// SPDX-License-Identifier: Apache-2.0
// The kernels of the test as its compiler for sm_90a has made them; nothing where there is none.
.section .rodata
.balign 64
.globl user_code
user_code:
#ifdef CODE
  .incbin CODE
#endif
.Lend:
.balign 8
.globl user_code_bytes
user_code_bytes: .quad .Lend - user_code
.section .note.GNU-stack, "", @progbits
