// The kernels for AVX-512 with its int8 products (VNNI), and with bf16 products by tiles (AMX).

#include "kernel.h"

#ifdef HAS_AMX

#include <immintrin.h>

#define LEVEL avx512_amx
#define LANES 16
#define MAX_ROWS 6
#define HAS_VNNI
#define HAS_TILES

#ifdef __clang__
#pragma clang attribute push(  \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-bf16"))), apply_to = function)
#include "kernel_body.h"
#pragma clang attribute pop
#else
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-bf16")
#include "kernel_body.h"
#endif

#endif  // HAS_AMX
