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

enum { BLOCK = WK_UPDATE_BLOCK };

static uint64_t whole_blocks(uint64_t values)
{
    return (values + BLOCK - 1) / BLOCK * BLOCK;
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
    b.each = whole_blocks((b.end - b.from + ranks - 1) / ranks);
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
    return (z->bucket + (uint64_t)WK_RANKS_MAX * BLOCK) * sizeof(float);
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
        free(z->held[i].m);
        free(z->held[i].v);
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
static void take_over(struct wk_zero *z)
{
    uint64_t at = 0;
    for (uint64_t i = 0; z->ranks && i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        memcpy(z->state.m + from, z->held[z->now].m + at, n * sizeof *z->state.m);
        memcpy(z->state.v + from, z->held[z->now].v + at, n * sizeof *z->state.v);
        at += n;
    }
    drop(z);
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
    if (cut->was) take_over(z);
    drop(z);
    z->whole = true;
    z->mirrored = cut->step;
}

static LH_MUST lh_err allocate(struct wk_zero *z, uint64_t values)
{
    size_t bytes = z->ranks * z->packed_each * sizeof *z->packed;
    z->packed = lh_zeros(bytes + 1, 1);
    bool fine = z->packed != NULL;
    for (int i = 0; i < 2; i++) {
        z->held[i].m = lh_zeros(values + 1, sizeof(float));
        z->held[i].v = lh_zeros(values + 1, sizeof(float));
        fine &= z->held[i].m && z->held[i].v;
    }
    if (fine) return LH_OK;
    drop(z);
    return lh_fail(LH_ERR_NO_MEMORY, "moments of %llu parameters", (unsigned long long)values);
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
            pieces += wk_update_squares(z->state.params, NULL, from, from + n, NULL);
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

void wk_zero_squares(struct wk_zero *z)
{
    double *to = z->packed + z->place * z->packed_each;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        to += wk_update_squares(z->state.params, z->state.gradient, from, from + n, to);
    }
}

// All pieces in the order of the parameters.
static void unpack(struct wk_zero *z)
{
    size_t done[WK_RANKS_MAX] = {0}, at = 0;
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        for (uint32_t k = 0; k < z->ranks; k++) {
            uint64_t from, n = wk_zero_slice(&b, k, &from);
            size_t pieces = wk_update_squares(z->state.params, NULL, from, from + n, NULL);
            memcpy(z->squares + at, z->packed + k * z->packed_each + done[k],
                   pieces * sizeof *z->squares);
            done[k] += pieces;
            at += pieces;
        }
    }
}

lh_err wk_zero_update(struct wk_zero *z, const atomic_bool *stop)
{
    const struct wk_zero_moments *old = &z->held[z->now];
    struct wk_zero_moments *new = &z->held[!z->now];
    float *gradient = z->state.gradient;
    uint64_t at = 0;
    new->step = WK_REGION_NO_STEP;
    unpack(z);
    z->bad = wk_update_norm_of(z->state.params, z->squares, z->update.step, NULL, &z->norm);
    for (uint64_t i = 0; !z->bad && i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        uint64_t from, n = wk_zero_slice(&b, z->place, &from);
        if (atomic_load(stop)) return lh_fail(LH_ERR_CANCELLED, "the communicator is aborted");
        const struct wk_update_slice slice = {gradient + from,
                                              {old->m + at, old->v + at, z->state.value + from},
                                              {new->m + at, new->v + at, gradient + from}};
        wk_update_slice(&z->update, z->state.params, z->norm, from, from + n, &slice);
        at += n;
    }
    if (!z->bad) new->step = old->step + 1;
    return LH_OK;
}

lh_err wk_zero_commit(struct wk_zero *z)
{
    if (z->bad)
        return wk_update_norm_of(z->state.params, z->squares, z->update.step, NULL, &z->norm);
    LH_ASSERT(z->held[!z->now].step == z->held[z->now].step + 1);
    if (!z->keeps)
        memcpy(z->state.value, z->state.gradient, z->state.values * sizeof *z->state.value);
    for (uint64_t i = 0; z->keeps && i < z->state.values; i++) {
        float new = z->state.gradient[i];
        z->state.gradient[i] = z->state.value[i];
        z->state.value[i] = new;
    }
    z->now = !z->now;
    z->whole = false;
    return LH_OK;
}

// ---------------------------------------------------------------- life

lh_err wk_zero_create(const struct wk_reduce_state *state, uint32_t rank, uint64_t values,
                      struct wk_zero **out)
{
    size_t pieces = wk_update_squares(state->params, NULL, 0, state->values, NULL);
    struct wk_zero *z = calloc(1, sizeof *z);
    *out = z;
    if (z) {
        z->state = *state;
        z->rank = rank;
        z->whole = rank == 0;
        z->bucket = values < BLOCK ? BLOCK : values / BLOCK * BLOCK;
        for (int i = 0; i < 2; i++) z->held[i].step = WK_REGION_NO_STEP;
        z->squares = calloc(pieces + 1, sizeof *z->squares);
        z->stage = calloc(wk_zero_room(z), 1);
        if (z->squares && z->stage) return LH_OK;
    }
    wk_zero_destroy(z);
    *out = NULL;
    return lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer");
}

void wk_zero_destroy(struct wk_zero *z)
{
    if (!z) return;
    drop(z);
    free(z->squares);
    free(z->stage);
    free(z);
}
