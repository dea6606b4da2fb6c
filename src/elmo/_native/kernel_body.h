// The kernels themselves, compiled once for each instruction set: a kernel_*.cpp names the set and includes this.
//
// LANES is the number of float32 in a register, MAX_ROWS that of rows whose sums, four vectors each, fit the registers.
// HAS_BF16 and HAS_VNNI (on Arm, HAS_DOT) say that there are instructions for products of bf16 and of int8, HAS_TILES
// that those of bf16 are made of tiles.
//
// Everything but the table at the end is in unnamed namespaces: each instruction set has functions of its own.

#include "vectors.h"
#include "softmax.h"
#include "encoder.h"
#include "optimizer.h"
#ifdef HAS_TILES
#include "tiles.h"
#endif

#define QUOTED(word) #word
#define NAME(word) QUOTED(word)

namespace elmo {
namespace {

// The step of one vector of cells: updates `cell`, returns sigmoid(o) * tanh(cell). Fractions share their division:
// sigmoid(x) = 1 / (1 + e^-x) and tanh(x) = (e^2x - 1) / (e^2x - 1 + 2). Divisions are by far the slowest of these
// instructions. Products of two denominators stay below 1e35, since exponents are clamped at 40.
inline F step(F i, F j, F f, F o, F& cell, float cell_clip) {
    F candidate = exp_minus_one(j + j);
    cell = cell / one_plus_exp(-f) + candidate / (one_plus_exp(-i) * (candidate + 2.0f));
    cell = clamp(cell, cell_clip);
    F squashed = exp_minus_one(cell + cell);
    return squashed / (one_plus_exp(-o) * (squashed + 2.0f));
}

// --- the three precisions: how rows are encoded, multiplied and read back

struct Float32 {
    typedef F Sum;
    static constexpr size_t AT_ONCE = 1;  // words of the depth that a step of a product takes
    static Operand encode(const float* rows, size_t stride, size_t, const Packed&, Scratch) {
        // Rows are read where they are: a word is a number.
        return {reinterpret_cast<const int32_t*>(rows), stride, nullptr};
    }
    static inline Sum add(Sum sum, const I* weight, const I* word) { return (F)*weight * (F)*word + sum; }
    static inline F value(I sum, const Packed&, size_t, const Operand&, size_t) { return (F)sum; }
};

struct BF16 {
    typedef F Sum;
    static constexpr size_t AT_ONCE = 1;
    static Operand encode(const float* rows, size_t stride, size_t count, const Packed& weight, Scratch scratch) {
        const size_t depth = weight.depth;
        for (size_t r = 0; r < count; ++r) {
            const float* row = rows + r * stride;
            uint16_t* __restrict to = reinterpret_cast<uint16_t*>(scratch.words + r * weight.groups);
            for (size_t k = 0; k < depth; ++k) to[k] = to_bf16(row[k]);
            if (depth % 2) to[depth] = 0;  // the weight has 0 there too, but 0 times what was left there may be NaN
        }
        return {scratch.words, weight.groups, nullptr};
    }
    static inline Sum add(Sum sum, const I* weight, const I* word) {
#if !defined(HAS_BF16)
        // A bf16 is the upper half of a float32: shifting or masking unpacks both numbers of a word, which takes as
        // long as multiplying them. So this saves memory and its bandwidth, not arithmetic.
        sum = (F)(*weight << 16) * (F)(*word << 16) + sum;
        return (F)(*weight & -65536) * (F)(*word & -65536) + sum;
#elif LANES == 4
        return (F)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)*weight, (bfloat16x8_t)*word);
#else
        return (F)_mm512_dpbf16_ps((__m512)sum, (__m512bh)*weight, (__m512bh)*word);
#endif
    }
    static inline F value(I sum, const Packed&, size_t, const Operand&, size_t) { return (F)sum; }
};

