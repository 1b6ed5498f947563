// SPDX-License-Identifier: Apache-2.0
// Picks the target. The three headers provide the same verbs, one instruction (or the shortest sequence) per verb;
// simt/simt.hpp documents what each verb orders. Only this folder has target #ifs, builtins and PTX.
#pragma once
#include "ucclep/device/arch/qualifiers.hpp"
#include "ucclep/device/arch/types.hpp"

#if defined(__HIP__)
#include "ucclep/device/arch/amdgcn.hpp"
#elif defined(__CUDACC__)
#include "ucclep/device/arch/cuda.hpp"
#else
#include "ucclep/device/arch/host.hpp"
#endif
