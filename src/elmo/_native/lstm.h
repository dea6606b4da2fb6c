// A projected LSTM layer in training, forward and backward over a whole packed batch; part of kernel_body.h.
//
// The gates of a step are computed from [input; hidden state before], which lie side by side in one row, by one product
// with both weights. While the sums of a tile are in registers, the cells are computed from them, so that the sums
// never reach memory. The backward pass does the same with the product that gives the gradient of the cells' outputs.
//
// Threads divide the rows of the batch and never wait for each other: a row's steps depend on that row alone.
// Products are of float32, or of bf16, two numbers to a word; all else is float32.

namespace elmo {
namespace {

// How many words of the depth of a product go through all rows before the next ones do. A part of a block then stays in
// the second-level cache, where the whole block of a long product would not.
constexpr size_t DEPTH_AT_ONCE = 512;

// out += values, columns side by side.
struct Add {
    float* out;
    size_t stride, columns;

    void prefetch(size_t, size_t, size_t) const {}
    inline void row(size_t block, size_t row, const F* values) const {
        for (size_t v = 0, column = block * VECTORS * LANES; v < VECTORS && column < columns; ++v, column += LANES) {
            float* to = out + row * stride + column;
            store(to, load(to, columns - column) + values[v], columns - column);
        }
    }
};

// The rows of one thread at one step. With `every` threads, a thread has the rows i, i + every, …: the batch shrinks at
// its end, and shares stay equal.
struct Rows {
    size_t first, every, count;
    Rows(size_t batch, size_t thread, size_t threads)
        : first(thread), every(threads), count(batch > thread ? ceil_div(batch - thread, threads) : 0) {}
    template <class T>
    T* of(T* matrix, size_t width) const { return matrix + first * width; }
};

template <class Product>
inline Operand operand(const Product* rows, size_t width, const Rows& mine) {
    const size_t words = width * sizeof(Product) / sizeof(int32_t);
    return {reinterpret_cast<const int32_t*>(rows) + mine.first * words, mine.every * words, nullptr};
}

inline float rounded(float value, const float*) { return value; }
inline uint16_t rounded(float value, const uint16_t*) { return to_bf16(value); }

// What follows the product of a step forward: the gates and the cells of one vector of columns.
template <class Mixed>
struct CellForward {
    const float *bias, *cell_before;
    float *gates, *cell;
    Mixed* mixed;
    size_t size, every;
    float clip;

    void prefetch(size_t, size_t, size_t) const {}
    inline void row(size_t block, size_t row, const F* values) const {
        const size_t column = block * LANES, valid = size - column, at = row * every * size + column;
        float* gate = gates + row * every * 4 * size + gate_place(column, size);
        const size_t run = gate_run(size);
        F sums[VECTORS];
        for (size_t v = 0; v < VECTORS; ++v) sums[v] = values[v] + load(bias + v * size + column, valid);
        const F i = sigmoid(sums[0]), j = hyperbolic_tangent(sums[1]), f = sigmoid(sums[2]), o = sigmoid(sums[3]);
        const F c = clamp(f * load(cell_before + at, valid) + i * j, clip);
        store(gate, i, valid);
        store(gate + run, j, valid);
        store(gate + 2 * run, f, valid);
        store(gate + 3 * run, o, valid);
        store(cell + at, c, valid);
        write(mixed + at, o * hyperbolic_tangent(c), valid);
    }
};

// 1 where |v| is below the limit, so that the clip lets gradients through, and 0 elsewhere.
inline F inside(F v, float limit) {
    const I below = (v < limit) & (v > -limit);  // all ones where true
    return (F)(below & (I)(F{} + 1.0f));
}

// What follows the product of a step backward: from the gradient of the cells' outputs to that of the gates' sums.
template <class Product>
struct CellBackward {
    const float *gates, *cell_before, *cell;
    float* d_cell;  // of the cells, from later steps; becomes that of the cells before
    Product* d_gates;
    size_t size, every;
    float clip;

