// Drain: an operator asks that the run, a region or a worker drains or that the run ends; that the
// run is paused or resumed (watch/pause.c); that a member is expelled or let back
// (watch/expelled.c); or that a name is retired (watch/retired.c).
//
// A draining worker gets no new units and finishes its work in flight. Then it stands still and
// only follows the log. A command is durable before it is answered and survives restarts of both
// sides until it is undone. Keys of the store: drain/run (u8: 1 = end), drain/region/NAME,
// drain/worker/ID (hex), and drained/ID of a worker that has drained (plan.c).
//
// 1. If the whole run drains, its plan stays unchanged: the last pushes weigh like earlier ones.
// 2. A worker that drains alone or with its region leaves the plan once drained: nothing waits for
//    it, and the others weigh more. Its leases go to others a little later, when the servers have
//    reported which units its last pushes credited.
// 3. An end can be undone only before the shards begin to close.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/net/wire_admin.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/retired.h"

// Finds the only worker of that name, in `region` if given.
static LH_MUST lh_err find_worker(struct ps_coordinator *c, const char *region, const char *name,
                                  struct ps_co_worker **out)
{
    *out = NULL;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (strcmp(w->name, name) != 0 || (region[0] && strcmp(w->region, region) != 0)) continue;
        if (*out)
            return lh_fail(LH_ERR_INVALID, "%.64s is a worker of %s and of %s: name its region",
                           name, (*out)->region, w->region);
        *out = w;
    }
    return *out ? LH_OK
                : lh_fail(LH_ERR_NOT_FOUND, "no worker %.64s%s%.64s in this run", name,
                          region[0] ? " of " : "", region);
}

// ---------------------------------------------------------------- what is stored

static const char *read_worker(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint32_t index;
    (void)at;
    const char *why = ps_co_row_worker(c, name, &index);
    if (!why) c->worker[index].asked = true;
    return why;
}

static const char *read_region(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    (void)at;
    if (strlen(name) >= LH_NAME_BYTES) return "is of a region with too long a name";
    if (c->drained_regions == PS_DRAINED_REGIONS_MAX) return "is of one region more than may drain";
    memcpy(c->drained_region[c->drained_regions++], name, strlen(name) + 1);
    return NULL;
}

static const char *read_run(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    if (name[0]) return "is of nothing that drains";
    c->draining = true;
    c->ending = lh_get_u8(at) == 1;
    return NULL;
}

static const char *read_drained(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint32_t index;
    (void)at;
    const char *why = ps_co_row_worker(c, name, &index);
    if (why) return why;
    struct ps_co_worker *w = &c->worker[index];
    w->drained = w->drained_kept = true;
    w->left = ps_co_leaving(c, w);
    return NULL;
}

lh_err ps_co_load_drains(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        c->worker[i].asked = c->worker[i].drained_kept = false;
    c->drained_regions = 0;
    c->draining = c->ending = false;
    LH_TRY(ps_co_load_named(c, "drain/worker/", read_worker));
    LH_TRY(ps_co_load_named(c, "drain/region/", read_region));
    LH_TRY(ps_co_load_named(c, "drain/run", read_run));
    LH_TRY(ps_co_load_named(c, "drained/", read_drained));
    // Freed leases may be back with a worker that left: frees them again.
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].left) c->worker[i].left_ns = ps_co_now(c);
    return LH_OK;
}

// Sets or removes a mark.
static LH_MUST lh_err mark(struct ps_coordinator *c, const char *key, uint8_t value, bool undo)
{
    return undo ? ps_co_remove(c, key) : ps_co_put(c, key, lh_span(&value, 1));
}

lh_err ps_co_forget_end(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (w->drained_kept) LH_TRY(ps_co_remove_of(c, "drained/", w->id));
        w->drained = w->drained_kept = false;
    }
    LH_TRY(ps_co_remove(c, "drain/run"));
    c->draining = c->ending = false;
    return LH_OK;
}

// ---------------------------------------------------------------- the wishes

static LH_MUST lh_err drain_run(struct ps_coordinator *c, bool end, bool undo)
{
    if (end && c->plan.phase == LH_PHASE_WAIT)
        return lh_fail(LH_ERR_INVALID, "the run still waits for its workers and shards, so there "
                                       "is nothing to end: stop its processes instead");
    bool ending = !undo && (end || c->ending);
    LH_TRY(mark(c, "drain/run", ending, undo));
    c->draining = !undo;
    c->ending = ending;
    return LH_OK;
}

static LH_MUST lh_err drain_region(struct ps_coordinator *c, const char *region, bool undo)
{
    char key[32 + LH_NAME_BYTES];
    bool known = false;
    for (uint32_t i = 0; i < c->workers; i++) known |= !strcmp(c->worker[i].region, region);
    uint32_t index = ps_co_drained_index(c, region);
    bool drained = index < c->drained_regions;
    if (!known && !drained)
        return lh_fail(LH_ERR_NOT_FOUND, "no worker of a region %.64s in this run", region);
    if (!drained && !undo && index == PS_DRAINED_REGIONS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%d regions are drained, which is the maximum",
                       PS_DRAINED_REGIONS_MAX);
    snprintf(key, sizeof key, "drain/region/%s", region);
    LH_TRY(mark(c, key, 0, undo));
    if (!undo && !drained) // shorter than LH_NAME_BYTES, like a worker's region
        memcpy(c->drained_region[c->drained_regions++], region, strlen(region) + 1);
    if (undo && drained)
        memcpy(c->drained_region[index], c->drained_region[--c->drained_regions], LH_NAME_BYTES);
    return LH_OK;
}

