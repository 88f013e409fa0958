// Workers that the schedule wants, and the calls for them (server/coordinator/scale.c). The wall
// clock of the fake env begins at 22:13:20 UTC.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/scale.h"
#include "server/coordinator/schedule.h"
#include "tests/cores/words.h"

enum { GRACE_S = 15, EVERY_S = 300, CALLS = 64 };

struct supplier { // played by the test
    struct rig *r;
    struct ps_schedule schedule;
    struct ps_co_scale_wish wish[CALLS];
    int64_t at_s[CALLS], began_s; // times of the first calls, from `began_s` on
    uint32_t calls;
    bool fails;
    int64_t lasts_ns;
};

static int64_t now_s(const struct rig *r)
{
    return lh_now(r->c.env) / LH_SECOND;
}

static int64_t supply(void *arg, const struct ps_co_scale_wish *wish, const atomic_bool *stop,
                      struct ps_co_call_end *end)
{
    struct supplier *s = arg;
    assert_false(atomic_load(stop));
    if (s->calls < CALLS) {
        s->wish[s->calls] = *wish;
        s->at_s[s->calls] = now_s(s->r) - s->began_s;
    }
    s->calls++;
    end->ok = !s->fails;
    snprintf(end->says, sizeof end->says, "by hand");
    return s->lasts_ns;
}

// Starts a run of both workers with this schedule.
static struct supplier *begin(const char *schedule)
{
    struct supplier *s = test_calloc(1, sizeof *s);
    s->r = begun_run(100, 0);
    struct ps_coordinator *c = s->r->coordinator;
    assert_int_equal(ps_schedule_parse(schedule, &s->schedule), LH_OK);
    free(c->scale);
    c->conf.scale =
        (struct ps_co_scale_conf){&s->schedule, supply, s, (int64_t)EVERY_S * LH_SECOND};
    assert_int_equal(ps_co_scale_make(c), LH_OK);
    s->began_s = now_s(s->r);
    return s;
}

static void end(struct supplier *s)
{
    rig_free(s->r);
    test_free(s);
}

// Lets so many seconds pass, in which the coordinator hears the workers whose bits are set.
static void live(struct supplier *s, int64_t seconds, unsigned workers)
{
    const struct words nothing = {.ahead = 1};
    for (int64_t i = 0; i < seconds; i += 5) {
        for (uint32_t w = 0; w < RIG_WORKERS; w++)
            if (workers >> w & 1) say(s->r, w, &nothing);
        rig_run(s->r, 5 * LH_SECOND);
    }
}

TEST(the_supplier_is_told_again_and_again)
{
    struct supplier *s = begin("22:00=3");
    live(s, GRACE_S - 5, 3);
    assert_int_equal(s->calls, 0); // all workers get time to be heard
    live(s, EVERY_S, 3);
    assert_int_equal(s->calls, 1);
    assert_string_equal(s->wish[0].region, "");
    assert_int_equal(s->wish[0].wanted, 3);
    assert_int_equal(s->wish[0].present, 2);
    assert_in_range(s->at_s[0], GRACE_S, GRACE_S + 1);
    live(s, 2 * EVERY_S, 3);
    assert_int_equal(s->calls, 3);
    assert_in_range(s->at_s[2] - s->at_s[1], EVERY_S, EVERY_S + 2);
    end(s);
}

TEST(nobody_is_called_where_as_many_are_here)
{
    struct supplier *s = begin("22:00=2,22:20=1"); // after 400 s
    live(s, 350, 3);
    assert_int_equal(s->calls, 0);
    live(s, 100, 3);
    assert_int_equal(s->calls, 1);
    assert_int_equal(s->wish[0].wanted, 1);
    assert_int_equal(s->wish[0].present, 2);
    live(s, 2 * EVERY_S, 1); // worker 1 ends
    assert_int_equal(s->calls, 1);
    end(s);
}

TEST(another_number_does_not_wait_for_the_last_calls_pause)
{
    struct supplier *s = begin("22:00=3,22:16=4"); // after 160 s
    live(s, 200, 3);
    assert_int_equal(s->calls, 2);
    assert_int_equal(s->wish[0].wanted, 3);
    assert_int_equal(s->wish[1].wanted, 4);
    end(s);
}

TEST(a_lost_worker_is_missed)
{
    struct supplier *s = begin("22:00=2");
    live(s, 60, 3);
    assert_int_equal(s->calls, 0);
    live(s, 60, 1);
    assert_int_equal(s->calls, 1);
    assert_int_equal(s->wish[0].present, 1);
    end(s);
}

TEST(a_failure_is_tried_again_sooner_and_then_later)
{
    struct supplier *s = begin("22:00=3");
    rig_boot_standby(s->r);
    s->r->coordinator->conf.log = rig_log_lines(s->r);
    s->fails = true;
    live(s, 1800, 3);
    static const int64_t pause[] = {10, 20, 40, 80, 160, EVERY_S, EVERY_S};
    assert_true(s->calls > LH_COUNT(pause));
    for (size_t i = 0; i < LH_COUNT(pause); i++)
        assert_in_range(s->at_s[i + 1] - s->at_s[i], pause[i], pause[i] + 2);
    assert_int_equal(rig_said(s->r, "scale.failed"), s->calls);
    s->fails = false;
    for (int i = 0; i < 100 && !rig_said(s->r, "scale.answered"); i++) live(s, 5, 3);
    uint32_t calls = s->calls; // includes the one that succeeded
    live(s, EVERY_S - 20, 3);
    assert_int_equal(s->calls, calls);
    assert_int_equal(rig_said(s->r, "scale.answered"), 1);
    assert_int_equal(rig_said(s->r, "scale.called"), s->calls);
    lh_log_close(s->r->coordinator->conf.log);
    s->r->coordinator->conf.log = NULL;
    end(s);
}

