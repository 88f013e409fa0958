// Rank 0's part of a region: it tracks the ranks, begins and ends epochs, and hands out and counts
// steps. See region.h.
//
// Invariants: 1. An epoch begins only with ranks that sent HELLO after their abort of the previous
// one.
// 2. A step is handed out when the communicator is ready on all members. 3. A rank that was given
// up is ignored until its next HELLO.
#include "worker/ranks/region_core.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"

static void say(struct wk_region *r, uint64_t to, struct wk_region_message m)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (wk_region_in(to, rank) && r->peer[rank].life) wk_region_send(r, rank, &m);
}

static void begin_gathering(struct wk_region *r, int64_t now)
{
    r->gather_ns = now + r->conf.gather_ns;
}

// Ends the epoch and tells the members.
static void end_epoch(struct wk_region *r, int64_t now)
{
    if (!wk_region_epoch_is(r)) return;
    say(r, r->members, (struct wk_region_message){.kind = WK_REGION_ABORT, .epoch = r->epoch});
    wk_region_leave(r, now);
}

static void fail_epoch(struct wk_region *r, int64_t now)
{
    char text[WK_REGION_TEXT_BYTES + 128];
    if (!wk_region_epoch_is(r)) return;
    end_epoch(r, now);
    r->conf.ops->failed(r->conf.arg, r->cause);
    if (LH_BUG("region_step_lost")) r->wanted = false;
    if (++r->failures < WK_REGION_TRIES || LH_BUG("region_tries_for_ever")) return;
    snprintf(text, sizeof text, "%u communicators in a row completed no step; the last: %s",
             r->failures, r->cause);
    wk_region_end(r, LH_ERR_UNAVAILABLE, text);
}

// ---------------------------------------------------------------- an epoch begins

static bool all_wait(const struct wk_region *r)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (!r->peer[rank].waits) return false;
    return true;
}

// Begins an epoch. A step is wanted, so the state is unused and may be read.
static void begin_epoch(struct wk_region *r, int64_t now)
{
    r->digest = r->conf.ops->digest(r->conf.arg);
    struct wk_region_message m = {.kind = WK_REGION_EPOCH,
                                  .nccl = r->conf.comm->version(r->conf.comm_arg),
                                  .epoch = ++r->epoch,
                                  .step = r->conf.ops->step(r->conf.arg),
                                  .digest = r->digest,
                                  .members = 1};
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++) {
        struct wk_region_peer *p = &r->peer[rank];
        if (!p->waits) continue;
        m.members |= UINT64_C(1) << rank;
        m.share |= p->step != m.step || p->digest != m.digest;
        p->waits = p->stands = false;
        p->done = m.step;
    }
    r->members = m.members;
    if (LH_BUG("region_no_share")) m.share = false;
    r->share = m.share;
    r->step_share = false; // a ready communicator means that all hold the leader's state
    r->epochs++;
    lh_err err = m.members == 1 ? LH_OK : r->conf.comm->unique_id(r->conf.comm_arg, &m.id);
    if (err) {
        wk_region_end(r, err, lh_err_text(err));
        return;
    }
    say(r, m.members, m);
    wk_region_begin(r, &m.id, now);
}

// ---------------------------------------------------------------- steps

static bool all_stand(const struct wk_region *r)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (wk_region_in(r->members, rank) && !r->peer[rank].stands) return false;
    return true;
}

static bool somebody_waits(const struct wk_region *r)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (r->peer[rank].waits) return true;
    return false;
}

// True: every member has done the leader's step.
static bool all_done(const struct wk_region *r, uint64_t step)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (wk_region_in(r->members, rank) && r->peer[rank].done != step) return false;
    return true;
}

static void next_step(struct wk_region *r, int64_t now)
{
    uint64_t step = r->conf.ops->step(r->conf.arg);
    if (!all_stand(r)) {
        // This rank's communicator is ready; the others get the same time.
        if (now < r->since_ns + r->conf.init_ns) return;
        wk_region_cause(r, "a rank's communicator does not stand after %lld s",
                        (long long)(r->conf.init_ns / LH_SECOND));
        fail_epoch(r, now);
        return;
    }
    if (somebody_waits(r)) { // a new communicator between two steps admits it
        bool late = now >= r->since_ns + r->conf.op_ns;
        if (all_done(r, step) || late) end_epoch(r, now);
        return;
    }
    if (!r->wanted) return;
    say(r, r->members,
        (struct wk_region_message){.kind = WK_REGION_STEP,
                                   .epoch = r->epoch,
                                   .step = step,
                                   .digest = r->conf.ops->parameters(r->conf.arg),
                                   .share = r->step_share,
                                   .payload = lh_buf_span(&r->payload)});
    wk_region_step(r, now);
}

