// The kernels for AVX-512 (F, BW, VL). See kernel_avx2.cpp for the order of what follows.

#ifdef __x86_64__

#include <immintrin.h>

#include "kernel.h"

#define LEVEL avx512
#define LANES 16
#define MAX_ROWS 6  // 6 x 4 sums of 32 registers

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl")
#include "kernel_body.h"
#endif

#endif  // __x86_64__
