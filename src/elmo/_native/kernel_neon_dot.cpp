// The kernels for Arm processors with dot products of int8 (ARMv8.2-DotProd).

#include "kernel.h"

#ifdef HAS_NEON_DOT

#include <arm_neon.h>

#define LEVEL neon_dot
#define LANES 4
#define MAX_ROWS 6
#define HAS_DOT

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#include "kernel_body.h"
#endif

#endif  // HAS_NEON_DOT
