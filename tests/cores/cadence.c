// How many local steps a worker takes a round, and why (server/coordinator/cadence.c).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/cadence.h"
#include "server/coordinator/drain.h"
#include "tests/cores/words.h"
#include "worker/worker.h"

enum { BASE = 16 };

// A run with two live workers that have reported nothing yet.
static struct rig *begin(bool by_link, bool staged)
{
    struct rig *r = begun_run(100, 0);
    struct ps_co_conf *conf = &r->coordinator->conf;
    conf->worker_timeout_ns = 144000 * LH_SECOND; // no worker is lost between reports
    conf->h_base = BASE;
    conf->dylu = true;
    conf->by_link = by_link;
    conf->staged = staged;
    return r;
}

struct pace { // a worker's report
    double units_per_s, step_s, push_s, rtt_s, up, down;
    bool away; // its loop is away, and it asks for no unit
    uint64_t step_tokens;
};
static double rounds; // the run's rounds in the last answer to tell()

// Worker w reports this. Returns its H.
static uint32_t tell(struct rig *r, uint32_t w, const struct pace *p)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    Longhaul__V1__Estimate step = LONGHAUL__V1__ESTIMATE__INIT, push = step, up = step, down = step;
    Longhaul__V1__Trip trip = LONGHAUL__V1__TRIP__INIT;
    Longhaul__V1__Path path = LONGHAUL__V1__PATH__INIT, *paths[] = {&path};
    ProtobufCMessage *answer;
    m.want = !p->away;
    m.tokens_per_s = p->units_per_s * WORDS_TOKENS;
    step.mean = p->step_s;
    push.mean = p->push_s;
    up.mean = p->up;
    down.mean = p->down;
    trip.mean_us = (uint32_t)(p->rtt_s * 1e6);
    m.batch_s = &step;
    path.push_s = &push;
    path.up_bytes_per_s = &up;
    path.down_bytes_per_s = &down;
    path.trip = &trip;
    m.paths = paths;
    m.n_paths = p->push_s > 0;
    m.step_tokens = p->step_tokens;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    uint32_t h = ((Longhaul__V1__LeaseReply *)answer)->local_steps;
    rounds = ((Longhaul__V1__LeaseReply *)answer)->rounds;
    rig_free_message(answer);
    return h;
}

TEST(by_speed_each_round_takes_equal_time)
{
    struct rig *r = begin(false, false);
    struct pace fast = {.units_per_s = 8, .step_s = 0.1}, slow = {.units_per_s = 2, .step_s = 0.1};
    slow.push_s = 100; // does not count
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &slow), BASE / 4);
    slow.units_per_s = 2.6; // a change is followed at once
    assert_int_equal(tell(r, 1, &slow), 5);
    rig_free(r);
}

// A live worker goes on reporting the speed that it had.
TEST(a_worker_whose_loop_is_away_is_nobodys_fastest)
{
    struct rig *r = begin(false, false);
    struct pace fast = {.units_per_s = 8, .step_s = 0.1}, slow = {.units_per_s = 2, .step_s = 0.1};
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &slow), BASE / 4);
    fast.away = true;
    assert_int_equal(tell(r, 0, &fast), BASE); // its own H stays
    assert_int_equal(tell(r, 1, &slow), BASE);
    fast.away = false;
    assert_int_equal(tell(r, 0, &fast), BASE); // It counts again at once.
    assert_int_equal(tell(r, 1, &slow), BASE / 4);
    rig_free(r);
}

// The run's tokens over those that all workers train in a round; the density depends on it.
TEST(rounds_are_told)
{
    struct rig *r = begin(false, false);
    struct ps_co_conf *conf = &r->coordinator->conf;
    const double tokens = 100.0 * WORDS_TOKENS;
    struct pace fast = {.units_per_s = 8, .step_s = 0.1}, slow = {.units_per_s = 2, .step_s = 0.1};
    conf->workers = 2;
    tell(r, 0, &fast);
    assert_true(rounds == 0); // no worker has reported the tokens of a step
    fast.step_tokens = 2;
    tell(r, 0, &fast);
    assert_true(fabs(rounds - tokens / (2.0 * BASE * 2)) < 1e-9); // assumed of both
    tell(r, 1, &slow);
    slow.step_tokens = 4;
    tell(r, 1, &slow);
    assert_true(fabs(rounds - tokens / (BASE * 2 + BASE / 4.0 * 4)) < 1e-9);
    conf->budget_tokens = 10 * WORDS_TOKENS;
    tell(r, 1, &slow);
    assert_true(fabs(rounds - tokens / 10 / (BASE * 2 + BASE / 4.0 * 4)) < 1e-9);
    conf->budget_tokens = 1; // a run has at least one round
    tell(r, 1, &slow);
    assert_true(fabs(rounds - 1) < 1e-9);
    rig_free(r);
}

