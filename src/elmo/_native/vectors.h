// Vectors of one register, and the exponentials behind sigmoid and tanh; part of kernel_body.h.
//
// Plain vectors of the compiler (GCC, clang) do nearly all. LANES is the number of float32 in a register.

namespace elmo {
namespace {

typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));

inline F load(const float* from, size_t valid = LANES) {
    F v = {};
    if (valid >= LANES) __builtin_memcpy(&v, from, sizeof v);
    else __builtin_memcpy(&v, from, valid * sizeof(float));
    return v;
}

inline void store(float* to, F v, size_t valid) {
    if (valid >= LANES) __builtin_memcpy(to, &v, sizeof v);
    else __builtin_memcpy(to, &v, valid * sizeof(float));
}

inline F clamp(F v, float limit) {  // NaN stays NaN: the instructions return their second operand then
#if LANES == 4  // an instruction of Arm's gives NaN for NaN, whichever operand it is
    return (F)vminq_f32(vdupq_n_f32(limit), vmaxq_f32(vdupq_n_f32(-limit), (float32x4_t)v));
#elif LANES == 16
    return (F)_mm512_min_ps(_mm512_set1_ps(limit), _mm512_max_ps(_mm512_set1_ps(-limit), (__m512)v));
#else
    return (F)_mm256_min_ps(_mm256_set1_ps(limit), _mm256_max_ps(_mm256_set1_ps(-limit), (__m256)v));
#endif
}

// --- sigmoid and tanh, to within 2e-7

// e^x = power * (1 + rest), for x clamped to ±40.
struct Exponential { F power, rest; };

inline Exponential exponential(F x) {
    const float MAGIC = 12582912.0f;  // 1.5 * 2^23: a sum with it has the nearest integer in its low bits
    x = clamp(x, 40.0f);
    F shifted = x * 1.44269504f + MAGIC;
    F n = shifted - MAGIC;
    F r = x - n * 0.693145752f;  // ln 2 in two parts; the first times n is exact
    r = r - n * 1.42860677e-6f;
    // (e^r - 1 - r) / r^2 on ±ln(2)/2, interpolated in Chebyshev's points
    F square = r * r, low = r * 0.166665767f + 0.5f, high = r * 0.00836323288f + 0.0416665542f;
    F q = square * (square * 0.00139262508f + high) + low;
    return {(F)(((I)shifted << 23) + 0x3f800000), square * q + r};
}

inline F one_plus_exp(F x) {
    Exponential e = exponential(x);
    return e.power * e.rest + e.power + 1.0f;
}

inline F exp_minus_one(F x) {  // exact for small x too, where e^x - 1 would lose digits
    Exponential e = exponential(x);
    return e.power * e.rest + (e.power - 1.0f);
}

}  // namespace
}  // namespace elmo
