// The kernels for AVX-512 with its int8 (VNNI) and bf16 products.

#include "kernel.h"

#ifdef HAS_AVX512_BF16

#include <immintrin.h>

#define LEVEL avx512_bf16
#define LANES 16
#define MAX_ROWS 6
#define HAS_VNNI
#define HAS_BF16

#ifdef __clang__
#pragma clang attribute push(  \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")
#include "kernel_body.h"
#endif

#endif  // HAS_AVX512_BF16
