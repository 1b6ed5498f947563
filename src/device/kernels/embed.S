// SPDX-License-Identifier: Apache-2.0
// GPU code as bytes. A target that was not built has size 0; gpu_code.hpp gives access.
.section .rodata
#ifdef CODE_SM_90A
#define FILE_SM_90A .incbin CODE_SM_90A
#else
#define FILE_SM_90A
#endif
#ifdef CODE_GFX90A
#define FILE_GFX90A .incbin CODE_GFX90A
#else
#define FILE_GFX90A
#endif
#ifdef CODE_GFX942
#define FILE_GFX942 .incbin CODE_GFX942
#else
#define FILE_GFX942
#endif

// Loaders want the code aligned as in its file.
#define EMBED(target, file)                   \
  .balign 64;                                 \
  .globl ucclep_code_##target;                \
  .hidden ucclep_code_##target;               \
  ucclep_code_##target: file;                 \
  .Lend_##target:;                            \
  .balign 8;                                  \
  .globl ucclep_code_##target##_bytes;        \
  .hidden ucclep_code_##target##_bytes;       \
  ucclep_code_##target##_bytes: .quad .Lend_##target - ucclep_code_##target;

EMBED(sm_90a, FILE_SM_90A)
EMBED(gfx90a, FILE_GFX90A)
EMBED(gfx942, FILE_GFX942)
.section .note.GNU-stack, "", @progbits
