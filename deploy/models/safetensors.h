// The format safetensors, as Hugging Face's library reads and writes it (its README and tensor.rs):
//
//   u64   length N of the header, little endian, at most 100,000,000
//   N     the header: a JSON object, its first byte `{`, spaces may follow its end
//           "NAME": {"dtype": "BF16", "shape": [256, 96], "data_offsets": [from, to]}
//           "__metadata__": {text: text}, may be missing
//   rest  the values, row-major, little endian; offsets count from here
//
// The tensors cover the rest exactly: no hole, no overlap, nothing behind them. Scalars (shape [])
// and tensors without values (a dimension 0) are allowed. A tensor need not be aligned; a writer
// pads the header to a multiple of 8 and puts the wide types first, so each is.
//
// A header comes from outside: every figure in it is checked before use, and an error says which
// file and tensor, and what is wrong.
#ifndef DP_SAFETENSORS_H
#define DP_SAFETENSORS_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "deploy/models/dtype.h"

enum {
    DP_ST_LENGTH_BYTES = 8,
    DP_ST_HEADER_BYTES_MAX = 100000000, // the reference's limit
    DP_ST_TENSORS_MAX = 65536,          // the manifest's limit as well
    DP_ST_DIMS_MAX = 8,
};

struct dp_st_tensor {
    const char *name; // borrowed from the header, or from its maker
    enum dp_dtype dtype;
    unsigned dims;
    uint64_t shape[DP_ST_DIMS_MAX];
    uint64_t values;
    uint64_t at, bytes; // position in the rest
};

struct dp_st {
    struct dp_st_tensor *tensor; // ascending by position
    uint32_t tensors;
    uint64_t data_at; // position of the rest in the file
    json_t *root;
};

// Reads the header's length from a file's first 8 bytes. `what` begins every error text: a path.
// LH_ERR_MALFORMED, LH_ERR_TOO_LARGE.
LH_MUST lh_err dp_st_length(const char *what, struct lh_span first, uint64_t file_bytes,
                            uint64_t *header_bytes);
// Reads a header of a file whose rest has `data_bytes` bytes; dp_st_free() it. On an error there is
// nothing to free: LH_ERR_MALFORMED, LH_ERR_TOO_LARGE, LH_ERR_UNSUPPORTED (an unknown type),
// LH_ERR_NO_MEMORY.
LH_MUST lh_err dp_st_parse(const char *what, struct lh_span header, uint64_t data_bytes,
                           struct dp_st *out);
void dp_st_free(struct dp_st *st);

// Sets values and bytes from dtype and shape. LH_ERR_TOO_LARGE, LH_ERR_MALFORMED (half a byte).
LH_MUST lh_err dp_st_measure(const char *what, struct dp_st_tensor *t);
// Appends length and header of a file that holds these tensors back to back in this order; sets
// their `at`. `metadata`: an object of texts, or NULL.
LH_MUST lh_err dp_st_header(struct dp_st_tensor *tensor, uint32_t tensors, json_t *metadata,
                            struct lh_buf *out);
// Sorts them into the reference's order: wide types first, then by name.
void dp_st_sort(struct dp_st_tensor *tensor, uint32_t tensors);

#endif
