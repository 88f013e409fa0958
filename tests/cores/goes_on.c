// A run that has ended goes on when an operator gives it more to train: in the same logs, under a
// plan that declares the change (server/docs/0000-protocol.md#rule-36).
#include <math.h>

#include "server/coordinator/commit.h"
#include "server/push/decide.h"
#include "tests/cores/image.h"
#include "tests/cores/words.h"
#include "worker/replica/follow.h"
#include "worker/worker.h"

enum { UNITS = 20, TOKENS = 64, STEP_MS = 20 };

static struct rig *begin(struct rig_life *l)
{
    struct rig *r = rig_new(5);
    lh_units_free(&r->units);
    setup_units(&r->units, UNITS, TOKENS, RIG_WORKERS);
    rig_serve(r, 0);
    *l = (struct rig_life){0};
    return r;
}

static void start(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, STEP_MS);
    conf.epochs = 0; // as many as the run has
    rig_life_start(l, &conf);
}

static const struct lh_ledger *ledger(const struct rig *r)
{
    return &r->server->shard[0]->replica.ledger;
}

// Waits until the run has ended for the coordinator, the server and the worker.
static void until_over(struct rig *r, const struct rig_life *l)
{
    for (int i = 0;
         i < 60000 && !(r->coordinator->plan.phase == LH_PHASE_END &&
                        ps_co_settled(r->coordinator) && ledger(r)->plan.phase == LH_PHASE_END &&
                        wk_worker_state(l->worker) == WK_DONE && l->worker->told_done);
         i++)
        rig_run(r, 10 * LH_MS);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_END);
    assert_int_equal(ledger(r)->plan.phase, LH_PHASE_END);
    assert_int_equal(wk_worker_state(l->worker), WK_DONE);
    assert_true(l->worker->told_done);
}

static void alike(const struct rig *r, const struct rig_life *l)
{
    struct lh_hash a = lk_replica_digest(&r->server->shard[0]->replica);
    struct lh_hash b = lk_replica_digest(&l->worker->shard[0].replica);
    assert_true(lh_hash_equal(&a, &b));
}

static void restart_coordinator(struct rig *r, uint32_t epochs)
{
    rig_kill_coordinator(r);
    r->epochs = epochs;
    rig_start_coordinator(r);
}

static void restart_worker(struct rig *r, struct rig_life *l)
{
    rig_life_end(r, l, false);
    rig_boot_worker(r, 1);
    start(r, l);
}

static void goes_on(bool server_too, bool twice)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    until_over(r, &l);
    uint64_t credited = ledger(r)->credited, version = ledger(r)->version;
    uint64_t end = r->coordinator->plan.end[0];
    assert_int_equal(credited, UNITS);
    assert_int_equal(version, end + 1);
    for (uint32_t epochs = 2; epochs <= (twice ? 3 : 2); epochs++) {
        uint64_t pushes = ledger(r)->admitted, last = ledger(r)->version;
        if (server_too) rig_kill_server(r, false);
        restart_coordinator(r, epochs);
        if (server_too) assert_int_equal(rig_start_server(r, false), LH_OK);
        restart_worker(r, &l);
        until_over(r, &l);
        const struct lh_plan *plan = &ledger(r)->plan;
        assert_int_equal(ledger(r)->credited, epochs * UNITS);
        assert_true(ledger(r)->version > last && ledger(r)->admitted > pushes);
        assert_int_equal(plan->budget_tokens, epochs * UNITS * TOKENS);
        assert_int_equal(plan->old_budget_tokens, (epochs - 1) * UNITS * TOKENS);
        assert_int_equal(plan->changed_tokens, (epochs - 1) * UNITS * TOKENS);
        alike(r, &l);
    }
    assert_int_equal(r->fatal_count, 0);
    rig_life_end(r, &l, false);
    rig_free(r);
}

TEST(with_a_server_that_was_started_again)
{
    goes_on(true, false);
}

