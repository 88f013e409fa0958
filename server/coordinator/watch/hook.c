// The hook: see hook.h.
//
// 1. A call blocks its own lane, never the loop; only one is under way. It ends after LH_HOOK_MS.
// 2. Changes are reported in order. A failed call is repeated after a pause that doubles, up to
//    PS_CO_HOOK_TRIES calls; then the change is given up and the next one is reported.
// 3. Waiting changes are lost when the coordinator ends.
//
// Events: hook.told, hook.failed (a call failed and will be repeated), hook.given_up.
#include "server/coordinator/watch/hook.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/watch/states.h"

static const int64_t RETRY = LH_SECOND; // after the first failure; then doubles

struct ps_co_hook {
    struct ps_co_hook_conf conf;
    uint64_t life; // random per start, so that ids of two starts differ
    bool has;      // `notice` is still to be reported
    bool busy;     // a call is under way: only the lane uses `notice` and `end`
    struct ps_co_notice notice;
    struct ps_co_call_end end;
    uint32_t failures; // failed calls for `notice`
    int64_t next_ns;   // earliest time of the next call
    uint64_t told, given_up;
    char says[sizeof((struct ps_co_call_end *)0)->says];
    atomic_bool stop; // asks the call to end early
};

lh_err ps_co_hook_make(struct ps_coordinator *c)
{
    struct ps_co_hook *h = calloc(1, sizeof *h);
    c->hook = h;
    if (!h) return LH_ERR_NO_MEMORY;
    h->conf = c->conf.hook;
    if (h->conf.call) h->life = lh_random_u64(c->conf.env);
    return LH_OK;
}

void ps_co_hook_close(struct ps_coordinator *c)
{
    if (c->hook) atomic_store(&c->hook->stop, true);
}

// ---------------------------------------------------------------- the notice

// Three names, each byte of which JSON may write as six, plus the rest.
LH_STATIC_ASSERT(PS_CO_NOTICE_BYTES >= 3 * 6 * LH_NAME_BYTES + PS_CO_ALARM_BYTES + 512,
                 "a notice fits; an alarm's text has nothing to escape");

static const char *name_of(const struct ps_co_change *change, bool after)
{
    if (change->is_alarm) return change->on == after ? "alarm" : "clear";
    return ps_co_state_name(after ? change->to : change->from);
}

static json_t *object(const struct ps_co_hook *h, const struct ps_co_change *change,
                      uint64_t dropped)
{
    bool alarm = change->is_alarm;
    char id[48];
    snprintf(id, sizeof id, "%016" PRIx64 "-%" PRIu64, h->life, change->number);
    return json_pack("{s:s s:I s:I s:s s:s s:s s:s s:s* s:s s:s s:I s:o* s:o* s:s*}", "id", id,
                     "number", (json_int_t)change->number, "dropped", (json_int_t)dropped, "run",
                     h->conf.run, "event",
                     !alarm       ? "member.state"
                     : change->on ? "rule.alarm"
                                  : "rule.clear",
                     alarm ? "rule" : "name", change->name, "region", change->region, "role",
                     alarm ? NULL : "worker", "from", name_of(change, false), "to",
                     name_of(change, true), "at", (json_int_t)change->at_s, "silent_s",
                     alarm ? NULL : json_real((double)change->silent_ns / LH_SECOND), "bound_s",
                     alarm ? NULL : json_real((double)change->bound_ns / LH_SECOND), "text",
                     alarm ? change->text : NULL);
}

// Makes one object on one line:
// {"id": "<16 hex>-<number>", "number", "dropped", "run", "event": "member.state", "name",
//  "region", "role": "worker", "from", "to": "live|suspect|lost|drained|done" ("new": `from` of
//  one that joined), "at": seconds since 1970, "silent_s", "bound_s"}
// or {"id", "number", "dropped", "run", "event": "rule.alarm|rule.clear", "rule", "region", "from",
//  "to": "alarm|clear", "at", "text"}
// `dropped` is the number of dropped changes so far. The bytes, and so their signature, stay the
// same over all tries. LH_ERR_NO_MEMORY.
static lh_err make_notice(struct ps_co_hook *h, const struct ps_co_change *change, uint64_t dropped)
{
    struct ps_co_notice *out = &h->notice;
    const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6);
    json_t *root = object(h, change, dropped);
    size_t bytes = root ? json_dumpb(root, out->body, sizeof out->body, flags) : 0;
    json_decref(root);
    if (!bytes) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a notice");
    LH_ASSERT(bytes < sizeof out->body);
    out->body[bytes] = 0;
    out->bytes = bytes;
    memcpy(out->name, change->name, sizeof out->name);
    memcpy(out->region, change->region, sizeof out->region);
    out->from = name_of(change, false);
    out->to = name_of(change, true);
    return LH_OK;
}

