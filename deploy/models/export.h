// Writes a run's parameters as a Hugging Face folder.
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
    const char *manifest_path; // import.json beside it gives the imported dtypes; may be NULL
    // Gives the values [first, first + n) in the model's flat order.
    lh_err (*values)(void *arg, uint64_t first, size_t n, float *out);
    void *arg;
    const char *like;    // the folder that was imported; NULL: none
    const char *buffers; // a folder or file of a region's buffers; NULL: none
    const char *out;
    const enum dp_dtype *dtype; // NULL: as imported, else F32
    uint64_t shard_bytes_max;
    // Takes each whole file of `out`, in the order in which they are written; may remove it. NULL:
    // the files stay.
    lh_err (*written)(void *arg, const char *path, const char *name);
    void *written_arg;
    json_t *about; // goes into longhaul.json unchanged; borrowed
    // set by dp_export()
    struct lh_buf notes; // lines for people; free it
    unsigned files;
    uint64_t bytes;
};

// LH_ERR_EXISTS: `out` holds a model; LH_ERR_MANIFEST: `like` is not this model's folder;
// LH_ERR_TOO_LARGE: the dtype cannot hold a value; also errors of `values` and folders.
LH_MUST lh_err dp_export(struct dp_export *e);

#endif
