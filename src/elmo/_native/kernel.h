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

struct Kernels;

struct Packed {
    Precision precision;
    size_t columns, depth;  // as the weight has them: (columns, depth)
    size_t blocks;
    size_t groups;  // words of the depth, with the padding to whole steps of a product
    int32_t* words = nullptr;    // [block][group][vector][lane]
    size_t bytes = 0;            // of `words`
    bool for_one_call = false;   // if so, the memory of `words` is kept for the next call
    float* scales = nullptr;     // int8 only, [block][vector][lane]: what a column's integers are multiplied with
    int32_t* sums = nullptr;     // int8 only: of the integers of each column

    enum Source {
        AS_IT_IS,               // the weight lies as (columns, depth)
        TRANSPOSED,             // as (depth, columns)
        TRANSPOSED_INTERLEAVED  // the same, and its depth holds the gates of cells, which the other operand interleaves
    };
    // With `gates`, a block holds the same columns of the four gates, which are columns / 4 apart in the weight. The
    // sums of a tile are then all that a cell needs for its step, which follows while they are in registers.
    Packed(const float* weight, size_t columns, size_t depth, bool gates, Precision precision, const Kernels& kernels,
           Source source = AS_IT_IS);
    ~Packed();
    Packed(const Packed&) = delete;
    Packed& operator=(const Packed&) = delete;

  private:
    // The other constructor begins with this one, so that the destructor frees what it has if memory runs out.
    Packed(Precision precision, size_t columns, size_t depth) : precision(precision), columns(columns), depth(depth) {}
};

// Gives a process memory of its own for weights that are packed for one call: at first, and after a fork, which may
// copy the lock of the old memory while another thread holds it.
void renew_kept_memory();

struct Range { size_t begin, end; };

// Share `index` of `count` of `total` blocks.
inline Range share(size_t total, size_t index, size_t count) {
    return {total * index / count, total * (index + 1) / count};
}

// The memory of one thread for encoded rows.
struct Scratch { int32_t* words; float* scales; };

// Encoded rows, `stride` words apart; int8 has a scale for each.
struct Operand { const int32_t* words; size_t stride; const float* scales; };

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

// In training, the four gates i, j (candidate), f, o of 16 cells lie next to each other, then those of the next 16, so
// that they are written and read as a piece. Gates that are as far apart as there are cells, mostly a multiple of 4096
// bytes, would all fall into the same lines of the first-level cache. If H is no multiple of 16, the order is that of
// the weights: all of gate i, then all of gate j, and so on.
constexpr size_t INTERLEAVED = 16;

inline size_t gate_run(size_t size) { return size % INTERLEAVED ? size : INTERLEAVED; }

// Where the gate i of cell `k` of H = `size` is; its other gates follow at distances of `gate_run(size)`.
inline size_t gate_place(size_t k, size_t size) {
    const size_t run = gate_run(size);
    return k / run * 4 * run + k % run;
}

// One layer in training over a packed batch of N tokens, of H cells and P outputs. The rows of `joined` are the input
// of a token and the hidden state before it, side by side. Products are float32, or bf16 as uint16_t.
struct LSTMForwardCall {
    const Packed *weight, *weight_hr;  // (4H, I + P) as gates, and (P, H) or null without a projection
    size_t out_size;                   // P
    float cell_clip, proj_clip;        // infinite for none
    const int64_t* batch_sizes;
    size_t steps;
    const float *bias, *cell_before;  // (4H) with the forget bias, and (B, H) before the first step
    void* joined;                     // products (N, I + P): holds the inputs, and the hidden states of the first step
    float *gates, *cell;              // kept for the backward pass: (N, 4H) activations, interleaved, and (N, H)
    void* mixed;                      // products (N, H): o * tanh(cell), what the projection reads, if there is one
    float* outputs;                   // (N, P)
};

struct LSTMBackwardCall {
    const Packed *weight, *weight_hr;  // transposed: (I + P, 4H), its depth interleaved, and (H, P) or null
    size_t size, out_size;             // H and P
    float cell_clip, proj_clip;
    const int64_t* batch_sizes;
    size_t steps;
    const float *cell_before, *gates, *cell, *outputs;
    const float *d_outputs, *d_cells;  // (N, P), and (N, H) or null for zeros
    float* d_cell;                     // (B, H), zeros: becomes the gradient of the cells before the first step
    void *d_gates, *d_out;             // products: (N, 4H) of the gates' sums, interleaved; (N, P) of the projection
    float* d_joined;                   // (N, I + P)
};

