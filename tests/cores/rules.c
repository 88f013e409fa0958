// Rules of the coordinator (server/coordinator/watch/rules.c): when an alarm begins and ends, its
// text and its notices, that it pauses the run once, and that it survives a power cut.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/hook.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/rules.h"
#include "server/coordinator/watch/rules_text.h"
#include "tests/cores/words.h"

struct world {
    struct rig *r;
    struct ps_rules rules;
    double disk_free;
    uint32_t calls;
    char last[PS_CO_NOTICE_BYTES]; // the last notice
};

static bool tell_machine(void *arg, double *disk_free, double *certificate_s)
{
    const struct world *w = arg;
    *disk_free = w->disk_free;
    *certificate_s = 1e9;
    return true;
}

static int64_t hear(void *arg, const struct ps_co_notice *notice, const atomic_bool *stop,
                    struct ps_co_call_end *end)
{
    struct world *w = arg;
    (void)stop;
    if (!strcmp(notice->to, "alarm") || !strcmp(notice->to, "clear")) {
        w->calls++;
        memcpy(w->last, notice->body, sizeof w->last);
    }
    end->ok = true;
    return 0;
}

// Gives the running coordinator these rules.
static void attach(struct world *w)
{
    struct ps_co_conf *conf = &w->r->coordinator->conf;
    conf->rules = &w->rules;
    conf->machine = tell_machine;
    conf->machine_arg = w;
    conf->hook = (struct ps_co_hook_conf){hear, w, "a-run"};
    free(w->r->coordinator->hook);
    assert_int_equal(ps_co_hook_make(w->r->coordinator), LH_OK);
    assert_int_equal(ps_co_load_alarms(w->r->coordinator), LH_OK);
}

static struct world *begin(const char *rules)
{
    struct world *w = test_calloc(1, sizeof *w);
    w->r = begun_run(100, 0);
    w->disk_free = 1e12;
    if (ps_rules_parse(rules, &w->rules)) fail_msg("%s", lh_err_text(LH_ERR_CONFIG));
    attach(w);
    return w;
}

static void end(struct world *w)
{
    rig_free(w->r);
    test_free(w);
}

// Lets so many seconds pass, in which the coordinator hears the workers whose bits are set.
static void live(struct world *w, int seconds, unsigned workers)
{
    for (int i = 0; i < seconds; i++) {
        struct words s = {0};
        for (uint32_t k = 0; k < RIG_WORKERS; k++)
            if (workers >> k & 1) (void)say(w->r, k, &s);
        rig_run(w->r, LH_SECOND);
    }
}

static const json_t *row_of(json_t *rows, const char *rule)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (!strcmp(json_string_value(json_object_get(row, "rule")), rule)) return row;
    }
    fail_msg("no rule %s in the status", rule);
    return NULL;
}

// `region` is NULL if the alarm should not be active.
static void assert_alarm(const struct world *w, const char *rule, const char *region)
{
    json_t *rows = ps_co_rules_status(w->r->coordinator);
    const json_t *row = row_of(rows, rule);
    assert_int_equal(json_is_true(json_object_get(row, "active")), region != NULL);
    if (region) assert_string_equal(json_string_value(json_object_get(row, "region")), region);
    json_decref(rows);
}

static void assert_told(const struct world *w, uint32_t calls, const char *event)
{
    assert_int_equal(w->calls, calls);
    json_t *body = json_loads(w->last, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(body, "event")), event);
    json_decref(body);
}

TEST(a_region_that_is_silent_is_an_alarm_until_it_is_heard_for_a_while)
{
    struct world *w = begin("away: silent > 5s for 4s");
    const char *region = w->r->w[1].self.region;
    live(w, 10, 3);
    assert_alarm(w, "away", NULL);
    live(w, 7, 1); // above the bound, but not for long enough
    assert_alarm(w, "away", NULL);
    live(w, 2, 3);
    assert_alarm(w, "away", NULL);
    live(w, 12, 1);
    assert_alarm(w, "away", region);
    assert_told(w, 1, "rule.alarm");
    assert_non_null(strstr(w->last, "silent "));
    live(w, 5, 3); // heard, but not for long enough
    assert_alarm(w, "away", region);
    live(w, 7, 1);
    live(w, 5, 3);
    assert_alarm(w, "away", region);
    live(w, 12, 3);
    assert_alarm(w, "away", NULL);
    assert_told(w, 2, "rule.clear");
    end(w);
}

