// Held-out evaluation. See eval.h.
#include "deploy/text/eval.h"

#include <math.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/tool/files.h"

enum { HEADER_BYTES = 1024, THREADS_MAX = 8, JSON_BYTES_MAX = 256 << 20 };

// ---------------------------------------------------------------- files

static LH_MUST lh_err no_memory(const char *path)
{
    return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for it", path);
}

// Adds the file's path to an error text that lacks it, such as a parser's.
static LH_MUST lh_err in_file(const char *path, lh_err err)
{
    const char *text = lh_err_text(err);
    return strstr(text, path) ? err : lh_fail(err, "%s: %s", path, text);
}

lh_err dp_units_load(const char *dir, struct lh_units *out)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/units.json", dir));
    if (!dp_file_exists(path))
        return lh_fail(LH_ERR_NOT_FOUND,
                       "no data: %s is not there; deploy/demo.sh fetches the demo's corpora, "
                       "`longhaul data prepare` turns your own text into it",
                       path);
    struct lh_buf json = lh_buf(JSON_BYTES_MAX);
    lh_err err = dp_file_read(path, &json);
    if (!err) err = lh_units_parse(out, lh_buf_span(&json));
    lh_buf_free(&json);
    return err ? in_file(path, err) : LH_OK;
}

lh_err dp_manifest_load(const char *path, struct lh_manifest *out)
{
    struct lh_buf json = lh_buf(JSON_BYTES_MAX);
    lh_err err = dp_file_read(path, &json);
    if (!err) err = lh_manifest_parse(out, lh_buf_span(&json));
    lh_buf_free(&json);
    return err ? in_file(path, err) : LH_OK;
}

static bool has_sha256(const uint8_t sha256[32], struct lh_span bytes)
{
    uint8_t is[32];
    return EVP_Digest(bytes.data, bytes.len, is, NULL, EVP_sha256(), NULL) == 1 &&
           memcmp(is, sha256, sizeof is) == 0;
}

// Loads a whole token file as ids; free() them. Checks header, length and sha256.
static LH_MUST lh_err load_tokens(const char *path, uint32_t token_bytes,
                                  const struct lh_heldout *h, uint32_t **out)
{
    uint64_t tokens = h->tokens;
    struct lh_buf bytes = lh_buf(HEADER_BYTES + tokens * token_bytes);
    lh_err err = dp_file_read(path, &bytes);
    uint32_t *ids = NULL;
    if (err) goto out;
    struct lh_cursor c = lh_cursor(lh_buf_span(&bytes));
    uint32_t magic = lh_get_u32(&c), version = lh_get_u32(&c), count = lh_get_u32(&c);
    bool known =
        token_bytes == 2 ? magic == 20240520 && version == 1 : magic == 20240801 && version == 7;
    lh_get(&c, HEADER_BYTES - 12);
    if (c.failed || !known || count != tokens || lh_left(&c) != tokens * token_bytes) {
        err = lh_fail(LH_ERR_MALFORMED, "%s: no token file of %llu tokens", path,
                      (unsigned long long)tokens);
        goto out;
    }
    if (!has_sha256(h->sha256, lh_span(bytes.data + HEADER_BYTES, tokens * token_bytes))) {
        err = lh_fail(LH_ERR_CORRUPT,
                      "%s: its sha256 is not that of units.json: the text has changed, or the file "
                      "is damaged; run `longhaul data prepare` again, or copy it again",
                      path);
        goto out;
    }
    ids = malloc((tokens + 1) * sizeof *ids);
    if (!ids) {
        err = no_memory(path);
        goto out;
    }
    for (uint64_t i = 0; i < tokens; i++)
        ids[i] = token_bytes == 2 ? lh_get_u16(&c) : lh_get_u32(&c);
    *out = ids;
out:
    lh_buf_free(&bytes);
    return err;
}

lh_err dp_floats_load(const char *path, uint64_t values, float **out)
{
    struct lh_buf bytes = lh_buf(values * sizeof(float));
    lh_err err = dp_file_read(path, &bytes);
    if (!err && bytes.len != values * sizeof(float))
        err = lh_fail(LH_ERR_MALFORMED, "%s: %zu bytes where the model has %llu values", path,
                      bytes.len, (unsigned long long)values);
    float *f = err ? NULL : malloc(values * sizeof *f + 1);
    if (!err && !f) err = no_memory(path);
    struct lh_cursor c = lh_cursor(lh_buf_span(&bytes));
    for (uint64_t i = 0; !err && i < values; i++) f[i] = lh_get_f32(&c);
    if (!err) *out = f;
    lh_buf_free(&bytes);
    return err;
}

lh_err dp_floats_finite(const char *path, const struct lh_manifest *m, const float *values)
{
    uint64_t i = 0;
    uint32_t t = 0;
    while (i < m->values && isfinite(values[i])) i++;
    if (i == m->values) return LH_OK;
    while (t + 1 < m->tensors && m->tensor[t + 1].offset <= i) t++;
    return lh_fail(LH_ERR_NON_FINITE, "%s: value %llu of %s is not finite (NaN or infinite)", path,
                   (unsigned long long)(i - m->tensor[t].offset), m->tensor[t].name);
}

// ---------------------------------------------------------------- one language

