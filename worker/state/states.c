// The states of all shards on a device. See states.h.
#include "worker/state/states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/state/state_check.h"
#include "worker/state/state_device.h"

struct wk_states {
    struct wk_states_conf conf;
    struct lk_outward outward;
    struct wk_shard_state **shard; // [shards]; NULL: given away
    struct wk_states_budget budget;
    struct wk_device_counts counts;
};

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

void wk_states_budget_text(const struct wk_states_budget *b, char *out, size_t size)
{
    double n = b->values ? (double)b->values : 1;
    uint64_t sum = b->arrays + b->scratch;
    char beside[64] = "";
    if (b->beside)
        snprintf(beside, sizeof beside, ", and %" PRIu64 " MiB for gradients between ranks",
                 mebibytes(b->beside));
    snprintf(out, size,
             "%.1f bytes a parameter (replica, residual and its spare, base and cut %.1f, payloads "
             "and scratch %.1f), %" PRIu64 " MiB of %" PRIu64 " free%s",
             (double)sum / n, (double)b->arrays / n, (double)b->scratch / n, mebibytes(sum),
             b->left >> 20, beside);
}

static struct wk_device_state_conf conf_of(struct wk_states *s, uint32_t shard)
{
    return (struct wk_device_state_conf){.trainer = s->conf.trainer,
                                         .failed = s->conf.failed,
                                         .arg = s->conf.arg,
                                         .layout = &s->conf.manifest->shard[shard],
                                         .codec = s->conf.codec,
                                         .counts = &s->counts,
                                         .outward = &s->outward};
}

// ---------------------------------------------------------------- the budget

static lh_err reckon(struct wk_states *s)
{
    const struct wk_device_lent *trainer = &s->conf.trainer;
    struct wk_states_budget *b = &s->budget;
    struct lk_gpu_device is;
    char text[WK_STATES_TEXT];
    int failed = trainer->gpu->use(trainer->index);
    if (!failed) failed = trainer->gpu->device(trainer->index, &is);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", trainer->name,
                       trainer->gpu->error_text(failed));
    *b = (struct wk_states_budget){
        .left = is.free_bytes, .values = s->conf.manifest->values, .beside = s->conf.beside};
    for (uint32_t i = 0; i < s->conf.manifest->shards; i++) {
        const struct wk_device_state_conf conf = conf_of(s, i);
        uint64_t arrays, scratch;
        LH_TRY(wk_device_state_need(&conf, &arrays, &scratch));
        b->arrays += arrays;
        b->scratch += scratch;
    }
    if (b->arrays + b->scratch + b->beside <= b->left) return LH_OK;
    wk_states_budget_text(b, text, sizeof text);
    return lh_fail(LH_ERR_UNSUPPORTED, "the state does not fit on %s: %s", trainer->name, text);
}

// ---------------------------------------------------------------- the states

static lh_err open_all(struct wk_states *s)
{
    const struct wk_device_lent *trainer = &s->conf.trainer;
    const uint32_t shards = s->conf.manifest->shards;
    s->shard = calloc(shards, sizeof(void *));
    if (!s->shard) return LH_ERR_NO_MEMORY;
    LH_TRY(reckon(s));
    LH_TRY(wk_state_check(trainer, &s->conf.codec));
    int failed = lk_outward_open(&s->outward, trainer->gpu, LK_CROSSING_SLOTS, LK_CROSSING_BYTES);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s, pinned memory: %s", trainer->name,
                       trainer->gpu->error_text(failed));
    for (uint32_t i = 0; i < shards; i++) {
        const struct wk_device_state_conf conf = conf_of(s, i);
        LH_TRY(wk_device_state_create(&conf, &s->shard[i]));
    }
    return LH_OK;
}

lh_err wk_states_open(const struct wk_states_conf *conf, struct wk_states **out)
{
    struct wk_states *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return LH_ERR_NO_MEMORY;
    s->conf = *conf;
    lh_err err = conf->trainer.gpu->kernels
                     ? open_all(s)
                     : lh_fail(LH_ERR_UNSUPPORTED, "the CUDA plugin has no kernels");
    if (err)
        wk_states_close(s);
    else
        *out = s;
    return err;
}

lh_err wk_states_give(void *states, const struct wk_shard_state_conf *conf,
                      struct wk_shard_state **out)
{
    struct wk_states *s = states;
    struct wk_shard_state **mine = &s->shard[conf->layout->shard];
    *out = *mine;
    if (!*out) return lh_fail(LH_ERR_INVALID, "the state of a shard is given once");
    (*out)->conf = *conf;
    *mine = NULL;
    return LH_OK;
}

void wk_states_close(struct wk_states *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->shard && i < s->conf.manifest->shards; i++)
        if (s->shard[i]) s->shard[i]->ops->destroy(s->shard[i]);
    lk_outward_close(&s->outward);
    free(s->shard);
    free(s);
}

struct wk_states_budget wk_states_budget(const struct wk_states *s)
{
    return s->budget;
}

static json_int_t read(const _Atomic uint64_t *count)
{
    return (json_int_t)atomic_load(count);
}

json_t *wk_states_status(const struct wk_states *s, const char *why)
{
    if (!s) return json_pack("{s:s s:s}", "where", "host", "why", why);
    const struct wk_device_counts *c = &s->counts;
    return json_pack("{s:s s:s s:I s:I s:I s:I s:I}", "where", "device", "why", why, "encoded",
                     read(&c->encoded), "folded", read(&c->folded), "filled", read(&c->filled),
                     "compared", read(&c->compared), "differed", read(&c->differed));
}
