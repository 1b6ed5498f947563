// SPDX-License-Identifier: Apache-2.0
// GPU code as bytes; gpu_code.hpp gives access. CODE, from the build: an EMBED for each target that was built.

// Loaders want the code aligned as in its file.
.macro EMBED target, file
  .section .rodata
  .balign 64
  .Lcode_\target: .incbin "\file"
  .Lend_\target:
  .Lname_\target: .asciz "\target"
  .section .data.rel.ro, "aw"
  .quad .Lname_\target, .Lcode_\target, .Lend_\target - .Lcode_\target
.endm

.section .data.rel.ro, "aw"
.balign 8
.globl ucclep_embedded_code
.hidden ucclep_embedded_code
ucclep_embedded_code:
CODE
.section .data.rel.ro, "aw"
.quad 0, 0, 0
.section .note.GNU-stack, "", @progbits
