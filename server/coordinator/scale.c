// Scale: see scale.h.
//
// 1. A call blocks its own lane, never the loop; only one is under way. Of the regions that need
//    one, it is made for the one that has been due longest. A failure causes a warning and a longer
//    wait, nothing else.
// 2. A restarted coordinator makes no call until every worker has had time to report
//    (coordinator.worker_timeout_s).
// 3. The wanted number is a function of the schedule and the wall clock: nothing is stored.
// 4. Draining workers do not count as present. While a region or the run is drained, no call is
//    made for it, and an ending run makes none.
//
// Events: scale.wanted (the schedule wants another number from now on), scale.called,
// scale.answered, scale.failed, scale.reached (the wanted number is present).
#include "server/coordinator/scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/schedule.h"

static const int64_t RETRY = 10 * LH_SECOND; // after the first failure; then doubles

struct ps_co_scale {
    struct row {
        const char *region; // "": the whole run
        const struct ps_schedule_entry *entry;
        uint32_t present;
        bool reached; // the wanted number was present and logged
        int64_t next_ns, called_s;
        uint64_t calls;
        uint32_t failures; // failures since the last success
        char says[sizeof((struct ps_co_call_end *)0)->says];
    } row[PS_SCHEDULE_MAX];
    uint32_t rows;
    int64_t from_ns; // no call is made earlier
    // The call under way: owned by the lane until it is done.
    bool busy;
    struct row *of;
    struct ps_co_scale_wish wish;
    struct ps_co_call_end end;
    atomic_bool stop; // asks the call to end early
    struct ps_co_scale_conf conf;
};

lh_err ps_co_scale_make(struct ps_coordinator *c)
{
    const struct ps_schedule *all = c->conf.scale.schedule;
    struct ps_co_scale *s = calloc(1, sizeof *s);
    c->scale = s;
    if (!s) return LH_ERR_NO_MEMORY;
    s->conf = c->conf.scale;
    s->from_ns = ps_co_now(c) + c->conf.worker_timeout_ns;
    for (uint32_t i = 0; all && i < all->entries; i++) {
        uint32_t k = 0;
        while (k < s->rows && strcmp(s->row[k].region, all->entry[i].region) != 0) k++;
        if (k == s->rows)
            s->row[s->rows++] = (struct row){.region = all->entry[i].region, .next_ns = s->from_ns};
    }
    return LH_OK;
}

void ps_co_scale_close(struct ps_coordinator *c)
{
    if (c->scale) atomic_store(&c->scale->stop, true);
}

// ---------------------------------------------------------------- figures

static uint32_t count_present(const struct ps_coordinator *c, const char *region)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (region[0] && strcmp(w->region, region) != 0) continue;
        n += w->live && !ps_co_leaving(c, w);
    }
    return n;
}

// "64 workers of asia are wanted since 22:00 (UTC), 12 are here"
static const char *figures(char text[200], const struct row *r)
{
    snprintf(text, 200, "%u worker%s %s%s wanted since %02u:%02u (UTC), %u %s here",
             r->entry->workers, r->entry->workers == 1 ? "" : "s", r->region[0] ? "of " : "in all",
             r->region, r->entry->minute / 60, r->entry->minute % 60, r->present,
             r->present == 1 ? "is" : "are");
    return text;
}

// ---------------------------------------------------------------- the call

static int64_t call_job(void *arg)
{
    struct ps_co_scale *s = ((const struct ps_coordinator *)arg)->scale; // stays where it is
    return s->conf.call(s->conf.arg, &s->wish, &s->stop, &s->end);
}

static int64_t pause_after(const struct ps_co_scale *s, const struct row *r)
{
    int64_t pause = RETRY;
    for (uint32_t i = 1; i < r->failures && pause < s->conf.every_ns; i++) pause *= 2;
    return !r->failures || pause > s->conf.every_ns ? s->conf.every_ns : pause;
}

