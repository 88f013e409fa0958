// Pause: see pause.h.
//
// Row `pause` of the store, while the run is paused: since u64 (wall time in seconds), the name of
// its author and the reason, each as u16 length and bytes.
//
// 1. The row is durable before the pause is announced. The plan has the pause too, so every shard's
//    log has it, and a worker that the coordinator does not reach hears it with the log.
// 2. A paused worker keeps what it holds. Nobody judges its progress (watch/stall.c), leases it
//    more (grant.c), or gives its units up (watch/ending.c).
// 3. A paused run does not end by itself. It drains when an operator ends it, and the pause ends
//    with that.
//
// Events: run.pause, run.resume.
#include "server/coordinator/watch/pause.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/coordinator/commit.h"

static const char ROW[] = "pause";

// ---------------------------------------------------------------- what is stored

lh_err ps_co_load_pause(struct ps_coordinator *c)
{
    struct lh_span bytes;
    struct ps_co_pause *p = &c->pause;
    *p = (struct ps_co_pause){0};
    if (!ps_store_get(c->store, ROW, &bytes)) return LH_OK;
    struct lh_cursor at = lh_cursor(bytes);
    p->is = true;
    p->since_s = (int64_t)lh_get_u64(&at);
    lh_get_str(&at, p->by, sizeof p->by);
    lh_get_str(&at, p->why, sizeof p->why);
    if (at.failed || lh_left(&at))
        return ps_co_bad_row(c, ROW, "is not of a pause, its author and why");
    return LH_OK;
}

static LH_MUST lh_err store(struct ps_coordinator *c)
{
    const struct ps_co_pause *p = &c->pause;
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_put_u64(&b, (uint64_t)p->since_s);
    lh_put_str(&b, p->by);
    lh_put_str(&b, p->why);
    return ps_co_put_buf(c, ROW, &b);
}

// ---------------------------------------------------------------- the wishes

lh_err ps_co_pause(struct ps_coordinator *c, const char *by, const char *why, bool *changed)
{
    struct ps_co_pause *p = &c->pause;
    *changed = false;
    if (strlen(why) >= sizeof p->why)
        return lh_fail(LH_ERR_INVALID, "a reason of %zu bytes; %zu are kept", strlen(why),
                       sizeof p->why - 1);
    if (c->plan.phase > LH_PHASE_RUN)
        return lh_fail(LH_ERR_INVALID, "too late: the run is %s, and training is over",
                       lh_phase_name(c->plan.phase));
    if (p->is) return LH_OK;
    p->is = true;
    p->since_s = c->conf.env->ops->wall_s(c->conf.env);
    snprintf(p->by, sizeof p->by, "%s", by);
    snprintf(p->why, sizeof p->why, "%s", why);
    LH_TRY(store(c));
    *changed = true;
    ps_co_say(c, LH_WARN, "run.pause",
              "by %s: %s. Workers finish their pushes and make no further step; longhaul resume "
              "continues the run",
              p->by, p->why[0] ? p->why : "no reason was given");
    return LH_OK;
}

static LH_MUST lh_err end(struct ps_coordinator *c)
{
    c->pause = (struct ps_co_pause){0};
    return ps_co_remove(c, ROW);
}

lh_err ps_co_resume(struct ps_coordinator *c, const char *by, const char *why, bool *changed)
{
    *changed = c->pause.is;
    if (!c->pause.is) return LH_OK;
    int64_t lasted = c->conf.env->ops->wall_s(c->conf.env) - c->pause.since_s;
    LH_TRY(end(c));
    ps_co_say(c, LH_INFO, "run.resume", "by %s%s%s, after %" PRId64 " s", by, why[0] ? ": " : "",
              why, lasted > 0 ? lasted : 0);
    return LH_OK;
}

lh_err ps_co_pause_look(struct ps_coordinator *c, uint8_t phase)
{
    if (phase <= LH_PHASE_RUN || !c->pause.is) return LH_OK;
    LH_TRY(end(c));
    ps_co_say(c, LH_INFO, "run.resume", "the run is %s: its pause is over", lh_phase_name(phase));
    return LH_OK;
}

json_t *ps_co_pause_status(const struct ps_coordinator *c)
{
    const struct ps_co_pause *p = &c->pause;
    if (!p->is) return NULL;
    return json_pack("{s:s s:s s:I}", "by", p->by, "why", p->why, "since_s",
                     (json_int_t)p->since_s);
}
