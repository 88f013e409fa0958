// The states of all shards at a device. See states.h.
#include "worker/state/states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/state/state_check.h"
#include "worker/state/state_device.h"

// Every state takes so much of the host a parameter, wherever it is: push/commit.c, the replica.
static const uint64_t HOST_BYTES = 12;

// A CUDA context takes some hundred MiB of its device, and one of this process may have to be made
// beside a rank's.
static const uint64_t CONTEXT_BYTES = 512 << 20;

struct there { // a device that has states
    int index;
    char name[300];
    uint32_t shards;
    uint64_t bytes, left; // given to them; free before
    int direct; // the trainer's device and it reach each other's memory, or it is that one
    struct lk_outward outward;
};

struct wk_states {
    struct wk_states_conf conf;
    struct there there[WK_STATES_DEVICES_MAX];
    uint32_t devices;              // `there` has so many
    uint32_t *at;                  // [shards]: the place in `there`
    struct wk_shard_state **shard; // [shards]; NULL: it was given
    struct wk_states_budget budget;
    struct wk_device_counts counts;
};

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

const char *wk_states_place_name(enum wk_states_place place)
{
    static const char *const name[] = {"device", "spread", "pinned"};
    return name[place];
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
    char spread[80] = "";
    if (b->place == WK_STATES_SPREAD)
        snprintf(spread, sizeof spread, " on %u GPU%s; of the fullest, GPU %d", b->devices,
                 b->devices == 1 ? "" : "s", b->fullest);
    snprintf(out, size,
             "%.1f bytes a parameter (replica, residual and its spare, base and cut %.1f, payloads "
             "and scratch %.1f)%s, %" PRIu64 " MiB of %" PRIu64 " free%s",
             (double)sum / n, (double)b->arrays / n, (double)b->scratch / n, spread,
             mebibytes(b->place == WK_STATES_SPREAD ? b->most : sum), b->left >> 20, beside);
}

static struct wk_device_state_conf conf_of(struct wk_states *s, uint32_t shard)
{
    struct there *t = &s->there[s->at[shard]];
    return (struct wk_device_state_conf){.trainer = s->conf.trainer,
                                         .index = t->index,
                                         .name = t->name,
                                         .failed = s->conf.failed,
                                         .arg = s->conf.arg,
                                         .layout = &s->conf.manifest->shard[shard],
                                         .codec = s->conf.codec,
                                         .counts = &s->counts,
                                         .outward = &t->outward,
                                         .pinned = s->conf.place == WK_STATES_PINNED};
}

// ---------------------------------------------------------------- the devices

static lh_err look(struct wk_states *s, int index, struct lk_gpu_device *out)
{
    const struct wk_device_lent *trainer = &s->conf.trainer;
    int failed = trainer->gpu->device(index, out);
    if (!failed) return LH_OK;
    const char *why = trainer->gpu->error_text(failed);
    if (index == trainer->index) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", trainer->name, why);
    return lh_fail(LH_ERR_UNSUPPORTED, "GPU %d: %s", index, why);
}

// Bytes left on another device than the trainer's, `is`, once somebody trains on it as `own` is
// trained on. Whether they do yet is not known.
static uint64_t left_beside(const struct lk_gpu_device *own, const struct lk_gpu_device *is)
{
    uint64_t used = own->bytes - own->free_bytes + CONTEXT_BYTES;
    uint64_t left = is->bytes > used ? is->bytes - used : 0;
    return left < is->free_bytes ? left : is->free_bytes;
}

static lh_err add_device(struct wk_states *s, const struct lk_gpu_device *own, int index,
                         bool shared)
{
    struct there *t = &s->there[s->devices++];
    struct lk_gpu_device is = *own;
    t->index = index;
    if (index == s->conf.trainer.index) {
        snprintf(t->name, sizeof t->name, "%s", s->conf.trainer.name);
        t->left = own->free_bytes;
        t->direct = true;
        return LH_OK;
    }
    LH_TRY(look(s, index, &is));
    snprintf(t->name, sizeof t->name, "GPU %d, %s", index, is.name);
    t->left = shared ? left_beside(own, &is) : is.free_bytes;
    return LH_OK;
}

static lh_err find_devices(struct wk_states *s)
{
    const struct wk_states_conf *c = &s->conf;
    struct lk_gpu_device own;
    int failed = c->trainer.gpu->use(c->trainer.index);
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->trainer.name,
                       c->trainer.gpu->error_text(failed));
    LH_TRY(look(s, c->trainer.index, &own));
    if (c->place != WK_STATES_SPREAD) return add_device(s, &own, c->trainer.index, false);
    if (!c->devices) return lh_fail(LH_ERR_UNSUPPORTED, "there is no other GPU");
    for (uint32_t i = 0; i < c->devices; i++)
        LH_TRY(add_device(s, &own, c->device[i], c->shared[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- the budget

static uint64_t left_of(const struct wk_states *s, const struct there *t)
{
    uint64_t taken = t->bytes + s->conf.beside;
    return t->left > taken ? t->left - taken : 0;
}

// The trainer's own comes last: it has most else to do.
static bool is_better(const struct wk_states *s, const struct there *a, const struct there *b)
{
    bool a_is_own = a->index == s->conf.trainer.index, b_is_own = b->index == s->conf.trainer.index;
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a_is_own != b_is_own) return b_is_own;
    return left_of(s, a) > left_of(s, b);
}

// A shard goes to the device that gave least, of those that have room.
static lh_err choose(struct wk_states *s, uint32_t shard, uint64_t bytes)
{
    struct there *best = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->devices; i++) {
        struct there *t = &s->there[i];
        uint64_t left = left_of(s, t);
        if (left > most) most = left;
        if (left < bytes) continue;
        if (!best || is_better(s, t, best)) best = t;
    }
    if (!best)
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "the state does not fit on %u GPUs: shard %u needs %" PRIu64
                       " MiB, and the most that one has left is %" PRIu64,
                       s->devices, shard, mebibytes(bytes), most >> 20);
    best->bytes += bytes;
    best->shards++;
    s->at[shard] = (uint32_t)(best - s->there);
    return LH_OK;
}

