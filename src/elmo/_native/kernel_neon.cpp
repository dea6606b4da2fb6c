// The kernels for every 64-bit Arm processor.

#ifdef __aarch64__

#include <arm_neon.h>

#include "kernel.h"

#define LEVEL neon
#define LANES 4
#define MAX_ROWS 6

#include "kernel_body.h"

#endif  // __aarch64__
