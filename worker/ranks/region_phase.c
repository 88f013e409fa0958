// One process's path through an epoch: the phases, their deadlines, the abort. See region.h.
//
// Invariants: 1. `comm` is set from init() until aborted(). 2. `computing` is set from compute()
// until computed() is no longer BUSY. 3. Neither is set on entering WAIT. 4. `given` only grows
// within a step; it is the result of final(), or all values.
#include "worker/ranks/region_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"

void wk_region_go(struct wk_region *r, enum wk_region_phase phase, int64_t now, int64_t within)
{
    r->phase = phase;
    r->since_ns = now;
    r->deadline_ns = within ? now + within : 0;
}

void wk_region_send(struct wk_region *r, uint32_t to, struct wk_region_message *m)
{
    m->rank = r->conf.rank;
    m->life = r->conf.life;
    lh_buf_clear(&r->out);
    wk_region_message_put(&r->out, m);
    if (lh_buf_err(&r->out)) return; // as if it were lost: the deadlines still hold
    r->conf.ops->send(r->conf.arg, to, lh_buf_span(&r->out));
}

void wk_region_end(struct wk_region *r, lh_err err, const char *text)
{
    if (r->phase == WK_REGION_END) return;
    wk_region_go(r, WK_REGION_END, 0, 0);
    r->conf.ops->ended(r->conf.arg, err, text);
}

void wk_region_cause(struct wk_region *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(r->cause, sizeof r->cause, format, list);
    va_end(list);
}

static int64_t op_ns(const struct wk_region *r, uint64_t bytes)
{
    return r->conf.op_ns +
           (int64_t)(r->conf.op_factor * (double)bytes / r->bytes_per_s * (double)LH_SECOND);
}

void wk_region_begin(struct wk_region *r, const struct wk_nccl_id *id, int64_t now)
{
    LH_ASSERT(r->phase == WK_REGION_WAIT && !r->comm && !r->computing);
    wk_region_go(r, WK_REGION_INIT, now, r->conf.init_ns);
    if (wk_region_count(r->members) == 1) return; // look() finds it ready
    r->comm = true;
    r->conf.comm->init(r->conf.comm_arg, id, wk_region_count(r->members),
                       wk_region_place(r->members, r->conf.rank));
}

static void compute(struct wk_region *r, int64_t now)
{
    LH_ASSERT(!r->computing);
    r->computing = true;
    if (!LH_BUG("region_given_kept")) r->given = 0;
    // A single rank keeps no other waiting.
    wk_region_go(r, WK_REGION_COMPUTE, now, r->comm ? r->conf.compute_ns : 0);
    r->conf.ops->compute(r->conf.arg, r->conf.ops->step(r->conf.arg),
                         wk_region_place(r->members, r->conf.rank), wk_region_count(r->members),
                         lh_buf_span(&r->payload));
}

void wk_region_step(struct wk_region *r, int64_t now)
{
    LH_ASSERT(r->phase == WK_REGION_STANDS);
    if (!r->step_share || !r->comm) {
        compute(r, now);
        return;
    }
    r->stepping = true;
    wk_region_go(r, WK_REGION_SHARE, now, op_ns(r, r->conf.share_bytes));
    r->conf.comm->share(r->conf.comm_arg, WK_REGION_SHARE_PARAMETERS);
}

void wk_region_leave(struct wk_region *r, int64_t now)
{
    if (!wk_region_epoch_is(r)) return;
    wk_region_go(r, WK_REGION_ABORTS, now, r->conf.abort_ns);
    if (r->comm) r->conf.comm->abort(r->conf.comm_arg);
    r->conf.ops->changed(r->conf.arg, 0);
}

// ---------------------------------------------------------------- looking

static enum wk_region_event broke(struct wk_region *r, const char *what)
{
    const char *why = r->comm ? r->conf.comm->why(r->conf.comm_arg) : "";
    wk_region_cause(r, "rank %u: %s%s%s", r->conf.rank, what, *why ? ": " : "", why);
    return WK_REGION_BROKE;
}

// True: the collective failed, and *event reports it. The caller handles OK.
static bool failed(struct wk_region *r, enum wk_region_progress is, const char *what,
                   enum wk_region_event *event)
{
    if (is == WK_REGION_BUSY || is == WK_REGION_OK) return false;
    *event = broke(r, what);
    if (is == WK_REGION_STICKY) {
        wk_region_end(r, LH_ERR_IO, r->cause);
        *event = WK_REGION_NOTHING;
    }
    return true;
}

static enum wk_region_event stood(struct wk_region *r, int64_t now)
{
    wk_region_go(r, WK_REGION_STANDS, now, 0);
    r->conf.ops->changed(r->conf.arg, r->members);
    return WK_REGION_STOOD;
}

static enum wk_region_event look_share(struct wk_region *r, int64_t now)
{
    if (!r->stepping) return stood(r, now);
    compute(r, now);
    return WK_REGION_NOTHING;
}

static enum wk_region_event look_init(struct wk_region *r, enum wk_region_progress is, int64_t now)
{
    if (is == WK_REGION_BUSY) return WK_REGION_NOTHING;
    if (!r->share || !r->comm) return stood(r, now);
    wk_region_go(r, WK_REGION_SHARE, now, op_ns(r, r->conf.share_bytes));
    r->stepping = false;
    r->conf.comm->share(r->conf.comm_arg, WK_REGION_SHARE_ALL);
    return WK_REGION_NOTHING;
}

