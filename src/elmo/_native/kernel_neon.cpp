// The kernels for every 64-bit Arm processor. NEON is part of all of them, so no instruction set is named.

#ifdef __aarch64__

#include <arm_neon.h>

#include "kernel.h"

#define LEVEL neon
#define LANES 4
#define MAX_ROWS 6  // 6 x 4 sums of 32 registers

#include "kernel_body.h"

#endif  // __aarch64__
