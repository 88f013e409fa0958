// The states of all shards at a device. See states.h.
#include "worker/state/states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/state/state_check.h"
#include "worker/state/state_device.h"

// Every state takes so much of the host a parameter, wherever it is: push/commit.c, the replica.
static const uint64_t HOST_BYTES = 12;

struct wk_states {
    struct wk_states_conf conf;
    struct wk_shard_state **shard; // [shards]; NULL: it was given
    struct wk_states_budget budget;
    struct wk_device_counts counts;
    struct lk_outward outward;
};

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

const char *wk_states_place_name(enum wk_states_place place)
{
    return place == WK_STATES_PINNED ? "pinned" : "device";
}

static void pinned_text(const struct wk_states_budget *b, const char *beside, char *out,
                        size_t size)
{
    double n = b->values ? (double)b->values : 1;
    char known[48] = "";
    if (b->host_left)
        snprintf(known, sizeof known, " of %" PRIu64 " available", b->host_left >> 20);
    snprintf(
        out, size,
        "%.1f bytes a parameter (payloads and scratch), %" PRIu64 " MiB of %" PRIu64
        " free%s, and %.1f of the host (replica, residual and its spare, base and cut %.1f, as "
        "without it %.1f), %" PRIu64 " MiB%s",
        (double)b->scratch / n, mebibytes(b->scratch), b->left >> 20, beside,
        (double)(b->arrays + b->host) / n, (double)b->arrays / n, (double)b->host / n,
        mebibytes(b->arrays + b->host), known);
}

void wk_states_budget_text(const struct wk_states_budget *b, char *out, size_t size)
{
    double n = b->values ? (double)b->values : 1;
    uint64_t sum = b->arrays + b->scratch;
    char beside[64] = "";
    if (b->beside)
        snprintf(beside, sizeof beside, ", and %" PRIu64 " MiB for gradients between ranks",
                 mebibytes(b->beside));
    if (b->place == WK_STATES_PINNED) {
        pinned_text(b, beside, out, size);
        return;
    }
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
                                         .outward = &s->outward,
                                         .pinned = s->conf.place == WK_STATES_PINNED};
}

static lh_err reckon(struct wk_states *s)
{
    struct wk_states_budget *b = &s->budget;
    const struct wk_device_lent *there = &s->conf.trainer;
    struct lk_gpu_device is;
    int failed = there->gpu->use(there->index);
    if (!failed) failed = there->gpu->device(there->index, &is);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", there->name, there->gpu->error_text(failed));
    b->place = s->conf.place;
    b->left = is.free_bytes;
    b->host = HOST_BYTES * s->conf.manifest->values;
    b->host_left = s->conf.host_left;
    b->values = s->conf.manifest->values;
    b->beside = s->conf.beside;
    for (uint32_t i = 0; i < s->conf.manifest->shards; i++) {
        const struct wk_device_state_conf conf = conf_of(s, i);
        uint64_t arrays, scratch;
        LH_TRY(wk_device_state_need(&conf, &arrays, &scratch));
        b->arrays += arrays;
        b->scratch += scratch;
    }
    char text[WK_STATES_TEXT];
    wk_states_budget_text(b, text, sizeof text);
    bool pinned = b->place == WK_STATES_PINNED;
    if ((pinned ? 0 : b->arrays) + b->scratch + b->beside > b->left)
        return lh_fail(LH_ERR_UNSUPPORTED, "the state does not fit on %s: %s", there->name, text);
    if (pinned && b->host_left && b->arrays + b->host > b->host_left)
        return lh_fail(LH_ERR_UNSUPPORTED, "the state does not fit in the host's memory: %s", text);
    return LH_OK;
}

static lh_err open_all(struct wk_states *s)
{
    const uint32_t shards = s->conf.manifest->shards;
    LH_TRY(reckon(s));
    LH_TRY(wk_state_check(&s->conf.trainer, &s->conf.codec, s->conf.place == WK_STATES_PINNED));
    int failed =
        lk_outward_open(&s->outward, s->conf.trainer.gpu, LK_CROSSING_SLOTS, LK_CROSSING_BYTES);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s, pinned memory: %s", s->conf.trainer.name,
                       s->conf.trainer.gpu->error_text(failed));
    s->shard = calloc(shards, sizeof(void *));
    if (!s->shard) return LH_ERR_NO_MEMORY;
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
    free(s->shard);
    lk_outward_close(&s->outward);
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
    return json_pack("{s:s s:s s:I s:I s:I s:I s:I}", "where", wk_states_place_name(s->conf.place),
                     "why", why, "encoded", read(&c->encoded), "folded", read(&c->folded), "filled",
                     read(&c->filled), "compared", read(&c->compared), "differed",
                     read(&c->differed));
}