// Nothing is decided or logged for a worker without a measured speed.
TEST(no_pace_is_set_before_a_speed_is_known)
{
    struct rig *r = begin(true, false);
    const struct ps_co_pace *p = &r->coordinator->worker[0].pace;
    struct pace silent = {.step_s = 0.1};
    tell(r, 0, &silent);
    assert_int_equal(p->h + p->told, 0);
    silent.units_per_s = 8;
    tell(r, 0, &silent);
    assert_int_equal(p->told, BASE);
    rig_free(r);
}

// A drained worker does not count as the fastest, and may be any times as fast as the others.
TEST(no_round_is_longer_than_the_longest)
{
    struct rig *r = begin(false, false);
    struct ps_co_worker *w = r->coordinator->worker;
    w[0].left = true;
    w[0].tokens_per_s = 1e15;
    w[1].tokens_per_s = 1e-3;
    assert_int_equal(ps_co_local_steps(r->coordinator, &w[0]), PS_CO_H_MAX);
    assert_int_equal(ps_co_local_steps(r->coordinator, &w[1]), BASE);
    rig_free(r);
}

// A push takes 0.8 s on its way up, 2 round trips take 0.4 s. Such an exchange of 1.2 s may fill
// 0.8 of a round: 15 steps of 0.1 s.
TEST(an_exchange_fits_in_a_round)
{
    struct rig *r = begin(true, false);
    struct pace fast = {.units_per_s = 8, .step_s = 0.1};
    struct pace far = {.units_per_s = 2, .step_s = 0.1, .push_s = 1, .rtt_s = 0.2};
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &far), 15);
    far.step_s = 0.2; // half as many steps in the same time
    assert_int_equal(tell(r, 1, &far), 8);
    far.push_s = 0.25; // the exchange is short: speed decides
    assert_int_equal(tell(r, 1, &far), 4);
    far.push_s = 1e6;
    assert_int_equal(tell(r, 1, &far), PS_CO_H_MAX);
    rig_free(r);
}

// The other worker's pushes come down at a quarter of the rate at which the worker's own go up: 4 x
// 0.8 s + 0.4 s.
TEST(the_way_down_counts_where_it_takes_longer)
{
    struct rig *r = begin(true, false);
    struct pace fast = {.units_per_s = 8, .step_s = 0.1};
    struct pace far = {.units_per_s = 2, .step_s = 0.1, .push_s = 1, .rtt_s = 0.2};
    far.up = 4e6;
    far.down = 1e6;
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &far), 45);
    fast.away = true; // nothing comes down: 15 by the link, BASE by speed, as it is alone
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &far), BASE);
    fast.away = false;
    assert_int_equal(tell(r, 0, &fast), BASE);
    assert_int_equal(tell(r, 1, &far), 45);
    far.down = 16e6;
    assert_int_equal(tell(r, 1, &far), 15);
    rig_free(r);
}

TEST(small_changes_are_not_made)
{
    struct rig *r = begin(true, false);
    struct pace far = {.units_per_s = 2, .step_s = 0.1, .push_s = 1.6, .rtt_s = 0};
    assert_int_equal(tell(r, 0, &far), 20);
    far.push_s = 1.9;
    assert_int_equal(tell(r, 0, &far), 20); // it would be 24
    far.push_s = 2.1;
    assert_int_equal(tell(r, 0, &far), 27);
    far.push_s = 1.75;
    assert_int_equal(tell(r, 0, &far), 27); // it would be 22
    rig_free(r);
}

TEST(each_change_is_told_with_its_figures)
{
    struct rig *r = begin(true, false);
    rig_boot_standby(r);
    struct lh_log *log = rig_log_lines(r);
    r->coordinator->conf.log = log;
    struct pace far = {.units_per_s = 2, .step_s = 0.1, .push_s = 1.6};
    for (int i = 0; i < 5; i++) tell(r, 0, &far);
    assert_int_equal(rig_said(r, "cadence.changed"), 1);
    assert_int_equal(rig_said(r, "0 -> 20 local steps a round: 16 by speed (base 16, 128 "
                                 "tokens/s), 20 by the link (an exchange takes 1.600 s, a step "
                                 "0.100 s"),
                     1);
    far.push_s = 3.2;
    for (int i = 0; i < 5; i++) assert_int_equal(tell(r, 0, &far), 40); // holds at once
    assert_int_equal(rig_said(r, "cadence.changed"), 1);
    rig_run(r, 3600 * LH_SECOND);
    tell(r, 0, &far);
    assert_int_equal(rig_said(r, "20 -> 40 local steps"), 1);
    assert_int_equal(rig_said(r, "cadence.changed"), 2);
    json_t *row = json_object();
    ps_co_tell_cadence(r->coordinator, &r->coordinator->worker[0], row);
    assert_int_equal(json_integer_value(json_object_get(row, "h_by_link")), 40);
    assert_int_equal(json_integer_value(json_object_get(row, "h_by_speed")), 16);
    json_decref(row);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}

