// Rules: see rules.h.
//
// 1. Each second every rule is compared with each region, or with the coordinator itself. A value
//    that is not known yet meets no condition. An alarm begins when some region has met all
//    conditions for the rule's time, and ends when none has for as long, at least CALM. So an alarm
//    does not flap.
// 2. An alarm is durable: row `alarm/NAME` of the store, since u64 (wall time in seconds), region
//    as u16 length and bytes. A coordinator that starts again does not begin it a second time.
// 3. A rule pauses the run when its alarm begins, once. A run that an operator resumed goes on,
//    although the alarm lasts.
// 4. While the run is paused or no longer trains, conditions on progress are not looked at: their
//    alarms stay as they are.
//
// Memory: REGIONS sums a look, and the last losses of each worker. Events: rule.alarm, rule.clear.
#include "server/coordinator/watch/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/commit.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/rules_text.h"
#include "server/coordinator/watch/states.h"

enum { REGIONS = 64 }; // regions that are looked at
enum { ROUNDS = 3 };   // pushes over which a loss is compared
static const int64_t LOOK_EVERY = LH_SECOND;
static const int64_t CALM = 10 * LH_SECOND;

struct losses { // a worker's, as its pushes came
    uint64_t worker;
    uint64_t pushes;
    double loss[ROUNDS + 1]; // the newest first; 0: not known
};

struct alarm {
    bool on;
    int64_t since_s;  // wall time
    int64_t holds_ns; // since when the conditions are met; 0: they are not
    int64_t rests_ns; // since when they are not met; 0: they are
    char region[LH_NAME_BYTES], text[PS_CO_ALARM_BYTES];
};

struct sums { // a region's, or the coordinator's own
    const char *region;
    double value[PS_RULE_METRICS];
    bool known[PS_RULE_METRICS];
    uint32_t losses, utilisations, heard, still;
};

struct ps_co_rules {
    int64_t next_ns;
    struct alarm alarm[PS_RULES_MAX];
    struct losses losses[LH_WORKERS_MAX];
    struct sums sums[REGIONS + 1];
    uint32_t regions;
};

static uint32_t rules_of(const struct ps_coordinator *c)
{
    return c->conf.rules ? c->conf.rules->rules : 0;
}

lh_err ps_co_rules_make(struct ps_coordinator *c)
{
    c->rules = calloc(1, sizeof *c->rules);
    return c->rules ? LH_OK : LH_ERR_NO_MEMORY;
}

// ---------------------------------------------------------------- what is stored

// A row of a rule that the settings no longer have says nothing.
static const char *read_alarm(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    char region[LH_NAME_BYTES];
    uint64_t since = lh_get_u64(at);
    lh_get_str(at, region, sizeof region);
    if (at->failed) return "is not of an alarm";
    for (uint32_t i = 0; i < rules_of(c); i++) {
        struct alarm *a = &c->rules->alarm[i];
        if (strcmp(c->conf.rules->rule[i].name, name) != 0) continue;
        a->on = true;
        a->since_s = (int64_t)since;
        memcpy(a->region, region, sizeof region);
        snprintf(a->text, sizeof a->text, "since before the coordinator started");
    }
    return NULL;
}

lh_err ps_co_load_alarms(struct ps_coordinator *c)
{
    ps_co_changes_take_back(c);
    for (uint32_t i = 0; i < PS_RULES_MAX; i++) c->rules->alarm[i] = (struct alarm){.on = false};
    return ps_co_load_named(c, "alarm/", read_alarm);
}

static LH_MUST lh_err keep(struct ps_coordinator *c, const struct ps_rule *rule,
                           const struct alarm *a)
{
    char key[64];
    snprintf(key, sizeof key, "alarm/%s", rule->name);
    if (!a->on) return ps_co_remove(c, key);
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_put_u64(&b, (uint64_t)a->since_s);
    lh_put_str(&b, a->region);
    return ps_co_put_buf(c, key, &b);
}

// ---------------------------------------------------------------- values

// Share by which the loss rose in the last ROUNDS pushes. False: not known.
static bool loss_rise(const struct ps_co_worker *w, struct losses *l, double *out)
{
    uint64_t pushes = w->admitted ? w->admitted[0].pushes : 0;
    double loss = w->measured.loss;
    // Another worker has this index after one was retired, or history was lost.
    if (w->id != l->worker || pushes < l->pushes) *l = (struct losses){.worker = w->id};
    if (pushes > l->pushes && loss > 0) {
        memmove(l->loss + 1, l->loss, ROUNDS * sizeof *l->loss);
        l->loss[0] = loss;
        l->pushes = pushes;
    }
    *out = l->loss[ROUNDS] > 0 ? l->loss[0] / l->loss[ROUNDS] - 1 : 0;
    return l->loss[ROUNDS] > 0;
}

