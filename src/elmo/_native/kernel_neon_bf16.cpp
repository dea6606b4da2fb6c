// The kernels for Arm processors with dot products of int8 and of bf16 (ARMv8.6-BF16).

#include "kernel.h"

#ifdef HAS_NEON_BF16

#include <arm_neon.h>

#define LEVEL neon_bf16
#define LANES 4
#define MAX_ROWS 6
#define HAS_DOT
#define HAS_BF16

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod,bf16"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("arch=armv8.2-a+dotprod+bf16")
#include "kernel_body.h"
#endif

#endif  // HAS_NEON_BF16
