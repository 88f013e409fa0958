// The handle: descriptions, and the beginning and end of a life. See longhaul.h; errors are in
// error.c.
//
//  1. No call ends the process or leaves a thread behind; every error is a value with a text.
//  2. A call in a forked child is refused before it touches memory that the child lacks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/client/handle.h"

uint32_t longhaul_abi(void)
{
    return LONGHAUL_ABI;
}

static int may_use(struct longhaul *c)
{
    if (!c) return LONGHAUL_E_INVALID;
    if (wk_client_mine(c)) return LONGHAUL_OK;
    return wk_client_fail(c, LONGHAUL_E_FORKED,
                          "process %ld is a fork of %ld, which opened the handle", (long)getpid(),
                          (long)c->owner);
}

static int may_describe(struct longhaul *c)
{
    int err = may_use(c);
    if (!err && c->link != WK_LINK_NONE)
        err = wk_client_fail(c, LONGHAUL_E_STATE,
                             "parameters must be described before longhaul_connect()");
    return err;
}

// ---------------------------------------------------------------- before a connection

// Parses digits by hand: a newer glibc's headers would link strtoul() to a symbol of 2.38.
static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    uint32_t v = 0;
    if (!text || !*text) return otherwise;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return otherwise;
        v = 10 * v + (uint32_t)(*text - '0');
        if (v > WK_CHANNEL_RANKS_MAX) return otherwise;
    }
    return v;
}

int longhaul_open(struct longhaul **out)
{
    struct longhaul *c = out ? calloc(1, sizeof *c) : NULL;
    if (!c) return out ? LONGHAUL_E_NO_MEMORY : LONGHAUL_E_INVALID;
    c->owner = getpid();
    c->rank = number_of("LOCAL_RANK", 0);
    c->ranks = number_of("LOCAL_WORLD_SIZE", 1);
    if (c->rank >= c->ranks) c->rank = 0, c->ranks = 1;
    c->sock = c->worker = c->memory = -1;
    c->text[0] = 0;
    *out = c;
    return LONGHAUL_OK;
}

int longhaul_ranks(struct longhaul *c, uint32_t rank, uint32_t ranks)
{
    int err = may_describe(c);
    if (err) return err;
    if (!ranks || ranks > WK_CHANNEL_RANKS_MAX || rank >= ranks)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "rank %u of %u: at most %d ranks", rank, ranks,
                              WK_CHANNEL_RANKS_MAX);
    c->rank = rank;
    c->ranks = ranks;
    return LONGHAUL_OK;
}

static uint64_t bytes_of(const struct wk_extent *e)
{
    return e->count * (e->tensor.dtype == WK_CHANNEL_BF16 ? 2 : 4);
}

static int clashes(struct longhaul *c, const struct wk_extent *e)
{
    for (uint32_t i = 0; i < c->extents; i++) {
        const struct wk_extent *o = &c->extent[i];
        if (strcmp(o->tensor.name, e->tensor.name) == 0)
            return wk_client_fail(c, LONGHAUL_E_INVALID, "%s is described twice", e->tensor.name);
        const char *a = o->data, *b = e->data;
        if (o->device == e->device && a < b + bytes_of(e) && b < a + bytes_of(o))
            return wk_client_fail(c, LONGHAUL_E_INVALID,
                                  "%s and %s share memory (tied?): describe only one of them",
                                  o->tensor.name, e->tensor.name);
    }
    return LONGHAUL_OK;
}

// Structs grow at their end. False: it is shorter than the first version, or has values that this
// library does not know.
static bool read_tensor(const struct longhaul_tensor *from, struct longhaul_tensor *out)
{
    const size_t first = sizeof *out; // as long as no shorter version was released
    const uint8_t *byte = (const uint8_t *)from;
    if (!from || from->size < first) return false;
    for (size_t i = sizeof *out; i < from->size; i++)
        if (byte[i]) return false;
    *out = (struct longhaul_tensor){0};
    memcpy(out, from, from->size < sizeof *out ? from->size : sizeof *out);
    return true;
}

