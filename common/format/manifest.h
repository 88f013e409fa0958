// The model's manifest: tensors -> chunks -> shards, and a hash that both sides of a connection
// compare.
//
// A chunk is up to LH_CHUNK consecutive fp32 values of one tensor; every tensor starts a chunk, so
// its last chunk may be short. Chunks are numbered through the tensors in order. A shard is a
// contiguous range of chunks; its parameters are held packed, without padding, in that order.
//
// File (JSON): {"schema": "longhaul.manifest/1", "model": {...shape, opaque here...},
//   "chunk": 4096, "shards": N, "tensors": [{"name": ..., "shape": [...]}, ...]}
// Hash: BLAKE2b-256 of "longhaul manifest 1" and, little endian, chunk u32, shards u32, tensors
// u32, and per tensor its name (u16 length), dimensions (u8 count, u64 each).
#ifndef LH_COMMON_MANIFEST_H
#define LH_COMMON_MANIFEST_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_CHUNK = 4096 };

struct lh_tensor {
    char name[128];
    uint64_t shape[4];
    int dims;
    uint64_t offset, len; // values; the offset counts in the whole model's flat order
};

// A range of one tensor's values inside a shard; starts at a chunk boundary.
struct lh_extent {
    uint32_t tensor;
    uint64_t offset; // offset in the shard's packed array
    uint64_t len;    // a multiple of LH_CHUNK unless the tensor ends here
};

struct lh_shard_layout {
    uint32_t shard;
    uint64_t first;  // index of its first value in the model's flat order
    uint64_t values; // number of parameters
    uint64_t chunks;
    struct lh_extent *extent;
    uint32_t extents;
};

struct lh_manifest {
    struct lh_tensor *tensor;
    uint32_t tensors;
    uint64_t values; // values of the whole model
    struct lh_shard_layout *shard;
    uint32_t shards;
    char *model_json; // the "model" object, for the trainer; may be NULL
    struct lh_hash hash;
};

// Builds offsets, shards and hash from names and shapes. `shapes[i]` ends with 0.
LH_MUST lh_err lh_manifest_build(struct lh_manifest *m, uint32_t tensors, const char *const *names,
                                 const uint64_t (*shapes)[5], uint32_t shards,
                                 const char *model_json);
LH_MUST lh_err lh_manifest_parse(struct lh_manifest *m, struct lh_span json);
LH_MUST lh_err lh_manifest_write(const struct lh_manifest *m, struct lh_buf *out);
void lh_manifest_free(struct lh_manifest *m);

#endif