static enum wk_region_event apply(struct wk_region *r, int64_t now)
{
    lh_err err = r->conf.ops->apply(r->conf.arg);
    if (err) {
        wk_region_end(r, err, lh_err_text(err));
        return WK_REGION_NOTHING;
    }
    wk_region_go(r, WK_REGION_STANDS, now, 0);
    return WK_REGION_APPLIED;
}

// Gives final values to the sum.
static void give(struct wk_region *r, uint64_t final, int64_t now)
{
    if (!r->comm || final <= r->given) return;
    if (!r->given) r->given_ns = now;
    r->given = final;
    r->conf.comm->reduce(r->conf.comm_arg, final);
}

// True: the computed gradient may be used.
static bool look_computed(struct wk_region *r)
{
    enum wk_region_progress is = r->conf.ops->computed(r->conf.arg);
    if (is == WK_REGION_BUSY) return false;
    r->computing = false;
    r->wrong_step |= is != WK_REGION_OK;
    return is == WK_REGION_OK;
}

static enum wk_region_event look_compute(struct wk_region *r, int64_t now)
{
    bool may = look_computed(r);
    if (r->wrong_step) {
        wk_region_end(r, LH_ERR_NON_FINITE, "a rank's gradient could not be computed");
        return WK_REGION_NOTHING;
    }
    if (!may) {
        bool early = LH_BUG("region_bucket_early");
        give(r, early ? UINT64_MAX : r->conf.ops->final(r->conf.arg), now);
        return WK_REGION_NOTHING;
    }
    if (!r->comm || LH_BUG("region_own_gradient")) return apply(r, now);
    // The others may compute for as long as this rank was allowed to.
    wk_region_go(r, WK_REGION_REDUCE, now, r->conf.compute_ns + op_ns(r, r->conf.reduce_bytes));
    r->rest_bytes = r->conf.reduce_bytes - r->given * wk_sum_bytes(r->conf.sum);
    give(r, UINT64_MAX, now);
    return WK_REGION_NOTHING;
}

static double rate(uint64_t bytes, int64_t ns)
{
    return ns > 0 ? (double)bytes / ((double)ns / (double)LH_SECOND) : 0;
}

// Measures the bandwidth by the better of two lower bounds: all bytes since the first were given,
// and the remaining bytes since the computation ended. The first alone would count a long backward
// pass as a slow network, and hangs would be waited for 20 times as long. The figure rises at once
// and falls smoothly.
static void measure(struct wk_region *r, int64_t now)
{
    double all = rate(r->conf.reduce_bytes, now - r->given_ns);
    double rest = rate(r->rest_bytes, now - r->since_ns), is = all > rest ? all : rest;
    if (is <= 0) return;
    r->bytes_per_s = is > r->bytes_per_s ? is : 0.95 * r->bytes_per_s + 0.05 * is;
}

static enum wk_region_event look_aborts(struct wk_region *r, int64_t now)
{
    if (r->computing) (void)look_computed(r);
    if (r->comm && r->conf.comm->aborted(r->conf.comm_arg)) r->comm = false;
    if (r->comm && now >= r->deadline_ns && !LH_BUG("region_abort_for_ever")) {
        wk_region_end(r, LH_ERR_DEADLINE,
                      "the communicator's abort hangs; this process ends to be "
                      "started again");
        return WK_REGION_NOTHING;
    }
    if (r->comm || (r->computing && !LH_BUG("region_stale_lane"))) return WK_REGION_NOTHING;
    if (r->wrong_step) {
        wk_region_end(r, LH_ERR_NON_FINITE, "a rank's gradient could not be computed");
        return WK_REGION_NOTHING;
    }
    if (r->conf.rank) r->digest = r->conf.ops->digest(r->conf.arg);
    wk_region_go(r, WK_REGION_WAIT, now, 0);
    return WK_REGION_RESTS;
}

enum wk_region_event wk_region_look(struct wk_region *r, int64_t now)
{
    static const char *const names[] = {"waiting",   "making a communicator",
                                        "sharing",   "a communicator",
                                        "computing", "reducing",
                                        "aborting",  ""};
    enum wk_region_event event = WK_REGION_NOTHING;
    enum wk_region_progress is = WK_REGION_OK;
    if (r->phase == WK_REGION_WAIT || r->phase == WK_REGION_END) return event;
    if (r->phase == WK_REGION_ABORTS) return look_aborts(r, now);
    if (r->comm) is = r->conf.comm->poll(r->conf.comm_arg);
    if (failed(r, is, names[r->phase], &event)) return event;
    enum wk_region_phase before = r->phase;
    if (before == WK_REGION_INIT) event = look_init(r, is, now);
    if (before == WK_REGION_SHARE && is == WK_REGION_OK) event = look_share(r, now);
    if (before == WK_REGION_COMPUTE) event = look_compute(r, now);
    if (before == WK_REGION_REDUCE && is == WK_REGION_OK) {
        measure(r, now);
        event = apply(r, now);
    }
    bool late = r->phase == before && r->deadline_ns && now >= r->deadline_ns;
    if (LH_BUG("region_no_deadlines")) late = false;
    if (!late) return event;
    wk_region_cause(r, "rank %u: %s takes longer than %lld s", r->conf.rank, names[before],
                    (long long)((r->deadline_ns - r->since_ns) / LH_SECOND));
    return WK_REGION_BROKE;
}
