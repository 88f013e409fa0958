// The built-in trainer: pieces -> sequences -> gradient -> clipped AdamW step.
//
// 1. A step either happens wholly or changes neither parameters nor optimizer state.
// 2. Optimizer state is a function of the steps taken: save and load continue bit for bit.
//
// Saved bytes, little endian:
//   0  u32  magic "WKOP"          4  u32  version, 2
//   8  32   the manifest's hash  40  u64  steps taken      48  u64  values n
//  56  u64  rate released (0, 1) 64  u64  at credited tokens
//  72  u64  steps of the noise   80  f64  its signal          88  f64  its variance
//  96  4n   first moments        then 4n  second moments   then u32 CRC32C of all before it
#include "worker/train/trainer_builtin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/privacy/record_step.h"
#include "worker/train/host.h"
#include "worker/train/passes.h"
#include "worker/train/update.h"

LH_STATIC_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "saved floats are copied as they lie");

static const uint32_t save_magic = 0x504f4b57, save_version = 2;
enum { WARMUP_AT = 56, SAVE_HEADER = 96, SAVE_CRC = 4 };

struct builtin {
    struct wk_trainer base; // first: the caller's handle
    struct wk_builtin_conf conf;
    struct wk_params params;
    struct wk_passes passes;
    struct lh_hash manifest;
    struct wk_reduce_state state;
    bool shared;   // state.value is the reduce's, who frees it
    float *before; // a tensor before the step, while its norms are asked for
    uint32_t *ids; // [batch * accumulate][sequence + 1]
    struct wk_warmup warmup;
    struct wk_record_step *records; // NULL: the region is not private
    uint64_t steps;
};

static struct builtin *builtin_of(struct wk_trainer *t)
{
    return (struct builtin *)t;
}

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    struct builtin *b = builtin_of(t);
    if (b->state.device)
        wk_device_copy(b->state.device, first, values, slot);
    else
        wk_host_copy(b->state.value, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    struct builtin *b = builtin_of(t);
    if (b->state.device)
        wk_device_renew(b->state.device, r);
    else
        wk_host_renew(b->state.value, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    const struct builtin *b = (const struct builtin *)t;
    const struct wk_builtin_conf *c = &b->conf;
    if (b->records) return wk_record_step_tokens(b->records);
    return (uint64_t)c->sequence * c->batch * c->accumulate;
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    return ((const struct builtin *)t)->conf.sequence;
}

// ---- step ---------------------------------------------------------------------------------------

// The data that this unit of the run is trained on (common/format/units.h).
static uint64_t data_of(const struct builtin *b, uint64_t unit)
{
    return unit % wk_loader_units(b->conf.loader);
}

// The tokens of one piece; *out says which unit could not be read.
static lh_err read_piece(struct builtin *b, const struct wk_piece *piece, size_t n,
                         struct wk_step_out *out)
{
    size_t length = b->conf.sequence;
    for (uint64_t at = 0; at < piece->tokens; at += length, n++) {
        lh_err err = wk_loader_read(b->conf.loader, data_of(b, piece->unit), piece->offset + at,
                                    length, b->ids + n * (length + 1));
        if (!err) continue;
        out->unread = true;
        out->unit = piece->unit;
        return err;
    }
    return LH_OK;
}

// The pieces' tokens as sequences, each with the id after it, in ids.
static lh_err read_pieces(struct builtin *b, const struct wk_step_in *in, struct wk_step_out *out,
                          size_t *sequences)
{
    size_t length = b->conf.sequence, room = (size_t)b->conf.batch * b->conf.accumulate, n = 0;
    for (uint32_t p = 0; p < in->pieces; p++) {
        const struct wk_piece *piece = &in->piece[p];
        if (piece->tokens % length != 0 || piece->tokens / length > room - n)
            return lh_fail(LH_ERR_INVALID,
                           "piece of %" PRIu64 " tokens of unit %" PRIu64
                           ": whole sequences of %zu, %zu of them left in this step",
                           piece->tokens, piece->unit, length, room - n);
        LH_TRY(read_piece(b, piece, n, out));
        n += piece->tokens / length;
    }
    if (n == 0) return lh_fail(LH_ERR_INVALID, "a step without tokens");
    *sequences = n;
    return LH_OK;
}

static void tell_final(void *arg, uint64_t from)
{
    struct wk_reduce *r = arg;
    if (r && r->ops->final) r->ops->final(r, from);
}

// gradient = d(mean loss), by all ranks of the region together; loss = the mean.
static lh_err accumulate(struct builtin *b, size_t sequences, const struct wk_update *update,
                         struct wk_gathered *sum)
{
    struct wk_reduce *r = b->conf.reduce;
    double tokens = (double)(sequences * b->conf.sequence);
    const struct wk_reduce_step step = {
        .ids = b->ids,
        .sequences = (uint32_t)sequences,
        .length = b->conf.sequence,
        .values = b->params.values,
        .scale = (float)(1.0 / tokens),
        .measure = b->conf.warmup.threshold > 0 && !b->warmup.released,
        .update = update,
    };
    const struct wk_final final = {tell_final, r};
    *sum = (struct wk_gathered){.fresh = true};
    struct wk_part part = {0, step.sequences};
    LH_TRY(wk_reduce_clear(&b->state));
    if (r) r->ops->deal(r, &step, &part);
    lh_err err = LH_OK;
    do {
        struct wk_share share = {0};
        if (!err)
            err = wk_passes_run(&b->passes, b->state.value, &step, part, sum->fresh,
                                b->state.gradient, &final, &share);
        sum->nll += share.nll;
        if (share.first) sum->sample[sum->samples++] = share;
        sum->fresh = false;
        if (!r) break;
        lh_err lost = r->ops->gather(r, !err, b->state.gradient, sum, &part);
        if (!err) err = lost;
    } while (part.count);
    return err;
}

// Room for the largest tensor, from the first time that norms are asked for.
static lh_err prepare_norms(struct builtin *b)
{
    size_t most = 0;
    if (b->before || b->state.device) return LH_OK;
    for (uint32_t i = 0; i < b->params.count; i++)
        if (b->params.at[i].len > most) most = b->params.at[i].len;
    b->before = malloc(most * sizeof *b->before);
    return b->before ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "norms of tensors");
}

