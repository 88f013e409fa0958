// The messages between a leader and its ranks when a rank encodes a portion of a push: values to
// encode, and the payload made of them. The bytes are in encoding.c; they travel as the payload of
// WK_REGION_ENCODE and WK_REGION_ENCODED (region_message.h).
#ifndef WK_ENCODING_H
#define WK_ENCODING_H

#include "kernels/codec_groups.h"

enum {
    WK_ENCODING_GROUPS = 4, // A portion has so many at most: 1 MiB of values.
    WK_ENCODING_CHUNKS = 16 * WK_ENCODING_GROUPS,
    WK_ENCODING_VALUES = WK_ENCODING_CHUNKS * LH_CHUNK,
};

struct wk_encoding_ask {
    uint64_t push;    // Which of the leader's; it begins at a random one.
    uint32_t portion; // Which portion of it.
    struct lk_codec codec;
    struct lh_shard_layout layout; // A range's: lengths of its extents, nothing else of a shard's.
    // These two are the struct's own, for the next one too.
    struct lh_extent extent[WK_ENCODING_CHUNKS];
    float *values; // [WK_ENCODING_VALUES]
};
struct wk_encoding_answer {
    uint64_t push;
    uint32_t portion;
    bool fine;              // False: the rank could not encode it.
    struct lh_span payload; // Borrows.
};

// Appends the bytes: `layout` and `values` are a range's, of at most WK_ENCODING_CHUNKS chunks.
void wk_encoding_ask_put(struct lh_buf *out, uint64_t push, uint32_t portion,
                         const struct lk_codec *codec, const struct lh_shard_layout *layout,
                         const float *values);
// LH_ERR_MALFORMED; LH_ERR_NO_MEMORY. `out` is zeroed before its first use. The codec is any.
LH_MUST lh_err wk_encoding_ask_get(struct lh_span bytes, struct wk_encoding_ask *out);
void wk_encoding_ask_free(struct wk_encoding_ask *ask);

void wk_encoding_answer_put(struct lh_buf *out, const struct wk_encoding_answer *answer);
LH_MUST lh_err wk_encoding_answer_get(struct lh_span bytes, struct wk_encoding_answer *out);

#endif