// Changes of H by speed are logged too, but at most once an hour, and not while H wavers. An H that
// can't change is never logged.
TEST(a_change_by_speed_is_told_now_and_then)
{
    struct rig *r = begin(false, false);
    rig_boot_standby(r);
    struct lh_log *log = rig_log_lines(r);
    r->coordinator->conf.log = log;
    struct pace fast = {.units_per_s = 8, .step_s = 0.1}, slow = {.units_per_s = 2, .step_s = 0.1};
    for (int i = 0; i < 3; i++) tell(r, 0, &fast);
    for (int i = 0; i < 3; i++) tell(r, 1, &slow);
    assert_int_equal(rig_said(r, "cadence.changed"), 2);
    assert_int_equal(rig_said(r, "0 -> 4 local steps a round: 4 by speed (base 16"), 1);
    for (int i = 1; i <= 8; i++) {
        slow.units_per_s = 2 + 0.5 * i;
        assert_int_equal(tell(r, 1, &slow), 4 + i); // H follows
    }
    assert_int_equal(rig_said(r, "cadence.changed"), 2);
    rig_run(r, 3601 * LH_SECOND);
    slow.units_per_s = 2.5;
    assert_int_equal(tell(r, 1, &slow), 5); // a change by a fifth is not logged
    assert_int_equal(rig_said(r, "cadence.changed"), 2);
    slow.units_per_s = 6;
    for (int i = 0; i < 3; i++) tell(r, 1, &slow);
    assert_int_equal(rig_said(r, "cadence.changed"), 3);
    assert_int_equal(rig_said(r, "4 -> 12 local steps a round"), 1);
    for (int i = 0; i < 40; i++) { // ten hours: it wavers by less than a quarter
        rig_run(r, 900 * LH_SECOND);
        slow.units_per_s = i % 2 ? 7 : 5.5;
        assert_int_equal(tell(r, 1, &slow), i % 2 ? 14 : 11);
    }
    assert_int_equal(rig_said(r, "cadence.changed"), 3);
    for (int i = 0; i < 40; i++) { // ten hours: it jumps each quarter of an hour
        rig_run(r, 900 * LH_SECOND);
        slow.units_per_s = i % 2 ? 2 : 6;
        tell(r, 1, &slow);
    }
    assert_in_range(rig_said(r, "cadence.changed"), 4, 3 + 10);
    r->coordinator->conf.dylu = false;
    rig_run(r, 3601 * LH_SECOND);
    unsigned said = rig_said(r, "cadence.changed");
    assert_int_equal(tell(r, 1, &slow), BASE);
    assert_int_equal(rig_said(r, "cadence.changed"), said);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}

static uint32_t three(void *arg, const char *region)
{
    return strcmp(arg, region) ? 0 : 3;
}

TEST(a_cadence_that_an_operator_fixed_stays)
{
    struct rig *r = begin(true, true);
    struct pace far = {.units_per_s = 2, .step_s = 0.1, .push_s = 1.6};
    r->coordinator->conf.fixed_h = three;
    r->coordinator->conf.fixed_h_arg = r->w[0].self.region;
    assert_int_equal(tell(r, 0, &far), 3);
    assert_int_equal(tell(r, 1, &far), 20);
    rig_free(r);
}

// Both workers report 128 tokens/s and steps of step_s seconds. Returns worker 1's H.
static uint32_t tell_stage(struct rig *r, double step_s)
{
    struct pace p = {.units_per_s = 2, .step_s = step_s};
    tell(r, 0, &p); // its step counts: it is as fast, and joined first
    return tell(r, 1, &p);
}

