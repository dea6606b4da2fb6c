// Vectors of one register, and the exponentials behind sigmoid and tanh; part of kernel_body.h.
//
// Vector types of the compiler (GCC, clang) have nearly all operations, with the same source for every processor. LANES
// is the number of float32 in a register. The compiler's own exp and tanh are not used: they would be called lane by
// lane.

namespace elmo {
namespace {

typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef uint32_t U __attribute__((vector_size(4 * LANES)));  // for sums that may wrap around

// Arrays come from Python and need not be aligned, nor be a multiple of LANES wide: the last vector of a row is loaded
// and stored only in part. memcpy of a constant size is a single instruction.
inline F load(const float* from, size_t valid = LANES) {
    F v = {};
    if (valid >= LANES) __builtin_memcpy(&v, from, sizeof v);
    else __builtin_memcpy(&v, from, valid * sizeof(float));
    return v;
}

inline void store(float* to, F v, size_t valid = LANES) {
    if (valid >= LANES) __builtin_memcpy(to, &v, sizeof v);
    else __builtin_memcpy(to, &v, valid * sizeof(float));
}

// The same for numbers that may be bf16, as uint16_t.
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

inline F read(const float* from, size_t valid) { return load(from, valid); }

inline F read(const uint16_t* from, size_t valid) {
    Halves v = {};
    __builtin_memcpy(&v, from, valid >= LANES ? sizeof v : valid * sizeof(uint16_t));
    return (F)(__builtin_convertvector(v, I) << 16);  // a bf16 is the upper half of a float32
}

inline void write(float* to, F v, size_t valid) { store(to, v, valid); }

inline void write(uint16_t* to, F v, size_t valid) {
    // Rounds to nearest, half to even. NaN keeps its upper bits, as in `to_bf16`.
    const U bits = (U)v, rounded_up = bits + 0x7fff + (bits >> 16 & 1), kept = bits | 1 << 22, is_nan = (U)(v != v);
    const Halves rounded = __builtin_convertvector(((is_nan & kept) | (~is_nan & rounded_up)) >> 16, Halves);
    __builtin_memcpy(to, &rounded, valid >= LANES ? sizeof rounded : valid * sizeof(uint16_t));
}

// NaN stays NaN: if an operand is NaN, the instructions of x86 return their second one, and those of Arm return NaN.
inline F clamp(F v, float limit) {
#if LANES == 4
    return (F)vminq_f32(vdupq_n_f32(limit), vmaxq_f32(vdupq_n_f32(-limit), (float32x4_t)v));
#elif LANES == 16
    return (F)_mm512_min_ps(_mm512_set1_ps(limit), _mm512_max_ps(_mm512_set1_ps(-limit), (__m512)v));
#else
    return (F)_mm256_min_ps(_mm256_set1_ps(limit), _mm256_max_ps(_mm256_set1_ps(-limit), (__m256)v));
#endif
}

// --- sigmoid and tanh, to within 2e-7

// e^x = power * (1 + rest), for x clamped to ±40. There, 2^n is neither infinite nor subnormal, sigmoid and tanh are 0
// and ±1 but for rounding, and products of two such numbers do not overflow. `power` and `rest` are kept apart for the
// differences below.
struct Exponential { F power, rest; };

inline Exponential exponential(F x) {
    // x = n ln 2 + r, with n an integer and |r| at most ln(2)/2. A sum with 1.5 * 2^23 has the nearest integer in its
    // low bits, from which 2^n is made below by a shift.
    const float MAGIC = 12582912.0f;
    x = clamp(x, 40.0f);
    F shifted = x * 1.44269504f + MAGIC;
    F n = shifted - MAGIC;
    // ln 2 in two parts. The first one has so few digits that n times it is exact; otherwise r would lose the digits
    // that x and n ln 2 have in common.
    F r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    // (e^r - 1 - r) / r^2 on ±ln(2)/2, interpolated at Chebyshev points. Pairs of terms are computed independently of
    // each other, which takes less time than a chain of all of them (Horner).
    F square = r * r, low = r * 0.166665767f + 0.5f, high = r * 0.00836323288f + 0.0416665542f;
    F q = square * (square * 0.00139262508f + high) + low;
    return {(F)(((U)shifted << 23) + 0x3f800000), square * q + r};
}

inline F one_plus_exp(F x) {
    Exponential e = exponential(x);
    return e.power * e.rest + e.power + 1.0f;
}

// For small x, e^x - 1 would lose the digits of x behind those of 1. Here power - 1 is 0 then, which leaves rest.
inline F exp_minus_one(F x) {
    Exponential e = exponential(x);
    return e.power * e.rest + (e.power - 1.0f);
}

inline F sigmoid(F x) { return 1.0f / one_plus_exp(-x); }

inline F hyperbolic_tangent(F x) {
    const F e = exp_minus_one(x + x);
    return e / (e + 2.0f);
}

}  // namespace
}  // namespace elmo
