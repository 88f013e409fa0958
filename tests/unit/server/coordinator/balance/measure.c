// Measure: what workers say of their speed and paths, and what servers admitted of it.
#include "server/coordinator/balance/measure.h"
#include "tests/unit/server/coordinator/hand.h"

TEST(a_number_counts_where_it_may_be_measured)
{
    static const struct {
        double said, counts;
    } row[] = {{0, 0},      {-1, 0},       {1e-9, 1e-9}, {9e-10, 0}, {1e15, 1e15},
               {1.1e15, 0}, {INFINITY, 0}, {NAN, 0},     {-1e-3, 0}, {42, 42}};
    for (size_t i = 0; i < LH_COUNT(row); i++)
        assert_true(fabs(ps_co_said_number(row[i].said) - row[i].counts) <= 0);
}

// ---------------------------------------------------------------- what a worker says

static const struct lh_path SAID[] = {
    {0, {4 * LH_MS, 2 * LH_MS}, {0.5, 0.25}, {1e6, 2}, {2e6, 4}},
    {SHARDS, {9 * LH_SECOND, 0}, {9, 0}, {0, 0}, {0, 0}}, // there is no such shard
    {1, {LH_SECOND, 0}, {NAN, 0}, {0, 0}, {0, 0}},
};

static void measure(struct ps_co_worker *w)
{
    struct lh_lease_request m = {.speed.spread = 3,
                                 .begun_tokens = 77,
                                 .batch_s = {0.125, 0.0625},
                                 .utilisation = 1.5,
                                 .loss = 2.5,
                                 .n_paths = LH_COUNT(SAID),
                                 .paths = SAID};
    ps_co_measured(c, w, &m);
}

HAND(operators_see_what_a_worker_measured)
{
    struct ps_co_worker *w = &c->worker[CEM];
    json_t *row = json_object();
    ps_co_tell_measured(w, row);
    assert_json(row, "{}");
    measure(w);
    assert_int_equal(w->measured.begun_tokens, 77);
    row = json_object();
    ps_co_tell_measured(w, row);
    assert_json(row, "{'tokens_spread': 3.0, 'batch_ms': 125.0, 'batch_spread_ms': 62.5, "
                     "'loss': 2.5, 'utilisation': 1.0}");
    snprintf(c->shard[0].address, sizeof c->shard[0].address, "e:1");
    snprintf(c->shard[1].address, sizeof c->shard[1].address, "e:2");
    snprintf(c->shard[1].name, sizeof c->shard[1].name, "s2");
    snprintf(c->shard[1].region, sizeof c->shard[1].region, "asia");
    assert_json(ps_co_links(c),
                "[{'worker': 'cem', 'region': 'europe', 'server': 'e:1', 'server_region': '-', "
                "'shard': 0, 'rtt_ms': 4.0, 'rtt_spread_ms': 2.0, 'push_ms': 500.0, "
                "'push_spread_ms': 250.0, 'up_mbit_s': 8.0, 'up_spread': 16e-6, "
                "'down_mbit_s': 16.0, 'down_spread': 32e-6}, "
                "{'worker': 'cem', 'region': 'europe', 'server': 's2', 'server_region': 'asia', "
                "'shard': 1, 'rtt_ms': 1000.0}]");
    near(ps_co_exchange_s(w), 1); // the slowest path's push, or its trip
    w->measured.path[0].push_s.mean = 2;
    near(ps_co_exchange_s(w), 2);
    w->measured.path[1].push_s.mean = 0.125; // now its push is known
    w->measured.path[0].push_s.mean = 0.25;
    near(ps_co_exchange_s(w), 0.25);
    struct lh_lease_request none = {0};
    ps_co_measured(c, w, &none);
    near(ps_co_exchange_s(w), 0);
    assert_json(ps_co_links(c), "[]");
}

// ---------------------------------------------------------------- what servers admitted

static void admit(uint32_t shard, const struct lh_admitted *row)
{
    struct lh_shard_report r = {.head.shard = shard, .n_admitted = 1, .admitted = row};
    ps_co_take_admitted(c, &r);
}

HAND(the_last_report_of_a_shard_counts)
{
    struct ps_co_worker *w = &c->worker[CEM];
    c->listener.ns = 5;
    admit(1, &(struct lh_admitted){.worker = 999, .pushes = 1}); // nobody's
    admit(1, &(struct lh_admitted){.worker = w->id, .tokens = 9, .charged = 4, .round = 6});
    assert_int_equal(w->admitted_ns, 0); // no push yet
    assert_int_equal(w->admitted[1].tokens, 9);
    assert_int_equal(w->admitted[1].charged, 4);
    assert_int_equal(w->admitted[1].round, 6);
    assert_int_equal(w->admitted[0].tokens, 0);
    admit(1, &(struct lh_admitted){.worker = w->id, .pushes = 2, .tokens = 8});
    assert_int_equal(w->admitted_ns, 5);
    c->listener.ns = 6;
    admit(1, &(struct lh_admitted){.worker = w->id, .pushes = 2, .tokens = 30});
    assert_int_equal(w->admitted_ns, 5); // no more pushes than before
    assert_int_equal(w->admitted[1].tokens, 30);
    admit(0, &(struct lh_admitted){.worker = w->id, .pushes = 1, .tokens = 7});
    assert_int_equal(w->admitted_ns, 6); // the other shard's pushes
    assert_int_equal(ps_co_admitted_tokens(c, w), 7);
    for (uint32_t i = 0; i < WORKERS; i++) assert_true((i == CEM) == !!c->worker[i].admitted);
}