static LH_MUST lh_err drain_worker(struct ps_coordinator *c, struct ps_co_worker *w, bool undo)
{
    if (undo && !w->asked && ps_co_leaving(c, w))
        return lh_fail(LH_ERR_INVALID, "%s drains with its region %s: undo that", w->name,
                       w->region);
    LH_TRY(mark(c, ps_co_key("drain/worker/", w->id).text, 0, undo));
    w->asked = !undo;
    return LH_OK;
}

lh_err ps_co_drain(struct ps_coordinator *c, const struct lh_drain_request *m,
                   struct ps_co_worker **worker)
{
    const char *region = m->region, *name = m->worker;
    *worker = NULL;
    if (m->end && (region[0] || name[0] || m->undo))
        return lh_fail(LH_ERR_INVALID, "only a whole run can be ended");
    if (m->undo && c->plan.phase >= LH_PHASE_CLOSE)
        return lh_fail(LH_ERR_INVALID, "too late: the run is %s", lh_phase_name(c->plan.phase));
    if (name[0]) {
        LH_TRY(find_worker(c, region, name, worker));
        LH_TRY(drain_worker(c, *worker, m->undo));
    } else if (region[0]) {
        LH_TRY(drain_region(c, region, m->undo));
    } else {
        LH_TRY(drain_run(c, m->end, m->undo));
    }
    return LH_OK;
}

void ps_co_on_drain(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_drain_request *m = request;
    struct ps_co_worker *worker;
    lh_err err = ps_co_drain(c, m, &worker);
    ps_co_audit(c, "audit.drain", lh_request_peer(rq), "%s%s %.64s/%.64s: %s",
                m->undo ? "undo " : "", m->end ? "end" : "drain", m->region, m->worker,
                err ? lh_err_text(err) : "taken");
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    struct lh_drain_reply out = {0};
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        bool concerned = worker ? w == worker : !m->region[0] || !strcmp(w->region, m->region);
        out.workers += concerned && w->live;
        w->drained &= ps_co_draining(c, w); // until it reports that anew
    }
    ps_co_say(c, LH_INFO, "run.drain", "%s%s %s%s%s requested by %s: %u live worker%s",
              m->undo ? "undo " : "", m->end ? "end" : "drain", worker ? worker->name : "",
              worker && m->region[0] ? " of " : "",
              m->region[0] ? m->region : (worker ? "" : "the run"), lh_request_peer(rq)->name,
              out.workers, lh_s(out.workers));
    ps_co_answer(c, rq, LH_MESSAGE(drain_reply, &out));
    ps_co_tick(c);
}

static LH_MUST lh_err retire(struct ps_coordinator *c, struct lh_request *rq,
                             const struct lh_expel_request *m, struct ps_co_expelled *e,
                             bool *changed)
{
    *changed = false;
    LH_TRY(ps_co_who(c, lh_request_peer(rq), m, e));
    if (e->server) return lh_fail(LH_ERR_INVALID, "only workers' names can be retired");
    return ps_co_retire(c, e->id, changed);
}

void ps_co_on_expel(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_expel_request *m = request;
    bool undo = m->admit, changed;
    const char *what = m->retire ? "retired" : undo ? "let back" : "expelled";
    struct ps_co_expelled e;
    lh_err err = m->retire ? retire(c, rq, m, &e, &changed)
                           : ps_co_expel(c, lh_request_peer(rq), m, &e, &changed);
    ps_co_audit(c,
                m->retire ? "audit.retire"
                : undo    ? "audit.admit"
                          : "audit.expel",
                lh_request_peer(rq), "%s %.64s/%.64s: %s", e.server ? "server" : "worker", e.region,
                e.name,
                err       ? lh_err_text(err)
                : changed ? "taken"
                          : "no change: it was so already");
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    ps_co_say(c, LH_WARN,
              m->retire ? "run.retire"
              : undo    ? "run.admit"
                        : "run.expel",
              "%s %s of %s (%016" PRIx64 "): %s by %s%s", e.server ? "server" : "worker", e.name,
              e.region, e.id, what, lh_request_peer(rq)->name,
              changed ? "" : "; no change: it was so already");
    struct lh_expel_reply out = {e.id, e.region, changed};
    ps_co_answer(c, rq, LH_MESSAGE(expel_reply, &out));
    ps_co_tick(c);
}

void ps_co_on_pause(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_pause_request *m = request;
    const char *by = lh_request_peer(rq)->name;
    bool changed;
    lh_err err =
        m->resume ? ps_co_resume(c, by, m->why, &changed) : ps_co_pause(c, by, m->why, &changed);
    ps_co_audit(c, m->resume ? "audit.resume" : "audit.pause", lh_request_peer(rq), "%.200s: %s",
                m->why,
                err       ? lh_err_text(err)
                : changed ? "taken"
                          : "no change: it was so already");
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    struct lh_pause_reply out = {.changed = changed};
    for (uint32_t i = 0; i < c->workers; i++) out.workers += c->worker[i].live;
    ps_co_answer(c, rq, LH_MESSAGE(pause_reply, &out));
    ps_co_tick(c);
}