// The optimizer's settings for this step, whatever its gradient will be.
static struct wk_update update_of(const struct builtin *b, const struct wk_step_in *in)
{
    const struct wk_builtin_conf *c = &b->conf;
    return (struct wk_update){
        .rate = (double)in->learning_rate * wk_warmup_factor(&b->warmup, &c->warmup, in->credited),
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .weight_decay = c->weight_decay,
        .clip = c->clip,
        .step = b->steps + 1,
    };
}

// Looks at the noise, for the next step.
static void note_noise(struct builtin *b, const struct wk_step_in *in, struct wk_step_out *out,
                       uint32_t sequences, const struct wk_gathered *sum)
{
    const struct wk_warmup_conf *c = &b->conf.warmup;
    if (c->threshold <= 0 || b->warmup.released) return;
    wk_noise_add(&b->warmup.noise, out->grad_norm * out->grad_norm, sequences, sum);
    wk_warmup_step(&b->warmup, c, sequences, in->credited);
    if (!b->warmup.released) out->noise = wk_noise_ratio(&b->warmup.noise, sequences);
}

static lh_err optimize(struct builtin *b, const struct wk_update *update, double norm,
                       struct wk_tensor_norms *norms)
{
    struct wk_reduce *r = b->conf.reduce;
    LH_TRY(wk_reduce_update(&b->state, update, norm, b->before, norms));
    b->steps = update->step;
    if (r && r->ops->applied) r->ops->applied(r);
    return LH_OK;
}

static void set_duration(const struct builtin *b, uint64_t tokens, struct wk_step_out *out)
{
    if (b->conf.tokens_per_s > 0.0)
        out->least_ns = (int64_t)((double)tokens * 1e9 / b->conf.tokens_per_s);
}

