// Parameter files for other programs: safetensors, or plain fp32 in the manifest's order.
#ifndef DP_WEIGHTS_FILE_H
#define DP_WEIGHTS_FILE_H

#include <jansson.h>

#include "common/base/err.h"
#include "common/format/manifest.h"

// Writes the whole model. A name that ends in .safetensors gets that format (Hugging Face's: u64
// length of a JSON header, the header, the tensors' bytes): every tensor F32 with its shape, and
// `about`, an object of strings, as __metadata__. Any other name gets fp32 without a header, which
// `longhaul eval` and `generate` read. Under another name first, then renamed.
LH_MUST lh_err dp_weights_write(const char *path, const struct lh_manifest *m, const float *theta,
                                json_t *about);

#endif
