// A model as its config.json describes it: its family's tensors and their shapes, which are tied,
// what else is stored, and whether the built-in trainer can train it.
#ifndef DP_FAMILY_H
#define DP_FAMILY_H

#include <jansson.h>

#include "common/format/manifest.h"
#include "worker/train/model.h"

struct dp_expected {
    char name[128];
    uint64_t shape[5]; // 0 ends it, as lh_manifest_build() wants it
};

struct dp_family {
    const char *type;         // model_type; NULL: config.json is absent or does not say
    bool known;               // the fields below are filled in
    struct dp_expected *want; // expected tensors, in the model's order
    uint32_t wants;
    const char *const *buffers;   // patterns of tensors stored but not trained; ends with NULL
    char head[128], tied_to[128]; // the head, if config.json ties it to another; else ""
    bool built_in;
    struct wk_shape shape; // valid if built_in is set
    const char *why_not;   // reason why built_in is not set; NULL if it is
};

// `config` may be NULL. An unlisted family, or a head other than the language model's, is no error:
// `known` stays false. `has(arg, name)` says which tensors there are: some files name them without
// the model's prefix. Context: the length of the built-in trainer's sequences; 0:
// max_position_embeddings, 2048 at most. LH_ERR_CONFIG: a key is missing or makes no sense.
// dp_family_free() it; `type` borrows from config.
LH_MUST lh_err dp_family_read(const json_t *config, bool (*has)(const void *arg, const char *name),
                              const void *arg, uint32_t context, struct dp_family *out);
void dp_family_free(struct dp_family *f);

#endif