static void find_fullest(struct wk_states *s)
{
    struct wk_states_budget *b = &s->budget;
    const struct there *fullest = NULL;
    for (uint32_t i = 0; i < s->devices; i++) {
        const struct there *t = &s->there[i];
        if (!t->shards) continue;
        b->devices++;
        if (!fullest || left_of(s, t) < left_of(s, fullest)) fullest = t;
    }
    if (!fullest) return;
    b->fullest = fullest->index;
    b->most = fullest->bytes;
    b->left = fullest->left;
}

static lh_err reckon(struct wk_states *s)
{
    struct wk_states_budget *b = &s->budget;
    bool pinned = s->conf.place == WK_STATES_PINNED;
    LH_TRY(find_devices(s));
    b->place = s->conf.place;
    b->left = s->there[0].left;
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
        if (b->place == WK_STATES_SPREAD) LH_TRY(choose(s, i, arrays + scratch));
    }
    if (b->place == WK_STATES_SPREAD) {
        find_fullest(s);
        return LH_OK;
    }
    s->there[0].shards = s->conf.manifest->shards;
    char text[WK_STATES_TEXT];
    wk_states_budget_text(b, text, sizeof text);
    if ((pinned ? 0 : b->arrays) + b->scratch + b->beside > b->left)
        return lh_fail(LH_ERR_UNSUPPORTED, "the state does not fit on %s: %s", s->there[0].name,
                       text);
    if (pinned && b->host_left && b->arrays + b->host > b->host_left)
        return lh_fail(LH_ERR_UNSUPPORTED, "the state does not fit in the host's memory: %s", text);
    return LH_OK;
}

// ---------------------------------------------------------------- the states

// A device needs this before it has states: a way to the trainer's, slots; and it is believed. The
// thread uses the trainer's device afterwards.
static lh_err open_device(struct wk_states *s, struct there *t)
{
    const struct lk_gpu_backend *b = s->conf.trainer.gpu;
    const struct wk_device_state_conf like = {.trainer = s->conf.trainer,
                                              .index = t->index,
                                              .name = t->name,
                                              .codec = s->conf.codec,
                                              .pinned = s->conf.place == WK_STATES_PINNED};
    int own = s->conf.trainer.index, failed = 0;
    if (t->index != own) failed = b->memory->reach(own, t->index, &t->direct);
    if (failed) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", t->name, b->error_text(failed));
    LH_TRY(wk_state_check(&like));
    failed = b->use(t->index);
    if (!failed) failed = lk_outward_open(&t->outward, b, LK_CROSSING_SLOTS, LK_CROSSING_BYTES);
    int back = b->use(own);
    if (!failed) failed = back;
    if (failed)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s, pinned memory: %s", t->name, b->error_text(failed));
    return LH_OK;
}

static lh_err open_all(struct wk_states *s)
{
    const uint32_t shards = s->conf.manifest->shards;
    s->at = calloc(shards, sizeof *s->at);
    s->shard = calloc(shards, sizeof(void *));
    if (!s->at || !s->shard) return LH_ERR_NO_MEMORY;
    LH_TRY(reckon(s));
    for (uint32_t i = 0; i < s->devices; i++)
        if (s->there[i].shards) LH_TRY(open_device(s, &s->there[i]));
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
    for (uint32_t i = 0; i < s->devices; i++) lk_outward_close(&s->there[i].outward);
    free(s->shard);
    free(s->at);
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

static json_t *devices_status(const struct wk_states *s)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < s->devices; i++) {
        const struct there *t = &s->there[i];
        if (!t->shards) continue;
        json_array_append_new(all, json_pack("{s:i s:s s:i s:I s:I s:b}", "device", t->index,
                                             "name", t->name, "shards", (int)t->shards, "bytes",
                                             (json_int_t)t->bytes, "left", (json_int_t)t->left,
                                             "direct", t->direct));
    }
    return all;
}

json_t *wk_states_status(const struct wk_states *s, const char *why)
{
    if (!s) return json_pack("{s:s s:s}", "where", "host", "why", why);
    const struct wk_device_counts *c = &s->counts;
    json_t *is =
        json_pack("{s:s s:s s:I s:I s:I s:I s:I}", "where", wk_states_place_name(s->conf.place),
                  "why", why, "encoded", read(&c->encoded), "folded", read(&c->folded), "filled",
                  read(&c->filled), "compared", read(&c->compared), "differed", read(&c->differed));
    if (s->conf.place == WK_STATES_SPREAD) json_object_set_new(is, "devices", devices_status(s));
    return is;
}