// A report from before the operator let the worker back does not set it aside again.
HAND(a_worker_that_was_let_back_is_not_set_aside)
{
    struct ps_co_worker *w = &c->worker[CEM];
    struct lh_admitted said = {.worker = w->id, .set_aside = true, .let_back = 1};
    c->let_back[0] = (struct lh_let_back){.worker = w->id, .count = 2};
    c->lets_back = 1;
    admit(0, &said);
    assert_false(w->admitted[0].set_aside);
    said.let_back = 2;
    w->admitted[0].set_aside = true; // known before: it is no news
    admit(0, &said);
    assert_true(w->admitted[0].set_aside);
    said.set_aside = false;
    admit(0, &said);
    assert_false(w->admitted[0].set_aside);
}

// Time and admitted tokens count between two requests of a worker that trains.
HAND(evidence_is_what_was_admitted_while_it_trained)
{
    struct ps_co_worker *w = &c->worker[CEM];
    const struct ps_co_evidence *e = &w->evidence;
    w->admitted = calloc(SHARDS, sizeof *w->admitted);
    for (int why = 0; why < 5; why++) {
        w->evidence = (struct ps_co_evidence){0};
        w->idle = why == 1;
        w->tokens_said = why == 2 ? 0 : 30;
        c->pause.is = why == 3;
        c->plan.phase = why == 4 ? LH_PHASE_DRAIN : LH_PHASE_RUN;
        for (int i = 0; i < 3; i++) {
            c->listener.ns += 10 * LH_SECOND;
            w->admitted[0].tokens = w->admitted[1].tokens = 1000 + 100 * (uint64_t)i;
            ps_co_note_admitted(c, w);
            assert_int_equal(e->seen, 1000 + 100 * (uint64_t)i);
        }
        near(e->seconds, why ? 0 : 20);
        near(e->tokens, why ? 0 : 200); // not what it had before the first look
    }
    w->idle = c->pause.is = false;
    w->tokens_said = 30;
    c->plan.phase = LH_PHASE_RUN;
    ps_co_note_admitted(c, w); // it begins anew
    near(e->seconds, 0);
    w->admitted[0].tokens = 50; // a shard lost history
    c->listener.ns += LH_SECOND;
    ps_co_note_admitted(c, w);
    near(e->tokens, 0);
    near(e->seconds, 1);
}

HAND(old_evidence_counts_less)
{
    struct ps_co_worker *w = &c->worker[CEM];
    c->listener.ns = LH_SECOND;
    w->evidence =
        (struct ps_co_evidence){.since_ns = c->listener.ns, .tokens = 600, .seconds = 1700};
    c->listener.ns += 100 * LH_SECOND;
    ps_co_note_admitted(c, w);
    near(w->evidence.seconds, 1800);
    near(w->evidence.tokens, 600);
    c->listener.ns += LH_SECOND;
    ps_co_note_admitted(c, w);
    near(w->evidence.seconds, 900.5);
    near(w->evidence.tokens, 300);
}

// With evidence a speed counts up to four times that; without, up to 16 times the others' lower
// median; and after long training of which nothing was admitted, a 16th of it.
HAND(a_speed_is_believed_within_bounds)
{
    struct ps_co_worker *w = &c->worker[CEM]; // the others have 10, 20 and 40
    w->tokens_per_s = 15;
    static const struct {
        double said, tokens, seconds, believed;
        bool admitted;
    } row[] = {
        {500, 100, 10, 40, true}, {30, 100, 10, 30, true}, // evidence of 10 a second
        {30, 0, 0, 30, false},    {320, 0, 0, 320, false},  {321, 0, 0, 20, false},
        {30, 0, 120, 30, true},   {30, 0, 121, 1.25, true}, {1, 0, 121, 1, true},
        {30, 0, 121, 30, false}, // no report came, so nothing is proved
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        w->tokens_said = row[i].said;
        w->evidence = (struct ps_co_evidence){.tokens = row[i].tokens, .seconds = row[i].seconds};
        if (!row[i].admitted) free(w->admitted);
        w->admitted = row[i].admitted
                          ? w->admitted ? w->admitted : calloc(SHARDS, sizeof *w->admitted)
                          : NULL;
        near(ps_co_believed_speed(c, w), row[i].believed);
    }
}

// A worker whose round is long has four rounds of patience.
HAND(patience_lasts_for_rounds)
{
    struct ps_co_worker *w = &c->worker[CEM];
    w->admitted = calloc(SHARDS, sizeof *w->admitted);
    c->conf.h_base = 10;
    w->measured.batch_s.mean = 5; // a round of 50 s
    w->tokens_said = 30;
    w->evidence.seconds = 200;
    near(ps_co_believed_speed(c, w), 30);
    w->evidence.seconds = 201;
    near(ps_co_believed_speed(c, w), 1.25);
    c->worker[ANN].tokens_per_s = 5;
    c->worker[BOB].live = false; // the lower median is 5
    near(ps_co_believed_speed(c, w), 5.0 / 16);
    c->worker[ANN].tokens_per_s = 0; // it is not known
    near(ps_co_believed_speed(c, w), 2.5);
    c->worker[DEE].live = false; // nobody to compare with
    near(ps_co_believed_speed(c, w), 30);
}
