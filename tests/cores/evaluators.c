// The last worker that evaluates the model on held-out texts leaves, and the run goes on: the
// coordinator logs this once, with the reason, and logs when a worker evaluates again.
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/watch/expelled.h"
#include "tests/cores/stalling.h"
#include "tests/cores/words.h"

struct run {
    struct rig *r;
    struct lh_log *log;
    struct words asia, europe; // asia's loop evaluates
};

static void say_both(struct run *s)
{
    say(s->r, 1, &s->europe);
    if (!ps_co_barred(s->r->coordinator, worker_of(s->r, 0))) say(s->r, 0, &s->asia);
}

static struct run begin(void)
{
    struct run s = {.r = stalling(64), .asia = TRAINS, .europe = TRAINS};
    lh_fake_boot(s.r->t.env);
    s.log = s.r->coordinator->conf.log = rig_log_lines(s.r);
    s.asia.evaluates = true;
    say_both(&s);
    s.asia.evaluates = false; // a new process of the worker, before its loop's next evaluation
    say_both(&s);
    rig_settle(s.r);
    assert_int_equal(rig_said(s.r, "eval."), 0);
    return s;
}

// For so long europe trains, and asia reports unless it is barred or `silent`.
static void goes_on(struct run *s, int64_t seconds, bool silent)
{
    for (int64_t i = 0; i < seconds; i++) {
        rig_run(s->r, LH_SECOND);
        if (silent)
            say(s->r, 1, &s->europe);
        else
            say_both(s);
    }
    rig_settle(s->r);
}

static void end(struct run *s)
{
    s->r->coordinator->conf.log = NULL;
    lh_log_close(s->log);
    rig_free(s->r);
}

static void it_was_said(struct run *s, const char *why)
{
    char text[320];
    snprintf(text, sizeof text,
             "%s of %s, the last worker that evaluated the model on held-out "
             "texts, %s: nobody",
             s->r->w[0].self.name, s->r->w[0].self.region, why);
    assert_int_equal(rig_said(s->r, "WARN rig eval.stopped"), 1);
    assert_int_equal(rig_said(s->r, text), 1);
}

static void expel(struct run *s, uint32_t w, bool admit)
{
    struct lh_expel_request m = {.name = s->r->w[w].self.name, .region = "", .admit = admit};
    struct ps_co_expelled who;
    bool changed;
    assert_int_equal(ps_co_expel(s->r->coordinator, &s->r->c.self, &m, &who, &changed), LH_OK);
    rig_settle(s->r);
}

static void drain(struct run *s, const char *worker, bool undo)
{
    struct lh_drain_request m = {.region = "", .worker = worker, .undo = undo};
    struct ps_co_worker *named;
    assert_int_equal(ps_co_drain(s->r->coordinator, &m, &named), LH_OK);
    rig_settle(s->r);
}

TEST(the_one_that_evaluates_is_expelled_and_let_back)
{
    struct run s = begin();
    expel(&s, 0, false);
    goes_on(&s, 5, false);
    it_was_said(&s, "is expelled");
    assert_int_equal(rig_said(s.r, "eval.resumed"), 0);
    expel(&s, 0, true);
    goes_on(&s, 5, false);
    assert_int_equal(rig_said(s.r, "eval.resumed"), 1);
    it_was_said(&s, "is expelled");
    end(&s);
}

TEST(it_is_drained)
{
    struct run s = begin();
    drain(&s, s.r->w[0].self.name, false);
    s.asia.drained = true;
    s.asia.want = 0;
    goes_on(&s, 5, false);
    it_was_said(&s, "is drained");
    end(&s);
}

TEST(it_is_lost)
{
    struct run s = begin();
    s.r->coordinator->conf.worker_timeout_ns = 15 * LH_SECOND;
    goes_on(&s, 60, true);
    it_was_said(&s, "is lost");
    end(&s);
}

// An evaluation takes long and is no step, so a worker that has stalled for a while may be
// evaluating.
TEST(it_is_stalled_for_good)
{
    struct run s = begin();
    s.asia.idle_ms = (FLOOR_S + 1) * 1000;
    goes_on(&s, 60, false);
    assert_true(is_stalled(s.r, 0));
    assert_int_equal(rig_said(s.r, "eval."), 0);
    goes_on(&s, 10 * FLOOR_S, false);
    it_was_said(&s, "is stalled");
    s.asia.idle_ms = 0;
    goes_on(&s, 5, false);
    assert_int_equal(rig_said(s.r, "eval.resumed"), 1);
    end(&s);
}

TEST(its_loop_comes_back_no_more)
{
    struct run s = begin();
    s.asia.loop_away = true;
    goes_on(&s, 200, false);
    s.asia.loop_away = false; // it was started again
    goes_on(&s, 2, false);
    s.asia.loop_away = true;
    goes_on(&s, 200, false);
    assert_int_equal(rig_said(s.r, "eval."), 0);
    goes_on(&s, 110, false);
    it_was_said(&s, "has had no training loop for minutes");
    end(&s);
}

TEST(where_two_evaluate_the_other_one_goes_on)
{
    struct run s = begin();
    s.europe.evaluates = true;
    say_both(&s);
    expel(&s, 0, false);
    goes_on(&s, 5, false);
    assert_int_equal(rig_said(s.r, "eval."), 0);
    end(&s);
}

TEST(where_nobody_evaluates_or_all_stand_still_nothing_is_said)
{
    struct run s = begin();
    expel(&s, 1, false); // it never evaluated
    rig_run(s.r, LH_SECOND);
    expel(&s, 1, true);
    goes_on(&s, 2, false);
    drain(&s, "", false); // the whole run
    s.asia.drained = true;
    goes_on(&s, 5, false);
    assert_int_equal(ps_co_worker_state(s.r->coordinator, worker_of(s.r, 0)), PS_CO_DRAINED);
    assert_int_equal(rig_said(s.r, "eval."), 0);
    end(&s);
}
