// Workers' states, and the hook that is called for each change of them (server/coordinator/watch).
// A worker is lost after 15 s of silence, and suspect after half of that.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/watch/hook.h"
#include "server/coordinator/watch/states.h"
#include "tests/cores/words.h"

enum { BOUND_S = 15, KEPT = 64 };

struct ear { // stands for the operator's command
    struct rig *r;
    struct ps_co_notice notice[KEPT]; // the first calls
    int64_t at_ms[KEPT];
    uint32_t calls;
    bool fails;
    int64_t lasts_ns;
    struct lh_log *log;
};

static int64_t hear(void *arg, const struct ps_co_notice *notice, const atomic_bool *stop,
                    struct ps_co_call_end *end)
{
    struct ear *e = arg;
    assert_false(atomic_load(stop));
    if (e->calls < KEPT) {
        e->notice[e->calls] = *notice;
        e->at_ms[e->calls] = lh_now(e->r->c.env) / LH_MS;
    }
    e->calls++;
    end->ok = !e->fails;
    snprintf(end->says, sizeof end->says, "by hand");
    return e->lasts_ns;
}

// Makes the running coordinator call the ear from here on.
static void attach(struct ear *e)
{
    struct ps_coordinator *c = e->r->coordinator;
    c->conf.worker_timeout_ns = (int64_t)BOUND_S * LH_SECOND;
    c->conf.hook = (struct ps_co_hook_conf){hear, e, "a-run"};
    free(c->hook);
    assert_int_equal(ps_co_hook_make(c), LH_OK);
}

// A run of both workers.
static int begin(void **state)
{
    struct ear *e = test_calloc(1, sizeof *e);
    e->r = begun_run(100, 0);
    attach(e);
    *state = e;
    return 0;
}

static void keep_log(struct ear *e)
{
    rig_boot_standby(e->r);
    e->r->coordinator->conf.log = e->log = rig_log_lines(e->r);
}

static int end(void **state)
{
    struct ear *e = *state;
    if (e->log) {
        e->r->coordinator->conf.log = NULL;
        lh_log_close(e->log);
    }
    rig_free(e->r);
    test_free(e);
    return 0;
}

#define EAR_TEST(name, parameter) TEST_WITH(name, parameter, begin, end)

// Sends a lease request of worker w.
static void speak(struct ear *e, uint32_t w, bool drained)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(e->r, w);
    m.drained = drained;
    assert_int_equal(rig_say(e->r, e->r->to_c[w], LH_RPC_LEASE, &m.base), LH_OK);
}

// Lets so many seconds pass, in which the workers of these bits report.
static void live(struct ear *e, int64_t seconds, unsigned workers)
{
    for (int64_t i = 0; i < seconds; i++) {
        for (uint32_t w = 0; w < RIG_WORKERS; w++)
            if (workers >> w & 1) speak(e, w, false);
        rig_run(e->r, LH_SECOND);
    }
}

static void drain(struct ear *e, uint32_t w, bool undo)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    m.worker = e->r->w[w].self.name;
    m.undo = undo;
    assert_int_equal(ps_co_drain(e->r->coordinator, &m, &named), LH_OK);
    rig_settle(e->r);
}

// Checks that this call, counted from 0, is about worker w.
static void assert_told(const struct ear *e, uint32_t call, uint32_t w, const char *from,
                        const char *to)
{
    assert_true(call < e->calls && call < KEPT);
    const struct ps_co_notice *n = &e->notice[call];
    assert_string_equal(n->name, e->r->w[w].self.name);
    assert_string_equal(n->region, e->r->w[w].self.region);
    assert_string_equal(n->from, from);
    assert_string_equal(n->to, to);
}