// The coordinator's disk has no region. The alarm stays active, but an operator's resume prevails.
TEST(a_rule_pauses_the_run_once)
{
    struct world *w = begin("disk: disk_free < 5GB then pause; quiet: failing");
    bool changed;
    live(w, 3, 3);
    assert_false(w->r->coordinator->pause.is);
    w->disk_free = 4e9;
    live(w, 3, 3);
    assert_alarm(w, "disk", "");
    assert_true(w->r->coordinator->pause.is);
    assert_string_equal(w->r->coordinator->pause.by, "rule disk");
    assert_string_equal(w->r->coordinator->pause.why, "disk_free 4e+09 < 5e+09");
    assert_int_equal(ps_co_resume(w->r->coordinator, "boss", "", &changed), LH_OK);
    live(w, 30, 3);
    assert_alarm(w, "disk", "");
    assert_false(w->r->coordinator->pause.is);
    assert_told(w, 1, "rule.alarm");

    rig_settle(w->r);
    lh_fake_kill(w->r->c.env, true);
    rig_kill_coordinator(w->r);
    rig_start_coordinator(w->r);
    attach(w);
    assert_alarm(w, "disk", "");
    live(w, 40, 3);
    assert_alarm(w, "disk", "");
    assert_false(w->r->coordinator->pause.is); // it did not begin a second time
    assert_int_equal(w->calls, 1);
    w->disk_free = 1e12;
    live(w, 15, 3);
    assert_alarm(w, "disk", NULL);
    w->disk_free = 1e9;
    live(w, 3, 3);
    assert_true(w->r->coordinator->pause.is); // another alarm pauses again
    end(w);
}

// The hook is called once an alarm's row is durable, and not for one that a full disk took back.
TEST(an_alarm_that_found_no_room_is_told_once)
{
    struct world *w = begin("disk: disk_free < 5GB");
    live(w, 3, 3);
    rig_settle(w->r);
    lh_fake_disk_limit(w->r->c.env, 1);
    w->disk_free = 4e9;
    rig_run(w->r, 10 * LH_SECOND);
    assert_int_equal(w->calls, 0);
    lh_fake_disk_limit(w->r->c.env, 0);
    live(w, 10, 3);
    assert_alarm(w, "disk", "");
    assert_told(w, 1, "rule.alarm");
    rig_settle(w->r);
    lh_fake_disk_limit(w->r->c.env, 1);
    w->disk_free = 1e12;
    rig_run(w->r, 30 * LH_SECOND);
    assert_int_equal(w->calls, 1);
    lh_fake_disk_limit(w->r->c.env, 0);
    live(w, 30, 3);
    assert_alarm(w, "disk", NULL);
    assert_told(w, 2, "rule.clear");
    end(w);
}

