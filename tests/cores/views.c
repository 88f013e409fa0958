// The two operations between a worker and a trainer in its process, cut and renewal: which view a
// boundary gives, what happens to progress, and when a view that was made early is used.
#include <stdlib.h>
#include <string.h>

#include "tests/cores/life.h"
#include "tests/world/transport_mem_core.h"
#include "worker/push/view.h"

enum { TURNS = 4000, RECORDS = 40 };

static struct {
    const struct wk_trainer_ops *own; // the trainer's
    struct life *l;
    unsigned renewals, cuts;
    unsigned renewed[RIG_SHARDS]; // renewals by shard
    bool dense, sparse;           // whether some renewal changed all values, or fewer
    uint32_t cut[2];              // the shards of the last two cuts
} look;

static struct wk_shard *shard_at(uint64_t first)
{
    for (uint32_t k = 0; k < look.l->worker->shards; k++)
        if (look.l->worker->shard[k].layout->first == first) return &look.l->worker->shard[k];
    fail_msg("no shard begins at %u", (unsigned)first);
    return NULL;
}

static void expect_view(const struct wk_shard *s, const float *view)
{
    for (uint64_t i = 0; i < s->layout->values; i++)
        assert_float_equal(view[i],
                           s->replica.theta[i] - s->worker->conf.kappa * s->slot.residual[i], 0);
}

// Checks each renewal of a life: from the base to the view that follows from the present replica
// and residual, with unchanged progress. (All numbers are multiples of an eighth: nothing is
// rounded.)
static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    const struct wk_shard *s = shard_at(r->first);
    float before[LIFE_VALUES], after[LIFE_VALUES];
    assert_int_equal(r->values, s->layout->values);
    assert_ptr_equal(r->from, s->state->slot[s->state->number % 2]);
    assert_false(s->worker->stepping);
    assert_null(s->cut);
    expect_view(s, r->to);
    look.own->copy(t, r->first, r->values, before);
    look.own->renew(t, r);
    look.own->copy(t, r->first, r->values, after);
    uint64_t changed = 0;
    for (uint64_t i = 0; i < r->values; i++) {
        changed += r->to[i] != r->from[i];
        assert_float_equal(after[i] - r->to[i], before[i] - r->from[i], 0);
    }
    look.renewals++;
    look.renewed[s->id]++;
    look.dense |= changed == r->values;
    look.sparse |= changed < r->values;
}

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    const struct wk_shard *s = shard_at(first);
    assert_false(s->worker->stepping);
    assert_ptr_equal(slot, s->state->slot[(s->state->number + 1) % 2]);
    look.own->copy(t, first, values, slot);
    look.cut[look.cuts++ % 2] = s->id;
}

static struct wk_trainer_ops noting;
static void look_on(struct life *l)
{
    memset(&look, 0, sizeof look);
    look.own = l->core.trainer->ops;
    look.l = l;
    noting = *look.own;
    noting.renew = renew;
    noting.copy = copy;
    l->core.trainer->ops = &noting;
}

static void every_renewal_keeps_progress(uint32_t shards)
{
    struct life *l = life_begin(3, shards);
    look_on(l);
    life_cut(l, 12);
    assert_true(look.cuts >= 12);
    for (uint32_t k = 0; k < shards; k++) assert_true(look.renewed[k] > 6);
    assert_true(look.dense);
    life_rest(l);
    life_mass(l);
    life_end(l);
}

TEST(renewals_keep_progress)
{
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) every_renewal_keeps_progress(shards);
}

// ---------------------------------------------------------------- views made early

// Runs until the next view is made, in the middle of a step.
static struct wk_shard *until_made(struct life *l)
{
    struct wk_shard *s = &l->worker->shard[0];
    for (int i = 0; i < TURNS && !(l->worker->stepping && s->view.next.made); i++)
        life_run(l, LH_MS);
    assert_true(l->worker->stepping && s->view.next.made);
    return s;
}

static void until_renewed(struct life *l)
{
    unsigned renewals = look.renewals;
    for (int i = 0; i < TURNS && look.renewals == renewals; i++) life_run(l, LH_MS);
    assert_int_equal(look.renewals, renewals + 1);
}