// Together the workers train 2,560 tokens in a step of 10 s.
TEST(the_base_has_stages)
{
    struct rig *r = begin(false, true);
    rig_boot_standby(r);
    struct lh_log *log = rig_log_lines(r);
    r->coordinator->conf.log = log;
    struct pace unknown = {.units_per_s = 0};
    assert_int_equal(tell(r, 1, &unknown), BASE / 2);
    assert_int_equal(tell_stage(r, 10), BASE / 2);
    uint64_t *credited = &r->coordinator->stock.credited_tokens;
    *credited = 990 * 2560;
    assert_int_equal(tell_stage(r, 10), BASE / 2);
    *credited += 20 * 2560;
    assert_int_equal(tell_stage(r, 10), BASE);
    *credited -= 500 * 2560; // the stage never goes back
    assert_int_equal(tell_stage(r, 10), BASE);
    *credited += 8890 * 2560;
    assert_int_equal(tell_stage(r, 10), BASE); // 9,900 steps
    *credited += 20 * 256;                     // steps last a second now
    assert_int_equal(tell_stage(r, 1), BASE);
    *credited += 90 * 256;
    assert_int_equal(tell_stage(r, 1), 2 * BASE);
    assert_int_equal(rig_said(r, "cadence.stage"), 2);
    r->coordinator->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}

// While one loop is away, only the other's 128 tokens a second are trained. Tokens from before
// still count at the speed of both.
TEST(a_loop_that_is_away_takes_no_steps)
{
    struct rig *r = begin(false, true);
    struct pace p = {.units_per_s = 2, .step_s = 10}, away = p;
    uint64_t *credited = &r->coordinator->stock.credited_tokens;
    away.away = true;
    *credited = 600 * 2560; // 600 steps; 1,200 at the first worker's speed alone
    assert_int_equal(tell_stage(r, 10), BASE / 2);
    tell(r, 0, &away);
    assert_int_equal(tell(r, 1, &p), BASE / 2);
    *credited += 390 * 1280;
    assert_int_equal(tell(r, 1, &p), BASE / 2);
    *credited += 20 * 1280;
    assert_int_equal(tell(r, 1, &p), BASE);
    rig_free(r);
}

// H is at least one step and at most PS_CO_H_MAX.
TEST(half_of_one_is_one)
{
    struct rig *r = begin(false, true);
    r->coordinator->conf.h_base = 1;
    assert_int_equal(tell_stage(r, 1), 1);
    r->coordinator->conf.h_base = 300;
    r->coordinator->stage = PS_CO_LATE;
    assert_int_equal(tell_stage(r, 1), PS_CO_H_MAX);
    rig_free(r);
}

// Cuts of a worker's two shards, and how many of them were made at one step.
struct cuts {
    uint64_t count, together;
};

// Drains the run, or undoes the drain.
static void drain(struct rig *r, bool undo)
{
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *found;
    m.undo = undo;
    assert_int_equal(ps_co_drain(r->coordinator, &m, &found), LH_OK);
}

// `dry`: counts the cuts after the worker had nothing to train for some seconds.
static struct cuts count_cuts(enum wk_stagger stagger, bool dry)
{
    struct rig *r = rig_new(1);
    struct rig_life l;
    struct cuts out = {0, 0};
    rig_two_shards(r);
    lh_units_free(&r->units);
    setup_units(&r->units, 40, 64 * WORDS_TOKENS, RIG_WORKERS); // enough for all steps
    rig_start_coordinator(r);
    r->coordinator->conf.h_base = 4;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    conf.stagger = stagger;
    rig_life_start(&l, &conf);
    const struct wk_worker *w = l.worker;
    uint64_t cut[2] = {0, 0}, at[2] = {0, 0};
    for (int i = dry ? -8000 : 0; i < 10000; i++) {
        if (i == -5000 || i == -2000) drain(r, i == -2000);
        rig_run(r, LH_MS);
        if (i == -1) out = (struct cuts){0, 0};
        for (int k = 0; k < 2; k++) {
            if (w->shard[k].progress.cut_count == cut[k]) continue;
            cut[k] = w->shard[k].progress.cut_count;
            at[k] = w->count.steps;
            out.count++;
            out.together += at[k] && at[0] == at[1];
        }
    }
    rig_life_end(r, &l, false);
    rig_free(r);
    return out;
}

// At one step a worker sends one shard's push at most.
TEST(staggered_shards_are_not_pushed_at_one_step)
{
    struct cuts on = count_cuts(WK_STAGGER_ON, false), off = count_cuts(WK_STAGGER_OFF, false);
    assert_true(on.count > 6 && off.count > 6);
    assert_int_equal(on.together, 0);
    assert_int_equal(off.together, off.count / 2);
}

// A worker that ran dry pushes all it has at one step; afterwards its shards are staggered again.
TEST(shards_are_staggered_again_after_running_dry)
{
    struct cuts on = count_cuts(WK_STAGGER_ON, true), off = count_cuts(WK_STAGGER_OFF, true);
    assert_true(on.count > 6 && off.count > 6);
    assert_int_equal(on.together, 0);
    assert_int_equal(off.together, off.count / 2);
}
