// dp_family_read: for any config.json, either the tensors that its family demands make a manifest,
// or it is refused. The first byte says whether tensor names stand without the model's prefix.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/models/family.h"
#include "tests/fuzz/fuzz.h"

static bool has(const void *arg, const char *name)
{
    (void)name;
    return *(const bool *)arg;
}

static void check_manifest(const struct dp_family *f)
{
    struct lh_manifest ours, theirs;
    const char **names = calloc(f->wants, sizeof *names);
    uint64_t(*shapes)[5] = calloc(f->wants, sizeof *shapes);
    LH_ASSERT(names && shapes);
    for (uint32_t i = 0; i < f->wants; i++) {
        names[i] = f->want[i].name;
        memcpy(shapes[i], f->want[i].shape, sizeof shapes[i]);
    }
    // The sizes may exceed a manifest's limits; names and shapes are always valid.
    lh_err err = lh_manifest_build(&ours, f->wants, names, (const uint64_t(*)[5])shapes, 1, NULL);
    LH_ASSERT(!err || err == LH_ERR_TOO_LARGE);
    if (!err && f->built_in) {
        LH_ASSERT(!wk_model_manifest(&f->shape, 1, &theirs));
        LH_ASSERT(lh_hash_equal(&ours.hash, &theirs.hash));
        lh_manifest_free(&theirs);
    }
    lh_manifest_free(&ours);
    free(shapes);
    free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dp_family f;
    if (!size) return 0;
    bool bare = data[0] & 1;
    json_t *config = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, NULL);
    if (!dp_family_read(config, has, &bare, 0, &f)) {
        LH_ASSERT(f.known || !f.wants);
        if (f.known) check_manifest(&f);
        dp_family_free(&f);
    } else {
        LH_ASSERT(!f.want);
    }
    json_decref(config);
    return 0;
}