// The cross-entropies of rows. Each row has its own target besides the K words that all rows share. If that target is
// one of these words, its column is left out.
struct SoftmaxCall {
    size_t columns;  // K
    bool bf16;
    void* products;                    // (rows, K), which become probabilities
    const float *bias, *target_scores; // (K) and (rows)
    const int64_t* own;                // (rows): the column that is the row's own target and is left out, or -1
    float *losses, *target_probs;      // (rows), written
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
    uint8_t* places;  // (rows, filters): the first places of the maxima, which training also wants; otherwise null
};

// The backward pass of these maxima for one filter width, for some blocks of FILTERS_AT_ONCE filters.
constexpr size_t FILTERS_AT_ONCE = 64;

struct WindowsBackwardCall {
    size_t rows, columns, width, alphabet, filters, stride;
    bool tanh;
    const float *out, *d_out;  // of these filters, in rows of `stride` numbers: what was written, and its gradient
    const int32_t* ids;
    const uint8_t* places;
    float *d_table, *d_bias;  // (width, alphabet, filters) and (filters), which are added to
};

// out = x + sigmoid(gate) * (relu(transformed) - x), where a row of products and bias is [transformed; gate].
struct HighwayCall {
    size_t size;
    bool bf16;
    const void* products;
    const float *bias, *x;  // bias may be null
    float* out;             // may be x
};

// The backward pass of a highway, except for the products. The gradient of the bias is added to memory of each thread.
struct HighwayBackwardCall {
    size_t size;
    bool bf16;
    const void* products;
    const float *bias, *x, *d_out;
    void* d_products;
    float* d_x;  // without what comes through the products
};

// Adam on some rows of a matrix: `width` numbers each, at `rows` of the weight and of both averages.
struct AdamRowsCall {
    size_t width;
    const int64_t* rows;
    const float* gradient;  // (number of rows, width)
    float *weight, *average, *average_square;
    float share, share_of_square, step_size, epsilon;  // shares of the new gradient: 1 - beta
};

// The kernels of one instruction set.
struct Kernels {
    const char* name;
    size_t lanes;
    // int8: how many words of the depth a step of a product takes, and what their weights that are added up in the same
    // 16 bits may sum up to; 0 where all sums have 32 bits.
    size_t at_once;
    int most_weight;
    void (*linear)(const LinearCall&, Range blocks, Scratch);
    void (*recurrence)(const RecurrenceCall&, size_t thread, size_t threads, Scratch, Barrier&);
    void (*lstm_forward)(const LSTMForwardCall&, size_t thread, size_t threads);
    void (*lstm_backward)(const LSTMBackwardCall&, size_t thread, size_t threads);
    void (*softmax)(const SoftmaxCall&, Range rows, float* d_bias, float* powers);
    void (*windows)(const WindowsCall&, Range rows);
    void (*windows_backward)(const WindowsBackwardCall&, Range blocks, float* room);
    void (*highway)(const HighwayCall&, Range rows);
    void (*highway_backward)(const HighwayBackwardCall&, Range rows, float* d_bias);
    void (*adam_rows)(const AdamRowsCall&, Range rows);
};

// Kernels that a compiler is too old for are left out, and the others are built.
#if defined(__x86_64__)
extern const Kernels avx2, avx512, avx512_vnni;
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10
#define HAS_AVX512_BF16
extern const Kernels avx512_bf16;
#endif
// Tiles (tiles.h) need a compiler that knows them, and we know only how to ask Linux for them.
#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define HAS_AMX
extern const Kernels avx512_amx;
#endif
#elif defined(__aarch64__)
extern const Kernels neon;
// Before version 16, the header of clang declares these instructions only if the whole file is compiled for them.
#if defined(__apple_build_version__)
#define OLD_CLANG (__clang_major__ < 15)
#elif defined(__clang__)
#define OLD_CLANG (__clang_major__ < 16)
#else
#define OLD_CLANG 0
#endif
#if !OLD_CLANG
#define HAS_NEON_DOT
extern const Kernels neon_dot;
#if defined(__clang__) || __GNUC__ >= 10
#define HAS_NEON_BF16
extern const Kernels neon_bf16;
#endif
#endif
#endif

}  // namespace elmo
