// Held-out evaluation: how well parameters predict texts that were not trained on.
#ifndef DP_EVAL_H
#define DP_EVAL_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/format/units.h"
#include "worker/train/transformer.h"

enum { DP_LANGUAGES_MAX = 64, DP_EVAL_SEGMENTS = 8 };

struct dp_eval_row {
    char language[16];
    double nats;    // mean negative log likelihood, nats per byte of text
    double bigram;  // the text's own entropy of a token given the one before, nats per byte
    uint64_t bytes; // evaluated
};

// Evaluates every held-out text of `units`, whose files are in `dir`: at most `bytes_max` of each
// (0: all), in DP_EVAL_SEGMENTS runs spread over it. Runs languages in parallel, one thread each.
// row[units->heldout_count]. LH_ERR_NOT_FOUND, LH_ERR_MALFORMED: the files; LH_ERR_CONFIG: the
// vocabulary is not the model's.
LH_MUST lh_err dp_eval(const struct lh_units *units, const char *dir, const struct wk_shape *shape,
                       const float *parameters, uint64_t bytes_max, struct dp_eval_row *row);

// Reads DIR/units.json. LH_ERR_NOT_FOUND says how to make it.
LH_MUST lh_err dp_units_load(const char *dir, struct lh_units *out);
// Loads a flat fp32 file of exactly `values` values; free() them.
LH_MUST lh_err dp_floats_load(const char *path, uint64_t values, float **out);
// LH_ERR_NON_FINITE names the first of the model's values that is NaN or infinite.
LH_MUST lh_err dp_floats_finite(const char *path, const struct lh_manifest *m, const float *values);
LH_MUST lh_err dp_manifest_load(const char *path, struct lh_manifest *out);

#endif
