// The kernels for AVX-512 with its int8 products (VNNI).

#ifdef __x86_64__

#include <immintrin.h>

#include "kernel.h"

#define LEVEL avx512_vnni
#define LANES 16
#define MAX_ROWS 6
#define HAS_VNNI

#ifdef __clang__
#pragma clang attribute push(  \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")
#include "kernel_body.h"
#endif

#endif  // __x86_64__