void wk_leader_event(struct wk_region *r, enum wk_region_event event, int64_t now)
{
    if (event == WK_REGION_BROKE) fail_epoch(r, now);
    if (event == WK_REGION_RESTS) begin_gathering(r, now);
    if (event != WK_REGION_APPLIED) return;
    r->failures = 0;
    r->step_share = false;
    r->wanted = LH_BUG("region_step_again") && r->epochs % 2;
    r->conf.ops->stepped(r->conf.arg);
}

// ---------------------------------------------------------------- who is there

void wk_leader_give_up(struct wk_region *r, uint32_t rank, const char *how, int64_t now)
{
    struct wk_region_peer *p = &r->peer[rank];
    bool in = p->life && wk_region_epoch_is(r) && wk_region_in(r->members, rank) && !p->waits;
    *p = (struct wk_region_peer){.life = 0};
    if (!in) return;
    wk_region_cause(r, "rank %u %s", rank, how);
    fail_epoch(r, now);
}

void wk_leader_tick(struct wk_region *r, int64_t now)
{
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (r->peer[rank].life && now - r->peer[rank].heard_ns > r->conf.silence_ns &&
            !LH_BUG("region_no_silence"))
            wk_leader_give_up(r, rank, "is silent", now);
    bool may = all_wait(r) || now >= r->gather_ns;
    if (r->phase == WK_REGION_WAIT && r->wanted && may) begin_epoch(r, now);
    if (r->phase == WK_REGION_STANDS) next_step(r, now);
}

// True: the rank can't take part and was told why.
static bool refuse(struct wk_region *r, const struct wk_region_message *m)
{
    static const char *const on[] = {"cpu", "cuda"};
    char text[WK_REGION_TEXT_BYTES], has[32], leader[32], buckets[2][24];
    uint32_t mine = r->conf.comm->version(r->conf.comm_arg);
    bool version = m->nccl != mine && !LH_BUG("region_any_version");
    bool sum = m->sum != r->conf.sum && !LH_BUG("region_any_sum");
    bool bucket = m->bucket_bytes != r->conf.bucket_bytes && !LH_BUG("region_any_bucket");
    bool backend = m->cuda != r->conf.cuda && !LH_BUG("region_any_backend");
    if (!version && !sum && !bucket && !backend) return false;
    snprintf(buckets[0], sizeof buckets[0], "%llu", (unsigned long long)m->bucket_bytes);
    snprintf(buckets[1], sizeof buckets[1], "%llu", (unsigned long long)r->conf.bucket_bytes);
    const char *what = version  ? "NCCL"
                       : sum    ? "ranks.wire"
                       : bucket ? "bucket_bytes"
                                : "trainer.backend";
    const char *theirs = version  ? wk_nccl_version_text((int)m->nccl, has)
                         : sum    ? wk_sum_word(m->sum)
                         : bucket ? buckets[0]
                                  : on[m->cuda];
    const char *ours = version  ? wk_nccl_version_text((int)mine, leader)
                       : sum    ? wk_sum_word(r->conf.sum)
                       : bucket ? buckets[1]
                                : on[r->conf.cuda];
    int n = snprintf(text, sizeof text,
                     "rank %u has %s %s, the leader %s: give all ranks of a region the same",
                     m->rank, what, theirs, ours);
    struct wk_region_message no = {.kind = WK_REGION_REFUSED, .payload = lh_span(text, (size_t)n)};
    wk_region_send(r, m->rank, &no);
    return true;
}

static void hello(struct wk_region *r, const struct wk_region_message *m, int64_t now)
{
    struct wk_region_peer *p = &r->peer[m->rank];
    if (p->life && p->life != m->life) return; // its previous process was not given up yet
    if (refuse(r, m)) return;
    // Ignores a HELLO that was in flight when its sender joined the epoch.
    bool in = p->life && r->epoch && wk_region_in(r->members, m->rank);
    if (in && m->epoch != r->epoch) return;
    bool left = in && wk_region_epoch_is(r) && !p->waits;
    p->life = m->life;
    p->heard_ns = now;
    p->step = m->step;
    p->digest = m->digest;
    p->waits = true;
    if (!left) return;
    wk_region_cause(r, "rank %u left the epoch", m->rank);
    fail_epoch(r, now);
}

void wk_leader_receive(struct wk_region *r, const struct wk_region_message *m, int64_t now)
{
    struct wk_region_peer *p = &r->peer[m->rank];
    if (m->kind == WK_REGION_HELLO) {
        hello(r, m, now);
        return;
    }
    if (!p->life || p->life != m->life) return;
    p->heard_ns = now;
    if (m->epoch != r->epoch || !wk_region_epoch_is(r)) return;
    if (m->kind == WK_REGION_READY) p->stands = true;
    if (m->kind == WK_REGION_DONE) p->done = m->step;
    if (m->kind != WK_REGION_FAILED || LH_BUG("region_deaf_to_failed")) return;
    wk_region_cause(r, "%.*s", (int)(m->payload.len < 200 ? m->payload.len : 200),
                    (const char *)m->payload.data);
    fail_epoch(r, now);
}
