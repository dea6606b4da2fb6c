// What an LSTM does with its gates in training, forward and backward, for one time step of a batch; part of
// kernel_body.h.
//
// A pass over memory costs more than this arithmetic. Here there is one pass per step, where torch's operations make a
// dozen, which took a third of the time of an LSTM of the larger models. Operands of products are float32, or bf16 as
// uint16_t.

namespace elmo {
namespace {

typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

// `valid` is the number of elements that are left in the row; it may be more than LANES.
inline F read(const float* from, size_t valid) { return load(from, valid); }

inline F read(const uint16_t* from, size_t valid) {
    Halves v = {};
    __builtin_memcpy(&v, from, valid >= LANES ? sizeof v : valid * sizeof(uint16_t));
    return (F)(__builtin_convertvector(v, I) << 16);  // a bf16 is the upper half of a float32
}

inline void write(float* to, F v, size_t valid) { store(to, v, valid); }

inline void write(uint16_t* to, F v, size_t valid) {
    // Rounds to nearest, half to even. The NaN that arithmetic makes has no bits set that could carry into its sign.
    const I bits = (I)v;
    const Halves rounded = __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, Halves);
    __builtin_memcpy(to, &rounded, valid >= LANES ? sizeof rounded : valid * sizeof(uint16_t));
}

inline F sigmoid(F x) { return 1.0f / one_plus_exp(-x); }

inline F hyperbolic_tangent(F x) {
    const F e = exp_minus_one(x + x);
    return e / (e + 2.0f);
}

// 1 where |v| is below the limit, so that the clip lets gradients through, and 0 elsewhere.
inline F inside(F v, float limit) {
    const I below = (v < limit) & (v > -limit);  // all ones where true
    return (F)(below & (I)(F{} + 1.0f));
}

template <class Product, class Mixed>
void cell_of(const CellCall& call, Range rows) {
    const size_t H = call.size;
    for (size_t row = rows.begin; row < rows.end; ++row) {
        const Product* from_input = static_cast<const Product*>(call.from_input) + row * 4 * H;
        const Product* from_hidden = static_cast<const Product*>(call.from_hidden) + row * 4 * H;
        float* gates = call.gates + row * 4 * H;
        for (size_t k = 0; k < H; k += LANES) {
            const size_t valid = H - k, at = row * H + k;
            // The two halves of the gates are added here: they come from products that torch computes, the input's half
            // for all steps at once.
            F sums[4];
            for (size_t gate = 0; gate < 4; ++gate) {
                const size_t place = gate * H + k;
                sums[gate] = read(from_input + place, valid) + read(from_hidden + place, valid) +
                             load(call.bias + place, valid);
            }
            const F i = sigmoid(sums[0]), j = hyperbolic_tangent(sums[1]), f = sigmoid(sums[2]), o = sigmoid(sums[3]);
            const F cell = clamp(f * load(call.cell_before + at, valid) + i * j, call.clip);
            const F squashed = hyperbolic_tangent(cell);
            store(gates + k, i, valid);
            store(gates + H + k, j, valid);
            store(gates + 2 * H + k, f, valid);
            store(gates + 3 * H + k, o, valid);
            store(call.cell + at, cell, valid);
            store(call.squashed + at, squashed, valid);
            write(static_cast<Mixed*>(call.mixed) + at, o * squashed, valid);
        }
    }
}

template <class Product, class Mixed>
void cell_backward_of(const CellBackwardCall& call, Range rows) {
    const size_t H = call.size;
    for (size_t row = rows.begin; row < rows.end; ++row) {
        const float* gates = call.gates + row * 4 * H;
        Product* d_gates = static_cast<Product*>(call.d_gates) + row * 4 * H;
        for (size_t k = 0; k < H; k += LANES) {
            const size_t valid = H - k, at = row * H + k;
            const F i = load(gates + k, valid), j = load(gates + H + k, valid);
            const F f = load(gates + 2 * H + k, valid), o = load(gates + 3 * H + k, valid);
            const F squashed = load(call.squashed + at, valid), cell = load(call.cell + at, valid);
            const F d_mixed = read(static_cast<const Mixed*>(call.d_mixed) + at, valid);
            // What the cell passes on comes from the next step and through the output. Derivatives are expressed by the
            // values that were kept: tanh' = 1 - tanh², sigmoid' = sigmoid (1 - sigmoid).
            F d_cell = load(call.d_cell + at, valid) + d_mixed * o * (1.0f - squashed * squashed);
            d_cell = d_cell * inside(cell, call.clip);
            write(d_gates + k, d_cell * j * i * (1.0f - i), valid);
            write(d_gates + H + k, d_cell * i * (1.0f - j * j), valid);
            write(d_gates + 2 * H + k, d_cell * load(call.cell_before + at, valid) * f * (1.0f - f), valid);
            write(d_gates + 3 * H + k, d_mixed * squashed * o * (1.0f - o), valid);
            store(call.d_cell + at, d_cell * f, valid);
        }
    }
}

void cell(const CellCall& call, Range rows) {
    if (!call.bf16_products) return cell_of<float, float>(call, rows);
    return call.bf16_mixed ? cell_of<uint16_t, uint16_t>(call, rows) : cell_of<uint16_t, float>(call, rows);
}

void cell_backward(const CellBackwardCall& call, Range rows) {
    if (!call.bf16_products) return cell_backward_of<float, float>(call, rows);
    return call.bf16_mixed ? cell_backward_of<uint16_t, uint16_t>(call, rows)
                           : cell_backward_of<uint16_t, float>(call, rows);
}

}  // namespace
}  // namespace elmo
