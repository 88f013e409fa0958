// longhaul eval: held-out losses of a parameter file.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/text/eval.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/table.h"

struct request {
    const char *manifest, *weights, *data, *bytes, *model;
    bool json;
};

static void print_rows(const struct dp_eval_row *row, unsigned rows, bool json)
{
    double sum = 0;
    if (json)
        printf("{");
    else
        printf("%-10s %12s %12s %12s\n", "language", "nats/byte", "bigram", "bytes");
    for (unsigned i = 0; i < rows; i++) {
        sum += row[i].nats;
        if (json)
            printf("%s\"%s\": {\"nats\": %.6f, \"bigram\": %.6f, \"bytes\": %" PRIu64 "}",
                   i ? ", " : "", row[i].language, row[i].nats, row[i].bigram, row[i].bytes);
        else
            printf("%-10s %12.4f %12.4f %12" PRIu64 "\n", row[i].language, row[i].nats,
                   row[i].bigram, row[i].bytes);
    }
    if (json)
        printf("}\n");
    else
        printf("%-10s %12.4f\n", "mean", sum / rows);
}

// The Python package evaluates Hugging Face models: this process becomes it.
static LH_MUST lh_err evaluate_imported(const struct request *q)
{
    const char *argv[16] = {"python3", "-m",   "longhaul.heldout", "--model", q->model,
                            "--data",  q->data};
    size_t n = 7;
    if (q->bytes)
        return lh_fail(LH_ERR_INVALID, "--bytes does not go with --model: see "
                                       "`python3 -m longhaul.heldout --help`");
    if (!q->manifest != !q->weights)
        return lh_fail(LH_ERR_INVALID, "--manifest and --weights go together: what a run made of "
                                       "the model");
    if (q->weights) {
        argv[n++] = "--manifest", argv[n++] = q->manifest;
        argv[n++] = "--weights", argv[n++] = q->weights;
    }
    if (q->json) argv[n++] = "-o", argv[n++] = "json";
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    return lh_fail_errno(errno, "python3, which evaluates imported models by the package longhaul");
}

static LH_MUST lh_err evaluate(const struct request *q)
{
    struct lh_manifest manifest = {0};
    struct lh_units units = {0};
    struct wk_shape shape;
    float *parameters = NULL;
    struct dp_eval_row *row = NULL;
    uint64_t bytes = 0;
    LH_TRY(dp_number("--bytes", q->bytes, 0, UINT64_MAX, &bytes));
    lh_err err = dp_manifest_load(q->manifest, &manifest);
    if (!err && wk_shape_parse(manifest.model_json ? manifest.model_json : "", &shape))
        err = lh_fail(LH_ERR_CONFIG,
                      "%s is of no model that this command computes: --model FOLDER names the "
                      "folder that it was imported from, or `python3 -m longhaul.heldout --load "
                      "MODULE:FUNCTION` a function that makes it",
                      q->manifest);
    if (!err) err = dp_units_load(q->data, &units);
    if (!err) err = dp_floats_load(q->weights, manifest.values, &parameters);
    if (!err) err = dp_floats_finite(q->weights, &manifest, parameters);
    if (!err && !units.heldout_count)
        err =
            lh_fail(LH_ERR_CONFIG,
                    "%s/units.json: no text is held out, so there is nothing to evaluate on: "
                    "`longhaul data prepare` takes heldout/LANGUAGE.txt beside the regions' texts",
                    q->data);
    if (!err) row = calloc(units.heldout_count + 1u, sizeof *row);
    if (!err && !row) err = lh_fail(LH_ERR_NO_MEMORY, "no memory for the rows");
    if (!err) err = dp_eval(&units, q->data, &shape, parameters, bytes, row);
    if (!err) print_rows(row, units.heldout_count, q->json);
    free(row);
    free(parameters);
    lh_units_free(&units);
    lh_manifest_free(&manifest);
    return err;
}

lh_err dp_cmd_eval(int argc, char **argv)
{
    struct request q = {0};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--manifest", DP_TEXT, &q.manifest, "FILE", "the model's manifest"},
        {"--weights", DP_TEXT, &q.weights, "FILE", "the parameters, fp32 in the manifest's order"},
        {"--data", DP_TEXT, &q.data, "DIR", "folder of units.json and the held-out token files"},
        {"--model", DP_TEXT, &q.model, "FOLDER",
         "folder of a Hugging Face model, evaluated before and after a run by python3 and the "
         "package longhaul"},
        {"--bytes", DP_TEXT, &q.bytes, "N", "use at most this much text per language (0: all)"},
        {"-o", DP_FORM, &q.json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul eval --manifest FILE --weights FILE --data DIR [flags]",
        "Computes the mean negative log likelihood per byte of each held-out text, and for\n"
        "comparison the text's own entropy of a byte given the previous one.",
        flags, sizeof flags / sizeof flags[0]};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count || !q.data || (!q.model && (!q.manifest || !q.weights)))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    return q.model ? evaluate_imported(&q) : evaluate(&q);
}
