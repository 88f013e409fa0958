// A region of ranks: how each process handles time, messages and the epoch's events; and a member's
// part. See region.h.
#include "worker/ranks/region_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"

lh_err wk_region_create(const struct wk_region_conf *conf, int64_t now_ns, struct wk_region **out)
{
    LH_ASSERT(conf->ranks >= 1 && conf->ranks <= WK_RANKS_MAX && conf->rank < conf->ranks);
    LH_ASSERT(conf->life && conf->bytes_per_s > 0);
    struct wk_region *r = calloc(1, sizeof *r);
    *out = r;
    if (!r) return lh_fail(LH_ERR_NO_MEMORY, "rank %u", conf->rank);
    r->conf = *conf;
    // Successive leaders must not use the same epoch numbers.
    r->epoch = conf->rank ? 0 : conf->life << 16;
    r->bytes_per_s = conf->bytes_per_s;
    r->payload = lh_buf(WK_REGION_PAYLOAD_BYTES);
    r->out = lh_buf(WK_REGION_HEAD_BYTES + WK_REGION_PAYLOAD_BYTES);
    if (conf->rank) r->digest = conf->ops->digest(conf->arg);
    r->gather_ns = now_ns + conf->gather_ns;
    r->hello_ns = r->beat_ns = now_ns;
    wk_region_go(r, WK_REGION_WAIT, now_ns, 0);
    return LH_OK;
}

void wk_region_destroy(struct wk_region *r)
{
    if (!r) return;
    lh_buf_free(&r->payload);
    lh_buf_free(&r->out);
    free(r);
}

double wk_region_bandwidth(const struct wk_region *r)
{
    return r->bytes_per_s;
}

lh_err wk_region_want(struct wk_region *r, struct lh_span payload, bool changed)
{
    LH_ASSERT(r->conf.rank == 0 && !r->wanted);
    lh_buf_clear(&r->payload);
    lh_put(&r->payload, payload.data, payload.len);
    LH_TRY(lh_buf_err(&r->payload));
    r->step_share = changed;
    r->wanted = true;
    return LH_OK;
}

void wk_region_over(struct wk_region *r)
{
    LH_ASSERT(r->conf.rank == 0);
    struct wk_region_message m = {.kind = WK_REGION_OVER, .epoch = r->epoch};
    for (uint32_t rank = 1; rank < r->conf.ranks; rank++)
        if (r->peer[rank].life) wk_region_send(r, rank, &m);
}

// ---------------------------------------------------------------- a member

static void tell_failure(struct wk_region *r)
{
    struct wk_region_message m = {.kind = WK_REGION_FAILED,
                                  .epoch = r->epoch,
                                  .payload = lh_span(r->cause, strlen(r->cause))};
    wk_region_send(r, 0, &m);
}

static void leave(struct wk_region *r, int64_t now)
{
    r->wanted = false;
    wk_region_leave(r, now);
}

static void member_event(struct wk_region *r, enum wk_region_event event, int64_t now)
{
    struct wk_region_message m = {.kind = WK_REGION_READY, .epoch = r->epoch};
    if (event == WK_REGION_STOOD) wk_region_send(r, 0, &m);
    if (event == WK_REGION_RESTS) r->hello_ns = now;
    if (event == WK_REGION_BROKE) {
        tell_failure(r);
        leave(r, now);
    }
    if (event != WK_REGION_APPLIED) return;
    m.kind = WK_REGION_DONE;
    m.step = r->conf.ops->step(r->conf.arg);
    wk_region_send(r, 0, &m);
}

static void say_hello(struct wk_region *r, int64_t now)
{
    struct wk_region_message m = {.kind = WK_REGION_HELLO,
                                  .nccl = r->conf.comm->version(r->conf.comm_arg),
                                  .sum = r->conf.sum,
                                  .bucket_bytes = r->conf.bucket_bytes,
                                  .cuda = r->conf.cuda,
                                  .epoch = r->epoch,
                                  .step = r->conf.ops->step(r->conf.arg),
                                  .digest = r->digest};
    if (now < r->hello_ns) return;
    r->hello_ns = now + r->conf.hello_ns;
    wk_region_send(r, 0, &m);
}

static void take_epoch(struct wk_region *r, const struct wk_region_message *m, int64_t now)
{
    bool wrong = !wk_region_in(m->members, r->conf.rank) || !wk_region_in(m->members, 0) ||
                 m->epoch == r->epoch;
    if (wrong) return;
    // The HELLO was from before: tells the leader not to wait for this rank.
    if (r->phase != WK_REGION_WAIT) {
        static const char busy[] = "a rank still leaves the epoch before";
        struct wk_region_message no = {
            .kind = WK_REGION_FAILED, .epoch = m->epoch, .payload = lh_span(busy, sizeof busy - 1)};
        wk_region_send(r, 0, &no);
        return;
    }
    r->epoch = m->epoch;
    r->members = m->members;
    r->share = m->share;
    r->wanted = false;
    wk_region_begin(r, &m->id, now);
}

