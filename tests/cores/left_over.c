// Claims and tokens that a trainer beside a worker left, and that no progress takes along, get a
// push of their own. Its base is the replica as it is then. The view of the last correction is not
// renewed while the trainer is away or waits, so a push based on it would be too stale.
// Units leased to a worker whose loop has ended by itself go to other workers. The coordinator
// hears of that end, and whether the loop evaluated the model.
#include "server/coordinator/balance/lease.h"
#include "tests/cores/life.h"
#include "tests/cores/trainer.h"
#include "tests/cores/words.h"
#include "worker/push/commit.h"

enum { STEP_MS = 20, OTHERS = 40 };

// As after a push with 5 tokens was refused.
static void give_back(struct wk_shard *s)
{
    struct wk_change change;
    assert_int_equal(wk_change_begin(s, &change), LH_OK);
    change.slot.tokens = 5;
    assert_int_equal(wk_commit(&change), LH_OK);
    wk_change_free(&change);
}

// A worker with a loop beside it that has committed some cuts.
static struct life *begin(struct beside **loop)
{
    struct life *l = life_begin(21, 1);
    life_rest(l);
    life_kill(l); // ends the life with the built-in trainer
    rig_boot_worker(l->rig, 1);
    struct beside *b = *loop =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, STEP_MS);
    l->beside = &b->conf;
    life_start(l);
    life_rest(l);
    beside_start(b);
    for (int i = 0; i < 60000 && l->worker->beside.cuts < 3; i++) life_run(l, LH_MS);
    return l;
}

TEST(a_left_over_push_is_based_on_the_replica)
{
    struct beside *b;
    struct life *l = begin(&b);
    struct wk_shard *s = &l->worker->shard[0];
    beside_kill(b);
    for (int i = 0; i < 60000 && l->worker->beside.state != WK_BESIDE_AWAY; i++) life_run(l, LH_MS);
    life_rest(l);
    uint64_t base = s->view.of.version, version = s->replica.ledger.version;
    assert_int_equal(rig_join(l->rig, 0, 11, 0).granted, 1);
    rig_hello(l->rig, 0, 1, 0, 1);
    for (int i = 0; i < OTHERS; i++) // each fence is a record
        assert_int_equal(rig_fence(l->rig, 0, (uint64_t)i + 2), LH_OK);
    life_run(l, LH_SECOND);
    assert_true(s->replica.ledger.version >= version + OTHERS);
    version = s->replica.ledger.version;
    give_back(s);
    uint64_t pushes = s->progress.cut_count;
    for (int i = 0; i < 20000 && s->progress.cut_count == pushes; i++) life_run(l, LH_MS);
    const struct wk_entry *last = s->outbox.first;
    while (last && last->next) last = last->next;
    assert_non_null(last);
    assert_int_equal(last->head.tokens, 5);
    assert_true(last->head.base_version >= version && version > base);
    life_rest(l);
    assert_int_equal(s->slot.committed->tokens, 0);
    assert_int_equal(l->refused, 0);
    beside_kill(b);
    life_end(l);
    beside_free(b);
}

static uint32_t leased_to(const struct ps_coordinator *c, uint32_t worker)
{
    uint32_t n = 0;
    for (uint64_t u = 0; u < c->units; u++) n += c->lease[u] == worker + 1;
    return n;
}

// The lease's answer came after the loop had ended, so the worker never took these units.
TEST(units_of_a_loop_that_has_ended_go_to_others)
{
    struct beside *b;
    struct life *l = begin(&b);
    struct ps_coordinator *c = l->rig->coordinator;
    uint32_t mine = ps_co_worker_index(c, l->worker->id);
    c->conf.ride_out_ns = 300 * LH_SECOND;
    b->stops_at = b->step + 7;
    for (int i = 0; i < 20000 && !l->worker->beside.over; i++) life_run(l, LH_MS);
    assert_true(l->worker->beside.over);
    life_rest(l);
    assert_int_equal(rig_join(l->rig, 0, 11, 0).granted, 1);
    for (uint64_t u = 0; u < c->units; u++)
        if (ps_co_may_lease_anew(c, u)) assert_int_equal(ps_co_lease_set(c, u, mine), LH_OK);
    uint32_t leased = leased_to(c, mine);
    assert_true(leased > 0);
    const struct words other = {.want = 1, .units_per_s = 1, .batch_s = 0.1};
    for (int i = 0; i < 30 && leased_to(c, mine) == leased; i++) {
        (void)say(l->rig, 0, &other);
        life_run(l, LH_SECOND);
    }
    assert_true(leased_to(c, mine) < leased);
    beside_kill(b);
    life_end(l);
    beside_free(b);
}

// The coordinator knows it by the name of longhaul.Evaluation's figure
// (worker/python/longhaul/heldout.py).
TEST(the_coordinator_hears_that_a_loop_evaluates_and_that_it_ends)
{
    struct beside *b;
    struct life *l = begin(&b);
    const struct ps_coordinator *c = l->rig->coordinator;
    const struct ps_co_worker *told = &c->worker[ps_co_worker_index(c, l->worker->id)];
    assert_int_equal(longhaul_report(b->client, "heldout_de", 2.0), LONGHAUL_OK);
    life_run(l, 3 * LH_SECOND);
    assert_false(told->evaluates);
    assert_int_equal(longhaul_report(b->client, "heldout", 2.0), LONGHAUL_OK);
    for (int i = 0; i < 20000 && !told->evaluates; i++) life_run(l, LH_MS);
    assert_true(told->evaluates && !told->away_ns);
    b->stops_at = b->step + 7;
    for (int i = 0; i < 20000 && !told->away_ns; i++) life_run(l, LH_MS);
    assert_true(told->evaluates && told->away_ns);
    beside_kill(b);
    life_end(l);
    beside_free(b);
}
