// longhaul generate: samples text from a parameter file.
//
// A vocabulary of 256 means bytes, as `longhaul data prepare` makes them. The tool knows no words
// of other vocabularies, so prompt and answer are token ids (--ids).
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/ask/up_status.h"
#include "deploy/text/eval.h"
#include "deploy/text/generate.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

enum { TOKENS_MAX = 1 << 20, BYTES = 256 };

struct request {
    const char *dir, *manifest, *weights, *prompt, *format;
    char path[2][DP_PATH_BYTES]; // manifest and weights, if found through --dir
    struct dp_sampling how;
    uint64_t tokens;
    bool as_ids, json;
};

struct text {
    uint32_t *ids; // the prompt, then the generated tokens
    uint64_t given, count;
};

// ---------------------------------------------------------------- the prompt

static LH_MUST lh_err read_ids(const char *prompt, uint32_t vocab, struct text *t)
{
    for (const char *at = prompt; *at;) {
        char *end;
        unsigned long id = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ' ') || id >= vocab)
            return lh_fail(LH_ERR_INVALID, "--prompt ...%.20s: ids below %u with a space between",
                           at, vocab);
        t->ids[t->given++] = (uint32_t)id;
        at = *end ? end + 1 : end;
    }
    return LH_OK;
}

static LH_MUST lh_err read_prompt(const struct request *q, const struct wk_shape *shape,
                                  struct text *t)
{
    size_t len = strlen(q->prompt);
    if (!q->as_ids && shape->vocab != BYTES)
        return lh_fail(LH_ERR_INVALID, "a vocabulary of %u is not bytes: give and take --ids",
                       shape->vocab);
    t->ids = calloc(len + q->tokens + 1, sizeof *t->ids);
    if (!t->ids) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %zu tokens", len + q->tokens);
    if (q->as_ids)
        LH_TRY(read_ids(q->prompt, shape->vocab, t));
    else
        for (; t->given < len; t->given++) t->ids[t->given] = (unsigned char)q->prompt[t->given];
    if (!t->given && !q->as_ids) t->ids[t->given++] = '\n'; // a text begins after a line break
    t->count = t->given + q->tokens;
    return LH_OK;
}

// ---------------------------------------------------------------- the answer

static void put_ids(const struct text *t, struct lh_buf *out)
{
    for (uint64_t i = 0; i < t->count; i++) dp_put(out, "%s%u", i ? " " : "", t->ids[i]);
    dp_put(out, "\n");
}

// Writes bytes; on a terminal, without those that would move its cursor.
static void put_bytes(const struct text *t, struct lh_buf *out)
{
    bool terminal = isatty(STDOUT_FILENO);
    for (uint64_t i = 0; i < t->count; i++) {
        uint8_t byte = (uint8_t)t->ids[i];
        bool moves = (byte < ' ' && byte != '\n' && byte != '\t') || byte == 127;
        lh_put_u8(out, terminal && moves ? '?' : byte);
    }
    lh_put_u8(out, '\n');
}

static LH_MUST lh_err put_json(const struct request *q, const struct text *t, struct lh_buf *out)
{
    json_t *ids = json_array(), *prompt = json_array();
    for (uint64_t i = 0; i < t->count; i++)
        json_array_append_new(i < t->given ? prompt : ids, json_integer(t->ids[i]));
    json_t *o = json_pack("{s:o s:o s:I s:f s:i}", "prompt_ids", prompt, "ids", ids, "seed",
                          (json_int_t)q->how.seed, "temperature", q->how.temperature, "top_k",
                          (int)q->how.top_k);
    lh_err err = dp_table_json(out, o);
    json_decref(o);
    return err;
}

static LH_MUST lh_err show(const struct request *q, const struct text *t)
{
    struct lh_buf out = lh_buf(64 * (size_t)(t->count + 64));
    lh_err err = LH_OK;
    if (q->json)
        err = put_json(q, t, &out);
    else if (q->as_ids)
        put_ids(t, &out);
    else
        put_bytes(t, &out);
    return dp_print(&out, err);
}

