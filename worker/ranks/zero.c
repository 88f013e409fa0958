// A rank's part of a sharded optimizer. See zero.h.
//
// Invariants: 1. held[now] is never written but by wk_zero_deal() and what fills it after; 2. the
// other one has a step's number only while it is whole; 3. the mirror is written by a collection
// alone, or by a leader alone in its region, whose trainer updates it.
#include "worker/ranks/zero.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"

static uint64_t whole_blocks(const struct wk_zero *z, uint64_t values)
{
    return (values + z->block - 1) / z->block * z->block;
}

// ---------------------------------------------------------------- arrays of the host or a device

static size_t pieces_of(const struct wk_zero *z, uint64_t from, uint64_t end)
{
    if (z->device) return wk_zero_device_pieces(z->device, from, end);
    return wk_update_squares(z->state.params, NULL, from, end, NULL);
}

lh_err wk_zero_get(struct wk_zero *z, float *to, const float *moments, uint64_t values)
{
    if (z->device) atomic_fetch_add(&z->crossed, values * sizeof *to);
    if (z->device) return wk_zero_device_out(z->device, to, moments, values);
    memcpy(to, moments, values * sizeof *to);
    return LH_OK;
}

lh_err wk_zero_put(struct wk_zero *z, float *moments, const float *from, uint64_t values)
{
    if (z->device) atomic_fetch_add(&z->crossed, values * sizeof *from);
    if (z->device) return wk_zero_device_in(z->device, moments, from, values);
    memcpy(moments, from, values * sizeof *from);
    return LH_OK;
}

lh_err wk_zero_copy(struct wk_zero *z, float *to, const float *from, uint64_t values)
{
    if (z->device) return wk_zero_device_within(z->device, to, from, values);
    memcpy(to, from, values * sizeof *to);
    return LH_OK;
}

static LH_MUST lh_err new_moments(struct wk_zero *z, uint64_t values, float **out)
{
    if (z->device) return wk_zero_device_alloc(z->device, values, out);
    *out = lh_zeros(values + 1, sizeof **out);
    return *out ? LH_OK
                : lh_fail(LH_ERR_NO_MEMORY, "moments of %llu parameters",
                          (unsigned long long)values);
}

static void free_moments(struct wk_zero *z, float *moments)
{
    if (z->device)
        wk_zero_device_free(z->device, moments);
    else
        free(moments);
}

static LH_MUST lh_err norm_of(struct wk_zero *z)
{
    if (z->device)
        return wk_device_norm_of(z->state.device, z->squares, z->update.step, NULL, &z->norm);
    return wk_update_norm_of(z->state.params, z->squares, z->update.step, NULL, &z->norm);
}

// ---------------------------------------------------------------- who owns what

uint64_t wk_zero_buckets(const struct wk_zero *z)
{
    return (z->state.values + z->bucket - 1) / z->bucket;
}

struct wk_zero_bucket wk_zero_bucket(const struct wk_zero *z, uint64_t i, uint32_t ranks)
{
    struct wk_zero_bucket b = {.from = i * z->bucket};
    uint64_t left = z->state.values - b.from;
    b.end = b.from + (left < z->bucket ? left : z->bucket);
    b.each = whole_blocks(z, (b.end - b.from + ranks - 1) / ranks);
    return b;
}

uint64_t wk_zero_slice(const struct wk_zero_bucket *b, uint32_t place, uint64_t *from)
{
    uint64_t left;
    *from = b->from + place * b->each;
    if (*from > b->end) *from = b->end;
    left = b->end - *from;
    return left < b->each ? left : b->each;
}

uint64_t wk_zero_room(const struct wk_zero *z)
{
    return (z->bucket + WK_RANKS_MAX * z->block) * sizeof(float);
}

void wk_zero_steps(const struct wk_zero *z, uint64_t held[2])
{
    held[0] = z->held[z->now].step;
    held[1] = z->held[!z->now].step;
}

// ---------------------------------------------------------------- an epoch

static void drop(struct wk_zero *z)
{
    for (int i = 0; i < 2; i++) {
        free_moments(z, z->held[i].m);
        free_moments(z, z->held[i].v);
        z->held[i] = (struct wk_zero_moments){.step = WK_REGION_NO_STEP};
    }
    free(z->packed);
    z->packed = NULL;
    z->ranks = 0;
}