struct Int8 {
    typedef I Sum;
    // A row's numbers become integers up to LARGEST in size. x86 multiplies unsigned bytes with signed ones, so ADDED
    // is added to each. The sums are then too large by ADDED times the sum of the column, which packing has stored. Arm
    // multiplies signed bytes.
#if LANES == 4 || defined(HAS_VNNI)
    static constexpr int32_t LARGEST = 127, ADDED = LANES == 4 ? 0 : 128, MOST_WEIGHT = 0;
    static constexpr size_t AT_ONCE = 1;
#else
    // Without VNNI, x86 adds two products of bytes in 16 bits (maddubs). Those of AT_ONCE words are added there before
    // they are widened to 32 bits, so that widening is half as much work. They fit if the weights that meet in the same
    // 16 bits sum up to MOST_WEIGHT or less, which packing sees to. Larger rows leave less room for weights: of 63, 89
    // and 127, 89 gave the smallest errors.
    static constexpr int32_t LARGEST = 89, ADDED = 90, MOST_WEIGHT = 32767 / (LARGEST + ADDED);
    static constexpr size_t AT_ONCE = 2;
#endif
    static Operand encode(const float* rows, size_t stride, size_t count, const Packed& weight, Scratch scratch) {
        const size_t depth = weight.depth;
        for (size_t r = 0; r < count; ++r) {
            const float* row = rows + r * stride;
            uint8_t* __restrict to = reinterpret_cast<uint8_t*>(scratch.words + r * weight.groups);
            // The largest absolute value, found among the bits as integers, which have the same order. NaN is larger
            // than all numbers there, so a row with NaN gives NaN instead of being rounded to something.
            int32_t largest = 0;
            for (size_t k = 0; k < depth; ++k) {
                int32_t bits;
                __builtin_memcpy(&bits, row + k, 4);
                bits &= 0x7fffffff;
                largest = bits > largest ? bits : largest;
            }
            float limit;
            __builtin_memcpy(&limit, &largest, 4);
            // One scale for each row: rows of one batch differ in size, and a common scale would cost the small ones
            // their digits. Rows of (nearly) nothing become 0, as the quotient would overflow.
            const float factor = limit > 1e-30f ? static_cast<float>(LARGEST) / limit : 0.0f;
            for (size_t k = 0; k < depth; ++k) {
                // A sum with 1.5 * 2^23 is rounded to an integer, which is then in the low bits. Unlike lrintf, this
                // is arithmetic that the compiler turns into vector instructions.
                float rounded = row[k] * factor + (12582912.0f + ADDED);
                uint32_t bits;
                __builtin_memcpy(&bits, &rounded, 4);
                to[k] = static_cast<uint8_t>(bits);
            }
            for (size_t k = depth; k < 4 * weight.groups; ++k) to[k] = 0;
            // A row with infinity would give infinities of any sign, so it gives NaN, too.
            scratch.scales[r] = limit < __builtin_inff() ? limit / LARGEST : __builtin_nanf("");
        }
        return {scratch.words, weight.groups, scratch.scales};
    }
    static inline Sum add(Sum sum, const I* weight, const I* word) {
#if defined(HAS_DOT)
        return (I)vdotq_s32((int32x4_t)sum, (int8x16_t)*weight, (int8x16_t)*word);
#elif LANES == 4
        const int8x16_t w = (int8x16_t)*weight, x = (int8x16_t)*word;
        const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
        return sum + (I)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#elif defined(HAS_VNNI)
        return (I)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)*word, (__m512i)*weight);
#else
        typedef uint16_t Pairs __attribute__((vector_size(4 * LANES)));
        Pairs sums = {};
        for (size_t i = 0; i < AT_ONCE; ++i) {
#if LANES == 16
            sums += (Pairs)_mm512_maddubs_epi16((__m512i)word[i], (__m512i)weight[i * VECTORS]);
        }
        return sum + (I)_mm512_madd_epi16((__m512i)sums, _mm512_set1_epi16(1));
#else
            sums += (Pairs)_mm256_maddubs_epi16((__m256i)word[i], (__m256i)weight[i * VECTORS]);
        }
        return sum + (I)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1));
#endif
#endif
    }
    static inline F value(I sum, const Packed& weight, size_t vector, const Operand& x, size_t row) {
        // Both terms may be too large for 32 bits, but their difference fits (arguments.py).
        U sums = {};
        if (ADDED) __builtin_memcpy(&sums, weight.sums + vector * LANES, sizeof sums);
        const F scales = load(weight.scales + vector * LANES) * x.scales[row];
        return __builtin_convertvector((I)((U)sum - sums * ADDED), F) * scales;
    }
};

// --- products

// A word of a row. Rows of bf16 may begin at any even address.
inline int32_t word(const int32_t* at) {
    int32_t found;
    __builtin_memcpy(&found, at, sizeof found);
    return found;
}