// ---------------------------------------------------------------- the call

static int64_t call_job(void *arg)
{
    struct ps_co_hook *h = ((const struct ps_coordinator *)arg)->hook; // stays until call_done()
    return h->conf.call(h->conf.arg, &h->notice, &h->stop, &h->end);
}

// Logs the result of the call. `then`: the consequence.
static void tell(struct ps_coordinator *c, enum lh_level level, const char *event, const char *then)
{
    const struct ps_co_hook *h = c->hook;
    lh_logf(c->conf.log, level, event, "%s of %s, %s -> %s: %s%s", h->notice.name, h->notice.region,
            h->notice.from, h->notice.to, h->says, then);
}

static void failed(struct ps_coordinator *c)
{
    struct ps_co_hook *h = c->hook;
    char then[80];
    h->failures++;
    if (h->failures == PS_CO_HOOK_TRIES) {
        h->has = false;
        h->given_up++;
        snprintf(then, sizeof then, "; given up after %d tries", PS_CO_HOOK_TRIES);
        tell(c, LH_WARN, "hook.given_up", then);
        return;
    }
    int64_t pause = RETRY << (h->failures - 1);
    h->next_ns = ps_co_now(c) + pause;
    snprintf(then, sizeof then, "; called again in %.0f s (try %u of %d)",
             (double)pause / LH_SECOND, h->failures + 1, PS_CO_HOOK_TRIES);
    tell(c, LH_WARN, "hook.failed", then);
}

static void call_done(void *arg)
{
    struct ps_coordinator *c = arg;
    struct ps_co_hook *h = c->hook;
    h->busy = false;
    if (c->stopped) return;
    memcpy(h->says, h->end.says, sizeof h->says);
    if (h->end.ok) {
        h->has = false;
        h->told++;
        h->failures = 0;
        tell(c, LH_INFO, "hook.told", "");
    } else {
        failed(c);
    }
    ps_co_hook_tick(c);
}

// ---------------------------------------------------------------- the tick

// Takes the next waiting change, if any.
static void take(struct ps_coordinator *c)
{
    struct ps_co_hook *h = c->hook;
    struct ps_co_change change;
    if (!ps_co_change_take(c, &change)) return;
    lh_err err = make_notice(h, &change, ps_co_changes_dropped(c));
    h->failures = 0;
    h->next_ns = 0;
    h->has = !err;
    if (!err) return;
    h->given_up++;
    lh_logf(c->conf.log, LH_WARN, "hook.given_up", "%s of %s, %s -> %s: %s", change.name,
            change.region, ps_co_state_name(change.from), ps_co_state_name(change.to),
            lh_err_text(err));
}

void ps_co_hook_tick(struct ps_coordinator *c)
{
    struct ps_co_hook *h = c->hook;
    struct lh_env *env = c->conf.env;
    if (!h->conf.call || h->busy || c->stopped) return;
    if (!h->has) take(c);
    if (!h->has || ps_co_now(c) < h->next_ns) return;
    h->busy = true;
    h->end = (struct ps_co_call_end){0};
    env->ops->work(env, LH_LANE_HOOK, call_job, call_done, c);
}

// ---------------------------------------------------------------- what operators see

json_t *ps_co_hook_status(const struct ps_coordinator *c)
{
    const struct ps_co_hook *h = c->hook;
    if (!h->conf.call) return NULL;
    return json_pack("{s:I s:I s:I s:I s:i s:s}", "told", (json_int_t)h->told, "waiting",
                     (json_int_t)(ps_co_changes_waiting(c) + h->has), "given_up",
                     (json_int_t)h->given_up, "dropped", (json_int_t)ps_co_changes_dropped(c),
                     "failures", (int)h->failures, "says", h->says);
}
