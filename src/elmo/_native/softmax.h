// The softmax of training, over blocks of rows of scores that stay in the cache; part of kernel_body.h.
//
// Products, which become probabilities in place, are float32, or bf16 as uint16_t. `powers` is room for a row of
// float32, with LANES more than there are columns. The caller allocates it: on a thread of the pool, running out of
// memory would end the process, and the standard library's allocation would be compiled for this instruction set (see
// kernel.h).

namespace elmo {
namespace {

inline void forbid(float* at) { *at = -__builtin_inff(); }
inline void forbid(uint16_t* at) { *at = 0xff80; }

inline float largest(F v) {
    float highest = v[0];
    for (size_t lane = 1; lane < LANES; ++lane) highest = v[lane] > highest ? v[lane] : highest;
    return highest;
}

inline float sum(F v) {
    float total = 0;
    for (size_t lane = 0; lane < LANES; ++lane) total += v[lane];
    return total;
}

template <class Product>
void softmax_of(const SoftmaxCall& call, Range rows, float* d_bias, float* powers) {
    const size_t K = call.columns;
    const F nothing = F{} - __builtin_inff();
    for (size_t row = rows.begin; row < rows.end; ++row) {
        Product* products = static_cast<Product*>(call.products) + row * K;
        const int64_t own = call.own[row];
        // The row's own target may be among the sampled words. It must not be counted twice.
        if (own >= 0) forbid(products + own);
        // The highest score is subtracted before powers are taken, so that no power overflows.
        F highest = nothing;
        for (size_t k = 0; k < K; k += LANES) {
            const size_t valid = K - k;
            F score = read(products + k, valid) + load(call.bias + k, valid);
            // Lanes behind the last column count nothing.
            for (size_t lane = valid; lane < LANES; ++lane) score[lane] = -__builtin_inff();
            store(powers + k, score, LANES);
            highest = score > highest ? score : highest;
        }
        const float target = call.target_scores[row], most = largest(highest), top = most > target ? most : target;
        // A sum for each lane: shorter sums also lose fewer digits than one over all columns.
        F sums = {};
        for (size_t k = 0; k < K; k += LANES) {
            const Exponential e = exponential(load(powers + k) - top);
            const F power = e.power * e.rest + e.power;
            store(powers + k, power, LANES);
            sums += power;
        }
        const float share = __builtin_expf(target - top);
        // A score of minus infinity counts e^-40 of the highest, less than rounding does, as exponents are clamped.
        const float total = sum(sums) + share, factor = 1.0f / total;
        if (own >= 0) powers[own] = 0;
        for (size_t k = 0; k < K; k += LANES) {
            const size_t valid = K - k;
            const F probability = load(powers + k) * factor;
            // The gradient of the biases is the sum of these, so it is added up while they are in registers.
            store(d_bias + k, load(d_bias + k, valid) + probability, valid);
            write(products + k, probability, valid);
        }
        call.losses[row] = __builtin_logf(total) + (top - target);
        call.target_probs[row] = share * factor;
    }
}

void softmax(const SoftmaxCall& call, Range rows, float* d_bias, float* powers) {
    if (call.bf16) softmax_of<uint16_t>(call, rows, d_bias, powers);
    else softmax_of<float>(call, rows, d_bias, powers);
}

}  // namespace
}  // namespace elmo
