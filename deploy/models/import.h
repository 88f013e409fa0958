// A model in: the tensors of a Hugging Face folder become a run's manifest and initial parameters.
#ifndef DP_IMPORT_H
#define DP_IMPORT_H

#include "deploy/models/family.h"
#include "deploy/models/folder.h"
#include "deploy/tool/cli.h"

struct dp_import {
    // the caller's
    const char *from;                 // a folder, or one safetensors file
    const char *out;                  // model.json, weights.bin, import.json go here
    const struct dp_texts *leave_out; // patterns of names that are not to be trained
    uint64_t shards;
    uint32_t context; // 0: what config.json says
    // dp_import()'s
    struct lh_buf notes; // lines for people: what is left out and why, what is wrong
    struct lh_manifest manifest;
    char sha256[65]; // hash of weights.bin, in hex
    bool built_in;   // the built-in trainer can train it
};

// Why a tensor of a folder is no part of the run.
enum dp_left {
    DP_TRAINED, // it is a part
    DP_LEFT_ASKED,
    DP_LEFT_BUFFER,
    DP_LEFT_TYPE,  // no float
    DP_LEFT_EMPTY, // a dimension is 0
    DP_LEFT_TIED,  // the head, which is another tensor again
};
// Says why a tensor is left out, by family and patterns alone. The manifest may still lack it.
enum dp_left dp_import_left(const struct dp_family *family, const struct dp_texts *leave_out,
                            const struct dp_st_tensor *t);

// Reads the folder's config.json (*config may become NULL) and the family that it names.
// A tied head that is there in the other one's place gets its name.
LH_MUST lh_err dp_import_family(struct dp_folder *folder, uint32_t context, json_t **config,
                                struct dp_family *family);
// Does all of it; dp_import_free() in any case. LH_ERR_MANIFEST: tensors are missing, unexpected or
// mis-shaped; `notes` names each. LH_ERR_NON_FINITE; LH_ERR_EXISTS: `out` holds a model already;
// what folders and families give.
LH_MUST lh_err dp_import(struct dp_import *q);
void dp_import_free(struct dp_import *q);

#endif
