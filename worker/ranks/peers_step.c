// A step for a region's peers, as bytes. See peers_step.h.
//
// Little endian:
//   0 u32 magic "WPST"      4 u32 sequences    8 u32 length     12 u32 measure (0, 1)
//  16 32 manifest's hash   48 f32 scale       52 u32 zero       56 u64 number of the step, from 1
//  64 f64 rate             72 f64 beta1       80 f64 beta2      88 f64 eps
//  96 f64 weight decay    104 f64 clip       112 u32 ids, sequences * (length + 1)
//
// Figures are sent as 8-bit pieces, each a whole number in a float, because a sum with zeros keeps
// these exact, even in bf16: 8 pieces of the double nll, 4 of `first`, 8 of the double
// first_square.
#include "worker/ranks/peers_step.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static const uint32_t magic = 0x54535057;
enum { DOUBLE = 8, COUNT = 4, TOKENS_MAX = 1 << 24 }; // DOUBLE, COUNT: pieces
LH_STATIC_ASSERT(2 * DOUBLE + COUNT == WK_FIGURES_EACH, "two doubles and a count");

void wk_peers_step_put(struct lh_buf *out, const struct lh_hash *manifest,
                       const struct wk_reduce_step *s)
{
    const struct wk_update *u = s->update;
    size_t ids = (size_t)s->sequences * ((size_t)s->length + 1);
    lh_put_u32(out, magic);
    lh_put_u32(out, s->sequences);
    lh_put_u32(out, s->length);
    lh_put_u32(out, s->measure);
    lh_put(out, manifest->b, sizeof manifest->b);
    lh_put_f32(out, s->scale);
    lh_put_u32(out, 0);
    lh_put_u64(out, u->step);
    lh_put_f64(out, u->rate);
    lh_put_f64(out, u->beta1);
    lh_put_f64(out, u->beta2);
    lh_put_f64(out, u->eps);
    lh_put_f64(out, u->weight_decay);
    lh_put_f64(out, u->clip);
    for (size_t i = 0; i < ids; i++) lh_put_u32(out, s->ids[i]);
}

static LH_MUST lh_err read_ids(struct lh_cursor *c, struct wk_peers_step *out, size_t ids)
{
    if (ids > out->room) {
        free(out->ids);
        out->room = 0;
        out->ids = malloc(ids * sizeof *out->ids);
        if (!out->ids) return lh_fail(LH_ERR_NO_MEMORY, "a step's %zu ids", ids);
        out->room = ids;
    }
    for (size_t i = 0; i < ids; i++) out->ids[i] = lh_get_u32(c);
    return LH_OK;
}

lh_err wk_peers_step_get(struct lh_span bytes, struct wk_peers_step *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    struct wk_update *u = &out->update;
    uint32_t is = lh_get_u32(&c);
    out->step = (struct wk_reduce_step){.sequences = lh_get_u32(&c)};
    out->step.length = lh_get_u32(&c);
    uint32_t measure = lh_get_u32(&c);
    lh_get_into(&c, out->manifest.b, sizeof out->manifest.b);
    out->step.scale = lh_get_f32(&c);
    uint32_t zero = lh_get_u32(&c);
    u->step = lh_get_u64(&c);
    u->rate = lh_get_f64(&c);
    u->beta1 = lh_get_f64(&c);
    u->beta2 = lh_get_f64(&c);
    u->eps = lh_get_f64(&c);
    u->weight_decay = lh_get_f64(&c);
    u->clip = lh_get_f64(&c);
    uint64_t sequences = out->step.sequences, length = out->step.length;
    bool fits = sequences && length && sequences <= TOKENS_MAX && length <= TOKENS_MAX &&
                sequences * length <= TOKENS_MAX;
    if (c.failed || is != magic || measure > 1 || zero || !u->step || !fits ||
        lh_left(&c) != sequences * (length + 1) * sizeof(uint32_t))
        return lh_fail(LH_ERR_MALFORMED, "a step of %zu bytes is none", bytes.len);
    LH_TRY(read_ids(&c, out, sequences * (length + 1)));
    out->step.measure = measure;
    out->step.ids = out->ids;
    out->step.update = u;
    return LH_OK;
}

void wk_peers_step_free(struct wk_peers_step *s)
{
    free(s->ids);
    s->ids = NULL;
    s->room = 0;
}

// ---------------------------------------------------------------- figures

static float *put_pieces(float *at, uint64_t bits, int pieces)
{
    for (int i = 0; i < pieces; i++) *at++ = (float)(bits >> (8 * i) & 0xff);
    return at;
}

static const float *get_pieces(const float *at, uint64_t *bits, int pieces)
{
    *bits = 0;
    for (int i = 0; i < pieces; i++) *bits |= (uint64_t)*at++ << (8 * i);
    return at;
}

static float *put_double(float *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_pieces(at, bits, DOUBLE);
}

static const float *get_double(const float *at, double *value)
{
    uint64_t bits;
    at = get_pieces(at, &bits, DOUBLE);
    memcpy(value, &bits, sizeof bits);
    return at;
}

void wk_figures_put(float *figures, uint32_t part, const struct wk_share *share)
{
    float *at = put_double(figures + (size_t)part * WK_FIGURES_EACH, share->nll);
    at = put_pieces(at, share->first, COUNT);
    put_double(at, share->first_square);
}

void wk_figures_get(const float *figures, uint32_t parts, struct wk_gathered *sum)
{
    for (uint32_t part = 1; part < parts; part++) {
        struct wk_share share = {0};
        uint64_t first;
        const float *at = get_double(figures + (size_t)part * WK_FIGURES_EACH, &share.nll);
        at = get_pieces(at, &first, COUNT);
        share.first = (uint32_t)first;
        get_double(at, &share.first_square);
        sum->nll += share.nll;
        if (share.first && sum->samples < WK_SAMPLES_MAX) sum->sample[sum->samples++] = share;
    }
}
