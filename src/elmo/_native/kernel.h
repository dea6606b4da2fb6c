// What the module and the kernels of each instruction set share: packed weights, and the calls on them.
//
// A product multiplies rows of `depth` numbers with the packed rows of a weight, called columns here. Operands of all
// precisions are *words* of 32 bits that hold one float32, two bf16 or four int8 numbers which follow each other along
// the depth. A block of a weight is four vectors of columns; packed, it lies as [group of depth][vector][lane].
//
// That is the order in which a kernel reads it: for each word of a row, which is spread over all lanes of a register,
// it loads four vectors of the weight one after the other and adds four products. So memory is read forward from
// beginning to end, without gaps, and the sums of a tile never leave their registers.
//
// No header of the standard library with code in it is included where kernels are compiled: the linker keeps one copy
// of an inline function, which may be the one that was compiled for AVX-512 but is called on every processor.

#pragma once

#include <cstddef>
#include <cstdint>

namespace elmo {

enum class Precision : int { float32 = 0, bf16 = 1, int8 = 2 };

constexpr size_t VECTORS = 4;           // of a block: the four gates of a recurrence, or columns side by side
constexpr size_t CHUNK = 96;            // rows that a product encodes at once, which bounds the memory for them
constexpr size_t ROWS_PER_THREAD = 6;   // a full tile: from this many on, a thread takes rows instead of columns

inline size_t per_word(Precision precision) { return size_t{1} << static_cast<int>(precision); }
inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// The nearest bf16, of two the even one. A NaN keeps its upper bits and gets one of them set, because rounding could
// carry into its sign, and cutting could leave the bits of infinity.
inline uint16_t to_bf16(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), kept = bits | 1u << 22;
    return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? kept : rounded) >> 16);
}

struct Packed {
    Precision precision;
    size_t columns, depth;  // as the weight has them: (columns, depth)
    // If true, a block holds the same columns of the four gates, which are columns / 4 apart in the weight. The sums of
    // a tile are then all that a cell needs for its step, which follows while they are in registers.
    bool gates;
    size_t lanes, blocks, groups;
    int32_t* words = nullptr;    // [block][group][vector][lane]
    float* scales = nullptr;     // int8 only, [block][vector][lane]: what a column's integers are multiplied with
    int32_t* offsets = nullptr;  // int8 only: a column's part of the products that the +128 of operands makes

    Packed(const float* weight, size_t columns, size_t depth, bool gates, Precision precision, size_t lanes);
    ~Packed();
    Packed(const Packed&) = delete;
    Packed& operator=(const Packed&) = delete;
};

struct Range { size_t begin, end; };

// Share `index` of `count` of `total` blocks.
inline Range share(size_t total, size_t index, size_t count) {
    return {total * index / count, total * (index + 1) / count};
}

// The memory of one thread for encoded rows.
struct Scratch { int32_t* words; float* scales; };

// An interface, because the real one (pool.h) uses the standard library.
struct Barrier { virtual void wait() = 0; };

struct LinearCall { const Packed* weight; const float *bias, *x; float* out; size_t rows; };

struct RecurrenceCall {
    const Packed *weight_hh, *weight_hr;  // weight_hr is null without a projection
    float cell_clip, proj_clip;           // infinite for none
    const float* gates;
    const int64_t* batch_sizes;
    size_t steps;
    const float* hidden;  // before the first step
    float *cell, *outputs;
    float* mixed;  // room for what the projection reads, (B, H)
};

// One time step of a layer in training, over some rows of H cells. Products are (rows, 4H), all else is (rows, H); the
// four gates are i, j (candidate), f, o.
struct CellCall {
    size_t size;  // H
    float clip;   // infinite for none
    bool bf16_products, bf16_mixed;
    const void *from_input, *from_hidden;  // products
    const float *bias, *cell_before;       // the bias (4H) holds the forget bias too
    float *gates, *cell, *squashed;        // kept for the backward pass: gates (rows, 4H), cells, and tanh of them
    void* mixed;                           // o * tanh(cell)
};

// Its backward pass: gradients of the sums of the gates. `d_cell` is the gradient of the cell, and becomes that of the
// cell before.
struct CellBackwardCall {
    size_t size;
    float clip;
    bool bf16_products, bf16_mixed;
    const float *gates, *cell_before, *cell, *squashed;
    const void* d_mixed;
    float* d_cell;
    void* d_gates;  // products: (rows, 4H)
};

// The cross-entropies of rows, each with its own target, which is not among the K words that all rows share.
struct SoftmaxCall {
    size_t columns;  // K
    bool bf16;
    void* products;                    // (rows, K), which become probabilities
    const float *bias, *target_scores; // (K) and (rows)
    const int64_t* own;                // (rows): the column that is the row's own target and is left out, or -1
    float *losses, *target_shares;     // (rows), written
};

// The convolutions of one filter width over words, and the maximum of each filter over the windows of a word, to which
// its bias and the activation (relu or tanh) are applied. There are few characters, so a convolution is a sum of
// look-ups: `table` (width, alphabet, filters) has the product of each filter with each character at each place.
struct WindowsCall {
    size_t columns, width, alphabet, filters;
    size_t stride;  // of a row of `out`, which may have the filters of other widths too
    bool tanh;
    const float *table, *bias;
    const int32_t *ids, *lengths;  // (rows, columns) and (rows): characters up to the padding
    float* out;
};

// x = x + sigmoid(gate) * (relu(transformed) - x), where a row of products is [transformed; gate].
struct HighwayCall { size_t size; const float* products; float* x; };

// The kernels of one instruction set.
struct Kernels {
    const char* name;
    size_t lanes;
    void (*linear)(const LinearCall&, Range blocks, Scratch);
    void (*recurrence)(const RecurrenceCall&, size_t thread, size_t threads, Scratch, Barrier&);
    void (*cell)(const CellCall&, Range rows);
    void (*cell_backward)(const CellBackwardCall&, Range rows);
    void (*softmax)(const SoftmaxCall&, Range rows, float* d_bias, float* powers);
    void (*windows)(const WindowsCall&, Range rows);
    void (*highway)(const HighwayCall&, Range rows);
};

#if defined(__x86_64__)
extern const Kernels avx2, avx512, avx512_vnni, avx512_bf16;
#elif defined(__aarch64__)
extern const Kernels neon, neon_dot, neon_bf16;
#endif

}  // namespace elmo
