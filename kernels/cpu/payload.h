// The payload's geometry (kernels/docs/0001-payload.md), shared by encoder and decoder.
#ifndef LK_CPU_PAYLOAD_H
#define LK_CPU_PAYLOAD_H

#include "common/format/manifest.h"
#include "kernels/codec.h"

enum {
    LK_PAYLOAD_VERSION = 1,
    LK_HEADER_BYTES = 24,
    LK_GROUP_CHUNKS = 16,      // chunks that share one unary stream and one entry of the table
    LK_GROUP_LENGTH_BYTES = 2, // bytes of a group's length, its entry in the table
    LK_RICE_BITS_MAX = 12,     // gaps are below LH_CHUNK = 2^12
};

// How the chunks of one payload are coded.
struct lk_coding {
    uint8_t index, value;
    uint8_t rice_bits; // Rice parameter b of indices; 0 for dense
    float density;     // 1 for dense
    uint32_t turn;     // part of each chunk that a fragment carries; else 0
};

struct lk_chunk {
    uint64_t at;     // its first value in the shard's packed array
    uint32_t len, k; // number of values, and of carried values
};

struct lk_group {
    struct lk_chunk chunk[LK_GROUP_CHUNKS];
    uint32_t chunks;
    uint64_t values;     // carried
    size_t record_bytes; // bytes of its chunk records together
    size_t unary_max;    // most bytes of its unary stream; top-k only
    size_t table_bytes;  // bytes of its entry in the table; top-k only
};

// The chunks of a layout in order, a group at a time.
struct lk_walk {
    const struct lk_coding *coding;
    const struct lh_shard_layout *layout;
    uint32_t extent; // the next chunk's extent
    uint64_t in_extent;
};

struct lk_sizes {
    uint64_t chunks, groups, values;
    size_t table_bytes;
    size_t bytes_max; // bound of the whole payload
};

// The sum of squares of all chunks: the chunks' sums are added to the lanes in turn, and the lanes
// in order at the end. This matches the lanes of a GPU's block.
enum { LK_SUM_LANES = 256 };
struct lk_chunk_sum {
    double lane[LK_SUM_LANES];
    uint64_t chunks;
};
static inline void lk_chunk_sum_add(struct lk_chunk_sum *s, double squares)
{
    s->lane[s->chunks++ % LK_SUM_LANES] += squares;
}
static inline double lk_chunk_sum_of(const struct lk_chunk_sum *s)
{
    double sum = s->lane[0];
    for (int i = 1; i < LK_SUM_LANES; i++) sum += s->lane[i];
    return sum;
}

// LH_ERR_UNSUPPORTED: no such codec; LH_ERR_INVALID: a density outside (0, 1].
LH_MUST lh_err lk_coding_of(const struct lk_codec *codec, struct lk_coding *out);
// Number of values that a chunk of `len` carries: max(1, round(p*len)), ties to even; len for
// dense.
uint64_t lk_carried(const struct lk_coding *coding, uint64_t len);
// Bits of a code that shares a field with its index; fp32 values are stored separately, as bytes.
uint32_t lk_value_bits(uint8_t value);
// fp16 numbers that a record begins with: a centroid or a scale, or none.
uint32_t lk_value_halves(uint8_t value);
// A fragment carries values [0, wrapped) and [first, first + k - wrapped) of a chunk.
struct lk_fragment {
    uint32_t first, wrapped;
};
struct lk_fragment lk_fragment_of(uint32_t turn, const struct lk_chunk *chunk);

struct lk_walk lk_walk(const struct lk_coding *coding, const struct lh_shard_layout *layout);
// The next group; false: no chunk is left.
bool lk_walk_next(struct lk_walk *walk, struct lk_group *group);
// Fills in a group's values and bytes from its chunks.
void lk_group_measure(const struct lk_coding *coding, struct lk_group *group);
void lk_measure(const struct lk_coding *coding, const struct lh_shard_layout *layout,
                struct lk_sizes *out);

void lk_header_write(uint8_t *out, const struct lk_coding *coding, const struct lk_sizes *sizes);
// Reads and checks a header against the codec and layout; `coding` gets the payload's own b.
LH_MUST lh_err lk_header_read(struct lh_cursor *in, const struct lk_sizes *sizes,
                              struct lk_coding *coding);

#endif