static void raise_to(struct sums *s, enum ps_rule_metric m, double value)
{
    if (!s->known[m] || value > s->value[m]) s->value[m] = value;
    s->known[m] = true;
}

static void mean(struct sums *s, enum ps_rule_metric m, double value, uint32_t *count)
{
    s->value[m] += (value - s->value[m]) / ++*count;
    s->known[m] = true;
}

static void add_spent(const struct ps_coordinator *c, const struct ps_co_worker *w, struct sums *s)
{
    uint64_t steps = c->plan.privacy.steps, most = 0;
    if (!steps || ps_co_data(c, w) != LH_DATA_PRIVATE) return;
    for (uint32_t i = 0; w->admitted && i < c->conf.manifest->shards; i++)
        if (w->admitted[i].charged > most) most = w->admitted[i].charged;
    raise_to(s, PS_RULE_PRIVACY_SPENT, w->spent ? 1 : (double)most / (double)steps);
}

static void add_worker(struct ps_coordinator *c, uint32_t worker, struct sums *s)
{
    const struct ps_co_worker *w = &c->worker[worker];
    double silent = (double)(c->listener.ns - w->seen_ns) / LH_SECOND, rise;
    add_spent(c, w, s);
    if (ps_co_is_expelled(c, w->id)) return;                     // it is not heard
    if (w->done || (w->drained && ps_co_draining(c, w))) return; // it may be stopped
    if (!s->known[PS_RULE_SILENT] || silent < s->value[PS_RULE_SILENT])
        s->value[PS_RULE_SILENT] = silent;
    s->known[PS_RULE_SILENT] = true;
    bool risen = loss_rise(w, &c->rules->losses[worker], &rise);
    if (!w->live) return;
    s->heard++;
    s->still += w->stall.why != PS_CO_GOES_ON;
    raise_to(s, PS_RULE_FAILING, w->stall.why == PS_CO_FAILING);
    raise_to(s, PS_RULE_STALLED, 0);
    if (risen) raise_to(s, PS_RULE_LOSS_RISE, rise);
    if (w->measured.loss > 0) mean(s, PS_RULE_LOSS, w->measured.loss, &s->losses);
    if (w->measured.utilisation > 0)
        mean(s, PS_RULE_UTILISATION, w->measured.utilisation, &s->utilisations);
}

static struct sums *sums_of(struct ps_co_rules *r, const char *region)
{
    uint32_t i = 0;
    while (i < r->regions && strcmp(r->sums[i].region, region) != 0) i++;
    if (i == REGIONS) return NULL;
    if (i == r->regions) r->sums[r->regions++] = (struct sums){.region = region};
    return &r->sums[i];
}

static void add_all(struct ps_coordinator *c)
{
    struct ps_co_rules *r = c->rules;
    double disk = 0, certificate = 0;
    r->regions = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct sums *s = sums_of(r, c->worker[i].region);
        if (s) add_worker(c, i, s);
    }
    struct sums *own = &r->sums[REGIONS];
    *own = (struct sums){.region = ""};
    if (c->conf.machine && c->conf.machine(c->conf.machine_arg, &disk, &certificate)) {
        raise_to(own, PS_RULE_DISK_FREE, disk);
        raise_to(own, PS_RULE_CERTIFICATE, certificate);
    }
    for (uint32_t i = 0; i < r->regions; i++) {
        struct sums *s = &r->sums[i];
        if (s->heard && s->still == s->heard) s->value[PS_RULE_STALLED] = 1;
        for (int m = PS_RULE_DISK_FREE; m < PS_RULE_METRICS; m++) {
            s->value[m] = own->value[m];
            s->known[m] = own->known[m];
        }
    }
}

// ---------------------------------------------------------------- alarms

// Is a condition on a metric before `end`?
static bool some_before(const struct ps_rule *rule, enum ps_rule_metric end)
{
    for (uint32_t i = 0; i < rule->whens; i++)
        if (rule->when[i].metric < end) return true;
    return false;
}

static bool meets(const struct sums *s, const struct ps_rule *rule)
{
    for (uint32_t i = 0; i < rule->whens; i++) {
        const struct ps_rule_when *w = &rule->when[i];
        double v = s->value[w->metric];
        if (!s->known[w->metric] || !(w->above ? v > w->bound : v < w->bound)) return false;
    }
    return true;
}

