// Answers for oracle.py: `oracle_answer case IN OUT` writes the answer part of a case file,
// `oracle_answer init JSON SEED OUT` the initial parameters, fp32 in the manifest's order,
// `oracle_answer codec NAME DENSITY IN OUT` the values that a codec sends of an array (fp32, one
// tensor), and the residual.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec.h"
#include "tests/oracle/case.h"

static lh_err write_file(const char *path, const struct lh_buf *bytes)
{
    LH_TRY(lh_buf_err(bytes));
    FILE *f = fopen(path, "wb");
    if (f == NULL) return lh_fail_errno(errno, "opening %s", path);
    bool whole = fwrite(bytes->data, 1, bytes->len, f) == bytes->len;
    whole = fclose(f) == 0 && whole;
    return whole ? LH_OK : lh_fail(LH_ERR_IO, "writing %s", path);
}

static lh_err answer_case(const char *in, const char *out)
{
    struct case_file c;
    struct case_answer a = {0};
    struct lh_buf bytes = lh_buf(1u << 31);
    LH_TRY(case_load(in, &c));
    lh_err err;
    LH_TRY_TO(out, err, case_solve(&c, &a));
    size_t logits = c.sequences * c.length * c.shape.vocab;
    for (size_t i = 0; i < logits; i++) lh_put_f32(&bytes, a.logits[i]);
    lh_put_f64(&bytes, a.nll_sum);
    for (size_t i = 0; i < c.params.values; i++) lh_put_f32(&bytes, a.gradient[i]);
    err = write_file(out, &bytes);
out:
    lh_buf_free(&bytes);
    case_answer_free(&a);
    case_free(&c);
    return err;
}

static lh_err answer_init(const char *json, const char *seed, const char *out)
{
    struct wk_shape shape;
    struct wk_params params;
    struct lh_buf bytes = lh_buf(1u << 31);
    LH_TRY(wk_shape_parse(json, &shape));
    LH_TRY(wk_params_list(&shape, &params));
    float *value = calloc(params.values, sizeof *value);
    lh_err err = LH_ERR_NO_MEMORY;
    if (value == NULL) goto out;
    LH_TRY_TO(out, err, wk_model_init(&shape, strtoull(seed, NULL, 10), value));
    for (size_t i = 0; i < params.values; i++) lh_put_f32(&bytes, value[i]);
    err = write_file(out, &bytes);
out:
    free(value);
    lh_buf_free(&bytes);
    wk_params_free(&params);
    return err;
}

// Writes sent values and residual, two arrays of the input's length.
static lh_err send(const struct lk_codec *codec, struct lh_buf *in, struct lh_buf *out)
{
    uint64_t n = in->len / sizeof(float);
    struct lh_extent extent = {.len = n};
    struct lh_shard_layout l = {.values = n, .extent = &extent, .extents = 1};
    struct lh_buf payload = lh_buf(lk_payload_max(codec, &l));
    float *e = calloc(2 * n + 1, sizeof *e), *q = e + n;
    lh_err err = LH_ERR_NO_MEMORY;
    l.chunks = (n + LH_CHUNK - 1) / LH_CHUNK;
    if (e == NULL) goto out;
    memcpy(e, in->data, n * sizeof *e);
    LH_TRY_TO(out, err, lk_encode(codec, &l, e, &payload, NULL));
    LH_TRY_TO(out, err, lk_payload_check(codec, &l, lh_buf_span(&payload), NULL));
    LH_TRY_TO(out, err, lk_payload_add(codec, &l, lh_buf_span(&payload), q));
    for (uint64_t i = 0; i < n; i++) lh_put_f32(out, q[i]);
    for (uint64_t i = 0; i < n; i++) lh_put_f32(out, e[i]);
out:
    free(e);
    lh_buf_free(&payload);
    return err;
}

static lh_err answer_codec(const char *name, const char *density, const char *in, const char *out)
{
    struct lk_codec codec = {.density = strtof(density, NULL)};
    struct lh_buf input = lh_buf(1u << 28), answer = lh_buf(1u << 30);
    lh_err err;
    LH_TRY(lk_codec_parse(name, &codec));
    LH_TRY_TO(out, err, case_read(in, &input));
    LH_TRY_TO(out, err, send(&codec, &input, &answer));
    err = write_file(out, &answer);
out:
    lh_buf_free(&input);
    lh_buf_free(&answer);
    return err;
}

int main(int argc, char **argv)
{
    lh_err err = LH_ERR_INVALID;
    if (argc == 4 && strcmp(argv[1], "case") == 0)
        err = answer_case(argv[2], argv[3]);
    else if (argc == 5 && strcmp(argv[1], "init") == 0)
        err = answer_init(argv[2], argv[3], argv[4]);
    else if (argc == 6 && strcmp(argv[1], "codec") == 0)
        err = answer_codec(argv[2], argv[3], argv[4], argv[5]);
    else
        fprintf(stderr, "usage: oracle_answer case IN OUT | init JSON SEED OUT | "
                        "codec NAME DENSITY IN OUT\n");
    if (err != LH_OK) fprintf(stderr, "oracle_answer: %s\n", lh_err_text(err));
    return err == LH_OK ? 0 : 1;
}