TEST(with_a_server_that_lives_on)
{
    goes_on(false, false);
}

TEST(a_second_time)
{
    goes_on(true, true);
    goes_on(false, true);
}

// Nothing was raised: a restart changes nothing, and a restarted worker ends at once.
TEST(not_by_itself)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    until_over(r, &l);
    uint64_t version = ledger(r)->version;
    rig_kill_server(r, false);
    restart_coordinator(r, 1);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    restart_worker(r, &l);
    until_over(r, &l);
    assert_int_equal(ledger(r)->version, version);
    assert_int_equal(r->coordinator->plan.budget_tokens, 0);
    rig_life_end(r, &l, false);
    rig_free(r);
}

// A server lost the end of its log after the run had gone on. It must not rewrite, in the same
// epoch, versions that others already know.
TEST(a_log_that_lost_what_came_after_the_end_begins_an_epoch)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    until_over(r, &l);
    uint64_t epoch = ledger(r)->epoch;
    restart_coordinator(r, 2);
    rig_run(r, 3 * LH_SECOND); // the PLAN that goes on is the log's last record
    assert_true(ledger(r)->plan.phase < LH_PHASE_END);
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    restart_worker(r, &l);
    until_over(r, &l);
    assert_true(ledger(r)->epoch > epoch);
    assert_int_equal(ledger(r)->credited, 2 * UNITS);
    alike(r, &l);
    rig_life_end(r, &l, false);
    rig_free(r);
}

// The author of a push from before the end has taken it back.
TEST(a_push_from_before_the_end_is_refused)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    until_over(r, &l);
    restart_coordinator(r, 2);
    restart_worker(r, &l);
    struct ps_shard *s = r->server->shard[0];
    for (int i = 0; i < 6000 && ledger(r)->credited < UNITS + 2; i++) rig_run(r, 10 * LH_MS);
    uint64_t end = s->head->plan.end[0] + 1;
    const struct ps_gate open = {.reach = 1};
    struct lh_frame f = {
        .worker = l.worker->id, .shard = 0, .steps = 1, .base_epoch = s->head->epoch};
    for (f.base_version = end - 1; f.base_version <= end + 1; f.base_version++) {
        struct lk_payload_info info = {.sum_squares = 1e-6};
        struct ps_decision d = {0};
        ps_decide_value(s, &open, &f, LH_OK, &info, &d);
        assert_int_equal(d.kind == LH_REFUSE && d.error == LH_ERR_STALE, f.base_version <= end);
    }
    rig_life_end(r, &l, false);
    rig_free(r);
}

// A request that is in flight when END is folded may have been sent at an earlier END.
TEST(an_answer_from_before_this_end_does_not_count)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    until_over(r, &l);
    struct wk_shard *s = &l.worker->shard[0];
    s->end_asked = true;
    assert_int_equal(wk_follow_ended(s), LH_OK);
    assert_false(s->end_asked);
    rig_life_end(r, &l, false);
    rig_free(r);
}

// A budget that changes during the run is declared too, and nothing else happens.
TEST(a_budget_that_changes_in_a_run_is_declared)
{
    struct rig_life l;
    struct rig *r = begin(&l);
    start(r, &l);
    for (int i = 0; i < 60000 && ledger(r)->credited < UNITS / 2; i++) rig_run(r, 10 * LH_MS);
    uint64_t tokens = ledger(r)->tokens;
    restart_coordinator(r, 2);
    until_over(r, &l);
    const struct lh_plan *plan = &ledger(r)->plan;
    assert_int_equal(ledger(r)->credited, 2 * UNITS);
    assert_int_equal(plan->budget_tokens, 2 * UNITS * TOKENS);
    assert_int_equal(plan->old_budget_tokens, UNITS * TOKENS);
    assert_true(plan->changed_tokens >= tokens / 2 && plan->changed_tokens < UNITS * TOKENS);
    alike(r, &l);
    rig_life_end(r, &l, false);
    rig_free(r);
}