// ROWS rows times one block: `sums` is [row][vector].
//
// The sums of all rows and vectors are in registers at the same time, so that each vector of the weight is loaded once
// for ROWS products. They stay there only because all loops over them are unrolled; hence a function for each ROWS. The
// words of all rows come before the weight: with 16 registers, clang finds no room the other way round, and its code
// takes a third longer.
template <class Kind, size_t ROWS>
void multiply(const int32_t* x, size_t stride, const I* weight, size_t groups, I* sums) {
    typename Kind::Sum sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (size_t row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECTORS; ++v) sum[row][v] = typename Kind::Sum{};
    for (size_t group = 0; group < groups; group += Kind::AT_ONCE, weight += Kind::AT_ONCE * VECTORS) {
        I words[ROWS][Kind::AT_ONCE];
#pragma GCC unroll 8
        for (size_t row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
            for (size_t i = 0; i < Kind::AT_ONCE; ++i) words[row][i] = I{} + word(x + row * stride + group + i);
#pragma GCC unroll 4
        for (size_t v = 0; v < VECTORS; ++v)
#pragma GCC unroll 8
            for (size_t row = 0; row < ROWS; ++row) sum[row][v] = Kind::add(sum[row][v], weight + v, words[row]);
    }
#pragma GCC unroll 8
    for (size_t row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
        for (size_t v = 0; v < VECTORS; ++v) sums[row * VECTORS + v] = (I)sum[row][v];
}

typedef void (*Tile)(const int32_t*, size_t, const I*, size_t, I*);

template <class Kind>
Tile tile(size_t rows) {
    switch (rows) {
        case 1: return multiply<Kind, 1>;
        case 2: return multiply<Kind, 2>;
#if MAX_ROWS > 3
        case 3: return multiply<Kind, 3>;
        case 4: return multiply<Kind, 4>;
        case 5: return multiply<Kind, 5>;
#endif
        default: return multiply<Kind, MAX_ROWS>;
    }
}

// Multiply `count` encoded rows with the `blocks` of a weight; `finish` takes the sums of each tile.
//
// All rows go through one block before the next, because a weight may be larger than the caches: so it is read from
// memory once for all of them. `groups` is the part of the depth that is summed.
template <class Kind, class Finish>
void product(const Packed& weight, const Operand& x, size_t count, Range blocks, Range groups, const Finish& finish) {
#ifdef HAS_TILES
    if constexpr (__is_same(Kind, BF16)) return product_of_tiles(weight, x, count, blocks, groups, finish);
#endif
    I sums[MAX_ROWS * VECTORS];
    for (size_t block = blocks.begin; block < blocks.end; ++block) {
        const I* words = reinterpret_cast<const I*>(weight.words) + (block * weight.groups + groups.begin) * VECTORS;
        size_t tiles = ceil_div(count, MAX_ROWS);
        for (size_t row = 0; row < count; --tiles) {
            // Tiles of similar sizes: 7 rows are 4 and 3, not 6 and 1, as one row takes nearly as long as several.
            const size_t rows = ceil_div(count - row, tiles);
            finish.prefetch(block, row, rows);
            tile<Kind>(rows)(x.words + row * x.stride + groups.begin, x.stride, words, groups.end - groups.begin, sums);
            for (size_t r = 0; r < rows; ++r) {
                F values[VECTORS];
                for (size_t v = 0; v < VECTORS; ++v)
                    values[v] = Kind::value(sums[r * VECTORS + v], weight, block * VECTORS + v, x, row + r);
                finish.row(block, row + r, values);
            }
            row += rows;
        }
    }
}

// out = clip(values + bias), columns side by side.
struct Write {
    float* out;
    size_t stride, columns;
    const float* bias;
    float clip;

    // What will be written is fetched while the product is computed, instead of being waited for afterwards.
    inline void prefetch(size_t block, size_t row, size_t rows) const {
        for (size_t r = row; r < row + rows; ++r)
            for (size_t v = 0; v < VECTORS; ++v)
                __builtin_prefetch(out + r * stride + (block * VECTORS + v) * LANES, 1);
    }
    inline void row(size_t block, size_t row, const F* values) const {
        for (size_t v = 0, column = block * VECTORS * LANES; v < VECTORS && column < columns; ++v, column += LANES) {
            const size_t valid = columns - column;
            const F value = bias ? values[v] + load(bias + column, valid) : values[v];
            store(out + row * stride + column, clamp(value, clip), valid);
        }
    }
};

// The gates' nonlinearities: writes the cells and what the projection reads.
struct Step {
    const float* gates;
    float *cell, *mixed;
    size_t size, every;  // H, and the distance between two of our rows in the batch
    float cell_clip;

    void prefetch(size_t, size_t, size_t) const {}
    inline void row(size_t block, size_t row, const F* values) const {
        const size_t column = block * LANES, valid = size - column;
        const float* gate = gates + row * every * 4 * size + column;
        float* at = cell + row * every * size + column;
        F c = load(at, valid);
        F sums[VECTORS];
        for (size_t v = 0; v < VECTORS; ++v) sums[v] = values[v] + load(gate + v * size, valid);
        const F m = step(sums[0], sums[1], sums[2], sums[3], c, cell_clip);
        store(at, c, valid);
        store(mixed + row * every * size + column, m, valid);
    }
};

// --- the calls of inference: products, and recurrences

template <class Kind>
void linear_of(const LinearCall& call, Range blocks, Scratch scratch) {
    const Packed& weight = *call.weight;
    for (size_t row = 0; row < call.rows; row += CHUNK) {
        const size_t count = call.rows - row < CHUNK ? call.rows - row : CHUNK;
        const Operand x = Kind::encode(call.x + row * weight.depth, weight.depth, count, weight, scratch);
        const Write write{call.out + row * weight.columns, weight.columns, weight.columns, call.bias, __builtin_inff()};
        product<Kind>(weight, x, count, blocks, {0, weight.groups}, write);
    }
}

template <class Kind>
void recurrence_of(const RecurrenceCall& call, size_t thread, size_t threads, Scratch scratch, Barrier& barrier) {
    const Packed &weight_hh = *call.weight_hh, *weight_hr = call.weight_hr;
    const size_t size = weight_hh.columns / 4, out_size = weight_hh.depth;
    const float *gates = call.gates, *hidden = call.hidden;
    float* out = call.outputs;
    bool by_rows = false;
    for (size_t t = 0; t < call.steps; ++t) {
        const size_t batch = static_cast<size_t>(call.batch_sizes[t]);
        // With many rows, each thread has its own from step to step, and never waits for another one. With few rows,
        // each thread has its own columns, so that it reads only its share of the weights; reading them takes most of
        // the time.
        const bool were_rows = by_rows;
        by_rows = threads > 1 && batch >= ROWS_PER_THREAD * threads;
        if (were_rows && !by_rows) barrier.wait();  // for the rows of the other threads, which are read from now on
        // Thread i has the rows i, i + threads, …: the batch shrinks at its end, and shares stay equal while every row
        // stays with its thread.
        const size_t first = by_rows ? thread : 0, every = by_rows ? threads : 1;
        const size_t index = by_rows ? 0 : thread, count = by_rows ? 1 : threads;
        const size_t rows = ceil_div(batch - first, every);

        // By columns, every thread encodes all rows for itself, which saves a third barrier.
        Operand x = Kind::encode(hidden + first * out_size, every * out_size, rows, weight_hh, scratch);
        float* mixed = (weight_hr ? call.mixed : out) + first * size;
        const Step step{gates + first * 4 * size, call.cell + first * size, mixed, size, every, call.cell_clip};
        product<Kind>(weight_hh, x, rows, share(weight_hh.blocks, index, count), {0, weight_hh.groups}, step);
        if (count > 1) barrier.wait();  // the projection, or the next step, reads the columns of all threads
        if (weight_hr) {
            x = Kind::encode(mixed, every * size, rows, *weight_hr, scratch);
            const Write write{out + first * out_size, every * out_size, out_size, nullptr, call.proj_clip};
            const Range blocks = share(weight_hr->blocks, index, count);
            product<Kind>(*weight_hr, x, rows, blocks, {0, weight_hr->groups}, write);
            if (count > 1) barrier.wait();
        }
        hidden = out;
        gates += batch * 4 * size;
        out += batch * out_size;
    }
}

void linear(const LinearCall& call, Range blocks, Scratch scratch) {
    switch (call.weight->precision) {
        case Precision::float32: return linear_of<Float32>(call, blocks, scratch);
        case Precision::bf16: return linear_of<BF16>(call, blocks, scratch);
        case Precision::int8: return linear_of<Int8>(call, blocks, scratch);
    }
}

void recurrence(const RecurrenceCall& call, size_t thread, size_t threads, Scratch scratch, Barrier& barrier) {
    switch (call.weight_hh->precision) {
        case Precision::float32: return recurrence_of<Float32>(call, thread, threads, scratch, barrier);
        case Precision::bf16: return recurrence_of<BF16>(call, thread, threads, scratch, barrier);
        case Precision::int8: return recurrence_of<Int8>(call, thread, threads, scratch, barrier);
    }
}

}  // namespace
}  // namespace elmo

#include "lstm.h"

namespace elmo {

extern const Kernels LEVEL = {NAME(LEVEL), LANES,        Int8::AT_ONCE, Int8::MOST_WEIGHT, linear,           recurrence,
                              lstm_forward, lstm_backward, softmax,      windows,           windows_backward, highway,
                              highway_backward, adam_rows};

}  // namespace elmo