TEST(a_view_is_made_while_training_goes_on)
{
    struct life *l = life_begin(3, 1);
    look_on(l);
    struct wk_shard *s = until_made(l);
    uint64_t number = s->state->number;
    const float *next = s->state->slot[(number + 1) % 2];
    float made[LIFE_VALUES];
    expect_view(s, next);
    memcpy(made, next, s->layout->values * sizeof *made);
    int64_t at = s->view.next.at_ns;
    until_renewed(l);
    assert_true(s->view.next.at_ns == at); // not made again
    assert_memory_equal(s->state->slot[(number + 1) % 2], made, s->layout->values * sizeof *made);
    life_end(l);
}

// The replica changes between the making of the view and the boundary: renew() above checks that
// the newest view is given.
TEST(a_view_of_an_older_replica_is_not_given)
{
    struct life *l = life_begin(3, 1);
    uint64_t moved_on = 0;
    look_on(l);
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct wk_shard *s = until_made(l);
        uint64_t version = s->replica.ledger.version;
        s->view.next.took_ns = LH_SECOND; // prevents an early view for eight seconds
        s->view.next.at_ns = lh_now(l->worker->conf.env);
        rig_greet(l->rig, 0, (100 + 2 * i) << 32, 0, 1); // a record that changes no value
        while (l->worker->stepping && s->view.next.made && s->replica.ledger.version == version)
            life_run(l, LH_MS);
        if (l->worker->stepping && s->view.next.made) {
            s->state->slot[(s->state->number + 1) % 2][0] += 64; // renew() would notice this view
            moved_on++;
        }
        until_renewed(l);
        s->view.next.took_ns = 0;
        rig_greet(l->rig, 0, (101 + 2 * i) << 32, 0, 1);
    }
    assert_true(moved_on > RECORDS / 4);
    assert_true(look.sparse);
    life_end(l);
}

// The residual changes, but not the replica, as when a push of a lost history is returned.
TEST(a_view_of_another_residual_is_not_given)
{
    struct life *l = life_begin(3, 1);
    look_on(l);
    struct wk_shard *s = until_made(l);
    struct wk_change change;
    assert_int_equal(wk_change_begin(s, &change), LH_OK);
    float *residual = wk_residual_next(s);
    for (uint64_t i = 0; i < s->layout->values; i++) residual[i] += 0.25f * (float)(i + 1);
    change.moves = true;
    assert_int_equal(wk_commit(&change), LH_OK);
    wk_change_free(&change);
    until_renewed(l);
    life_end(l);
}

// A rebuilt shard may have the same version in a later epoch, with other parameters.
TEST(a_view_of_an_earlier_epoch_is_not_given)
{
    struct life *l = life_begin(3, 1);
    look_on(l);
    struct wk_shard *s = until_made(l);
    s->replica.ledger.epoch++;
    s->replica.theta[0] += 8;
    until_renewed(l); // renew() above compares with theta
    life_end(l);
}

// ---------------------------------------------------------------- pushes first

enum { LONG_STEP_MS = 2000, PATIENCE_MS = 300 };

static struct {
    bool hold;            // the next push is never answered
    struct lh_call *held; // call of the unanswered push; NULL: none yet
} silent;

static lh_err long_step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    lh_err err = look.own->step(t, in, out);
    out->least_ns = LONG_STEP_MS * LH_MS;
    return err;
}

static bool say_nothing(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                        const struct lh_call_ops **ops, void **self)
{
    static const struct lh_call_ops nobody = {rig_on_message, rig_on_nothing, rig_on_nothing,
                                              rig_on_gone};
    if (rpc != LH_RPC_PUSH || !silent.hold) return false;
    silent.hold = false;
    silent.held = call;
    *ops = &nobody;
    *self = l;
    lh_call_read(call);
    return true;
}

static bool pushing(const struct wk_worker *w)
{
    for (uint32_t k = 0; k < w->shards; k++)
        if (w->shard[k].session.sender.call) return true;
    return false;
}