// Entropy of a token given the one before, in the text itself; nats per token. Only for byte
// vocabularies, whose table is small; otherwise 0: not known.
static double bigram_entropy(const uint32_t *ids, uint64_t count, uint32_t vocabulary)
{
    if (vocabulary > 256 || count < 2) return 0;
    uint32_t *pair = calloc((size_t)vocabulary * vocabulary, sizeof *pair);
    uint64_t *first = calloc(vocabulary, sizeof *first);
    double nats = 0;
    for (uint64_t i = 0; pair && first && i + 1 < count; i++) {
        if (ids[i] >= vocabulary || ids[i + 1] >= vocabulary) continue;
        pair[ids[i] * vocabulary + ids[i + 1]]++;
        first[ids[i]]++;
    }
    for (uint32_t i = 0; pair && first && i < vocabulary * vocabulary; i++)
        if (pair[i]) nats -= pair[i] * log((double)pair[i] / (double)first[i / vocabulary]);
    free(pair);
    free(first);
    return nats / (double)(count - 1);
}

static LH_MUST lh_err eval_segments(const struct wk_shape *shape, const float *parameters,
                                    const uint32_t *ids, uint64_t count, uint64_t wanted,
                                    double *nll, uint64_t *tokens)
{
    *nll = 0;
    *tokens = 0;
    uint64_t length = wanted / DP_EVAL_SEGMENTS;
    bool whole = wanted >= count || length < 2;
    uint64_t segments = whole ? 1 : DP_EVAL_SEGMENTS;
    if (whole) length = wanted < count ? wanted : count;
    for (uint64_t s = 0; s < segments; s++) {
        uint64_t from = segments == 1 ? 0 : (count - length) * s / (segments - 1), got;
        double sum;
        LH_TRY(wk_eval(shape, parameters, ids + from, length, shape->context, &sum, &got));
        *nll += sum;
        *tokens += got;
    }
    return LH_OK;
}

static LH_MUST lh_err eval_language(const struct lh_units *units, const struct lh_heldout *h,
                                    const char *dir, const struct wk_shape *shape,
                                    const float *parameters, uint64_t bytes_max,
                                    struct dp_eval_row *row)
{
    char path[DP_PATH_BYTES];
    uint32_t *ids = NULL;
    LH_TRY(dp_path(path, "%s/%s", dir, h->file));
    LH_TRY(load_tokens(path, units->token_bytes, h, &ids));
    double per_byte = h->bytes ? (double)h->tokens / (double)h->bytes : 1, nll;
    uint64_t wanted = h->tokens, tokens;
    if (bytes_max && bytes_max < h->bytes) wanted = (uint64_t)((double)bytes_max * per_byte);
    lh_err err = eval_segments(shape, parameters, ids, h->tokens, wanted, &nll, &tokens);
    if (!err && !tokens) err = lh_fail(LH_ERR_MALFORMED, "%s: too short to evaluate", path);
    if (!err) {
        snprintf(row->language, sizeof row->language, "%s", h->language);
        row->bytes = (uint64_t)((double)tokens / per_byte);
        row->nats = nll / (double)tokens * per_byte;
        row->bigram = bigram_entropy(ids, h->tokens, units->vocabulary) * per_byte;
    }
    free(ids);
    return err;
}

// ---------------------------------------------------------------- all of them, in parallel

struct job {
    const struct lh_units *units;
    const char *dir;
    const struct wk_shape *shape;
    const float *parameters;
    uint64_t bytes_max;
    struct dp_eval_row *row;
    atomic_uint next;
    pthread_mutex_t lock;
    lh_err err; // the first error, with its text
    char text[400];
};

static void *evaluate(void *arg)
{
    struct job *job = arg;
    for (;;) {
        unsigned i = atomic_fetch_add(&job->next, 1);
        if (i >= job->units->heldout_count) return NULL;
        lh_err err = eval_language(job->units, &job->units->heldout[i], job->dir, job->shape,
                                   job->parameters, job->bytes_max, &job->row[i]);
        if (!err) continue;
        pthread_mutex_lock(&job->lock);
        if (!job->err) {
            job->err = err;
            snprintf(job->text, sizeof job->text, "%s", lh_err_text(err));
        }
        pthread_mutex_unlock(&job->lock);
        return NULL;
    }
}

lh_err dp_eval(const struct lh_units *units, const char *dir, const struct wk_shape *shape,
               const float *parameters, uint64_t bytes_max, struct dp_eval_row *row)
{
    if (units->vocabulary != shape->vocab)
        return lh_fail(LH_ERR_CONFIG, "the data has a vocabulary of %u, the model one of %u",
                       units->vocabulary, shape->vocab);
    struct job job = {.units = units,
                      .dir = dir,
                      .shape = shape,
                      .parameters = parameters,
                      .bytes_max = bytes_max,
                      .row = row,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned want = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (unsigned)cores, got = 0;
    if (want > units->heldout_count) want = units->heldout_count;
    pthread_t thread[THREADS_MAX];
    while (got + 1 < want && !pthread_create(&thread[got], NULL, evaluate, &job)) got++;
    evaluate(&job); // this thread takes part
    for (unsigned i = 0; i < got; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&job.lock);
    return job.err ? lh_fail(job.err, "%s", job.text) : LH_OK;
}
