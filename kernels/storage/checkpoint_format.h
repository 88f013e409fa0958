// The numbers of the layout (checkpoint.h), shared by checkpoint.c and checkpoint_read.c; private
// to them, except for tests that repair checksums.
#ifndef LK_CHECKPOINT_FORMAT_H
#define LK_CHECKPOINT_FORMAT_H

#include "kernels/storage/checkpoint.h"

static const uint32_t LK_CKPT_MAGIC = 0x4b43484c;          // "LHCK"
static const uint32_t LK_CKPT_MANIFEST_MAGIC = 0x4d43484c; // "LHCM"
static const char LK_CKPT_LABEL[] = "longhaul checkpoint 2";
enum {
    LK_CKPT_RANGE_BYTES = 4 << 20, // a range; held in memory twice during a write
    LK_CKPT_RANGE_HEAD_BYTES = 8 + 4 + 8 + LH_SEAL_NONCE_BYTES,
    LK_CKPT_HEADER_BYTES = 164,
    LK_CKPT_VERSION = 2,
    LK_CKPT_SIGNED = 1,
    LK_CKPT_WEIGHTS = 2,
    LK_CKPT_MANIFEST_REST = 8 + LH_SIGN_PUBLIC_BYTES + LH_SIGN_BYTES + 4,
};

static inline uint32_t lk_ckpt_ranges(uint64_t bytes)
{
    return (uint32_t)((bytes + LK_CKPT_RANGE_BYTES - 1) / LK_CKPT_RANGE_BYTES);
}

static inline size_t lk_ckpt_manifest_bytes(uint32_t ranges)
{
    return LK_CKPT_MANIFEST_REST + (size_t)ranges * LH_HASH_BYTES;
}

static inline struct lh_seal_context lk_ckpt_context(uint32_t shard, uint64_t version)
{
    return (struct lh_seal_context){.worker = 0,
                                    .incarnation = version,
                                    .incarnation_random = 0,
                                    .shard = shard,
                                    .purpose = LH_SEAL_AT_REST};
}

#endif