TEST(each_region_has_a_number_of_its_own)
{
    struct rig *names = rig_new(1);
    char schedule[200];
    snprintf(schedule, sizeof schedule, "%s@22:00=2,%s@22:00=1,nowhere@22:00=1",
             names->w[0].self.region, names->w[1].self.region);
    struct supplier *s = begin(schedule);
    live(s, GRACE_S + 10, 3);
    assert_int_equal(s->calls, 2);
    assert_string_equal(s->wish[0].region, names->w[0].self.region);
    assert_int_equal(s->wish[0].wanted, 2);
    assert_int_equal(s->wish[0].present, 1);
    assert_string_equal(s->wish[1].region, "nowhere");
    assert_int_equal(s->wish[1].present, 0);
    rig_free(names);
    end(s);
}

static void drain(struct supplier *s, const char *region)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *named;
    m.region = region;
    assert_int_equal(ps_co_drain(s->r->coordinator, &m, &named), LH_OK);
    rig_settle(s->r);
}

TEST(nobody_is_called_for_what_an_operator_drains)
{
    struct rig *names = rig_new(1);
    char schedule[100];
    snprintf(schedule, sizeof schedule, "%s@22:00=2,22:00=2", names->w[0].self.region);
    struct supplier *s = begin(schedule);
    drain(s, names->w[0].self.region);
    live(s, GRACE_S + 10, 3);
    assert_int_equal(s->calls, 1); // the run has one worker of two
    assert_string_equal(s->wish[0].region, "");
    assert_int_equal(s->wish[0].present, 1);
    drain(s, "");
    live(s, 2 * EVERY_S, 3);
    assert_int_equal(s->calls, 1);
    rig_free(names);
    end(s);
}

// Only one call is under way at a time, and the coordinator goes on meanwhile.
TEST(a_long_call_holds_nobody_up)
{
    struct supplier *s = begin("22:00=3,nowhere@22:00=1");
    s->lasts_ns = 100 * LH_SECOND;
    live(s, GRACE_S + 90, 3); // their requests are answered
    assert_int_equal(s->calls, 1);
    live(s, 30, 3);
    assert_int_equal(s->calls, 2);
    assert_string_equal(s->wish[1].region, "nowhere");
    end(s);
}

// All calls together take longer than the pause after each.
TEST(calls_that_hang_keep_no_region_waiting_for_ever)
{
    enum { REGIONS = 12, EACH_S = 30 };
    char schedule[REGIONS * 16] = "";
    uint32_t calls[REGIONS] = {0};
    for (size_t i = 0, at = 0; i < REGIONS; i++)
        at += (size_t)snprintf(schedule + at, sizeof schedule - at, "%sr%zu@22:00=1", i ? "," : "",
                               i + 10);
    struct supplier *s = begin(schedule);
    s->fails = true;
    s->lasts_ns = EACH_S * LH_SECOND;
    live(s, (CALLS + 10) * EACH_S, 3);
    assert_true(s->calls >= CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t region = (uint32_t)strtoul(s->wish[i].region + 1, NULL, 10) - 10;
        assert_true(region < REGIONS);
        calls[region]++;
    }
    for (uint32_t i = 0; i < REGIONS; i++) assert_in_range(calls[i], 4, 8);
    end(s);
}

TEST(a_coordinator_ends_while_a_call_is_under_way)
{
    struct supplier *s = begin("22:00=3");
    s->lasts_ns = 100 * LH_SECOND;
    live(s, GRACE_S + 10, 3);
    assert_int_equal(s->calls, 1);
    ps_coordinator_close(s->r->coordinator); // as when a process ends: the lane becomes idle
    rig_run(s->r, 200 * LH_SECOND);
    end(s);
}

TEST(operators_see_it)
{
    struct supplier *s = begin("22:00=3");
    json_t *rows = ps_co_scale_status(s->r->coordinator);
    assert_int_equal(json_array_size(rows), 0); // the schedule was not looked at yet
    json_decref(rows);
    live(s, GRACE_S + 10, 3);
    rows = ps_co_scale_status(s->r->coordinator);
    const json_t *row = json_array_get(rows, 0);
    static const struct {
        const char *key;
        int is;
    } has[] = {{"wanted", 3}, {"present", 2}, {"calls", 1}, {"failures", 0}};
    for (size_t i = 0; i < LH_COUNT(has); i++)
        assert_int_equal(json_integer_value(json_object_get(row, has[i].key)), has[i].is);
    assert_string_equal(json_string_value(json_object_get(row, "at")), "22:00");
    assert_string_equal(json_string_value(json_object_get(row, "says")), "by hand");
    assert_true(json_integer_value(json_object_get(row, "called_at")) > 1700000000);
    json_decref(rows);
    end(s);
}

TEST(without_a_schedule_there_is_nothing)
{
    struct supplier *s = begin("");
    live(s, 60, 3);
    assert_int_equal(s->calls, 0);
    assert_null(ps_co_scale_status(s->r->coordinator));
    end(s);
}
