// What a char encoder does around its products: convolutions with their maxima, and highways; part of kernel_body.h.

namespace elmo {
namespace {

inline F squash(F v, bool tanh) {
    if (!tanh) return v < 0.0f ? F{} : v;  // NaN stays NaN
    const F power = exp_minus_one(v + v);
    return power / (power + 2.0f);
}

typedef uint8_t Bytes __attribute__((vector_size(LANES)));

// Filters go through all rows four vectors at a time: so the part of the table that they read may stay in the cache,
// and their sums and maxima stay in registers.
void windows(const WindowsCall& call, Range rows) {
    const size_t A = call.alphabet, K = call.filters, width = call.width;
    for (size_t first = 0; first < K; first += VECTORS * LANES) {
        size_t valid[VECTORS];
        for (size_t v = 0; v < VECTORS; ++v) {
            const size_t column = first + v * LANES;
            valid[v] = column >= K ? 0 : K - column;
        }
        const bool whole = first + VECTORS * LANES <= K;
        for (size_t row = rows.begin; row < rows.end; ++row) {
            const int32_t* ids = call.ids + row * call.columns;
            // The windows from `length` on are wholly inside of the padding, and all the same: one is enough.
            const size_t length = static_cast<size_t>(call.lengths[row]), most = call.columns - width;
            const size_t last = length < most ? length : most;
            F highest[VECTORS];
            I where[VECTORS] = {};
            for (size_t v = 0; v < VECTORS; ++v) highest[v] = F{} - __builtin_inff();
            for (size_t place = 0; place <= last; ++place) {
                F sums[VECTORS] = {};
                for (size_t i = 0; i < width; ++i) {
                    const float* from = call.table + (i * A + static_cast<size_t>(ids[place + i])) * K + first;
                    if (whole) {
#pragma GCC unroll 4
                        for (size_t v = 0; v < VECTORS; ++v) sums[v] += load(from + v * LANES);
                    } else {
                        for (size_t v = 0; v < VECTORS && valid[v]; ++v) sums[v] += load(from + v * LANES, valid[v]);
                    }
                }
#pragma GCC unroll 4
                for (size_t v = 0; v < VECTORS; ++v) {
                    // Once there was a NaN, only another one takes its place.
                    const I better = (sums[v] > highest[v]) | (sums[v] != sums[v]);
                    highest[v] = better ? sums[v] : highest[v];
                    where[v] = better ? I{} + static_cast<int32_t>(place) : where[v];
                }
            }
            if (call.places) {
                for (size_t v = 0; v < VECTORS && valid[v]; ++v) {
                    const Bytes bytes = __builtin_convertvector(where[v], Bytes);
                    uint8_t* to = call.places + row * K + first + v * LANES;
                    __builtin_memcpy(to, &bytes, valid[v] >= LANES ? sizeof bytes : valid[v]);
                    store(call.out + row * call.stride + first + v * LANES, highest[v], valid[v]);
                }
                continue;  // training computes the rest, with gradients
            }
            // Bias and activation rise, so they don't move the maximum, and are computed once for each filter.
            for (size_t v = 0; v < VECTORS && valid[v]; ++v) {
                const size_t column = first + v * LANES;
                const F value = squash(highest[v] + load(call.bias + column, valid[v]), call.tanh);
                store(call.out + row * call.stride + column, value, valid[v]);
            }
        }
    }
}

// The gradient of each maximum is added where its window was read. Filters go in blocks, as above; threads have blocks
// of their own, and the rows of a block are added in their order.
void windows_backward(const WindowsBackwardCall& call, Range blocks) {
    const size_t A = call.alphabet, K = call.filters, width = call.width;
    for (size_t block = blocks.begin; block < blocks.end; ++block) {
        const size_t first = block * FILTERS_AT_ONCE, rest = K - first;
        const size_t count = rest < FILTERS_AT_ONCE ? rest : FILTERS_AT_ONCE;
        for (size_t row = 0; row < call.rows; ++row) {
            const int32_t* ids = call.ids + row * call.columns;
            const float* gradient = call.d_maxima + row * K + first;
            const uint8_t* places = call.places + row * K + first;
            for (size_t i = 0; i < width; ++i) {
                float* to = call.d_table + i * A * K + first;
                for (size_t k = 0; k < count; ++k) to[static_cast<size_t>(ids[places[k] + i]) * K + k] += gradient[k];
            }
        }
    }
}

void highway(const HighwayCall& call, Range rows) {
    const size_t K = call.size;
    for (size_t row = rows.begin; row < rows.end; ++row) {
        float* x = call.x + row * K;
        const float *transformed = call.products + row * 2 * K, *gate = transformed + K;
        for (size_t k = 0; k < K; k += LANES) {
            const size_t valid = K - k;
            const F before = load(x + k, valid), after = squash(load(transformed + k, valid), false);
            store(x + k, before + (after - before) / one_plus_exp(-load(gate + k, valid)), valid);
        }
    }
}

}  // namespace
}  // namespace elmo
