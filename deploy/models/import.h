// Turns a Hugging Face folder's tensors into a run's manifest and initial parameters.
#ifndef DP_IMPORT_H
#define DP_IMPORT_H

#include "deploy/models/family.h"
#include "deploy/models/folder.h"
#include "deploy/tool/cli.h"

struct dp_import {
    // set by the caller
    const char *from;                 // a folder, or one safetensors file
    const char *out;                  // model.json, weights.bin, import.json go here
    const struct dp_texts *leave_out; // name patterns of tensors not to train
    uint64_t shards;
    uint32_t context; // 0: as config.json says
    // set by dp_import()
    struct lh_buf notes; // lines for people: what is left out and why, and errors
    struct lh_manifest manifest;
    char sha256[65]; // hash of weights.bin, in hex
    bool built_in;   // the built-in trainer can train it
};

// Why a folder's tensor is not part of the run.
enum dp_left {
    DP_TRAINED, // it is part of the run
    DP_LEFT_ASKED,
    DP_LEFT_BUFFER,
    DP_LEFT_TYPE,  // not a float
    DP_LEFT_EMPTY, // a dimension is 0
    DP_LEFT_TIED,  // the head, equal to another tensor
};
// Says why a tensor is left out, from family and patterns alone. The manifest may still lack it.
enum dp_left dp_import_left(const struct dp_family *family, const struct dp_texts *leave_out,
                            const struct dp_st_tensor *t);

// Reads the folder's config.json (*config may become NULL) and the family it names. A tied
// head stored in place of the other tensor gets that one's name.
LH_MUST lh_err dp_import_family(struct dp_folder *folder, uint32_t context, json_t **config,
                                struct dp_family *family);
// Does the whole import; dp_import_free() in any case. LH_ERR_MANIFEST: tensors are missing,
// unexpected or mis-shaped; `notes` names each. LH_ERR_NON_FINITE; LH_ERR_EXISTS: `out` holds a
// model already; also errors of folders and families.
LH_MUST lh_err dp_import(struct dp_import *q);
void dp_import_free(struct dp_import *q);

#endif
