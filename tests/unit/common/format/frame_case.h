// A frame whose fields are consistent. The payload is not sealed: no test here unseals it.
#ifndef TESTS_UNIT_FRAME_CASE_H
#define TESTS_UNIT_FRAME_CASE_H

#include "common/format/frame.h"

// Shard 3, step 9, claims 6 and 9, 12 plain bytes; all fields differ, so that a swap shows.
static inline struct lh_frame case_frame(void)
{
    struct lh_frame f = {.index_code = 1,
                         .value_code = 2,
                         .cipher = 1,
                         .density = 0.25f,
                         .key_id = 7,
                         .shard = 3,
                         .worker = 0x1122334455667788u,
                         .incarnation = {UINT64_C(2) << 32 | 5, 0xa1b2c3d4e5f60718u},
                         .step = 9,
                         .base_version = 41,
                         .base_epoch = 2,
                         .base_others = 33,
                         .tokens = 4096,
                         .steps = 10,
                         .claims = 2,
                         .values = 6,
                         .plain_bytes = 12,
                         .allowance = 1000,
                         .allowance_tag = 0x0123456789abcdefu,
                         .charged = 77,
                         .claim = {6, 9},
                         .grant = {{1, {0xa0}}, {2, {0xb0}}}};
    for (int i = 0; i < LH_JOB_BYTES; i++) f.job[i] = (uint8_t)i;
    for (int i = 0; i < LH_HASH_BYTES; i++) f.manifest.b[i] = (uint8_t)(0x40 + i);
    for (int i = 0; i < LH_SEAL_NONCE_BYTES; i++) f.nonce[i] = (uint8_t)(0x80 + i);
    return f;
}

// The whole frame's bytes; free with lh_buf_free().
static inline struct lh_buf case_bytes(const struct lh_frame *f)
{
    struct lh_buf b = lh_buf(1 << 20);
    lh_frame_write_head(f, &b);
    for (uint32_t i = 0; i < f->plain_bytes + LH_SEAL_TAG_BYTES; i++)
        lh_put_u8(&b, (uint8_t)(i * 7 + 1));
    return b;
}

#endif