// The gradient has its noise already: what follows is the usual step.
static lh_err private_step(struct builtin *b, const struct wk_step_in *in, struct wk_step_out *out)
{
    const struct wk_update update = update_of(b, in);
    LH_TRY(wk_record_step_run(b->records, b->state.value, b->state.gradient, &out->loss));
    LH_TRY(wk_reduce_norm(&b->state, update.step, in->norms, &out->grad_norm));
    out->rate = update.rate;
    LH_TRY(optimize(b, &update, out->grad_norm, in->norms));
    set_duration(b, wk_record_step_tokens(b->records), out);
    return LH_OK;
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct builtin *b = builtin_of(t);
    size_t sequences = 0;
    struct wk_gathered sum;
    *out = (struct wk_step_out){0};
    if (in->norms) LH_TRY(prepare_norms(b));
    if (b->records) return private_step(b, in, out);
    LH_TRY(read_pieces(b, in, out, &sequences));
    const struct wk_update update = update_of(b, in);
    LH_TRY(accumulate(b, sequences, &update, &sum));
    LH_TRY(wk_reduce_norm(&b->state, update.step, in->norms, &out->grad_norm));
    uint64_t tokens = sequences * b->conf.sequence;
    out->loss = sum.nll / (double)tokens;
    out->rate = update.rate;
    note_noise(b, in, out, (uint32_t)sequences, &sum);
    LH_TRY(optimize(b, &update, out->grad_norm, in->norms));
    set_duration(b, tokens, out);
    if (!b->conf.evaluation) return LH_OK;
    return wk_evaluation_step(b->conf.evaluation, &b->passes, b->state.value, tokens,
                              &out->evaluated);
}

static void announce(struct wk_trainer *t, uint64_t unit, bool comes)
{
    struct builtin *b = builtin_of(t);
    if (comes)
        wk_loader_announce(b->conf.loader, data_of(b, unit));
    else
        wk_loader_withdraw(b->conf.loader, data_of(b, unit));
}

// ---- saved state --------------------------------------------------------------------------------

// Room for both of a device's moments on the host, for a moment.
static lh_err room_for_moments(const struct builtin *b, float **m, float **v)
{
    *m = malloc(2 * b->params.values * sizeof **m);
    *v = *m ? *m + b->params.values : NULL;
    return *m ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "the device's optimizer state");
}

static lh_err put_moments(struct builtin *b, struct lh_buf *out, size_t bytes)
{
    float *m = b->state.m, *v = b->state.v;
    if (b->state.device) LH_TRY(room_for_moments(b, &m, &v));
    lh_err err = b->state.device ? wk_device_moments(b->state.device, m, v) : LH_OK;
    if (!err) {
        lh_put(out, m, bytes);
        lh_put(out, v, bytes);
        err = lh_buf_err(out);
    }
    if (b->state.device) free(m);
    return err;
}

static lh_err take_moments(struct builtin *b, struct lh_cursor *c)
{
    float *m = b->state.m, *v = b->state.v;
    if (b->state.device) LH_TRY(room_for_moments(b, &m, &v));
    lh_get_into(c, m, b->params.values * sizeof *m);
    lh_get_into(c, v, b->params.values * sizeof *v);
    if (!b->state.device) return LH_OK;
    lh_err err = wk_device_set_moments(b->state.device, m, v);
    free(m);
    return err;
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    struct builtin *b = builtin_of(t);
    size_t start = out->len, bytes = b->params.values * sizeof(float);
    LH_TRY(lh_buf_reserve(out, start + SAVE_HEADER + 2 * bytes + SAVE_CRC));
    lh_put_u32(out, save_magic);
    lh_put_u32(out, save_version);
    lh_put(out, b->manifest.b, sizeof b->manifest.b);
    lh_put_u64(out, b->steps);
    lh_put_u64(out, b->params.values);
    lh_put_u64(out, b->warmup.released);
    lh_put_u64(out, b->warmup.released_at);
    lh_put_u64(out, b->warmup.noise.steps);
    lh_put_f64(out, b->warmup.noise.signal);
    lh_put_f64(out, b->warmup.noise.variance);
    LH_TRY(put_moments(b, out, bytes));
    lh_put_u32(out, lh_crc32c(0, out->data + start, out->len - start));
    return lh_buf_err(out);
}