static void call_done(void *arg)
{
    struct ps_coordinator *c = arg;
    struct ps_co_scale *s = c->scale;
    struct row *r = s->of;
    s->busy = false;
    if (c->stopped) return;
    r->failures = s->end.ok ? 0 : r->failures + 1;
    int64_t pause = pause_after(s, r);
    r->next_ns = ps_co_now(c) + pause;
    memcpy(r->says, s->end.says, sizeof r->says);
    lh_logf(c->conf.log, s->end.ok ? LH_INFO : LH_WARN,
            s->end.ok ? "scale.answered" : "scale.failed",
            "%s: %s; called again in %.0f s unless enough workers have joined",
            r->region[0] ? r->region : "all regions", r->says, (double)pause / LH_SECOND);
}

static void call(struct ps_coordinator *c, struct row *r)
{
    struct ps_co_scale *s = c->scale;
    struct lh_env *env = c->conf.env;
    char text[200];
    s->busy = true;
    s->of = r;
    s->end = (struct ps_co_call_end){0};
    s->wish = (struct ps_co_scale_wish){.wanted = r->entry->workers, .present = r->present};
    snprintf(s->wish.region, sizeof s->wish.region, "%s", r->region);
    r->calls++;
    r->called_s = env->ops->wall_s(env);
    lh_logf(c->conf.log, LH_INFO, "scale.called", "%s: coordinator.scale_command is called",
            figures(text, r));
    env->ops->work(env, LH_LANE_HOOK, call_job, call_done, c);
}

// ---------------------------------------------------------------- the tick

static void take_entry(struct ps_coordinator *c, struct row *r,
                       const struct ps_schedule_entry *entry)
{
    char text[200];
    r->entry = entry;
    r->failures = 0;
    r->reached = false;
    r->next_ns = c->scale->from_ns; // a new wish need not wait
    lh_logf(c->conf.log, LH_INFO, "scale.wanted", "%s", figures(text, r));
}

static bool stands_still(const struct ps_coordinator *c, const char *region)
{
    return c->draining || c->pause.is ||
           (region[0] && ps_co_drained_index(c, region) < c->drained_regions);
}

// True: a call is due.
static bool look(struct ps_coordinator *c, struct row *r, int64_t now, int64_t wall_s)
{
    struct ps_co_scale *s = c->scale;
    const struct ps_schedule_entry *e = ps_schedule_at(s->conf.schedule, r->region, wall_s);
    char text[200];
    r->present = count_present(c, r->region);
    if (e != r->entry) take_entry(c, r, e);
    bool reached = r->present == e->workers;
    if (reached && !r->reached && now >= s->from_ns)
        lh_logf(c->conf.log, LH_INFO, "scale.reached", "%s", figures(text, r));
    r->reached = reached && now >= s->from_ns;
    bool waits = reached || s->busy || now < r->next_ns || stands_still(c, r->region);
    return s->conf.call && !waits;
}

void ps_co_scale_tick(struct ps_coordinator *c)
{
    struct ps_co_scale *s = c->scale;
    if (!s->rows || c->stopped || c->plan.phase > LH_PHASE_RUN) return;
    int64_t now = ps_co_now(c), wall_s = c->conf.env->ops->wall_s(c->conf.env);
    struct row *due = NULL;
    for (struct row *r = s->row; r < s->row + s->rows; r++)
        if (look(c, r, now, wall_s) && (!due || r->next_ns < due->next_ns)) due = r;
    if (due) call(c, due);
}

// ---------------------------------------------------------------- what operators see

json_t *ps_co_scale_status(const struct ps_coordinator *c)
{
    const struct ps_co_scale *s = c->scale;
    if (!s->rows) return NULL;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < s->rows; i++) {
        const struct row *r = &s->row[i];
        char at[24];
        if (!r->entry) continue; // before the first tick
        snprintf(at, sizeof at, "%02u:%02u", r->entry->minute / 60, r->entry->minute % 60);
        json_array_append_new(
            rows,
            json_pack("{s:s s:s s:i s:i s:I s:i s:s s:o}", "region", r->region, "at", at, "wanted",
                      (int)r->entry->workers, "present", (int)r->present, "calls",
                      (json_int_t)r->calls, "failures", (int)r->failures, "says", r->says,
                      "called_at", r->calls ? json_integer((json_int_t)r->called_s) : json_null()));
    }
    return rows;
}
