// Emulates Intel's tiles in plain C++: kernels that are built with this file first (-include) run without real tiles.
//
// It replaces the intrinsics, and what the module asks the processor and the system. Everything is as in Intel's manual
// (Software Developer's Manual, volume 2, TDPBF16PS and LDTILECFG), and what a processor would refuse ends the program.

#pragma once

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated {

inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "tiles: %s\n", what);
    std::abort();
}

struct Shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(Shapes) == 64, "LDTILECFG reads 64 bytes");

struct Tile {
    unsigned rows, words;
    uint32_t at[16][16];
};

// The registers of one thread.
struct Tiles {
    bool in_use;
    Tile tiles[8];
};

inline Tiles& mine() {
    static thread_local Tiles tiles;
    return tiles;
}

inline Tile& tile(int number) {
    Tile& found = mine().tiles[number];
    require(mine().in_use && found.rows, "a tile has no shape");
    return found;
}

inline bool& allowed() {
    static bool value = false;
    return value;
}

inline void load_shapes(const void* from) {
    Shapes shapes;
    std::memcpy(&shapes, from, sizeof shapes);
    require(allowed(), "the system was not asked for them");
    require(!mine().in_use, "those of the call before were not released");  // a rule of ours, not of processors
    require(shapes.palette == 1 && shapes.start_row == 0, "unknown palette or row");
    for (uint8_t byte : shapes.reserved) require(byte == 0, "a reserved byte is set");
    mine() = Tiles{};
    mine().in_use = true;
    for (int i = 0; i < 16; ++i) {
        const unsigned rows = shapes.rows[i], bytes = shapes.row_bytes[i];
        require(rows <= (i < 8 ? 16 : 0) && bytes <= 64 && bytes % 4 == 0 && !rows == !bytes, "impossible shape");
        if (rows) mine().tiles[i].rows = rows, mine().tiles[i].words = bytes / 4;
    }
}

inline void release() { mine() = Tiles{}; }

inline void zero(int number) { std::memset(tile(number).at, 0, sizeof tile(number).at); }

inline void load(int number, const void* from, size_t step) {
    Tile& to = tile(number);
    for (unsigned row = 0; row < to.rows; ++row)
        std::memcpy(to.at[row], static_cast<const char*>(from) + row * step, to.words * sizeof(uint32_t));
}

inline void store(int number, void* to, size_t step) {
    const Tile& from = tile(number);
    for (unsigned row = 0; row < from.rows; ++row)
        std::memcpy(static_cast<char*>(to) + row * step, from.at[row], from.words * sizeof(uint32_t));
}

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t as_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float flushed(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

inline float lower(uint32_t word) { return flushed(as_float(word << 16)); }
inline float upper(uint32_t word) { return flushed(as_float(word & 0xffff0000)); }

// Even and odd numbers are summed separately until the end of the tile's depth. Everything is rounded to the nearest
// number, half to even.
inline void add_products(int sums, int left, int right) {
    Tile &c = tile(sums), &a = tile(left), &b = tile(right);
    require(sums != left && sums != right && left != right, "a tile is used twice");
    require(c.rows == a.rows && c.words == b.words && a.words == b.rows, "shapes do not match");
    for (unsigned m = 0; m < c.rows; ++m)
        for (unsigned n = 0; n < c.words; ++n) {
            float even = 0, odd = 0;
            for (unsigned k = 0; k < a.words; ++k) {
                even = flushed(std::fma(lower(a.at[m][k]), lower(b.at[k][n]), even));
                odd = flushed(std::fma(upper(a.at[m][k]), upper(b.at[k][n]), odd));
            }
            c.at[m][n] = as_bits(flushed(flushed(as_float(c.at[m][n])) + flushed(even + odd)));
        }
}

// Answers like this processor, but with AMX-BF16 and AMX-TILE.
inline int ask_processor(unsigned leaf, unsigned part, unsigned* eax, unsigned* ebx, unsigned* ecx, unsigned* edx) {
    const int known = __get_cpuid_count(leaf, part, eax, ebx, ecx, edx);
    if (leaf == 7 && part == 0) *edx |= 1u << 22 | 1u << 24;
    return known;
}

// Returns the registers that this system keeps, and in addition tiles with their shapes.
__attribute__((target("xsave"))) inline unsigned long long kept_states(unsigned number) {
    require(number == 0, "another register was read");
    return _xgetbv(0) | 3u << 17;
}

// Answers like a system that grants tiles (ARCH_REQ_XCOMP_PERM of state 18), unless a test has it refuse.
inline long ask_system(long call, long request, long state) {
    require(call == SYS_arch_prctl && request == 0x1023 && state == 18, "another request was made");
    allowed() = std::getenv("TILES_REFUSED") == nullptr;
    return allowed() ? 0 : -1;
}

}  // namespace emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) emulated::load_shapes(from)
#define _tile_release() emulated::release()
#define _tile_zero(tile) emulated::zero(tile)
#define _tile_loadd(tile, from, step) emulated::load(tile, from, step)
#define _tile_stored(tile, to, step) emulated::store(tile, to, step)
#define _tile_dpbf16ps(sums, left, right) emulated::add_products(sums, left, right)
#undef _xgetbv
#define _xgetbv emulated::kept_states
#define __get_cpuid_count(leaf, part, eax, ebx, ecx, edx) emulated::ask_processor(leaf, part, eax, ebx, ecx, edx)
#define syscall(call, request, state) emulated::ask_system(call, request, state)