static int copy_tensor(struct longhaul *c, const struct longhaul_tensor *from, struct wk_extent *e)
{
    struct longhaul_tensor tensor, *t = &tensor;
    if (!read_tensor(from, t) || !t->name || t->ndim < 0 || t->ndim > WK_CHANNEL_DIMS ||
        (t->ndim && !t->shape))
        return wk_client_fail(c, LONGHAUL_E_INVALID, "a tensor without size, name or shape");
    struct wk_channel_tensor *m = &e->tensor;
    int length = snprintf(m->name, sizeof m->name, "%s", t->name);
    if (length <= 0 || length >= (int)sizeof m->name)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "a tensor's name has 1 to %d bytes",
                              WK_CHANNEL_NAME - 1);
    m->index = c->extents;
    m->dtype = t->dtype == LONGHAUL_FP32 || t->dtype == LONGHAUL_BF16 ? (uint32_t)t->dtype : 0;
    m->dims = (uint32_t)t->ndim;
    for (uint32_t i = 0; i < m->dims; i++) m->shape[i] = t->shape[i];
    uint64_t whole = wk_channel_tensor_values(m);
    m->replica = t->count == 0 && t->first == 0;
    m->first = t->first;
    m->count = m->replica ? whole : t->count;
    bool inside = whole && m->first <= whole && m->count <= whole - m->first;
    bool held = m->count ? t->data != NULL : m->first == whole;
    bool known = t->memory == LONGHAUL_HOST || t->memory == LONGHAUL_CUDA;
    if (!m->dtype || !inside || !held || !known)
        return wk_client_fail(
            c, LONGHAUL_E_INVALID,
            "%s: only fp32 or bf16 tensors with values and a pointer can be trained", m->name);
    *e = (struct wk_extent){.at = c->values + m->first,
                            .first = m->first,
                            .count = m->count,
                            .whole = whole,
                            .data = t->data,
                            .device = t->memory == LONGHAUL_CUDA,
                            .replica = m->replica,
                            .add = t->dtype == LONGHAUL_FP32 ? t->add : NULL,
                            .add_arg = t->add_arg,
                            .take = t->dtype == LONGHAUL_FP32 ? t->take : NULL,
                            .tensor = *m};
    return LONGHAUL_OK;
}

int longhaul_parameter(struct longhaul *c, const struct longhaul_tensor *t)
{
    struct wk_extent e = {0};
    int err = may_describe(c);
    if (!err) err = copy_tensor(c, t, &e);
    if (!err) err = clashes(c, &e);
    if (!err && c->extents == WK_CHANNEL_TENSORS_MAX)
        err = wk_client_fail(c, LONGHAUL_E_INVALID, "more than %d tensors", WK_CHANNEL_TENSORS_MAX);
    if (!err && e.device) err = wk_client_device_open(c);
    if (!err && e.device) err = wk_device_lane(c, e.data, t->stream, &e.lane);
    if (err) return err;
    struct wk_extent *more = realloc(c->extent, (c->extents + 1) * sizeof *more);
    if (!more) return wk_client_fail(c, LONGHAUL_E_NO_MEMORY, "out of memory");
    c->extent = more;
    if (e.tensor.dtype == WK_CHANNEL_BF16 && e.count) {
        e.shadow = calloc(e.count, sizeof *e.shadow);
        if (!e.shadow)
            return wk_client_fail(c, LONGHAUL_E_NO_MEMORY, "%s: no memory for 4 bytes a value",
                                  e.tensor.name);
    }
    c->extent[c->extents++] = e;
    c->values += e.whole;
    return LONGHAUL_OK;
}

// dlpack.h of DLPack 0.x, the fields read here.
struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_FLOAT = 2, DL_BFLOAT = 4 };

static bool contiguous(const struct dl_tensor *d)
{
    int64_t step = 1;
    for (int32_t i = d->ndim - 1; d->strides && i >= 0; i--) {
        if (d->shape[i] != 1 && d->strides[i] != step) return false;
        step *= d->shape[i];
    }
    return true;
}

int longhaul_parameter_dlpack(struct longhaul *c, const char *name, void *managed, void *stream)
{
    const struct dl_tensor *d = managed;
    int err = may_describe(c);
    if (err) return err;
    uint64_t shape[WK_CHANNEL_DIMS] = {0};
    bool fp32 = d && d->code == DL_FLOAT && d->bits == 32;
    bool bf16 = d && d->code == DL_BFLOAT && d->bits == 16;
    bool sound = (fp32 || bf16) && d->lanes == 1 && d->ndim >= 0 && d->ndim <= WK_CHANNEL_DIMS;
    for (int32_t i = 0; sound && i < d->ndim; i++) {
        sound = d->shape[i] > 0;
        shape[i] = (uint64_t)d->shape[i];
    }
    if (!name || !sound || !contiguous(d))
        return wk_client_fail(c, LONGHAUL_E_INVALID, "%s: not a contiguous tensor of fp32 or bf16",
                              name ? name : "a tensor without name");
    bool cuda = d->device_type == DL_CUDA;
    if (!cuda && d->device_type != DL_CPU && d->device_type != DL_CUDA_HOST)
        return wk_client_fail(c, LONGHAUL_E_UNSUPPORTED, "%s lies on a device of kind %d", name,
                              (int)d->device_type);
    struct longhaul_tensor t = {.size = sizeof t,
                                .dtype = fp32 ? LONGHAUL_FP32 : LONGHAUL_BF16,
                                .memory = cuda ? LONGHAUL_CUDA : LONGHAUL_HOST,
                                .ndim = d->ndim,
                                .shape = shape,
                                .name = name,
                                .data = d->data ? (char *)d->data + d->byte_offset : NULL,
                                .stream = stream};
    return longhaul_parameter(c, &t);
}

