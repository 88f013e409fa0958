// A model out: the parameters of a run as a Hugging Face folder.
//
//   OUT/model.safetensors          or, above the size allowed, model-00001-of-0000N.safetensors and
//   OUT/model.safetensors.index.json
//   OUT/config.json, tokenizer.json ...  copied from `like`
//   OUT/longhaul.json              which run, versions and digests these parameters are
#ifndef DP_EXPORT_H
#define DP_EXPORT_H

#include <jansson.h>

#include "common/format/manifest.h"
#include "deploy/models/dtype.h"

struct dp_export {
    const struct lh_manifest *manifest;
    const char *manifest_path; // import.json beside it tells the imported dtypes; may be NULL
    // Gives the values [first, first + n) of the model's flat order.
    lh_err (*values)(void *arg, uint64_t first, size_t n, float *out);
    void *arg;
    const char *like;    // the folder that was imported; NULL: none
    const char *buffers; // a folder or file of a region's buffers; NULL: none
    const char *out;
    const enum dp_dtype *dtype; // NULL: as imported, else F32
    uint64_t shard_bytes_max;
    json_t *about; // goes into longhaul.json as it is; borrowed
    // dp_export()'s
    struct lh_buf notes; // lines for people; free it
    unsigned files;
    uint64_t bytes;
};

// LH_ERR_EXISTS: `out` holds a model; LH_ERR_MANIFEST: `like` is not the folder of this model;
// LH_ERR_TOO_LARGE: a value is beyond what the dtype holds; what `values` and folders give.
LH_MUST lh_err dp_export(struct dp_export *e);

#endif
