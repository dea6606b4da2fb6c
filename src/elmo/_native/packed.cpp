// Packing: the weights of a product in the order that the kernels read them, made once.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "kernel.h"

namespace elmo {
namespace {

constexpr size_t HUGE_PAGE = size_t{1} << 21;

// Zeroed, as kernels multiply the padding too, and aligned to 64 bytes, as they load whole registers. It is on huge
// pages where it fills some: the kernels run through megabytes at every step, and would look up a page for every 4 KB.
template <class T>
T* allocate(size_t count) {
    const size_t bytes = std::max<size_t>(count * sizeof(T), 1);
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    const size_t whole = ceil_div(bytes, alignment) * alignment;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, whole) != 0) throw std::bad_alloc();
#ifdef __linux__
    if (alignment == HUGE_PAGE) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, whole);
    return static_cast<T*>(memory);
}

}  // namespace

Packed::Packed(const float* weight, size_t columns, size_t depth, bool gates, Precision precision, size_t lanes)
    : precision(precision), columns(columns), depth(depth), gates(gates), lanes(lanes) {
    // Columns and depth are padded to whole blocks and words.
    const size_t width = VECTORS * lanes;
    blocks = gates ? ceil_div(columns / 4, lanes) : ceil_div(columns, width);
    groups = ceil_div(depth, per_word(precision));
    words = allocate<int32_t>(blocks * groups * width);
    if (precision == Precision::int8) {
        scales = allocate<float>(blocks * width);
        offsets = allocate<int32_t>(blocks * width);
    }
    for (size_t block = 0; block < blocks; ++block) {
        for (size_t slot = 0; slot < width; ++slot) {  // vector and lane
            const size_t inside = gates ? block * lanes + slot % lanes : block * width + slot;
            if (inside >= (gates ? columns / 4 : columns)) continue;  // padding
            const float* from = weight + (gates ? slot / lanes * (columns / 4) + inside : inside) * depth;
            int32_t* to = words + block * groups * width + slot;
            // A scale for each column, which belongs to one output: columns of very different sizes keep their digits.
            float factor = 0;
            if (precision == Precision::int8) {
                float largest = 0;
                for (size_t k = 0; k < depth; ++k) {
                    const float size = std::fabs(from[k]);
                    if (size > largest || std::isnan(size)) largest = size;  // nothing is larger than NaN: it stays
                }
                factor = largest > 1e-30f ? 127.0f / largest : 0.0f;
                scales[block * width + slot] = largest / 127.0f;
            }
            int32_t sum = 0;
            for (size_t k = 0; k < depth; ++k) {
                int32_t* word = to + k / per_word(precision) * width;
                if (precision == Precision::float32) {
                    std::memcpy(word, from + k, 4);
                } else if (precision == Precision::bf16) {
                    reinterpret_cast<uint16_t*>(word)[k % 2] = to_bf16(from[k]);
                } else {
                    const int8_t rounded = factor > 0 ? static_cast<int8_t>(std::lrintf(from[k] * factor)) : int8_t{0};
                    reinterpret_cast<int8_t*>(word)[k % 4] = rounded;
                    sum += rounded;
                }
            }
            // What the products will be too large by, because 128 is added to the other operand (see kernel_body.h).
            if (precision == Precision::int8) offsets[block * width + slot] = 128 * sum;
        }
    }
}

Packed::~Packed() {
    std::free(words);
    std::free(scales);
    std::free(offsets);
}

}  // namespace elmo