// ---------------------------------------------------------------- the command

static LH_MUST lh_err complete(struct request *q)
{
    if (!q->dir && (!q->manifest || !q->weights))
        return lh_fail(LH_ERR_INVALID,
                       "which model? pass --dir RUNDIR, or --manifest and --weights");
    if (!q->manifest) {
        LH_TRY(dp_path(q->path[0], "%s/model.json", q->dir));
        q->manifest = q->path[0];
    }
    if (!q->weights) {
        LH_TRY(dp_path(q->path[1], "%s/final.bin", q->dir));
        q->weights = q->path[1];
        if (!dp_file_exists(q->weights))
            return lh_fail(LH_ERR_NOT_FOUND,
                           "no %s: `longhaul up` writes it at the end of a run; of one that goes "
                           "on, or ended otherwise, give --weights",
                           q->weights);
        dp_note_gone_on("generate", q->dir, q->weights);
    }
    return LH_OK;
}

static LH_MUST lh_err generate(struct request *q)
{
    struct lh_manifest manifest = {0};
    struct wk_shape shape;
    struct text t = {.ids = NULL};
    float *parameters = NULL;
    LH_TRY(complete(q));
    lh_err err = dp_manifest_load(q->manifest, &manifest);
    if (!err) err = wk_shape_parse(manifest.model_json ? manifest.model_json : "", &shape);
    if (!err) err = dp_floats_load(q->weights, manifest.values, &parameters);
    if (!err) err = read_prompt(q, &shape, &t);
    if (!err) err = dp_generate(&shape, parameters, &q->how, t.ids, t.given, t.count);
    if (!err) err = show(q, &t);
    free(t.ids);
    free(parameters);
    lh_manifest_free(&manifest);
    return err;
}

lh_err dp_cmd_generate(int argc, char **argv)
{
    struct request q = {.format = "text", .prompt = "", .how = {1, 0, 1}, .tokens = 200};
    const char *tokens = NULL, *temperature = NULL, *top_k = NULL, *seed = NULL;
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &q.dir, "RUNDIR", "a run's folder: model.json and final.bin"},
        {"--manifest", DP_TEXT, &q.manifest, "FILE", "the model's manifest (RUNDIR/model.json)"},
        {"--weights", DP_TEXT, &q.weights, "FILE", "its parameters, fp32 (RUNDIR/final.bin)"},
        {"--prompt", DP_TEXT, &q.prompt, "TEXT", "the text to continue (a line break)"},
        {"--tokens", DP_TEXT, &tokens, "N", "number of tokens to add (200)"},
        {"--temperature", DP_TEXT, &temperature, "T",
         "temperature; 1: as predicted, 0: always the likeliest (1)"},
        {"--top-k", DP_TEXT, &top_k, "K", "draw only among the K likeliest; 0: all (0)"},
        {"--seed", DP_TEXT, &seed, "N", "of the draws (1)"},
        {"--ids", DP_SWITCH, &q.as_ids, NULL, "prompt and answer are token ids"},
        {"-o", DP_TEXT, &q.format, "text|json", "form of the output; json has the ids"},
    };
    const struct dp_usage usage = {
        "longhaul generate --dir RUNDIR | --manifest FILE --weights FILE [flags]",
        "Continues a prompt with a trained model. The same parameters, prompt, flags and seed\n"
        "give the same text on the same machine.",
        flags, LH_COUNT(flags)};
    bool help;
    uint64_t among = 0;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    q.json = !strcmp(q.format, "json");
    if (rest.count || (!q.json && strcmp(q.format, "text") != 0))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(dp_number("--tokens", tokens, 1, TOKENS_MAX, &q.tokens));
    LH_TRY(dp_number("--top-k", top_k, 0, UINT32_MAX >> 1, &among));
    LH_TRY(dp_number("--seed", seed, 0, INT64_MAX, &q.how.seed));
    LH_TRY(dp_real("--temperature", temperature, 0, 100, &q.how.temperature));
    q.how.top_k = (uint32_t)among;
    return generate(&q);
}