static struct wk_shard *due(struct wk_worker *w)
{
    for (uint32_t k = 0; k < w->shards && w->stepping; k++)
        if (wk_view_due(&w->shard[k])) return &w->shard[k];
    return NULL;
}

// A shard's view waits for another shard's push, but not for a slow one.
TEST(a_push_goes_before_a_view)
{
    struct life *l = life_begin(3, 2);
    struct wk_worker *w = l->worker;
    struct wk_shard *s;
    int waited = 0, made = 0;
    look_on(l);
    noting.step = long_step;
    for (int i = 0; i < 40000 && made < 5; i++) { // without a push under way no view waits
        int64_t before = w->shard[0].view.next.at_ns;
        life_run(l, LH_MS);
        if (!pushing(w)) assert_null(due(w));
        made += w->stepping && w->shard[0].view.next.at_ns != before;
    }
    assert_int_equal(made, 5);
    l->on_call = say_nothing;
    silent.hold = true;
    for (int i = 0; i < 60000 && (!silent.held || !due(w)); i++) life_run(l, LH_MS);
    assert_true(silent.held && due(w));
    s = due(w);
    for (; wk_view_due(s) && w->stepping && pushing(w); waited++) life_run(l, LH_MS);
    assert_true(w->stepping && pushing(w)); // it was made during the step and the push
    assert_in_range(waited, PATIENCE_MS - 20, PATIENCE_MS + 2);
    silent.held = NULL;
    l->on_call = NULL;
    life_end(l);
}

// ---------------------------------------------------------------- a failed cut

TEST(a_cut_that_finds_no_room_changes_nothing)
{
    struct life *l = life_begin(3, 1);
    look_on(l);
    struct wk_shard *s = &l->worker->shard[0];
    life_rest(l);
    life_full(l, true);
    unsigned cuts = look.cuts;
    for (int i = 0; i < TURNS && look.cuts == cuts; i++) life_run(l, LH_MS);
    assert_int_equal(look.cuts, cuts + 1);
    uint64_t number = s->state->number, round = s->progress.cut_count;
    float base[LIFE_VALUES];
    memcpy(base, s->state->slot[number % 2], s->layout->values * sizeof *base);
    for (int i = 0; i < TURNS && s->cut; i++) life_run(l, LH_MS);
    assert_true(s->progress.tokens > 0); // the progress is back
    assert_int_equal(s->state->number, number);
    assert_int_equal(s->progress.cut_count, round);
    assert_memory_equal(s->state->slot[number % 2], base, s->layout->values * sizeof *base);
    life_full(l, false);
    life_cut(l, 3);
    life_rest(l);
    life_mass(l);
    life_end(l);
}

// ---------------------------------------------------------------- the order of cuts

// Runs until both shards were cut at a boundary once more, with these round trips to their servers.
static void cut_both(struct life *l, int64_t first_ns, int64_t second_ns)
{
    const int64_t trip[] = {first_ns, second_ns};
    l->worker->bsp = true;
    for (unsigned i = 0, until = look.cuts + 2; i < TURNS && look.cuts < until; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            struct wk_shard *s = &l->worker->shard[k];
            s->replica.ledger.plan.mode = LH_MODE_BSP;
            ((struct mem_link *)s->session.link)->trip = (struct lh_trip){.mean_ns = trip[k]};
        }
        life_run(l, LH_MS);
    }
    assert_int_equal(look.cuts % 2, 0);
}

TEST(the_shard_of_a_far_server_is_cut_first)
{
    struct life *l = life_begin(3, 2);
    look_on(l);
    for (int turn = 0; turn < 3; turn++) {
        cut_both(l, LH_MS, 100 * LH_MS);
        assert_int_equal(look.cut[0], 1);
        cut_both(l, 100 * LH_MS, LH_MS);
        assert_int_equal(look.cut[0], 0);
        cut_both(l, 100 * LH_MS, 90 * LH_MS); // about equal: by number
        assert_int_equal(look.cut[0], 0);
    }
    life_end(l);
}