static json_t *body_of(const struct ps_co_notice *n)
{
    json_t *body = json_loads(n->body, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(body);
    assert_int_equal(strlen(n->body), n->bytes);
    return body;
}

static const char *text_of(const json_t *body, const char *key)
{
    const char *text = json_string_value(json_object_get(body, key));
    assert_non_null(text);
    return text;
}

static int64_t number_of(const struct ps_co_notice *n, const char *key)
{
    json_t *body = body_of(n);
    assert_true(json_is_integer(json_object_get(body, key)));
    int64_t number = json_integer_value(json_object_get(body, key));
    json_decref(body);
    return number;
}

// ---------------------------------------------------------------- the states

EAR_TEST(a_silent_worker_is_suspect_and_live_again, struct ear *e)
{
    live(e, 60, 3);
    assert_int_equal(e->calls, 0);
    live(e, BOUND_S / 2 - 1, 1);
    assert_int_equal(e->calls, 0);
    live(e, 4, 1);
    assert_int_equal(e->calls, 1);
    assert_told(e, 0, 1, "live", "suspect");
    assert_true(e->r->coordinator->worker[1].live); // it keeps its units
    live(e, 2, 3);
    assert_int_equal(e->calls, 2);
    assert_told(e, 1, 1, "suspect", "live");
}

EAR_TEST(a_worker_that_stays_silent_is_lost_and_may_come_back, struct ear *e)
{
    live(e, 10, 3);
    int64_t silent_from = lh_now(e->r->c.env) / LH_MS;
    live(e, 2 * BOUND_S, 1);
    assert_int_equal(e->calls, 2);
    assert_told(e, 0, 1, "live", "suspect");
    assert_told(e, 1, 1, "suspect", "lost");
    assert_in_range(e->at_ms[0] - silent_from, 6000, 9000);
    assert_in_range(e->at_ms[1] - silent_from, 13000, 17000);
    live(e, 2, 3);
    assert_int_equal(e->calls, 3);
    assert_told(e, 2, 1, "lost", "live");
}

EAR_TEST(one_that_drained_is_not_lost_however_silent, struct ear *e)
{
    live(e, 5, 3);
    drain(e, 1, false);
    live(e, 5, 3); // it still has something to push
    assert_int_equal(e->calls, 0);
    speak(e, 1, true);
    live(e, 2, 1);
    assert_int_equal(e->calls, 1);
    assert_told(e, 0, 1, "live", "drained");
    live(e, 3 * BOUND_S, 1); // an operator has stopped it
    assert_int_equal(e->calls, 1);
    speak(e, 1, true);
    drain(e, 1, true);
    live(e, 2, 3);
    assert_int_equal(e->calls, 2);
    assert_told(e, 1, 1, "drained", "live");
}

EAR_TEST(a_word_that_changes_each_time_is_told_seldom, struct ear *e)
{
    live(e, 5, 3);
    drain(e, 1, false);
    for (int i = 0; i < 200; i++) {
        speak(e, 1, i % 2 == 0);
        rig_run(e->r, 50 * LH_MS);
    }
    assert_in_range(e->calls, 1, 20);
    speak(e, 1, true);
    for (int i = 0; i < 12; i++) live(e, 1, 1);
    assert_int_equal(e->r->coordinator->worker[1].state, PS_CO_DRAINED); // The last one is told.
}

EAR_TEST(a_worker_that_says_done_too_early_is_not_done, struct ear *e)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    live(e, 5, 3);
    m.incarnation = UINT64_C(1) << 32;
    m.done = true;
    assert_int_equal(rig_say(e->r, e->r->to_c[0], LH_RPC_LEASE, &m.base), LH_OK);
    assert_false(e->r->coordinator->worker[0].done);
    assert_int_equal(e->calls, 0);
}

EAR_TEST(the_end_of_the_run_loses_nobody, struct ear *e)
{
    live(e, 5, 3);
    e->r->coordinator->worker[0].done = true;
    e->r->coordinator->plan.phase = LH_PHASE_END;
    rig_run(e->r, 3 * BOUND_S * LH_SECOND);
    assert_int_equal(e->calls, 1);
    assert_told(e, 0, 0, "live", "done");
}

TEST(a_joining_worker_is_new)
{
    struct ear e = {.r = rig_new(1)};
    rig_start_coordinator(e.r);
    attach(&e);
    assert_int_equal(rig_join(e.r, 0, 11, 0).granted, 1);
    rig_run(e.r, LH_SECOND);
    assert_int_equal(e.calls, 1);
    assert_told(&e, 0, 0, "new", "live");
    rig_free(e.r);
}