// The previous step may still be running here. At most one waits, because the leader's next step
// needs this rank's part of it.
static void take_step(struct wk_region *r, const struct wk_region_message *m)
{
    if (!wk_region_epoch_is(r)) return;
    lh_buf_clear(&r->payload);
    lh_put(&r->payload, m->payload.data, m->payload.len);
    r->wanted = lh_buf_err(&r->payload) == LH_OK;
    r->wanted_step = m->step;
    r->wanted_digest = m->digest;
    r->step_share = m->share;
}

static void member_receive(struct wk_region *r, const struct wk_region_message *m, int64_t now)
{
    bool another = r->peer[0].life && r->peer[0].life != m->life;
    if (another) leave(r, now);
    r->peer[0].life = m->life;
    r->peer[0].heard_ns = now;
    // The message that ended this epoch was lost with a connection.
    if (m->kind == WK_REGION_BEAT && m->epoch != r->epoch) leave(r, now);
    if (m->kind == WK_REGION_EPOCH) take_epoch(r, m, now);
    if (m->kind == WK_REGION_STEP && m->epoch == r->epoch) take_step(r, m);
    bool mine = m->epoch == r->epoch && !LH_BUG("region_deaf_to_abort");
    if (m->kind == WK_REGION_ABORT && mine) leave(r, now);
    if (m->kind == WK_REGION_OVER) wk_region_end(r, LH_OK, "the run is over");
    if (m->kind != WK_REGION_REFUSED) return;
    char text[WK_REGION_TEXT_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)(m->payload.len < 200 ? m->payload.len : 200),
             (const char *)m->payload.data);
    wk_region_end(r, LH_ERR_CONFIG, text);
}

// True: the step may begin; otherwise the cause says why not.
static bool may_step(struct wk_region *r)
{
    uint64_t step = r->conf.ops->step(r->conf.arg);
    bool same = r->wanted_step == step;
    if (!same)
        wk_region_cause(r, "rank %u holds %llu steps, and shall train step %llu", r->conf.rank,
                        (unsigned long long)step, (unsigned long long)r->wanted_step);
    bool equal = r->step_share || LH_BUG("region_any_parameters") ||
                 r->conf.ops->parameters(r->conf.arg) == r->wanted_digest;
    if (same && !equal)
        wk_region_cause(r, "rank %u: its parameters at step %llu are not the leader's",
                        r->conf.rank, (unsigned long long)step);
    return same && equal;
}

static void member_tick(struct wk_region *r, int64_t now)
{
    struct wk_region_peer *leader = &r->peer[0];
    if (leader->life && now - leader->heard_ns > r->conf.silence_ns) {
        leader->life = 0;
        leave(r, now);
    }
    if (r->phase == WK_REGION_WAIT) say_hello(r, now);
    if (r->phase != WK_REGION_STANDS || !r->wanted) return;
    r->wanted = false;
    if (may_step(r)) {
        wk_region_step(r, now);
        return;
    }
    tell_failure(r);
    leave(r, now);
}

// ---------------------------------------------------------------- both

static void beat(struct wk_region *r, int64_t now)
{
    struct wk_region_message m = {.kind = WK_REGION_BEAT, .epoch = r->epoch};
    if (now < r->beat_ns) return;
    r->beat_ns = now + r->conf.beat_ns;
    if (r->conf.rank) wk_region_send(r, 0, &m);
    for (uint32_t rank = 1; !r->conf.rank && rank < r->conf.ranks; rank++)
        if (r->peer[rank].life) wk_region_send(r, rank, &m);
}

void wk_region_tick(struct wk_region *r, int64_t now_ns)
{
    if (r->phase == WK_REGION_END) return;
    beat(r, now_ns);
    enum wk_region_event event = wk_region_look(r, now_ns);
    if (r->phase == WK_REGION_END) return;
    if (r->conf.rank) {
        member_event(r, event, now_ns);
        member_tick(r, now_ns);
    } else {
        wk_leader_event(r, event, now_ns);
        if (r->phase != WK_REGION_END) wk_leader_tick(r, now_ns);
    }
}

lh_err wk_region_receive(struct wk_region *r, uint32_t from, struct lh_span bytes, int64_t now_ns)
{
    struct wk_region_message m;
    LH_TRY(wk_region_message_get(bytes, &m));
    bool theirs = m.rank == from && (r->conf.rank ? from == 0 : from > 0 && from < r->conf.ranks);
    bool leaders = m.kind == WK_REGION_EPOCH || m.kind == WK_REGION_STEP ||
                   m.kind == WK_REGION_ABORT || m.kind == WK_REGION_REFUSED ||
                   m.kind == WK_REGION_OVER;
    if (!theirs || (m.kind != WK_REGION_BEAT && leaders != (from == 0)))
        return lh_fail(LH_ERR_PROTOCOL, "rank %u says what it may not say", from);
    if (r->phase == WK_REGION_END) return LH_OK;
    if (r->conf.rank)
        member_receive(r, &m, now_ns);
    else
        wk_leader_receive(r, &m, now_ns);
    return LH_OK;
}

void wk_region_lost(struct wk_region *r, uint32_t rank, int64_t now_ns)
{
    if (r->phase == WK_REGION_END) return;
    if (!r->conf.rank) {
        wk_leader_give_up(r, rank, "is gone", now_ns);
        return;
    }
    r->peer[0].life = 0;
    leave(r, now_ns);
}