// This rank's moments after the step hold, if it has them.
static bool believe(struct wk_zero *z, uint64_t step)
{
    if (z->held[z->now].step != step) z->now = !z->now;
    return z->held[z->now].step == step;
}

// A leader that is alone: its trainer has the whole optimizer.
static LH_MUST lh_err take_over(struct wk_zero *z)
{
    const struct wk_zero_moments *own = &z->held[z->now];
    uint64_t at = 0;
    for (uint64_t i = 0; z->ranks && i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        LH_TRY(wk_zero_copy(z, z->mirror_m + from, own->m + at, n));
        LH_TRY(wk_zero_copy(z, z->mirror_v + from, own->v + at, n));
        at += n;
    }
    return LH_OK;
}

void wk_zero_cut(struct wk_zero *z, const struct wk_region_cut *cut)
{
    z->cut = *cut;
    z->unlike = false;
    if (wk_region_in(cut->holders, z->rank)) {
        bool same =
            z->ranks == wk_region_count(cut->was) && z->place == wk_region_place(cut->was, z->rank);
        z->unlike = !same || !believe(z, cut->step);
    }
    if (wk_region_count(cut->members) > 1 || z->unlike) return;
    lh_err err = cut->was ? take_over(z) : LH_OK;
    (void)err; // a device that failed fails the next step
    drop(z);
    z->whole = true;
    z->mirrored = cut->step;
}

static LH_MUST lh_err allocate(struct wk_zero *z, uint64_t values)
{
    size_t bytes = z->ranks * z->packed_each * sizeof *z->packed;
    z->packed = lh_zeros(bytes + 1, 1);
    lh_err err = z->packed ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "squares of a gradient");
    for (int i = 0; i < 2; i++) {
        if (!err) err = new_moments(z, values, &z->held[i].m);
        if (!err) err = new_moments(z, values, &z->held[i].v);
    }
    if (err) drop(z);
    return err;
}

lh_err wk_zero_deal(struct wk_zero *z)
{
    uint64_t own = 0;
    drop(z);
    z->ranks = wk_region_count(z->cut.members);
    z->place = wk_region_place(z->cut.members, z->rank);
    z->packed_each = 0;
    for (uint32_t k = 0; k < z->ranks; k++) {
        size_t pieces = 0;
        for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
            struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
            uint64_t from, n = wk_zero_slice(&b, k, &from);
            if (k == z->place) own += n;
            pieces += pieces_of(z, from, from + n);
        }
        if (pieces > z->packed_each) z->packed_each = pieces;
    }
    return allocate(z, own);
}

// ---------------------------------------------------------------- a step

void wk_zero_prepare(struct wk_zero *z, const struct wk_update *update, bool keeps)
{
    z->update = *update;
    z->keeps = keeps;
}

// All are queued, then waited for.
static LH_MUST lh_err queue_squares(struct wk_zero *z)
{
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        LH_TRY(wk_zero_device_squares(z->device, from, from + n));
    }
    return wk_zero_device_settle(z->device);
}

lh_err wk_zero_squares(struct wk_zero *z)
{
    double *to = z->packed + z->place * z->packed_each;
    if (z->device) LH_TRY(queue_squares(z));
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        to += z->device ? wk_zero_device_take(z->device, from, from + n, to)
                        : wk_update_squares(z->state.params, z->state.gradient, from, from + n, to);
    }
    return LH_OK;
}

// All pieces in the order of the parameters.
static void unpack(struct wk_zero *z)
{
    size_t done[WK_RANKS_MAX] = {0}, at = 0;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        for (uint32_t k = 0; k < z->ranks; k++) {
            uint64_t from, n = wk_zero_slice(&b, k, &from);
            size_t pieces = pieces_of(z, from, from + n);
            memcpy(z->squares + at, z->packed + k * z->packed_each + done[k],
                   pieces * sizeof *z->squares);
            done[k] += pieces;
            at += pieces;
        }
    }
}

