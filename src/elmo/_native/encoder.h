// What a char encoder does around its products: convolutions with their maxima, and highways; part of kernel_body.h.

namespace elmo {
namespace {

inline F squash(F v, bool tanh) {
    return tanh ? hyperbolic_tangent(v) : v < 0.0f ? F{} : v;  // NaN stays NaN
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
                }
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

constexpr size_t ROWS_AHEAD = 4;

// The gradient of each maximum is added where its window was read. Filters go in blocks, as above; threads have blocks
// of their own, and the rows of a block are added in their order. `room` holds the gradients of a block's part of the
// table, side by side: in the table itself they are a multiple of 4096 bytes apart, and would fall into the same lines
// of the first-level cache.
void windows_backward(const WindowsBackwardCall& call, Range blocks, float* room) {
    const size_t A = call.alphabet, K = call.filters, width = call.width;
    const size_t size = A * FILTERS_AT_ONCE;
    for (size_t block = blocks.begin; block < blocks.end; ++block) {
        const size_t first = block * FILTERS_AT_ONCE, rest = K - first;
        const size_t count = rest < FILTERS_AT_ONCE ? rest : FILTERS_AT_ONCE;
        __builtin_memset(room, 0, width * size * sizeof(float));
        for (size_t row = 0; row < call.rows; ++row) {
            const int32_t* ids = call.ids + row * call.columns;
            const float *out = call.out + row * call.stride + first, *d_out = call.d_out + row * call.stride + first;
            // Rows are too far apart for the processor to foresee which one is read next.
            if (row + ROWS_AHEAD < call.rows) {
                for (size_t k = 0; k < count; k += 16) {
                    __builtin_prefetch(out + ROWS_AHEAD * call.stride + k);
                    __builtin_prefetch(d_out + ROWS_AHEAD * call.stride + k);
                }
                __builtin_prefetch(call.places + (row + ROWS_AHEAD) * K + first);
            }
            float gradient[FILTERS_AT_ONCE];
            for (size_t k = 0; k < count; k += LANES) {
                const size_t valid = count - k;
                const F value = load(out + k, valid), d = load(d_out + k, valid);
                const F inner = call.tanh ? d * (1.0f - value * value) : value <= 0.0f ? F{} : d;
                store(gradient + k, inner, LANES);
                store(call.d_bias + first + k, load(call.d_bias + first + k, valid) + inner, valid);
            }
            const uint8_t* places = call.places + row * K + first;
            const int32_t* starts[FILTERS_AT_ONCE];
            for (size_t k = 0; k < count; ++k) starts[k] = ids + places[k];
            for (size_t i = 0; i < width; ++i) {
                float* to = room + i * size;
#pragma GCC unroll 16
                for (size_t k = 0; k < FILTERS_AT_ONCE; ++k)
                    if (k < count) to[static_cast<size_t>(starts[k][i]) * FILTERS_AT_ONCE + k] += gradient[k];
            }
        }
        for (size_t place = 0; place < width * A; ++place) {
            float* to = call.d_table + place * K + first;
            for (size_t k = 0; k < count; ++k) to[k] += room[place * FILTERS_AT_ONCE + k];
        }
    }
}

template <class Product>
void highway_of(const HighwayCall& call, Range rows) {
    const size_t K = call.size;
    for (size_t row = rows.begin; row < rows.end; ++row) {
        const float* x = call.x + row * K;
        float* out = call.out + row * K;
        const Product *transformed = static_cast<const Product*>(call.products) + row * 2 * K, *gate = transformed + K;
        for (size_t k = 0; k < K; k += LANES) {
            const size_t valid = K - k;
            F t = read(transformed + k, valid), g = read(gate + k, valid);
            if (call.bias) {
                t += load(call.bias + k, valid);
                g += load(call.bias + K + k, valid);
            }
            const F before = load(x + k, valid);
            store(out + k, before + (squash(t, false) - before) / one_plus_exp(-g), valid);
        }
    }
}

template <class Product>
void highway_backward_of(const HighwayBackwardCall& call, Range rows, float* d_bias) {
    const size_t K = call.size;
    for (size_t row = rows.begin; row < rows.end; ++row) {
        const float *x = call.x + row * K, *d_out = call.d_out + row * K;
        float* d_x = call.d_x + row * K;
        const Product* products = static_cast<const Product*>(call.products) + row * 2 * K;
        Product* d_products = static_cast<Product*>(call.d_products) + row * 2 * K;
        for (size_t k = 0; k < K; k += LANES) {
            const size_t valid = K - k;
            const F t = read(products + k, valid) + load(call.bias + k, valid);
            const F share = sigmoid(read(products + K + k, valid) + load(call.bias + K + k, valid));
            const F d = load(d_out + k, valid), let_through = d * share;
            const F d_transformed = t <= 0.0f ? F{} : let_through;
            const F d_gate = let_through * (1.0f - share) * (squash(t, false) - load(x + k, valid));
            write(d_products + k, d_transformed, valid);
            write(d_products + K + k, d_gate, valid);
            store(d_x + k, d - let_through, valid);
            // The gradient of the biases is the sum of these, so it is added up while they are in registers.
            store(d_bias + k, load(d_bias + k, valid) + d_transformed, valid);
            store(d_bias + K + k, load(d_bias + K + k, valid) + d_gate, valid);
        }
    }
}

void highway(const HighwayCall& call, Range rows) {
    if (call.bf16) highway_of<uint16_t>(call, rows);
    else highway_of<float>(call, rows);
}

void highway_backward(const HighwayBackwardCall& call, Range rows, float* d_bias) {
    if (call.bf16) highway_backward_of<uint16_t>(call, rows, d_bias);
    else highway_backward_of<float>(call, rows, d_bias);
}

}  // namespace
}  // namespace elmo