// A worker in the store is not new, and one that is gone is reported once more.
EAR_TEST(a_restarted_coordinator_takes_all_for_live, struct ear *e)
{
    live(e, 2 * BOUND_S, 1);
    assert_int_equal(e->calls, 2);
    rig_kill_coordinator(e->r);
    rig_start_coordinator(e->r);
    attach(e);
    rig_run(e->r, LH_SECOND);
    assert_int_equal(e->calls, 2);
    rig_run(e->r, 6 * BOUND_S * LH_SECOND); // nobody is heard
    assert_int_equal(e->calls, 6);
    for (uint32_t i = 2; i < 6; i++)
        assert_string_equal(e->notice[i].from, i < 4 ? "live" : "suspect");
}

// ---------------------------------------------------------------- what is told

EAR_TEST(a_notice_names_the_member_and_its_silence, struct ear *e)
{
    live(e, 2 * BOUND_S, 1);
    assert_int_equal(e->calls, 2);
    json_t *body = body_of(&e->notice[1]);
    assert_string_equal(text_of(body, "run"), "a-run");
    assert_string_equal(text_of(body, "event"), "member.state");
    assert_string_equal(text_of(body, "role"), "worker");
    assert_string_equal(text_of(body, "name"), e->r->w[1].self.name);
    assert_string_equal(text_of(body, "region"), e->r->w[1].self.region);
    assert_string_equal(text_of(body, "from"), "suspect");
    assert_string_equal(text_of(body, "to"), "lost");
    assert_true(json_number_value(json_object_get(body, "bound_s")) == BOUND_S);
    double silent_s = json_number_value(json_object_get(body, "silent_s"));
    assert_true(silent_s >= BOUND_S && silent_s < BOUND_S + 2);
    assert_true(json_integer_value(json_object_get(body, "at")) > 1700000000);
    json_decref(body);
    assert_int_equal(number_of(&e->notice[1], "number"), number_of(&e->notice[0], "number") + 1);
    assert_int_equal(number_of(&e->notice[1], "dropped"), 0);
}

EAR_TEST(the_log_has_each_change_without_a_hook_too, struct ear *e)
{
    keep_log(e);
    e->r->coordinator->conf.hook.call = NULL;
    free(e->r->coordinator->hook);
    assert_int_equal(ps_co_hook_make(e->r->coordinator), LH_OK);
    live(e, 2 * BOUND_S, 1);
    assert_int_equal(e->calls, 0);
    assert_int_equal(rig_said(e->r, "member.state"), 2);
    assert_int_equal(rig_said(e->r, "live -> suspect"), 1);
    assert_int_equal(rig_said(e->r, "suspect -> lost"), 1);
    assert_int_equal(ps_co_changes_waiting(e->r->coordinator), 0);
    assert_null(ps_co_hook_status(e->r->coordinator));
}

// ---------------------------------------------------------------- failures

EAR_TEST(a_failure_is_told_anew_and_then_given_up, struct ear *e)
{
    static const int64_t pause_ms[PS_CO_HOOK_TRIES - 1] = {1000, 2000, 4000, 8000};
    keep_log(e);
    live(e, 5, 3);
    e->fails = true;
    drain(e, 1, false);
    speak(e, 1, true);
    live(e, 30, 1);
    assert_int_equal(e->calls, PS_CO_HOOK_TRIES);
    for (uint32_t i = 0; i < PS_CO_HOOK_TRIES; i++) {
        assert_told(e, i, 1, "live", "drained");
        assert_string_equal(e->notice[i].body, e->notice[0].body); // a receiver knows it by its id
        if (!i) continue;
        int64_t pause = e->at_ms[i] - e->at_ms[i - 1];
        assert_in_range(pause, pause_ms[i - 1], pause_ms[i - 1] + 500);
    }
    assert_int_equal(rig_said(e->r, "hook.failed"), PS_CO_HOOK_TRIES - 1);
    assert_int_equal(rig_said(e->r, "hook.given_up"), 1);
    e->fails = false;
    live(e, 10, 0); // not long enough to be lost
    assert_int_equal(e->calls, PS_CO_HOOK_TRIES + 1);
    assert_told(e, PS_CO_HOOK_TRIES, 0, "live", "suspect");
    assert_int_equal(rig_said(e->r, "hook.told"), 1);
}