// One region must meet both conditions: two regions that meet one each are no alarm.
TEST(loss_that_rises_while_the_region_waits)
{
    struct world *w = begin("diverging: loss_rise > 15% and utilisation < 40%");
    struct ps_coordinator *c = w->r->coordinator;
    static const double calm[] = {4, 4.1, 4.2, 4.3, 4.4, 4.5}, wild[] = {4, 4, 4.2, 4.5, 4.8};
    const char *region = w->r->w[1].self.region;
    for (uint32_t k = 0; k < c->workers; k++) {
        c->worker[k].admitted = calloc(c->conf.manifest->shards, sizeof *c->worker[k].admitted);
        assert_non_null(c->worker[k].admitted);
    }
    for (size_t i = 0; i < LH_COUNT(calm); i++) {
        live(w, 1, 3);
        for (uint32_t k = 0; k < c->workers; k++) {
            struct ps_co_worker *of = &c->worker[k];
            bool second = !strcmp(of->region, region);
            of->admitted[0].pushes = i + 1;
            of->measured.loss = second ? calm[i] : wild[i < LH_COUNT(wild) ? i : 4];
            of->measured.utilisation = second ? 0.2 : 0.9;
        }
        rig_run(w->r, 2 * LH_SECOND);
        assert_alarm(w, "diverging", NULL);
    }
    for (uint32_t k = 0; k < c->workers; k++)
        if (!strcmp(c->worker[k].region, region)) {
            c->worker[k].admitted[0].pushes++;
            c->worker[k].measured.loss = 5.2;
        }
    rig_run(w->r, 2 * LH_SECOND);
    assert_alarm(w, "diverging", region);
    assert_non_null(strstr(w->last, "loss_rise 0.2"));
    assert_non_null(strstr(w->last, "utilisation 0.2 < 0.4"));
    end(w);
}

TEST(a_paused_run_is_not_judged_by_its_progress)
{
    struct world *w = begin("still: utilisation < 50%; away: silent > 5s");
    struct ps_coordinator *c = w->r->coordinator;
    bool changed;
    assert_int_equal(ps_co_pause(c, "boss", "", &changed), LH_OK);
    for (uint32_t k = 0; k < c->workers; k++) c->worker[k].measured.utilisation = 0.1;
    rig_run(w->r, 8 * LH_SECOND);
    assert_alarm(w, "still", NULL);
    assert_alarm(w, "away", w->r->coordinator->worker[0].region);
    end(w);
}

static void expel(struct rig *r, uint32_t w)
{
    struct lh_expel_request m = {.name = r->w[w].self.name, .region = ""};
    struct ps_co_expelled who;
    bool changed;
    assert_int_equal(ps_co_expel(r->coordinator, &r->c.self, &m, &who, &changed), LH_OK);
    rig_settle(r);
}

// An operator expelled the worker: its silence raises no alarm, and pauses nothing.
TEST(expelled_workers_are_not_judged)
{
    struct world *w = begin("away: silent > 5s then pause");
    live(w, 3, 3);
    expel(w->r, 1);
    live(w, 20, 1);
    assert_alarm(w, "away", NULL);
    assert_false(w->r->coordinator->pause.is);
    end(w);
}

// A worker that takes the index of a retired one does not inherit its losses.
TEST(losses_are_of_one_worker)
{
    struct world *w = begin("diverging: loss_rise > 15% then pause");
    struct ps_coordinator *c = w->r->coordinator;
    uint64_t id[RIG_WORKERS];
    for (uint32_t k = 0; k < c->workers; k++) {
        id[k] = c->worker[k].id;
        c->worker[k].admitted = calloc(c->conf.manifest->shards, sizeof *c->worker[k].admitted);
        assert_non_null(c->worker[k].admitted);
    }
    for (uint64_t i = 1; i <= 6; i++) {
        live(w, 1, 3);
        for (uint32_t k = 0; k < c->workers; k++) {
            c->worker[k].admitted[0].pushes = i + (k ? 100 : 0);
            c->worker[k].measured.loss = k ? 9 : 2;
        }
        rig_run(w->r, 2 * LH_SECOND);
    }
    assert_alarm(w, "diverging", NULL);
    struct ps_co_worker gone = c->worker[0]; // as retired.c moves the last one to its place
    c->worker[0] = c->worker[1];
    c->workers = 1;
    assert_int_equal(c->worker[0].id, id[1]);
    rig_run(w->r, 3 * LH_SECOND);
    assert_alarm(w, "diverging", NULL);
    assert_false(c->pause.is);
    c->worker[1] = c->worker[0];
    c->worker[0] = gone;
    c->workers = 2;
    end(w);
}
