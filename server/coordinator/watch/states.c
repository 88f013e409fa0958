// States: see states.h.
//
// 1. A state is derived from the coordinator's knowledge. It is not stored and decides nothing:
//    leases and the plan use plan.c's `live`.
// 2. A worker is suspect from half of its bound on (silence.c), and lost from the bound on. Workers
//    report about once a second, so a suspect one missed several reports. A stalled worker
//    (watch/stall.c) does report.
// 3. A drained or done worker may stay silent: it is not lost.
// 4. The queue holds PS_CO_CHANGES_MAX changes in order. If it overflows, the oldest are dropped
//    and counted: their numbers are missing in the hook's reports. A change leaves the queue when
//    all rows that were put before it are durable.
// 5. A worker's reports can change its state as often as it likes. NOTES_MAX changes are noted at
//    once, and one more each NOTE_EVERY; changes between those are skipped.
//
// Events: member.state (a worker's state changed), hook.dropped (the queue was full).
#include "server/coordinator/watch/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/commit.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/watch/expelled.h"

enum { NOTES_MAX = 16 };
static const int64_t NOTE_EVERY = 10 * LH_SECOND;

struct ps_co_states {
    struct ps_co_change change[PS_CO_CHANGES_MAX]; // a ring
    uint32_t first, count;
    uint64_t number, dropped;
    bool overflows; // since the queue was last empty
};

lh_err ps_co_states_make(struct ps_coordinator *c)
{
    c->states = calloc(1, sizeof *c->states);
    return c->states ? LH_OK : LH_ERR_NO_MEMORY;
}

// ---------------------------------------------------------------- the state of a worker

const char *ps_co_state_name(enum ps_co_state state)
{
    static const char *const name[] = {
        [PS_CO_NEW] = "new",         [PS_CO_LIVE] = "live",           [PS_CO_SUSPECT] = "suspect",
        [PS_CO_STALLED] = "stalled", [PS_CO_LOST] = "lost",           [PS_CO_DRAINED] = "drained",
        [PS_CO_DONE] = "done",       [PS_CO_SET_ASIDE] = "set_aside", [PS_CO_EXPELLED] = "expelled",
    };
    return name[state];
}

static int64_t silence_of(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return c->listener.ns - w->seen_ns;
}

enum ps_co_state ps_co_worker_state(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    if (ps_co_is_expelled(c, w->id)) return PS_CO_EXPELLED;
    if (w->done) return PS_CO_DONE;
    if (w->drained && ps_co_draining(c, w)) return PS_CO_DRAINED;
    if (ps_co_set_aside(c, w)) return PS_CO_SET_ASIDE;
    if (!w->live) return PS_CO_LOST;
    bool suspect = silence_of(c, w) >= ps_co_worker_bound(c, w) / 2 && !ps_co_owes(c, w->id);
    return suspect ? PS_CO_SUSPECT : w->stall.why ? PS_CO_STALLED : PS_CO_LIVE;
}

// After a start no worker has been heard and all count as live: lost ones are reported once more.
lh_err ps_co_load_states(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].state == PS_CO_NEW)
            c->worker[i].state = ps_co_worker_state(c, &c->worker[i]);
    return LH_OK;
}

// ---------------------------------------------------------------- the queue

static void remove_oldest(struct ps_co_states *s)
{
    s->first = (s->first + 1) % PS_CO_CHANGES_MAX;
    s->count--;
    s->number++;
}

// Appends one change to the queue, if there is a hook.
static void add(struct ps_coordinator *c, struct ps_co_change change)
{
    struct ps_co_states *s = c->states;
    if (!c->conf.hook.call) return;
    if (s->count == PS_CO_CHANGES_MAX) {
        remove_oldest(s);
        s->dropped++;
        if (!s->overflows)
            lh_logf(c->conf.log, LH_WARN, "hook.dropped",
                    "%d changes wait for coordinator.hook_command or hook_url, which is slow or "
                    "fails: the oldest are dropped from here on",
                    PS_CO_CHANGES_MAX);
        s->overflows = true;
    }
    change.after = ps_store_changed(c->store);
    change.at_s = c->conf.env->ops->wall_s(c->conf.env);
    s->change[(s->first + s->count++) % PS_CO_CHANGES_MAX] = change;
}

bool ps_co_change_take(struct ps_coordinator *c, struct ps_co_change *out)
{
    struct ps_co_states *s = c->states;
    s->overflows &= s->count > 0;
    if (!s->count || s->change[s->first].after > ps_store_durable(c->store)) return false;
    *out = s->change[s->first];
    remove_oldest(s);
    out->number = s->number;
    return true;
}

void ps_co_changes_take_back(struct ps_coordinator *c)
{
    struct ps_co_states *s = c->states;
    uint64_t durable = ps_store_durable(c->store);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct ps_co_change change = s->change[(s->first + i) % PS_CO_CHANGES_MAX];
        if (change.is_alarm && change.after > durable) continue;
        if (change.after > durable) change.after = durable; // the store uses these numbers again
        s->change[(s->first + kept++) % PS_CO_CHANGES_MAX] = change;
    }
    s->count = kept;
}

uint32_t ps_co_changes_waiting(const struct ps_coordinator *c)
{
    return c->states->count;
}

uint64_t ps_co_changes_dropped(const struct ps_coordinator *c)
{
    return c->states->dropped;
}

// ---------------------------------------------------------------- the look

static void note(struct ps_coordinator *c, const struct ps_co_worker *w, enum ps_co_state from)
{
    int64_t silent = silence_of(c, w), bound = ps_co_worker_bound(c, w);
    char text[80];
    ps_co_say(c, LH_INFO, "member.state", "%s of %s: %s -> %s, silent for %.1f s, %s", w->name,
              w->region, ps_co_state_name(from), ps_co_state_name(w->state),
              (double)silent / LH_SECOND, ps_co_bound_text(text, bound, &w->trip));
    struct ps_co_change to = {.from = from, .to = w->state, .silent_ns = silent, .bound_ns = bound};
    memcpy(to.name, w->name, sizeof to.name);
    memcpy(to.region, w->region, sizeof to.region);
    add(c, to);
}

void ps_co_change_alarm(struct ps_coordinator *c, const char *rule, const char *region, bool on,
                        const char *text)
{
    struct ps_co_change to = {.is_alarm = true, .on = on};
    snprintf(to.name, sizeof to.name, "%s", rule);
    snprintf(to.region, sizeof to.region, "%s", region);
    snprintf(to.text, sizeof to.text, "%s", text);
    add(c, to);
}

// The change counts where it may be noted.
static bool may_note(const struct ps_coordinator *c, struct ps_co_worker *w)
{
    int64_t earned = (c->listener.ns - w->noted_ns) / NOTE_EVERY;
    w->notes = earned < w->notes ? w->notes - (uint32_t)earned : 0;
    w->noted_ns = w->notes ? w->noted_ns + earned * NOTE_EVERY : c->listener.ns;
    if (w->notes == NOTES_MAX) return false;
    w->notes++;
    return true;
}

void ps_co_states_look(struct ps_coordinator *c)
{
    bool over = c->plan.phase == LH_PHASE_END; // workers now end normally
    (void)ps_co_now(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        enum ps_co_state from = w->state, to = ps_co_worker_state(c, w);
        bool silent = to == PS_CO_SUSPECT || to == PS_CO_LOST;
        if (to == from || (silent && (over || from == PS_CO_NEW)) || !may_note(c, w)) continue;
        w->state = to;
        note(c, w, from);
    }
}