// The first region that meets the rule, or the coordinator; NULL: none.
static const struct sums *who_meets(const struct ps_co_rules *r, const struct ps_rule *rule)
{
    if (!some_before(rule, PS_RULE_DISK_FREE))
        return meets(&r->sums[REGIONS], rule) ? &r->sums[REGIONS] : NULL;
    for (uint32_t i = 0; i < r->regions; i++)
        if (meets(&r->sums[i], rule)) return &r->sums[i];
    return NULL;
}

// "loss_rise 0.23 > 0.15, utilisation 0.31 < 0.4"
static void describe(const struct ps_rule *rule, const struct sums *s, char out[PS_CO_ALARM_BYTES])
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < rule->whens && n < PS_CO_ALARM_BYTES; i++) {
        const struct ps_rule_when *w = &rule->when[i];
        n += (size_t)snprintf(out + n, PS_CO_ALARM_BYTES - n, "%s%s %.4g %c %.4g", i ? ", " : "",
                              ps_rule_metric_name(w->metric), s->value[w->metric],
                              w->above ? '>' : '<', w->bound);
    }
}

static LH_MUST lh_err begin(struct ps_coordinator *c, const struct ps_rule *rule, struct alarm *a,
                            const struct sums *s)
{
    char by[LH_NAME_BYTES];
    bool changed;
    a->on = true;
    a->since_s = c->conf.env->ops->wall_s(c->conf.env);
    snprintf(a->region, sizeof a->region, "%s", s->region);
    describe(rule, s, a->text);
    LH_TRY(keep(c, rule, a));
    ps_co_say(c, LH_WARN, "rule.alarm", "%s%s%s: %s%s", rule->name, a->region[0] ? " of " : "",
              a->region, a->text, rule->pauses ? "; the rule pauses the run" : "");
    ps_co_change_alarm(c, rule->name, a->region, true, a->text);
    if (!rule->pauses || c->plan.phase > LH_PHASE_RUN) return LH_OK;
    snprintf(by, sizeof by, "rule %s", rule->name);
    return ps_co_pause(c, by, a->text, &changed);
}

static LH_MUST lh_err end(struct ps_coordinator *c, const struct ps_rule *rule, struct alarm *a)
{
    a->on = false;
    LH_TRY(keep(c, rule, a));
    ps_co_say(c, LH_INFO, "rule.clear", "%s%s%s", rule->name, a->region[0] ? " of " : "",
              a->region);
    ps_co_change_alarm(c, rule->name, a->region, false, "");
    return LH_OK;
}

static LH_MUST lh_err look(struct ps_coordinator *c, const struct ps_rule *rule, struct alarm *a)
{
    int64_t now = c->listener.ns, rest = rule->for_ns > CALM ? rule->for_ns : CALM;
    const struct sums *s = who_meets(c->rules, rule);
    if (s && !a->holds_ns) a->holds_ns = now;
    if (!s && !a->rests_ns) a->rests_ns = now;
    if (s)
        a->rests_ns = 0;
    else
        a->holds_ns = 0;
    if (s && !a->on && now - a->holds_ns >= rule->for_ns) return begin(c, rule, a, s);
    if (!s && a->on && now - a->rests_ns >= rest) return end(c, rule, a);
    return LH_OK;
}

void ps_co_rules_tick(struct ps_coordinator *c)
{
    struct ps_co_rules *r = c->rules;
    int64_t now = ps_co_now(c);
    bool over = c->plan.phase == LH_PHASE_END;
    if (!rules_of(c) || c->stopped || ps_co_full(c) || over || now < r->next_ns) return;
    if (lh_listener_rests(&c->listener)) return;
    bool trains = c->plan.phase == LH_PHASE_RUN && !c->pause.is;
    r->next_ns = now + LOOK_EVERY;
    add_all(c);
    for (uint32_t i = 0; i < rules_of(c); i++) {
        const struct ps_rule *rule = &c->conf.rules->rule[i];
        if (!trains && some_before(rule, PS_RULE_SILENT)) continue;
        lh_err err = look(c, rule, &r->alarm[i]);
        if (err) ps_co_fatal(c, err);
        if (err) return;
    }
}

// ---------------------------------------------------------------- what operators see

json_t *ps_co_rules_status(const struct ps_coordinator *c)
{
    if (!rules_of(c)) return NULL;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < rules_of(c); i++) {
        const struct ps_rule *rule = &c->conf.rules->rule[i];
        const struct alarm *a = &c->rules->alarm[i];
        json_array_append_new(rows, json_pack("{s:s s:b s:b s:o* s:s* s:s*}", "rule", rule->name,
                                              "active", a->on, "pauses", rule->pauses, "since_s",
                                              a->on ? json_integer((json_int_t)a->since_s) : NULL,
                                              "region", a->on ? a->region : NULL, "text",
                                              a->on ? a->text : NULL));
    }
    return rows;
}