// One call is under way at a time, and everything else goes on meanwhile.
EAR_TEST(a_hook_that_hangs_holds_nobody_up, struct ear *e)
{
    live(e, 5, 3);
    e->fails = true;
    e->lasts_ns = 100 * LH_SECOND; // until its timeout
    live(e, 60, 1);                // worker 0 is answered
    assert_int_equal(e->calls, 1);
    assert_false(e->r->coordinator->worker[1].live);
    assert_int_equal(ps_co_changes_waiting(e->r->coordinator), 1); // the loss
    e->lasts_ns = 0;
    e->fails = false;
    live(e, 60, 1);
    assert_int_equal(e->calls, 3); // the first one is repeated
    assert_string_equal(e->notice[1].body, e->notice[0].body);
    assert_told(e, 2, 1, "suspect", "lost");
}

// Makes so many changes at once, as if many workers changed.
static void make_changes(struct ear *e, uint32_t count)
{
    struct ps_co_worker *w = &e->r->coordinator->worker[0];
    for (uint32_t i = 0; i < count; i++) {
        w->drained = true;
        w->asked = !w->asked;
        w->notes = 0;
        ps_co_states_look(e->r->coordinator);
    }
}

EAR_TEST(the_queue_is_bounded_and_the_oldest_go, struct ear *e)
{
    enum { MORE = 44, ALL = 2 + PS_CO_CHANGES_MAX + MORE };
    struct ps_coordinator *c = e->r->coordinator;
    keep_log(e);
    live(e, 5, 3);
    e->lasts_ns = 100 * LH_SECOND;
    make_changes(e, 2);
    rig_run(e->r, LH_SECOND);
    assert_int_equal(e->calls, 1);
    assert_int_equal(ps_co_changes_waiting(c), 1);
    make_changes(e, PS_CO_CHANGES_MAX - 1);
    assert_int_equal(ps_co_changes_waiting(c), PS_CO_CHANGES_MAX);
    assert_int_equal(ps_co_changes_dropped(c), 0);
    assert_int_equal(rig_said(e->r, "hook.dropped"), 0);
    make_changes(e, MORE + 1);
    assert_int_equal(ps_co_changes_waiting(c), PS_CO_CHANGES_MAX);
    assert_int_equal(ps_co_changes_dropped(c), MORE + 1);
    assert_int_equal(rig_said(e->r, "hook.dropped"), 1);
    e->lasts_ns = 0;
    live(e, 110, 3);
    assert_int_equal(ps_co_changes_waiting(c), 0);
    assert_int_equal(e->calls, ALL - MORE - 1);
    int64_t first = number_of(&e->notice[0], "number");
    assert_int_equal(number_of(&e->notice[1], "number"), first + 1 + MORE + 1);
    assert_int_equal(number_of(&e->notice[1], "dropped"), MORE + 1);
    for (uint32_t i = 2; i < KEPT; i++)
        assert_int_equal(number_of(&e->notice[i], "number"), first + MORE + 1 + i);
}

EAR_TEST(a_coordinator_ends_while_a_call_is_under_way, struct ear *e)
{
    e->lasts_ns = 100 * LH_SECOND;
    live(e, BOUND_S, 1);
    assert_int_equal(e->calls, 1);
    ps_coordinator_close(e->r->coordinator); // as when the process ends: the lane stops
    rig_run(e->r, 200 * LH_SECOND);
    assert_int_equal(e->calls, 1);
}

EAR_TEST(operators_see_it, struct ear *e)
{
    live(e, 2 * BOUND_S, 1);
    json_t *row = ps_co_hook_status(e->r->coordinator);
    static const struct {
        const char *key;
        int is;
    } has[] = {{"told", 2}, {"waiting", 0}, {"given_up", 0}, {"dropped", 0}, {"failures", 0}};
    for (size_t i = 0; i < LH_COUNT(has); i++) {
        assert_true(json_is_integer(json_object_get(row, has[i].key)));
        assert_int_equal(json_integer_value(json_object_get(row, has[i].key)), has[i].is);
    }
    assert_string_equal(json_string_value(json_object_get(row, "says")), "by hand");
    json_decref(row);
}
