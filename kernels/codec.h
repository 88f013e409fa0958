// Codecs: encode a shard's residual to a payload, and decode a payload into arrays.
//
// The CPU code is the specification (kernels/docs/0001-payload.md): scalar and vector forms agree
// to the byte. Arrays are packed fp32 of one shard, cut into chunks by its layout.
//
// A codec's name gives the choice of values, then their encoding: topk-sign, dense-q4, ...
//   topk   the largest of each chunk, indices as Rice-coded gaps
// dense  all values
//   fragment  a part of each chunk, given by a number in the header: for differentially private
//             regions, which may not choose by value
//   sign   a sign bit, one fp16 centroid a chunk
//   q4     levels -7..7 of one fp16 scale a chunk
//   fp16   the value, rounded to half
//   fp32   the value as it is
#ifndef LK_CODEC_H
#define LK_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/format/manifest.h"

enum lk_index {
    LK_INDEX_DENSE = 0,
    LK_INDEX_RICE = 1,
    LK_INDEX_FRAGMENT = 2, // fp32 alone; written by kernels/fragment.h, and never chosen by name
};
enum lk_value {
    LK_VALUE_SIGN = 1,
    LK_VALUE_Q4 = 3,
    LK_VALUE_FP16 = 5,
    LK_VALUE_FP32 = 6,
};

struct lk_codec {
    uint8_t index, value;
    float density; // p: k = max(1, round(p * length)) of a chunk, ties to even; dense: 1
};

// Figures of one payload, over real values (padding does not exist).
struct lk_payload_info {
    uint64_t chunks, values; // values carried
    double sum_squares;      // over carried (decoded) values, fp64: kernels/docs/0001-payload.md
};

// LH_ERR_CONFIG lists the nearest name and all others. Does not change the density.
LH_MUST lh_err lk_codec_parse(const char *name, struct lk_codec *out);
const char *lk_codec_name(const struct lk_codec *codec); // "unknown" for an invalid codec
// The names in the order of the codes, NULL after the last.
const char *lk_codec_word(size_t i);
// Largest payload of this shard in bytes; bounds every buffer.
size_t lk_payload_max(const struct lk_codec *codec, const struct lh_shard_layout *layout);
// The same over all codecs and densities.
size_t lk_payload_most(const struct lh_shard_layout *layout);

// Selection and coding in one pass over the chunks: chooses q, writes q, e -= q.
// Fails with LH_ERR_NON_FINITE and the tensor's index in the text, before anything of `e` changed.
// Appends to `out`.
LH_MUST lh_err lk_encode(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                         float *e, struct lh_buf *out, struct lk_payload_info *info);

// The same on `threads` threads including the caller's (parallel.h), with the same bytes. It needs
// 9 more bytes of memory per chunk; without it, and for a shard below 1 Mi values, one thread does
// all.
LH_MUST lh_err lk_encode_on(uint32_t threads, const struct lk_codec *codec,
                            const struct lh_shard_layout *layout, float *e, struct lh_buf *out,
                            struct lk_payload_info *info);

// Makes e[0..n), the shard's values from `from` on, what is to be encoded. Any thread, each value
// once.
struct lk_feed {
    lh_err (*run)(void *arg, uint64_t from, uint64_t n, float *e);
    void *arg;
};
// lk_encode_on() of the whole e after feed->run(), in one pass: each group of chunks is fed,
// checked and encoded while it is in the cache. If it fails, with the feed's error or
// LH_ERR_NON_FINITE, some of e was fed or encoded already. Without a feed (NULL) it is
// lk_encode_on().
LH_MUST lh_err lk_encode_fed(uint32_t threads, const struct lk_codec *codec,
                             const struct lh_shard_layout *layout, const struct lk_feed *feed,
                             float *e, struct lh_buf *out, struct lk_payload_info *info);

// Checks a received payload without writing anything: lengths, counts, indices rising and in range,
// values finite, no byte left over. LH_ERR_MALFORMED or LH_ERR_NON_FINITE.
LH_MUST lh_err lk_payload_check(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                                struct lh_span payload, struct lk_payload_info *info);

// theta[i] -= scale * q[i] for every carried value: one rounding for the product, one for the
// difference, in index order. The payload must have passed lk_payload_check (asserted by the walk).
LH_MUST lh_err lk_fold(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                       struct lh_span payload, float scale, float *theta);
// The same for only the values before `below`.
LH_MUST lh_err lk_fold_below(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                             struct lh_span payload, float scale, float *theta, uint64_t below);
// e[i] += q[i]: a refused frame goes back into the residual.
LH_MUST lh_err lk_payload_add(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                              struct lh_span payload, float *e);
// e[i] = 0 at every carried index (server/docs/0000-protocol.md#rule-11).
LH_MUST lh_err lk_payload_clear(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                                struct lh_span payload, float *e);
// Sets bit i % 64 of mark[i / 64] for every carried value i; mark[(values + 63) / 64].
void lk_payload_mark(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                     struct lh_span payload, uint64_t *mark);

// Forces a form for tests: "scalar", "avx2", "avx512"; NULL, or a form that this processor lacks:
// the best one. Returns the form in use.
const char *lk_codec_force(const char *name);

#endif
