// Moments and parameters of a sharded optimizer on their way. See comm_zero.h.
//
// Invariant: the moments that a rank holds are given up only when all that are left are in the
// mirror: rank 0 gives the parameters after that, and a rank waits for them first.
#include "worker/ranks/comm/comm_zero.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/ranks/comm/comm_host.h"

// Each rank gives `values` floats of the stage, the own ones at its place, and gets all.
static LH_MUST lh_err gather_stage(struct wk_comm *c, uint64_t values)
{
    size_t each = values * sizeof(float);
    return c->ops->gather(c, c->arrays.zero->stage, c->ranks * each, each, true);
}

// ---------------------------------------------------------------- where moments pass

// Moments of a device pass by the communicator's own memory there, or by the host's stage.
struct way {
    bool there;
    float *stage;
};

static struct way way_of(struct wk_comm *c)
{
    struct wk_zero *z = c->arrays.zero;
    bool there = z->device && c->ops->room_there;
    return (struct way){there, there ? c->ops->room_there(c) : z->stage};
}

static LH_MUST lh_err to_stage(struct wk_zero *z, const struct way *w, float *to,
                               const float *moments, uint64_t values)
{
    return w->there ? wk_zero_copy(z, to, moments, values) : wk_zero_get(z, to, moments, values);
}

static LH_MUST lh_err from_stage(struct wk_zero *z, const struct way *w, float *moments,
                                 const float *from, uint64_t values)
{
    return w->there ? wk_zero_copy(z, moments, from, values)
                    : wk_zero_put(z, moments, from, values);
}

// ---------------------------------------------------------------- to the mirror

// Values [at, at + n) of each slice of a bucket that is cut among `was`.
struct lot {
    struct wk_zero_bucket b;
    uint64_t at, n;
};

// Values of a place's slice that are in the lot.
static uint64_t part_of(const struct lot *l, uint32_t place, uint64_t *from)
{
    uint64_t have = wk_zero_slice(&l->b, place, from);
    *from += l->at;
    return have <= l->at ? 0 : have - l->at < l->n ? have - l->at : l->n;
}

// `own`: the own slice's moments, NULL: they are not given. `mirror`: NULL but at rank 0.
static LH_MUST lh_err collect_lot(struct wk_comm *c, const struct lot *l, const float *own,
                                  float *mirror)
{
    struct wk_zero *z = c->arrays.zero;
    const struct way w = way_of(c);
    uint64_t from, n = own ? part_of(l, z->place, &from) : 0;
    size_t each = l->n * sizeof *own;
    if (n) LH_TRY(to_stage(z, &w, w.stage + c->rank * l->n, own + l->at, n));
    LH_TRY(w.there ? c->ops->gather_there(c, w.stage, c->ranks * each, each, true)
                   : gather_stage(c, l->n));
    for (uint32_t rank = 0; mirror && rank < WK_RANKS_MAX; rank++) {
        if (!wk_region_in(z->cut.was & z->cut.holders, rank)) continue;
        const float *has = w.stage + wk_region_place(z->cut.members, rank) * l->n;
        n = part_of(l, wk_region_place(z->cut.was, rank), &from);
        LH_TRY(from_stage(z, &w, mirror + from, has, n));
    }
    return LH_OK;
}

// The moments of all who hold them, by the cut.
static LH_MUST lh_err collect(struct wk_comm *c)
{
    struct wk_zero *z = c->arrays.zero;
    uint64_t most = wk_zero_room(z) / sizeof(float) / c->ranks, own = 0;
    bool gives = wk_region_in(z->cut.holders, z->rank);
    const struct wk_zero_moments *held = &z->held[z->now];
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct lot l = {wk_zero_bucket(z, i, wk_region_count(z->cut.was)), 0, 0};
        uint64_t from;
        for (; l.at < l.b.each; l.at += l.n) {
            l.n = l.b.each - l.at < most ? l.b.each - l.at : most;
            LH_TRY(collect_lot(c, &l, gives ? held->m + own : NULL, z->mirror_m));
            LH_TRY(collect_lot(c, &l, gives ? held->v + own : NULL, z->mirror_v));
        }
        if (gives) own += wk_zero_slice(&l.b, z->place, &from);
    }
    z->mirrored = z->cut.step;
    return LH_OK;
}

// ---------------------------------------------------------------- from the mirror

