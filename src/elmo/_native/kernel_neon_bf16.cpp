// The kernels for Arm processors with dot products of int8 and of bf16 (ARMv8.6-BF16).

#ifdef __aarch64__

#include <arm_neon.h>

#include "kernel.h"

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

#endif  // __aarch64__
