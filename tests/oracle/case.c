// Reads case files (layout in case.h) and answers them with the trainer's transformer.
#include "tests/oracle/case.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 30 };

lh_err case_read(const char *path, struct lh_buf *out)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return lh_fail_errno(errno, "opening %s", path);
    char part[1 << 16];
    size_t n;
    while ((n = fread(part, 1, sizeof part, f)) > 0) lh_put(out, part, n);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed) return lh_fail(LH_ERR_IO, "reading %s", path);
    return lh_buf_err(out);
}

static lh_err parse_head(struct lh_cursor *c, struct case_file *out)
{
    struct lh_span magic = lh_get(c, 8);
    if (magic.len != 8 || memcmp(magic.data, "LKCASE1\n", 8) != 0)
        return lh_fail(LH_ERR_MALFORMED, "no case file");
    struct lh_span text = lh_get(c, lh_get_u32(c));
    json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    char *model = json_dumps(json_object_get(root, "model"), 0);
    out->sequences = (size_t)json_integer_value(json_object_get(root, "sequences"));
    out->length = (size_t)json_integer_value(json_object_get(root, "length"));
    lh_err err = wk_shape_parse(model, &out->shape);
    free(model);
    json_decref(root);
    if (err == LH_OK && (out->sequences == 0 || out->sequences > 4096 || out->length == 0 ||
                         out->length > out->shape.context))
        return lh_fail(LH_ERR_MALFORMED, "case of %zu sequences of %zu", out->sequences,
                       out->length);
    return err;
}

static lh_err answer_alloc(const struct case_file *c, struct case_answer *out)
{
    size_t logits = c->sequences * c->length * c->shape.vocab;
    out->logits = calloc(logits, sizeof *out->logits);
    out->gradient = calloc(c->params.values, sizeof *out->gradient);
    if (out->logits == NULL || out->gradient == NULL)
        return lh_fail(LH_ERR_NO_MEMORY, "answer of a case");
    return LH_OK;
}

static lh_err parse_body(struct lh_cursor *c, struct case_file *out)
{
    size_t ids = out->sequences * (out->length + 1), values = out->params.values;
    if (lh_left(c) < 4 * (ids + values)) return lh_fail(LH_ERR_MALFORMED, "case file is short");
    out->ids = calloc(ids, sizeof *out->ids);
    out->value = calloc(values, sizeof *out->value);
    if (out->ids == NULL || out->value == NULL) return lh_fail(LH_ERR_NO_MEMORY, "case");
    for (size_t i = 0; i < ids; i++) out->ids[i] = lh_get_u32(c);
    for (size_t i = 0; i < values; i++) out->value[i] = lh_get_f32(c);
    out->answered = lh_left(c) > 0;
    if (out->answered) {
        LH_TRY(answer_alloc(out, &out->answer));
        size_t logits = out->sequences * out->length * out->shape.vocab;
        for (size_t i = 0; i < logits; i++) out->answer.logits[i] = lh_get_f32(c);
        out->answer.nll_sum = lh_get_f64(c);
        for (size_t i = 0; i < values; i++) out->answer.gradient[i] = lh_get_f32(c);
    }
    if (c->failed || lh_left(c) != 0) return lh_fail(LH_ERR_MALFORMED, "case file's length");
    return LH_OK;
}

lh_err case_load(const char *path, struct case_file *out)
{
    struct lh_buf bytes = lh_buf(FILE_BYTES_MAX);
    lh_err err;
    *out = (struct case_file){0};
    LH_TRY_TO(out, err, case_read(path, &bytes));
    struct lh_cursor c = lh_cursor(lh_buf_span(&bytes));
    LH_TRY_TO(out, err, parse_head(&c, out));
    LH_TRY_TO(out, err, wk_params_list(&out->shape, &out->params));
    LH_TRY_TO(out, err, parse_body(&c, out));
out:
    lh_buf_free(&bytes);
    if (err != LH_OK) case_free(out);
    return err;
}

void case_free(struct case_file *c)
{
    wk_params_free(&c->params);
    free(c->ids);
    free(c->value);
    case_answer_free(&c->answer);
    *c = (struct case_file){0};
}

void case_answer_free(struct case_answer *a)
{
    free(a->logits);
    free(a->gradient);
    *a = (struct case_answer){0};
}

struct wk_batch case_batch(const struct case_file *c)
{
    return (struct wk_batch){c->ids, c->sequences, c->length, c->length + 1};
}

lh_err case_solve(const struct case_file *c, struct case_answer *out)
{
    size_t rows = c->sequences * c->length;
    struct wk_transformer_conf conf = {c->shape, c->length, rows, true};
    struct wk_transformer *t = NULL;
    struct wk_batch batch = case_batch(c);
    lh_err err;
    *out = (struct case_answer){0};
    LH_TRY_TO(out, err, wk_transformer_create(&conf, &t));
    LH_TRY_TO(out, err, answer_alloc(c, out));
    LH_TRY_TO(out, err, wk_transformer_logits(t, c->value, &batch, out->logits));
    err = wk_transformer_gradient(t, c->value, &batch, (float)(1.0 / (double)rows), out->gradient,
                                  NULL, &out->nll_sum);
out:
    wk_transformer_destroy(t);
    if (err != LH_OK) case_answer_free(out);
    return err;
}

double case_distance(const float *a, const float *b, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference) / (norm > 0.0 ? sqrt(norm) : 1.0);
}
