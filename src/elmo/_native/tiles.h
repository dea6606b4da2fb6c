// bf16 products by the tiles of Intel's AMX; part of kernel_body.h.
//
// A tile is a register of up to 16 rows of 64 bytes. TDPBF16PS multiplies a tile of rows, 16 words of the depth each,
// with a tile of a weight, and adds the products to a tile of sums. In a tile of a weight, a row is one word of 16
// columns, which is a vector of a group as it is packed anyway.
//
// Even and odd numbers are summed apart within a tile, and subnormals count as 0, so the sums differ from those of
// other instructions by rounding. Hence all bf16 products are made of tiles, those of a single row too: the result for
// a row must not depend on how many others are in its batch.

namespace elmo {
namespace {

constexpr size_t TILE = 16;  // rows, and words in a row

struct TileShapes {  // in the layout that LDTILECFG reads
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(size_t tile, size_t count, size_t words) {
        rows[tile] = static_cast<uint8_t>(count);
        row_bytes[tile] = static_cast<uint16_t>(words * sizeof(int32_t));
    }
};

// Tiles 0 to 3 are the sums of a block's vectors. All arguments are tiles, which the intrinsics want as literals.
#define ADD_PRODUCT(SUM, ROWS, WEIGHT)                     \
    _tile_loadd(WEIGHT, words + (SUM) * LANES, word_step); \
    _tile_dpbf16ps(SUM, ROWS, WEIGHT);
#define ADD_PRODUCTS(ROWS, WEIGHT)     \
    _tile_loadd(ROWS, from, row_step); \
    ADD_PRODUCT(0, ROWS, WEIGHT)       \
    ADD_PRODUCT(1, ROWS, WEIGHT)       \
    ADD_PRODUCT(2, ROWS, WEIGHT)       \
    ADD_PRODUCT(3, ROWS, WEIGHT)

// As `product` of kernel_body.h.
template <class Finish>
void product_of_tiles(const Packed& weight, const Operand& x, size_t count, Range blocks, Range groups,
                      const Finish& finish) {
    if (count == 0) return;  // no tile is empty
    // Setting the shapes clears all tiles, so it is done once. All tiles have the same number of rows; hence the last
    // may begin with rows that are done already. The end of the depth has two tiles of its own, 6 and 7.
    const size_t rows = ceil_div(count, ceil_div(count, TILE)), rest = (groups.end - groups.begin) % TILE;
    TileShapes shapes;
    for (size_t v = 0; v < VECTORS; ++v) shapes.set(v, rows, LANES);
    shapes.set(4, rows, TILE), shapes.set(5, TILE, LANES);
    if (rest) shapes.set(6, rows, rest), shapes.set(7, rest, LANES);
    // GCC's intrinsics don't tell the compiler that they read memory, so everything has to be written by now.
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
    const size_t row_step = x.stride * sizeof(int32_t), word_step = VECTORS * LANES * sizeof(int32_t);
    I sums[TILE * VECTORS];
    for (size_t block = blocks.begin; block < blocks.end; ++block) {
        for (size_t done = 0; done < count;) {
            const size_t first = done + rows < count ? done : count - rows;
            const int32_t* from = x.words + first * x.stride + groups.begin;
            const int32_t* words = weight.words + (block * weight.groups + groups.begin) * VECTORS * LANES;
            finish.prefetch(block, done, first + rows - done);
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (size_t group = groups.begin; group + TILE <= groups.end; group += TILE) {
                ADD_PRODUCTS(4, 5)
                from += TILE;
                words += TILE * VECTORS * LANES;
            }
            if (rest) {
                ADD_PRODUCTS(6, 7)
            }
            _tile_stored(0, sums, word_step);
            _tile_stored(1, sums + 1, word_step);
            _tile_stored(2, sums + 2, word_step);
            _tile_stored(3, sums + 3, word_step);
            for (; done < first + rows; ++done) {
                F values[VECTORS];
                __builtin_memcpy(values, sums + (done - first) * VECTORS, sizeof values);
                finish.row(block, done, values);
            }
        }
    }
    _tile_release();  // otherwise their 8 KB are saved and loaded whenever threads are switched
}

}  // namespace
}  // namespace elmo