    void prefetch(size_t, size_t, size_t) const {}
    inline void row(size_t block, size_t row, const F* values) const {
        for (size_t v = 0, column = block * VECTORS * LANES; v < VECTORS && column < size; ++v, column += LANES)
            vector(column, row, values[v]);
    }
    inline void vector(size_t column, size_t row, F d_mixed) const {
        const size_t valid = size - column, at = row * every * size + column;
        const size_t place = row * every * 4 * size + gate_place(column, size), run = gate_run(size);
        const float* gate = gates + place;
        Product* to = d_gates + place;
        const F i = load(gate, valid), j = load(gate + run, valid);
        const F f = load(gate + 2 * run, valid), o = load(gate + 3 * run, valid);
        // Computed once more: that takes less time than to write it forward and to read it here.
        const F c = load(cell + at, valid), s = hyperbolic_tangent(c);
        // What the cell passes on comes from the next step and through the output. Derivatives are expressed by the
        // values that were kept: tanh' = 1 - tanh², sigmoid' = sigmoid (1 - sigmoid).
        F d_c = load(d_cell + row * every * size + column, valid) + d_mixed * o * (1.0f - s * s);
        d_c = d_c * inside(c, clip);
        write(to, d_c * j * i * (1.0f - i), valid);
        write(to + run, d_c * i * (1.0f - j * j), valid);
        write(to + 2 * run, d_c * load(cell_before + at, valid) * f * (1.0f - f), valid);
        write(to + 3 * run, d_mixed * s * o * (1.0f - o), valid);
        store(d_cell + row * every * size + column, d_c * f, valid);
    }
};

template <class Kind, class Product>
void lstm_forward_of(const LSTMForwardCall& call, size_t thread, size_t threads) {
    const size_t size = call.weight->columns / 4, width = call.weight->depth, out_size = call.out_size;
    Product* joined = static_cast<Product*>(call.joined);
    const float* cell_before = call.cell_before;
    for (size_t t = 0, start = 0; t < call.steps; ++t) {
        const size_t batch = static_cast<size_t>(call.batch_sizes[t]);
        const Rows mine(batch, thread, threads);
        float *gates = mine.of(call.gates + start * 4 * size, 4 * size), *out = call.outputs + start * out_size;
        float* cell = call.cell + start * size;
        const Operand x = operand(joined + start * width, width, mine);
        const Range all{0, call.weight->blocks}, depth{0, call.weight->groups};
        if (call.weight_hr) {
            Product* mixed = static_cast<Product*>(call.mixed) + start * size;
            const CellForward<Product> cells{call.bias, mine.of(cell_before, size), gates, mine.of(cell, size),
                                             mine.of(mixed, size), size, mine.every, call.cell_clip};
            product<Kind>(*call.weight, x, mine.count, all, depth, cells);
            const Write write{mine.of(out, out_size), mine.every * out_size, out_size, nullptr, call.proj_clip};
            product<Kind>(*call.weight_hr, operand(mixed, size, mine), mine.count, {0, call.weight_hr->blocks},
                          {0, call.weight_hr->groups}, write);
        } else {
            const CellForward<float> cells{call.bias, mine.of(cell_before, size), gates, mine.of(cell, size),
                                           mine.of(out, size), size, mine.every, call.cell_clip};
            product<Kind>(*call.weight, x, mine.count, all, depth, cells);
        }
        // The outputs are what the next step reads next to its input.
        const size_t next = t + 1 < call.steps ? static_cast<size_t>(call.batch_sizes[t + 1]) : 0;
        for (size_t row = thread; row < next; row += threads) {
            Product* to = joined + (start + batch + row) * width + (width - out_size);
            for (size_t k = 0; k < out_size; ++k) to[k] = rounded(out[row * out_size + k], to);
        }
        cell_before = cell;
        start += batch;
    }
}

template <class Kind, class Product>
void lstm_backward_of(const LSTMBackwardCall& call, size_t thread, size_t threads) {
    const size_t size = call.size, width = call.weight->columns, out_size = call.out_size;
    const size_t in_size = width - out_size;
    size_t start = 0;
    for (size_t t = 0; t < call.steps; ++t) start += static_cast<size_t>(call.batch_sizes[t]);
    size_t later = 0;  // rows that have a token at the step after
    for (size_t t = call.steps; t-- > 0;) {
        const size_t batch = static_cast<size_t>(call.batch_sizes[t]), after = start;
        start -= batch;
        const Rows mine(batch, thread, threads);
        const float* cell_before = t ? call.cell + (start - static_cast<size_t>(call.batch_sizes[t - 1])) * size
                                     : call.cell_before;
        Product *d_gates = static_cast<Product*>(call.d_gates) + start * 4 * size;
        Product *d_out = call.weight_hr ? static_cast<Product*>(call.d_out) + start * out_size : nullptr;
        float* d_joined = call.d_joined + start * width;
        const CellBackward<Product> cells{mine.of(call.gates + start * 4 * size, 4 * size), mine.of(cell_before, size),
                                          mine.of(call.cell + start * size, size), mine.of(call.d_cell, size),
                                          mine.of(d_gates, 4 * size), size, mine.every, call.cell_clip};
        for (size_t i = 0; i < mine.count; ++i) {
            const size_t row = mine.first + i * mine.every, n = start + row;
            if (call.d_cells)
                for (size_t k = 0; k < size; ++k) call.d_cell[row * size + k] += call.d_cells[n * size + k];
            const float *from = call.d_outputs + n * out_size, *out = call.outputs + n * out_size;
            const float* passed = row < later ? call.d_joined + (after + row) * width + in_size : nullptr;
            for (size_t k = 0; k < out_size; k += LANES) {
                const size_t valid = out_size - k;
                F d = load(from + k, valid);
                if (passed) d += load(passed + k, valid);
                if (!call.weight_hr) cells.vector(k, i, d);
                else write(d_out + row * out_size + k, d * inside(load(out + k, valid), call.proj_clip), valid);
            }
        }
        if (call.weight_hr)
            product<Kind>(*call.weight_hr, operand(d_out, out_size, mine), mine.count, {0, call.weight_hr->blocks},
                          {0, call.weight_hr->groups}, cells);
        const Operand x = operand(d_gates, 4 * size, mine);
        const Range all{0, call.weight->blocks};
        for (size_t from = 0; from < call.weight->groups; from += DEPTH_AT_ONCE) {
            const size_t to = from + DEPTH_AT_ONCE < call.weight->groups ? from + DEPTH_AT_ONCE : call.weight->groups;
            float* out = mine.of(d_joined, width);
            const Write write{out, mine.every * width, width, nullptr, __builtin_inff()};
            if (from == 0) product<Kind>(*call.weight, x, mine.count, all, {from, to}, write);
            else product<Kind>(*call.weight, x, mine.count, all, {from, to}, Add{out, mine.every * width, width});
        }
        later = batch;
    }
}

void lstm_forward(const LSTMForwardCall& call, size_t thread, size_t threads) {
    if (call.weight->precision == Precision::float32) lstm_forward_of<Float32, float>(call, thread, threads);
    else lstm_forward_of<BF16, uint16_t>(call, thread, threads);
}

void lstm_backward(const LSTMBackwardCall& call, size_t thread, size_t threads) {
    if (call.weight->precision == Precision::float32) lstm_backward_of<Float32, float>(call, thread, threads);
    else lstm_backward_of<BF16, uint16_t>(call, thread, threads);
}

}  // namespace
}  // namespace elmo