// The values [from, end), whose moments are the `at`th of the own ones and those after it.
static LH_MUST lh_err update_slice(struct wk_zero *z, uint64_t from, uint64_t end, uint64_t at)
{
    const struct wk_zero_moments *old = &z->held[z->now];
    struct wk_zero_moments *new = &z->held[!z->now];
    if (z->device) {
        const struct lk_adamw_from of = {old->m + at, old->v + at, NULL};
        const struct lk_adamw_to to = {new->m + at, new->v + at, NULL};
        return wk_zero_device_update(z->device, &z->update, z->norm, from, end, &of, &to);
    }
    float *gradient = z->state.gradient + from;
    const struct wk_update_slice slice = {gradient,
                                          {old->m + at, old->v + at, z->state.value + from},
                                          {new->m + at, new->v + at, gradient}};
    wk_update_slice(&z->update, z->state.params, z->norm, from, end, &slice);
    return LH_OK;
}

static LH_MUST lh_err update_slices(struct wk_zero *z, const atomic_bool *stop)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        if (atomic_load(stop)) return lh_fail(LH_ERR_CANCELLED, "the communicator is aborted");
        LH_TRY(update_slice(z, from, from + n, at));
        at += n;
    }
    return LH_OK;
}

lh_err wk_zero_update(struct wk_zero *z, const atomic_bool *stop)
{
    struct wk_zero_moments *new = &z->held[!z->now];
    new->step = WK_REGION_NO_STEP;
    unpack(z);
    z->bad = norm_of(z);
    if (z->bad) return LH_OK;
    lh_err err = update_slices(z, stop);
    // However it ended, all that was queued is waited for: its arrays are used again.
    lh_err settled = z->device ? wk_zero_device_settle(z->device) : LH_OK;
    if (err || settled) return err ? err : settled;
    new->step = z->held[z->now].step + 1;
    return LH_OK;
}

static LH_MUST lh_err replace(struct wk_zero *z)
{
    if (z->device) return wk_device_replace(z->state.device, z->keeps);
    if (!z->keeps)
        memcpy(z->state.value, z->state.gradient, z->state.values * sizeof *z->state.value);
    for (uint64_t i = 0; z->keeps && i < z->state.values; i++) {
        float new = z->state.gradient[i];
        z->state.gradient[i] = z->state.value[i];
        z->state.value[i] = new;
    }
    return LH_OK;
}

lh_err wk_zero_commit(struct wk_zero *z)
{
    if (z->bad) return norm_of(z);
    LH_ASSERT(z->held[!z->now].step == z->held[z->now].step + 1);
    LH_TRY(replace(z));
    z->now = !z->now;
    z->whole = false;
    return LH_OK;
}

// ---------------------------------------------------------------- life

// The arrays are on the host or the device; the mirror is rank 0's.
static LH_MUST lh_err find_arrays(struct wk_zero *z)
{
    z->block = WK_UPDATE_BLOCK;
    z->mirror_m = z->state.m;
    z->mirror_v = z->state.v;
    if (!z->state.device) return LH_OK;
    LH_TRY(wk_zero_device_open(&z->state, &z->device));
    const struct wk_device_arrays is = wk_device_arrays(z->state.device);
    z->block = wk_zero_device_block(z->device);
    z->mirror_m = z->rank ? NULL : is.m;
    z->mirror_v = z->rank ? NULL : is.v;
    return LH_OK;
}

static LH_MUST lh_err make(struct wk_zero *z, uint64_t values)
{
    LH_TRY(find_arrays(z));
    z->whole = z->rank == 0;
    z->bucket = values < z->block ? z->block : values / z->block * z->block;
    for (int i = 0; i < 2; i++) z->held[i].step = WK_REGION_NO_STEP;
    z->squares = calloc(pieces_of(z, 0, z->state.values) + 1, sizeof *z->squares);
    z->stage = calloc(wk_zero_room(z), 1);
    return z->squares && z->stage ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer");
}

lh_err wk_zero_create(const struct wk_reduce_state *state, uint32_t rank, uint64_t values,
                      struct wk_zero **out)
{
    struct wk_zero *z = calloc(1, sizeof *z);
    *out = NULL;
    if (!z) return lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer");
    z->state = *state;
    z->rank = rank;
    lh_err err = make(z, values);
    if (err)
        wk_zero_destroy(z);
    else
        *out = z;
    return err;
}

void wk_zero_destroy(struct wk_zero *z)
{
    if (!z) return;
    drop(z);
    wk_zero_device_close(z->device);
    free(z->squares);
    free(z->stage);
    free(z);
}
