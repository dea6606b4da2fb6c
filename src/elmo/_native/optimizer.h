// Adam's update of some rows of a large matrix, in one pass; part of kernel_body.h.

namespace elmo {
namespace {

inline F square_root(F v) {
#if LANES == 4
    return (F)vsqrtq_f32((float32x4_t)v);
#elif LANES == 16
    return (F)_mm512_sqrt_ps((__m512)v);
#else
    return (F)_mm256_sqrt_ps((__m256)v);
#endif
}

void adam_rows(const AdamRowsCall& call, Range range) {
    const AdamRowsCall c = call;  // a copy, which what is written to the arrays can't change
    for (size_t n = range.begin; n < range.end; ++n) {
        const size_t row = static_cast<size_t>(c.rows[n]) * c.width;
        const float* gradient = c.gradient + n * c.width;
        float *weight = c.weight + row, *average = c.average + row, *average_square = c.average_square + row;
        for (size_t k = 0; k < c.width; k += LANES) {
            const size_t valid = c.width - k;
            const F d = load(gradient + k, valid);
            F mean = load(average + k, valid), square = load(average_square + k, valid);
            mean += (d - mean) * c.share;
            square += (d * d - square) * c.share_of_square;
            store(average + k, mean, valid);
            store(average_square + k, square, valid);
            const F step = mean * c.step_size / (square_root(square) + c.epsilon);
            store(weight + k, load(weight + k, valid) - step, valid);
        }
    }
}

}  // namespace
}  // namespace elmo
