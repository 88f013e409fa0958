// Evaluation during training. See evaluation.h.
#include "worker/train/evaluation.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/format/tokens.h"

struct text {
    char language[16];
    uint32_t *ids;
    uint64_t count;
};

struct wk_evaluation {
    struct wk_evaluation_conf conf;
    struct text text[WK_LANGUAGES_MAX];
    uint32_t texts;
    uint64_t trained, next; // tokens
    int64_t started_ns, spent_ns;
    struct wk_evaluated last;
};

static LH_MUST lh_err bad_file(const char *path, const char *what)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "held-out text %s: %s; restore the file or run `longhaul data prepare` again",
                   path, what);
}

static LH_MUST lh_err decode(const struct wk_evaluation_conf *c, const struct lh_heldout *h,
                             const char *path, struct lh_span file, struct text *out)
{
    uint64_t count = 0, width = c->units->token_bytes;
    uint8_t hash[EVP_MAX_MD_SIZE];
    if (file.len < LH_TOKENS_HEADER_BYTES) return bad_file(path, "too short for a token file");
    struct lh_span head = lh_span(file.data, LH_TOKENS_HEADER_BYTES);
    struct lh_span body =
        lh_span(file.data + LH_TOKENS_HEADER_BYTES, file.len - LH_TOKENS_HEADER_BYTES);
    if (lh_tokens_header(head, c->units->token_bytes, &count) || count != h->tokens ||
        body.len != count * width)
        return bad_file(path, "not the tokens that the manifest says");
    if (EVP_Digest(body.data, body.len, hash, NULL, EVP_sha256(), NULL) != 1)
        return lh_fail(LH_ERR_INTERNAL, "sha256 of %s failed", path);
    if (memcmp(hash, h->sha256, sizeof h->sha256) != 0)
        return bad_file(path, "sha256 is not the manifest's");
    if (lh_tokens_beyond(body.data, c->units->token_bytes, count, c->units->vocabulary) < count)
        return bad_file(path, "a token is not below the vocabulary");
    if (c->tokens && count > c->tokens + 1) count = c->tokens + 1; // one more for the last target
    out->ids = malloc(count * sizeof *out->ids);
    if (!out->ids) return lh_fail(LH_ERR_NO_MEMORY, "held-out text %s", path);
    lh_tokens_decode(body.data, c->units->token_bytes, count, out->ids);
    out->count = count;
    snprintf(out->language, sizeof out->language, "%s", h->language);
    return LH_OK;
}

static LH_MUST lh_err read_text(const struct wk_evaluation_conf *c, const struct lh_heldout *h,
                                struct text *out)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, c->dir, "%s", h->file));
    struct lh_buf file = lh_buf(LH_TOKENS_HEADER_BYTES + h->tokens * c->units->token_bytes + 1);
    lh_err err = lh_file_load(c->env, path, &file);
    if (!err) err = decode(c, h, path, lh_buf_span(&file), out);
    lh_buf_free(&file);
    return err;
}

lh_err wk_evaluation_open(const struct wk_evaluation_conf *conf, struct wk_evaluation **out)
{
    struct wk_evaluation *e = calloc(1, sizeof *e);
    if (!e) return lh_fail(LH_ERR_NO_MEMORY, "evaluation");
    e->conf = *conf;
    e->conf.units = NULL;
    e->next = conf->every_tokens;
    e->started_ns = lh_now(conf->env);
    lh_err err = LH_OK;
    for (uint32_t i = 0; i < conf->units->heldout_count && e->texts < WK_LANGUAGES_MAX && !err;
         i++) {
        if (conf->units->heldout[i].tokens < 2) continue; // nothing to predict
        err = read_text(conf, &conf->units->heldout[i], &e->text[e->texts]);
        if (!err) e->texts++;
    }
    if (!err && !e->texts)
        err = lh_fail(LH_ERR_CONFIG, "eval.every_tokens is set, but %s has no held-out texts",
                      conf->dir);
    if (err)
        wk_evaluation_close(e);
    else
        *out = e;
    return err;
}

void wk_evaluation_close(struct wk_evaluation *e)
{
    if (!e) return;
    for (uint32_t i = 0; i < e->texts; i++) free(e->text[i].ids);
    free(e);
}

// The first evaluation always runs: its cost is not known yet.
static bool within_share(const struct wk_evaluation *e, int64_t now)
{
    double after = (double)(e->spent_ns + e->last.took_ns);
    return !e->spent_ns || after <= e->conf.share * (double)(now - e->started_ns);
}

static LH_MUST lh_err evaluate(struct wk_evaluation *e, const struct wk_passes *passes,
                               const float *params)
{
    struct wk_evaluated *r = &e->last;
    *r = (struct wk_evaluated){.tokens = e->trained, .languages = e->texts};
    for (uint32_t i = 0; i < e->texts; i++) {
        const struct text *text = &e->text[i];
        double nll;
        LH_TRY(wk_passes_text(passes, params, text->ids, text->count, &nll));
        memcpy(r->by[i].language, text->language, sizeof r->by[i].language);
        r->by[i].loss = nll / (double)(text->count - 1);
        r->loss += r->by[i].loss / e->texts;
    }
    return LH_OK;
}

lh_err wk_evaluation_step(struct wk_evaluation *e, const struct wk_passes *passes,
                          const float *params, uint64_t tokens, const struct wk_evaluated **out)
{
    e->trained += tokens;
    *out = NULL;
    int64_t from = lh_now(e->conf.env);
    if (e->trained < e->next || !within_share(e, from)) return LH_OK;
    LH_TRY(evaluate(e, passes, params));
    int64_t now = lh_now(e->conf.env);
    e->last.took_ns = now - from;
    e->spent_ns += e->last.took_ns;
    if (now > e->started_ns) e->last.share = (double)e->spent_ns / (double)(now - e->started_ns);
    e->next = e->trained + e->conf.every_tokens;
    *out = &e->last;
    return LH_OK;
}
