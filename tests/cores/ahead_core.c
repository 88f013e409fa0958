// Leases ahead in a worker's core: what it reads ahead, gives back and keeps. ahead.c tests what
// the coordinator leases and recalls.
#include <string.h>

#include "tests/cores/words.h"
#include "tests/sim/synthetic.h"
#include "worker/units/units.h"
#include "worker/worker.h"

enum { TOKENS = WORDS_TOKENS, SLOTS = WORDS_SLOTS, RIDE_OUT_S = 300 };

static uint64_t of_unit[SLOTS]; // tokens of each unit that the core trained

static void stepped(void *arg, const struct wk_step_in *in)
{
    (void)arg;
    for (uint32_t i = 0; i < in->pieces; i++) of_unit[in->piece[i].unit] += in->piece[i].tokens;
}

static bool coming[SLOTS];           // announced, and neither read nor withdrawn since
static struct wk_trainer_ops noting; // the trainer's, with note() as announce

static void note(struct wk_trainer *t, uint64_t unit, bool comes)
{
    (void)t;
    assert_true(coming[unit] != comes);
    coming[unit] = comes;
}

static void start_core_of(struct rig *r, struct rig_life *l, uint32_t queue_units)
{
    static const struct wk_observer observer = {.stepped = stepped};
    rig_kill_worker(r, 1, false);
    rig_boot_worker(r, 1);
    memset(of_unit, 0, sizeof of_unit);
    memset(coming, 0, sizeof coming);
    struct wk_conf conf = rig_life_conf(r, l, 50); // a unit lasts a fifth of a second
    noting = *l->trainer->ops;
    noting.announce = note;
    l->trainer->ops = &noting;
    conf.observer = &observer;
    conf.queue_units = queue_units;
    rig_life_start(l, &conf);
    for (int i = 0; i < 200 && !l->worker->count.steps; i++) rig_run(r, 100 * LH_MS);
    assert_true(l->worker->count.steps > 0);
}

TEST(reading_ahead_stays_within_its_bound)
{
    struct rig *r = begun_run(400, RIDE_OUT_S * LH_SECOND);
    struct rig_life l;
    start_core_of(r, &l, 6);
    for (int i = 0; i < 30; i++) {
        rig_run(r, 100 * LH_MS);
        uint32_t ahead = 0;
        for (uint64_t u = 0; u < SLOTS; u++) ahead += coming[u] && of_unit[u] < TOKENS;
        assert_int_equal(ahead, 6);
    }
    assert_true(l.worker->queued > 150);
    rig_life_end(r, &l, false);
    rig_free(r);
}

static bool delay_leases(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                         struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    bool its = strcmp(from, r->w[1].self.name) == 0;
    if (rpc == LH_RPC_LEASE && its) fate->delay_ns = 700 * LH_MS;
    return true;
}

// A request to give back a unit may cross with the push that claimed it and the record that
// credited it. The coordinator may not know of the credit yet, and would lease the unit again.
TEST(credited_units_are_not_given_back)
{
    struct rig *r = begun_run(40, RIDE_OUT_S * LH_SECOND);
    struct rig_life l;
    start_core_of(r, &l, 6);
    const struct lh_ledger *ledger = &l.worker->shard[0].replica.ledger;
    for (int i = 0; i < 400 && ledger->credited < 3; i++) rig_run(r, 100 * LH_MS);
    assert_true(ledger->credited >= 3);
    uint32_t returned = 0;
    for (uint64_t u = 0; u < 40; u++) {
        bool credited = lh_ledger_credited(ledger, u), queued = false;
        for (uint32_t k = 0; k < l.worker->queued; k++) queued |= l.worker->queue[k].unit == u;
        if (queued) continue;
        wk_units_give_back(l.worker, 1, &u);
        if (credited) assert_int_equal(l.worker->returned_count, 0);
        returned += l.worker->returned_count;
    }
    assert_true(returned > 0); // a unit that it does not hold is returned again
    rig_life_end(r, &l, false);
    rig_free(r);
}

TEST(units_begun_while_an_answer_travels_stay)
{
    struct rig *r = begun_run(40, RIDE_OUT_S * LH_SECOND);
    struct rig_life l;
    struct words fast = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 1000};
    lh_fabric_fates(r->fabric, delay_leases, r);
    start_core_of(r, &l, 40);
    uint32_t got = 0;
    for (int i = 0; i < 60; i++) {
        struct heard h = say(r, 0, &fast); // worker 0 trains none of them
        got = (uint32_t)h.units;
        for (size_t k = 0; k < h.units; k++) {
            assert_int_equal(of_unit[h.unit[k]], 0);
            assert_false(coming[h.unit[k]]);
        }
        rig_run(r, 100 * LH_MS);
    }
    assert_true(got > 0);
    uint64_t all = 0, units = 0;
    for (uint64_t u = 0; u < SLOTS; u++) {
        all += of_unit[u];
        units += of_unit[u] > 0;
    }
    assert_int_equal(all, l.worker->count.tokens);
    assert_true(units > 2); // it began others meanwhile
    lh_fabric_fates(r->fabric, NULL, NULL);
    rig_life_end(r, &l, false);
    rig_free(r);
}
