// longhaul model import: turns a Hugging Face folder into a run's manifest and initial parameters.
#include <inttypes.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "deploy/models/import.h"
#include "deploy/models/models.h"

static LH_MUST lh_err make(struct dp_import *q)
{
    char hash[2 * LH_HASH_BYTES + 1];
    lh_err err = dp_import(q);
    if (q->notes.len) fwrite(q->notes.data, 1, q->notes.len, stderr);
    if (err) return err;
    lh_hash_hex(&q->manifest.hash, hash);
    printf("%s/model.json, weights.bin: %" PRIu64 " parameters in %" PRIu32 " tensor%s and %" PRIu32
           " shard%s, manifest %.16s\nsha256 %s\n",
           q->out, q->manifest.values, q->manifest.tensors, lh_s(q->manifest.tensors),
           q->manifest.shards, lh_s(q->manifest.shards), hash, q->sha256);
    return LH_OK;
}

lh_err dp_model_import(int argc, char **argv)
{
    const char *shards = NULL, *context = NULL;
    struct dp_texts rest, leave_out = {.count = 0};
    struct dp_import q = {.out = ".", .shards = 1, .leave_out = &leave_out};
    uint64_t length = 0;
    bool help;
    const struct dp_flag flags[] = {
        {"--shards", DP_TEXT, &shards, "N", "number of shards (1)"},
        {"--out", DP_TEXT, &q.out, "DIR",
         "output folder for model.json, weights.bin and import.json (.)"},
        {"--leave-out", DP_EACH, &leave_out, "PATTERN",
         "tensors whose names match are not trained (*, ?, [...]); may repeat"},
        {"--context", DP_TEXT, &context, "N",
         "length of the built-in trainer's sequences (default: the model's, at most 2048)"},
    };
    const struct dp_usage usage = {
        "longhaul model import FOLDER | FILE.safetensors [flags]",
        "Makes the manifest and the initial parameters of a run from a Hugging Face folder\n"
        "(config.json and safetensors, one file or several with an index), or from one file.\n"
        "For Llama, Mistral, Qwen2, Qwen3 and GPT-2 it compares the tensors with config.json,\n"
        "and names missing, unexpected and mis-shaped ones. From other models it takes all\n"
        "floats. Integers and buffers are left out and listed; `longhaul export --like FOLDER`\n"
        "adds them again. The same folder gives the same bytes on every machine: compare the\n"
        "sha256.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 1) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    q.from = rest.at[0];
    LH_TRY(dp_number("--shards", shards, 1, 65536, &q.shards));
    LH_TRY(dp_number("--context", context, 1, 1 << 20, &length));
    q.context = (uint32_t)length;
    lh_err err = make(&q);
    dp_import_free(&q);
    return err;
}
