// Packing: the weights of a product in the order that the kernels read them, made once.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "kernel.h"

namespace elmo {
namespace {

constexpr size_t HUGE_PAGE = size_t{1} << 21;

// Memory of weights that were packed for one call, kept for the next: training packs its weights at each step, and
// would ask the system for fresh pages each time. Weights of inference are given back when their model is dropped.
class Kept {
  public:
    static Kept& instance() { return *current(); }
    static void renew() { current() = new Kept; }

    void* take(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
            if (block->first != bytes) continue;
            void* memory = block->second;
            blocks_.erase(block);
            return memory;
        }
        return nullptr;
    }

    void give(void* memory, size_t bytes) {
        void* oldest = nullptr;  // it makes room, since it may be of a model that is gone
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (blocks_.size() == MOST) {
                oldest = blocks_.front().second;
                blocks_.erase(blocks_.begin());
            }
            blocks_.emplace_back(bytes, memory);
        }
        std::free(oldest);
    }

  private:
    // Blocks: what a step packs for two directions, two weights each, forward and back.
    static constexpr size_t MOST = 8;

    Kept() { blocks_.reserve(MOST); }  // so that `give`, which destructors call, never allocates
    static Kept*& current() {
        static Kept* kept = nullptr;  // never destroyed: weights may outlive all else
        return kept;
    }

    std::mutex mutex_;
    std::vector<std::pair<size_t, void*>> blocks_;  // the oldest first
};

size_t rounded_up(size_t bytes) {
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    return ceil_div(std::max<size_t>(bytes, 1), alignment) * alignment;
}

// Aligned to 64 bytes, as kernels load whole registers. It is on huge pages where it fills some: the kernels run
// through megabytes at every step, and would look up a page for every 4 KB.
void* allocate(size_t bytes) {
    bytes = rounded_up(bytes);
    if (void* memory = Kept::instance().take(bytes)) return memory;
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
#ifdef __linux__
    if (alignment == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

template <class T>
T* allocate_zeros(size_t count) {
    const size_t bytes = rounded_up(count * sizeof(T));
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    return static_cast<T*>(memory);
}

// The largest sum of weights that have one sign and are added up in the same 16 bits: those of `at_once` words, the
// first two numbers of each word apart from its last two.
template <class At>
float most_together(size_t depth, size_t at_once, const At& at) {
    float most = 0, sums[2][2];  // [half of a word][sign]
    for (size_t k = 0; k < depth; ++k) {
        if (k % (4 * at_once) == 0) std::memset(sums, 0, sizeof sums);
        float& sum = sums[k / 2 % 2][at(k) > 0];
        sum += std::fabs(at(k));
        most = std::max(most, sum);
    }
    return most;
}

}  // namespace

void renew_kept_memory() { Kept::renew(); }

Packed::Packed(const float* weight, size_t columns, size_t depth, bool gates, Precision precision,
               const Kernels& kernels, Source source)
    : Packed(precision, columns, depth) {
    // Columns and depth are padded to whole blocks and words.
    const size_t lanes = kernels.lanes, width = VECTORS * lanes;
    blocks = gates ? ceil_div(columns / 4, lanes) : ceil_div(columns, width);
    const size_t at_once = precision == Precision::int8 ? kernels.at_once : 1;
    groups = ceil_div(depth, per_word(precision) * at_once) * at_once;
    bytes = blocks * groups * width * sizeof(int32_t);
    words = static_cast<int32_t*>(allocate(bytes));
    // Kernels multiply the padding too.
    if (blocks * width != columns || groups * per_word(precision) != depth) std::memset(words, 0, bytes);
    if (precision == Precision::int8) {
        scales = allocate_zeros<float>(blocks * width);
        sums = allocate_zeros<int32_t>(blocks * width);
    }
    // Where the numbers of a column are: `every` apart, but for interleaved gates.
    const size_t every = source == AS_IT_IS ? 1 : columns, size = depth / 4, run = gate_run(size);
    const auto place = [&](size_t k) {
        if (source != TRANSPOSED_INTERLEAVED) return k * every;
        const size_t inside = k % (4 * run);
        return (inside / run * size + k / (4 * run) * run + inside % run) * every;
    };
    for (size_t block = 0; block < blocks; ++block) {
        int32_t* start = words + block * groups * width;
        if (source != AS_IT_IS && precision == Precision::float32) {  // columns side by side, as they are to be
            const size_t count = std::min(width, columns - block * width);
            for (size_t k = 0; k < depth; ++k)
                std::memcpy(start + k * width, weight + place(k) + block * width, count * sizeof(float));
            continue;
        }
        for (size_t slot = 0; slot < width; ++slot) {  // vector and lane
            const size_t inside = gates ? block * lanes + slot % lanes : block * width + slot;
            if (inside >= (gates ? columns / 4 : columns)) continue;  // padding
            const size_t column = gates ? slot / lanes * (columns / 4) + inside : inside;
            const float* from = weight + (source == AS_IT_IS ? column * depth : column);
            int32_t* to = start + slot;
            if (precision == Precision::float32) {
                for (size_t k = 0; k < depth; ++k) std::memcpy(to + k * width, from + k, sizeof(float));
            } else if (precision == Precision::bf16) {
                for (size_t k = 0; k < depth; ++k)
                    reinterpret_cast<uint16_t*>(to + k / 2 * width)[k % 2] = to_bf16(from[place(k)]);
            } else {
                // A scale for each column, which belongs to one output: columns of very different sizes keep their
                // digits.
                float largest = 0;
                for (size_t k = 0; k < depth; ++k) {
                    const float magnitude = std::fabs(from[place(k)]);
                    // Nothing is larger than NaN: it stays.
                    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
                }
                if (kernels.most_weight) {
                    // Rounding may add 1/2 to each weight, and there are two of each word.
                    const float room = static_cast<float>(kernels.most_weight) - static_cast<float>(at_once);
                    largest = std::max(largest, 127.0f / room * most_together(depth, at_once, [&](size_t k) {
                        return from[place(k)];
                    }));
                }
                const float factor = largest > 1e-30f ? 127.0f / largest : 0.0f;
                scales[block * width + slot] = largest / 127.0f;
                int32_t sum = 0;
                for (size_t k = 0; k < depth; ++k) {
                    const int8_t rounded =
                        factor > 0 ? static_cast<int8_t>(std::lrintf(from[place(k)] * factor)) : int8_t{0};
                    reinterpret_cast<int8_t*>(to + k / 4 * width)[k % 4] = rounded;
                    sum += rounded;
                }
                sums[block * width + slot] = sum;
            }
        }
    }
}

Packed::~Packed() {
    if (for_one_call) Kept::instance().give(words, rounded_up(bytes));
    else std::free(words);
    std::free(scales);
    std::free(sums);
}

}  // namespace elmo
