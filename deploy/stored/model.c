// longhaul model: a model's manifest and initial parameters. `init` is here, `import` in
// deploy/models/import_command.c.
//
//   DIR/model.json   the manifest (common/format/manifest.h), for servers and workers
//   DIR/weights.bin  its parameters, fp32, little endian, in the manifest's order; for servers
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "deploy/models/models.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "worker/train/model.h"

enum { SHAPE_BYTES_MAX = 64 * 1024, MANIFEST_BYTES_MAX = 64 << 20 };

struct request {
    const char *shape, *out;
    uint64_t shards, seed;
};

static LH_MUST lh_err write_manifest(const struct request *q, const struct lh_manifest *m)
{
    char path[DP_PATH_BYTES];
    struct lh_buf json = lh_buf(MANIFEST_BYTES_MAX);
    LH_TRY(dp_path(path, "%s/model.json", q->out));
    lh_err err = lh_manifest_write(m, &json);
    if (!err) err = dp_file_write(path, lh_buf_span(&json), 0640);
    lh_buf_free(&json);
    return err;
}

static LH_MUST lh_err write_weights(const struct request *q, const struct wk_shape *shape,
                                    uint64_t values)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/weights.bin", q->out));
    float *theta = malloc(values * sizeof *theta);
    if (!theta) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %" PRIu64 " parameters", values);
    lh_err err = wk_model_init(shape, q->seed, theta);
    if (!err) err = dp_file_write(path, lh_span(theta, values * sizeof *theta), 0640);
    free(theta);
    return err;
}

// The shape as JSON, or the name of a file with it.
static LH_MUST lh_err read_shape(const char *text, struct wk_shape *out)
{
    if (text[0] == '{') return wk_shape_parse(text, out);
    struct lh_buf json = lh_buf(SHAPE_BYTES_MAX);
    lh_err err = dp_file_read(text, &json);
    lh_put_u8(&json, 0);
    if (!err) err = lh_buf_err(&json);
    if (!err) err = wk_shape_parse((const char *)json.data, out);
    lh_buf_free(&json);
    return err;
}

static LH_MUST lh_err make(const struct request *q)
{
    struct wk_shape shape;
    struct lh_manifest manifest = {0};
    char hash[2 * LH_HASH_BYTES + 1];
    LH_TRY(read_shape(q->shape, &shape));
    LH_TRY(dp_make_dirs(q->out));
    LH_TRY(wk_model_manifest(&shape, (uint32_t)q->shards, &manifest));
    lh_err err = write_manifest(q, &manifest);
    if (!err) err = write_weights(q, &shape, manifest.values);
    lh_hash_hex(&manifest.hash, hash);
    if (!err)
        printf("%s/model.json, weights.bin: %" PRIu64 " parameters in %u shard%s, manifest %.16s\n",
               q->out, manifest.values, manifest.shards, lh_s(manifest.shards), hash);
    lh_manifest_free(&manifest);
    return err;
}

static LH_MUST lh_err run_init(int argc, char **argv)
{
    struct request q = {.out = ".", .shards = 1, .seed = 1};
    const char *shards = NULL, *seed = NULL;
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--shape", DP_TEXT, &q.shape, "JSON|FILE",
         "the \"model\" object: vocab, dim, layers, ..."},
        {"--shards", DP_TEXT, &shards, "N", "number of shards (1)"},
        {"--seed", DP_TEXT, &seed, "N", "seed of the initial parameters (1)"},
        {"--out", DP_TEXT, &q.out, "DIR", "output folder for model.json and weights.bin (.)"},
    };
    const struct dp_usage usage = {
        "longhaul model init --shape JSON|FILE [flags]",
        "Writes the manifest and the initial parameters of a new model. The same seed gives the\n"
        "same bits on every machine.",
        flags, sizeof flags / sizeof flags[0]};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count || !q.shape) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(dp_number("--shards", shards, 1, 65536, &q.shards));
    LH_TRY(dp_number("--seed", seed, 0, UINT64_MAX, &q.seed));
    return make(&q);
}

lh_err dp_cmd_model(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {{"init", run_init}, {"import", dp_model_import}};
    const struct dp_usage usage = {"longhaul model init | import [flags]",
                                   "init    make a new model with initial parameters from a seed\n"
                                   "import  start from the parameters of a Hugging Face model\n\n"
                                   "`longhaul model VERB --help` lists the flags of each.",
                                   NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
