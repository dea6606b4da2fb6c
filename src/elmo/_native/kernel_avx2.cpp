// The kernels for AVX2 and FMA.

#ifdef __x86_64__

#include <immintrin.h>

#include "kernel.h"

#define LEVEL avx2
#define LANES 8
#define MAX_ROWS 3

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma")
#include "kernel_body.h"
#endif

#endif  // __x86_64__