static LH_MUST lh_err spread_bucket(struct wk_comm *c, uint64_t i, uint64_t own)
{
    struct wk_zero *z = c->arrays.zero;
    struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
    const struct way w = way_of(c);
    float *mirror[] = {z->mirror_m, z->mirror_v}, *to[] = {z->held[0].m, z->held[0].v};
    uint64_t from, n = wk_zero_slice(&b, z->place, &from);
    for (int k = 0; k < 2; k++) {
        float *has = mirror[k] ? mirror[k] + b.from : NULL;
        bool crosses = has && z->device && !w.there;
        float *all = has && !crosses ? has : w.stage;
        struct wk_comm_part part = {all, (b.end - b.from) * sizeof *all};
        if (crosses) LH_TRY(wk_zero_get(z, all, has, b.end - b.from));
        LH_TRY(w.there ? c->ops->share_there(c, &part) : c->ops->share(c, &part, 1));
        LH_TRY(from_stage(z, &w, to[k] + own, all + (from - b.from), n));
    }
    return LH_OK;
}

lh_err wk_comm_zero_share(struct wk_comm *c)
{
    struct wk_zero *z = c->arrays.zero;
    uint64_t own = 0, from;
    bool same = z->cut.was == z->cut.members && z->cut.holders == z->cut.members;
    if (z->unlike)
        return lh_fail(LH_ERR_PROTOCOL, "this rank has no moments as the leader believes it has");
    if (same) return wk_comm_share_parts(c, c->arrays.parts); // all keep what they hold
    if (z->cut.was) LH_TRY(collect(c));
    z->whole = true;
    z->mirrored = z->cut.step;
    LH_TRY(wk_comm_share_parts(c, c->arrays.parts));
    LH_TRY(wk_zero_deal(z));
    for (uint64_t i = 0; i < wk_zero_buckets(z); i++) {
        struct wk_zero_bucket b = wk_zero_bucket(z, i, z->ranks);
        LH_TRY(spread_bucket(c, i, own));
        own += wk_zero_slice(&b, z->place, &from);
    }
    z->now = 0;
    z->held[0].step = z->cut.step;
    return LH_OK;
}

// ---------------------------------------------------------------- a step

// All owners' squares to all, in lots.
static LH_MUST lh_err gather_squares(struct wk_comm *c)
{
    struct wk_zero *z = c->arrays.zero;
    double *stage = (double *)(void *)z->stage;
    size_t most = wk_zero_room(z) / sizeof *stage / c->ranks, each = z->packed_each;
    for (size_t at = 0; at < each; at += most) {
        size_t n = each - at < most ? each - at : most;
        memcpy(stage + c->rank * n, z->packed + c->rank * each + at, n * sizeof *stage);
        LH_TRY(gather_stage(c, n * sizeof *stage / sizeof(float)));
        for (uint32_t k = 0; k < c->ranks; k++)
            memcpy(z->packed + k * each + at, stage + k * n, n * sizeof *stage);
    }
    return LH_OK;
}

// A device's by way of the host, where the communicator takes the host's memory alone.
static LH_MUST lh_err gather_bucket(struct wk_comm *c, const struct wk_zero_bucket *b, bool last)
{
    const struct wk_comm_arrays *a = &c->arrays;
    size_t bytes = (b->end - b->from) * sizeof *a->sum, each = b->each * sizeof *a->sum;
    float *at = a->sum + b->from, *here;
    if (!a->device) return c->ops->gather(c, at, bytes, each, last);
    if (c->ops->gather_there) return c->ops->gather_there(c, at, bytes, each, last);
    uint64_t from, n = wk_zero_slice(b, a->zero->place, &from);
    LH_TRY(wk_comm_host_fetch(c, from, n, &here));
    return c->ops->gather(c, here - (from - b->from), bytes, each, last);
}

static LH_MUST lh_err gather_parameters(struct wk_comm *c)
{
    const struct wk_comm_arrays *a = &c->arrays;
    uint64_t buckets = wk_zero_buckets(a->zero);
    for (uint64_t i = 0; i < buckets; i++) {
        struct wk_zero_bucket b = wk_zero_bucket(a->zero, i, a->zero->ranks);
        LH_TRY(gather_bucket(c, &b, i + 1 == buckets));
    }
    bool crossed = a->device && !c->ops->gather_there;
    return crossed ? wk_comm_host_return(c, 0, a->sums - a->behind) : LH_OK;
}

lh_err wk_comm_zero_step(struct wk_comm *c)
{
    struct wk_zero *z = c->arrays.zero;
    LH_ASSERT(z->ranks == c->ranks && z->place == c->rank);
    uint64_t before = z->update.step - 1;
    if (before % WK_ZERO_COLLECT_STEPS == 0 && before != z->mirrored) {
        z->cut = (struct wk_region_cut){before, z->cut.members, z->cut.members, z->cut.members};
        LH_TRY(collect(c));
    }
    LH_TRY(wk_zero_squares(z));
    LH_TRY(gather_squares(c));
    LH_TRY(wk_zero_update(z, &c->stop));
    return z->bad ? LH_OK : gather_parameters(c);
}