static lh_err check_saved(const struct builtin *b, struct lh_span bytes, uint64_t *steps)
{
    size_t want = SAVE_HEADER + 2 * b->params.values * sizeof(float) + SAVE_CRC;
    if (bytes.len != want)
        return lh_fail(LH_ERR_MALFORMED, "optimizer state of %zu bytes: %zu wanted", bytes.len,
                       want);
    struct lh_cursor c = lh_cursor(bytes);
    struct lh_hash hash;
    uint32_t magic = lh_get_u32(&c), version = lh_get_u32(&c);
    lh_get_into(&c, hash.b, sizeof hash.b);
    *steps = lh_get_u64(&c);
    uint64_t values = lh_get_u64(&c);
    struct lh_cursor tail = lh_cursor(lh_span(bytes.data + bytes.len - SAVE_CRC, SAVE_CRC));
    if (magic != save_magic || version != save_version)
        return lh_fail(LH_ERR_MALFORMED, "optimizer state: not of version %" PRIu32, save_version);
    if (!lh_hash_equal(&hash, &b->manifest) || values != b->params.values)
        return lh_fail(LH_ERR_MALFORMED, "optimizer state of another model");
    if (lh_get_u32(&tail) != lh_crc32c(0, bytes.data, bytes.len - SAVE_CRC))
        return lh_fail(LH_ERR_MALFORMED, "optimizer state: its checksum does not match");
    return LH_OK;
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    struct builtin *b = builtin_of(t);
    uint64_t steps = 0;
    LH_TRY(check_saved(b, bytes, &steps));
    struct lh_cursor c = lh_cursor(bytes);
    (void)lh_get(&c, WARMUP_AT);
    b->warmup.released = lh_get_u64(&c) != 0;
    b->warmup.released_at = lh_get_u64(&c);
    b->warmup.noise.steps = lh_get_u64(&c);
    b->warmup.noise.signal = lh_get_f64(&c);
    b->warmup.noise.variance = lh_get_f64(&c);
    LH_TRY(take_moments(b, &c));
    b->steps = steps;
    return LH_OK;
}

// ---- life ---------------------------------------------------------------------------------------

// Refuses, for a private region, settings that measure the gradient before its noise, or compute it
// elsewhere.
static lh_err keep_private(struct wk_trainer *t, const struct wk_records_conf *conf)
{
    struct builtin *b = builtin_of(t);
    const char *why = NULL;
    LH_ASSERT(!b->records);
    if (b->state.device) why = "trainer.backend is cuda: set cpu";
    if (b->conf.reduce) why = "ranks.count is above 1: set 1";
    if (b->conf.warmup.threshold > 0) why = "trainer.noise_threshold is set: set off";
    if (b->conf.evaluation) why = "eval.every_tokens is set: set off";
    if (why) return lh_fail(LH_ERR_CONFIG, "the region is private at record level, and %s", why);
    const struct wk_record_step_conf of = {*conf, b->conf.loader, b->passes.transformer,
                                           b->params.values};
    return wk_record_step_open(&of, &b->records);
}

static void destroy(struct wk_trainer *t)
{
    struct builtin *b = builtin_of(t);
    wk_record_step_close(b->records);
    wk_transformer_destroy(b->passes.transformer);
    wk_params_free(&b->params);
    if (b->shared) b->state.value = NULL;
    wk_reduce_free(&b->state);
    free(b->before);
    free(b->ids);
    free(b);
}

static const struct wk_trainer_ops ops = {
    .copy = copy,
    .renew = renew,
    .step_tokens = step_tokens,
    .sequence_tokens = sequence_tokens,
    .step = step,
    .announce = announce,
    .save = save,
    .load = load,
    .keep_private = keep_private,
    .destroy = destroy,
};

struct wk_builtin_conf wk_builtin_defaults(void)
{
    return (struct wk_builtin_conf){
        .sequence = 128,
        .batch = 4,
        .accumulate = 1,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .clip = 1.0,
    };
}

