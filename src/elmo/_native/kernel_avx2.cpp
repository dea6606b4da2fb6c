// The kernels for AVX2 and FMA.
//
// The instruction set is named here, in a file for each set, and not in the flags of the compiler: setuptools compiles
// all sources of an extension with the same flags. Headers come before the pragma, so that what they define is compiled
// for any processor.

#ifdef __x86_64__

#include <immintrin.h>

#include "kernel.h"

#define LEVEL avx2
#define LANES 8
#define MAX_ROWS 3  // 3 x 4 sums of 16 registers; the rest hold a word of each row and a vector of the weight

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma")
#include "kernel_body.h"
#endif

#endif  // __x86_64__