// ---------------------------------------------------------------- a life

int longhaul_connect(struct longhaul *c, int timeout_ms)
{
    int err = may_use(c);
    if (err) return err;
    if (!c->extents) return wk_client_fail(c, LONGHAUL_E_STATE, "no parameter is described yet");
    wk_device_unpin(c); // copies of the last life's cuts have ended by then
    c->flies = c->torn = false;
    err = wk_link_connect(c, timeout_ms);
    if (err) return err;
    wk_device_pin(c);
    c->due_set = 0;
    c->bell = 0;
    c->acts_open = true; // look at the first boundary
    c->later = 0;
    c->tokens = c->noted = c->step = c->clock = 0;
    c->mark = (struct wk_channel_cut){0};
    c->private_steps = 0;
    return LONGHAUL_OK;
}

int longhaul_start(struct longhaul *c)
{
    int err = may_use(c);
    if (!err && c->link == WK_LINK_NONE)
        err = wk_client_fail(c, LONGHAUL_E_STATE, "call longhaul_connect() first");
    if (!err && c->started)
        err =
            wk_client_fail(c, LONGHAUL_E_STATE, "this life has begun; its progress would be lost");
    for (uint32_t i = 0; !err && i < c->channel.shape.parts; i++) err = wk_pieces_load(c, i, 0);
    if (!err) c->started = true;
    return err;
}

int longhaul_state(struct longhaul *c, struct longhaul_state *out)
{
    int err = may_use(c);
    if (err) return err;
    struct longhaul_state s = {.size = sizeof s,
                               .worker_lives = c->link == WK_LINK_UP,
                               .cuts = c->cuts,
                               .renewals = c->renewals,
                               .returns = c->returns,
                               .memory_bytes = c->channel.layout.bytes,
                               .pinned_bytes = c->cuda.pinned_bytes};
    if (!out || out->size < sizeof s) // as long as no shorter version was released
        return wk_client_fail(c, LONGHAUL_E_INVALID, "a state without its size");
    for (uint32_t i = 0; c->link != WK_LINK_NONE && i < c->channel.shape.parts; i++) {
        uint64_t is = atomic_load(&wk_channel_part(&c->channel, i)->committed);
        if (!i || is < s.committed) s.committed = is;
    }
    if (c->link == WK_LINK_AWAY || c->link == WK_LINK_CALLING)
        s.away_steps = c->step - c->away_from;
    for (uint32_t i = 0; i < c->extents; i++)
        if (c->extent[i].shadow) s.shadow_bytes += 4 * c->extent[i].count;
    *out = s;
    return LONGHAUL_OK;
}

int longhaul_report(struct longhaul *c, const char *name, double value)
{
    int err = may_use(c);
    if (err) return err;
    if (!name || !*name || strlen(name) >= WK_CHANNEL_METRIC)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "a figure's name has 1 to %d bytes",
                              WK_CHANNEL_METRIC - 1);
    wk_link_report(c, name, value);
    return LONGHAUL_OK;
}

int longhaul_damaged(struct longhaul *c, uint64_t unit)
{
    int err = may_use(c);
    return err ? err : wk_link_damaged(c, unit);
}

void longhaul_close(struct longhaul *c)
{
    if (!c) return;
    if (wk_client_mine(c)) {
        wk_client_device_close(c); // first: copies may still write to the memory
        wk_link_close(c, true);
    } else { // a forked child owns neither the memory nor the connection
        c->channel.base = NULL;
        wk_link_close(c, false);
    }
    for (uint32_t i = 0; i < c->extents; i++) free(c->extent[i].shadow);
    free(c->extent);
    free(c);
}
