// Reduce among peers, the leader. See reduce_peers.h.
#include "worker/ranks/reduce_peers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/ranks/peers_step.h"
#include "worker/train/device.h"

struct leader {
    struct wk_reduce base; // first
    struct wk_reduce_peers_conf conf;
    struct wk_reduce_state state;
    struct wk_peers *peers; // NULL: not bound yet
    lh_err err;             // set when this process has left the region; with its text
    char text[WK_PEERS_TEXT_BYTES];
    uint64_t seen;          // the members last seen by watch()
    _Atomic uint64_t after; // digest of the parameters after the last step; 0: no step yet
    uint32_t parts, sequences;
    bool dealt; // a part waits to be computed
    struct lh_buf payload;
};

static struct leader *leader_of(struct wk_reduce *r)
{
    return (struct leader *)r;
}

static lh_err bind(struct wk_reduce *r, const struct wk_reduce_state *state)
{
    struct leader *l = leader_of(r);
    struct wk_peers_conf conf = l->conf.peers;
    l->state = conf.state = *state;
    l->conf.peers.comm = NULL; // the peers own it now
    return wk_peers_start(&conf, &l->peers);
}

static uint64_t digest(const struct leader *l)
{
    return wk_peers_digest_of(&l->state);
}

// Waits for the region's next event: the own part of the step, its end, or the region's end.
static enum wk_peers_what hear(struct leader *l, struct wk_part *own)
{
    struct wk_peers_task task;
    *own = (struct wk_part){0};
    if (l->err) return WK_PEERS_ENDED;
    enum wk_peers_what is = wk_peers_wait(l->peers, &task);
    if (is == WK_PEERS_COMPUTE) {
        l->parts = task.parts;
        l->dealt = true;
        *own = wk_reduce_part(l->sequences, task.part, task.parts);
    }
    if (is != WK_PEERS_ENDED) return is;
    l->err = task.err ? task.err : LH_ERR_CANCELLED;
    snprintf(l->text, sizeof l->text, "%s", task.text);
    return is;
}

static void deal(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own)
{
    struct leader *l = leader_of(r);
    l->sequences = step->sequences;
    memset(wk_reduce_figures(&l->state), 0, WK_FIGURES * sizeof(float));
    lh_buf_clear(&l->payload);
    wk_peers_step_put(&l->payload, &l->conf.manifest, step);
    if (!l->err) l->err = lh_buf_err(&l->payload);
    if (!l->err)
        wk_peers_want(l->peers, step->update->step - 1, lh_buf_span(&l->payload),
                      digest(l) != atomic_load(&l->after));
    (void)hear(l, own); // gather() reports an end
}

static lh_err gather(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                     struct wk_part *missing)
{
    struct leader *l = leader_of(r);
    (void)gradient;
    if (l->dealt && l->state.device) fine = fine && !wk_device_settle(l->state.device);
    if (l->dealt) wk_peers_computed(l->peers, fine);
    l->dealt = false;
    enum wk_peers_what is = hear(l, missing);
    if (is == WK_PEERS_ENDED) return lh_fail(l->err, "%s", l->text);
    if (is == WK_PEERS_STEPPED) {
        wk_figures_get(wk_reduce_figures(&l->state), l->parts, sum);
        return LH_OK;
    }
    // The communicator broke: the step restarts with the remaining ranks.
    *sum = (struct wk_gathered){.fresh = true};
    return wk_reduce_clear(&l->state);
}

static void final(struct wk_reduce *r, uint64_t from)
{
    struct leader *l = leader_of(r);
    if (l->dealt) wk_peers_final(l->peers, from);
}

static void applied(struct wk_reduce *r)
{
    struct leader *l = leader_of(r);
    atomic_store(&l->after, digest(l));
}

static uint32_t watch(struct wk_reduce *r, struct lh_log *log)
{
    struct leader *l = leader_of(r);
    struct wk_peers_status is = {.members = 1};
    if (l->peers) wk_peers_status(l->peers, &is);
    uint64_t members = is.members | 1, seen = l->seen | 1;
    for (uint32_t rank = 1; rank < l->conf.peers.ranks; rank++) {
        bool was = seen >> rank & 1, here = members >> rank & 1;
        if (was && !here) lh_logf(log, LH_WARN, "rank.lost", "rank %u; the others go on", rank);
        if (here && !was) lh_logf(log, LH_INFO, "rank.joined", "rank %u", rank);
    }
    l->seen = members;
    return (uint32_t)__builtin_popcountll(members);
}

static void leave(struct wk_reduce *r)
{
    if (leader_of(r)->peers) wk_peers_leave(leader_of(r)->peers);
}

static bool close_leader(struct wk_reduce *r, bool done)
{
    struct leader *l = leader_of(r);
    bool gone = wk_peers_stop(l->peers, done);
    wk_comm_destroy(l->conf.peers.comm); // still set if bind() was never called
    lh_buf_free(&l->payload);
    free(l);
    return gone;
}

void wk_reduce_peers_status(struct wk_reduce *r, struct wk_peers_status *out)
{
    *out = (struct wk_peers_status){.members = 1};
    if (leader_of(r)->peers) wk_peers_status(leader_of(r)->peers, out);
    out->digest = atomic_load(&leader_of(r)->after);
}

lh_err wk_reduce_peers_create(const struct wk_reduce_peers_conf *conf, struct wk_reduce **out)
{
    static const struct wk_reduce_ops ops = {NULL,    bind,  deal,  gather,      final,
                                             applied, watch, leave, close_leader};
    struct leader *l = calloc(1, sizeof *l);
    if (!l) {
        wk_comm_destroy(conf->peers.comm);
        return lh_fail(LH_ERR_NO_MEMORY, "ranks");
    }
    LH_ASSERT(conf->peers.rank == 0 && conf->peers.ranks > 1);
    l->base.ops = &ops;
    l->conf = *conf;
    l->payload = lh_buf(WK_REGION_PAYLOAD_BYTES);
    *out = &l->base;
    return LH_OK;
}