static lh_err check_conf(const struct wk_builtin_conf *c)
{
    if (c->batch < 1 || c->accumulate < 1 || c->sequence < 1 ||
        (uint64_t)c->batch * c->accumulate > (1u << 24) / c->sequence)
        return lh_fail(LH_ERR_CONFIG,
                       "a step of %" PRIu32 " x %" PRIu32 " sequences of %" PRIu32
                       " tokens: from 1 to 2^24 tokens wanted",
                       c->accumulate, c->batch, c->sequence);
    if (!(c->beta1 >= 0.0 && c->beta1 < 1.0) || !(c->beta2 >= 0.0 && c->beta2 < 1.0))
        return lh_fail(LH_ERR_CONFIG, "betas of AdamW: from 0 to below 1");
    if (!(c->eps > 0.0) || !(c->weight_decay >= 0.0) || !(c->clip >= 0.0) ||
        !(c->tokens_per_s >= 0.0))
        return lh_fail(LH_ERR_CONFIG, "eps above 0; weight decay, clip, tokens/s not below 0");
    return LH_OK;
}

// The flat order that both sides know must be the one that the passes use.
static lh_err check_manifest(const struct lh_manifest *m, const struct wk_params *p)
{
    bool same = m->tensors == p->count && m->values == p->values;
    for (uint32_t i = 0; same && i < p->count; i++) {
        const struct lh_tensor *a = &m->tensor[i];
        const struct wk_param *b = &p->at[i];
        same = strcmp(a->name, b->name) == 0 && a->offset == b->offset && a->len == b->len &&
               a->dims == (b->cols == 0 ? 1 : 2) && a->shape[0] == b->rows;
    }
    return same ? LH_OK : lh_fail(LH_ERR_MANIFEST, "its tensors are not those of its \"model\"");
}

static lh_err allocate(struct builtin *b, const struct wk_shape *shape)
{
    const struct wk_builtin_conf *c = &b->conf;
    struct wk_reduce *r = c->reduce;
    size_t sequences = (size_t)c->batch * c->accumulate;
    b->ids = calloc(sequences * ((size_t)c->sequence + 1), sizeof *b->ids);
    if (!b->ids) return lh_fail(LH_ERR_NO_MEMORY, "ids of %zu sequences", sequences);
    b->passes.batch = c->batch;
    b->passes.device = c->device;
    b->state = (struct wk_reduce_state){
        .values = b->params.values,
        .steps = &b->steps,
        .params = &b->params,
        .device = c->device,
    };
    b->shared = r && r->ops->parameters && !c->device;
    if (b->shared) b->state.value = r->ops->parameters(r);
    LH_TRY(wk_reduce_allocate(&b->state));
    struct wk_transformer_conf t = {*shape, c->sequence, (size_t)c->batch * c->sequence, true};
    if (!c->device) LH_TRY(wk_transformer_create(&t, &b->passes.transformer));
    return r && r->ops->bind ? r->ops->bind(r, &b->state) : LH_OK;
}

lh_err wk_builtin_create(const struct wk_builtin_conf *conf, struct wk_trainer **out)
{
    struct wk_shape shape;
    LH_TRY(check_conf(conf));
    LH_TRY(wk_shape_parse(conf->manifest->model_json, &shape));
    struct builtin *b = calloc(1, sizeof *b);
    if (b == NULL) return lh_fail(LH_ERR_NO_MEMORY, "trainer");
    b->base.ops = &ops;
    b->conf = *conf;
    b->conf.manifest = NULL;
    b->manifest = conf->manifest->hash;

    lh_err err;
    LH_TRY_TO(out_destroy, err, wk_params_list(&shape, &b->params));
    LH_TRY_TO(out_destroy, err, check_manifest(conf->manifest, &b->params));
    LH_TRY_TO(out_destroy, err, allocate(b, &shape));
    *out = &b->base;
    return LH_OK;
out_destroy:
    destroy(&b->base);
    return err;
}
