// Durable copies of a worker's shards: a power cut takes away none that the coordinator was told of
// (server/docs/0000-protocol.md#rule-13), even if the process died between the copy's rename and
// the folder's sync.
#include <stdlib.h>

#include "kernels/storage/checkpoint_read.h"
#include "tests/cores/life.h"
#include "worker/replica/durable_copy.h"

enum { RECORDS = 16, CALLS_MAX = 400, SEEDS = 4 };

static void on_killed(void *arg, lh_err err, const char *text)
{
    (void)arg;
    (void)text;
    assert_int_equal(err, LH_ERR_KILLED);
}

static void live(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, 50);
    conf.fatal = on_killed;
    conf.durable_every = 4;
    rig_life_start(l, &conf);
}

struct looking {
    uint64_t version;
    bool found;
};

static void look(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    struct looking *l = arg;
    (void)path;
    l->found |= info->version == l->version;
}

// A copy that this life reports to the coordinator still exists after a power cut.
static void judge(struct rig *r, struct rig_life *l)
{
    struct looking held = {.version = l->worker->shard[0].copies.durable.version};
    rig_life_end(r, l, true);
    rig_boot_worker(r, 1);
    live(r, l);
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(l->worker);
    assert_int_equal(lk_checkpoint_list(&conf, &l->worker->shard[0].replica, look, &held), LH_OK);
    assert_true(held.found || !held.version);
}

// Kills the worker at its n-th file operation while copies are made. False: it made fewer.
static bool dies_at(uint64_t seed, int n)
{
    struct rig *r = rig_new(seed);
    struct rig_life l = {0};
    lh_fake_folders_apart(r->w[1].env);
    rig_serve(r, 2 * LH_SECOND);
    live(r, &l);
    rig_run(r, 2 * LH_SECOND);
    lh_fake_crash_at(r->w[1].env, n, false);
    for (uint64_t v = 1; v <= RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, LH_SECOND);
    bool died = !lh_fake_alive(r->w[1].env);
    lh_fake_crash_at(r->w[1].env, -1, false);
    if (died) {
        rig_life_end(r, &l, false);
        rig_boot_worker(r, 1);
        live(r, &l);
    } else {
        assert_true(l.worker->shard[0].copies.durable.version > 4); // there were copies
    }
    judge(r, &l);
    rig_life_end(r, &l, false);
    rig_free(r);
    return died;
}

TEST(a_copy_that_is_told_of_survives_a_power_cut)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int n = 0;
        while (dies_at(seed, n)) assert_true(++n < CALLS_MAX);
        assert_true(n > 10);
    }
}

// The run ends only when copies of all final versions are durable, and no later record comes that
// would cause another copy.
RIG_TEST(a_last_copy_that_found_no_room_is_made_when_there_is, struct rig *r)
{
    const struct ps_coordinator *c;
    struct rig_life l;
    rig_start_coordinator(r);
    c = r->coordinator;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 60000 && c->plan.phase < LH_PHASE_CLOSE; i++) rig_run(r, LH_MS);
    assert_int_equal(c->plan.phase, LH_PHASE_CLOSE);
    lh_fake_disk_limit(r->w[1].env, lh_fake_disk_used(r->w[1].env));
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(c->plan.phase, LH_PHASE_CLOSE);
    assert_true(l.worker->shard[0].copies.durable.version <
                l.worker->shard[0].replica.ledger.version);
    lh_fake_disk_limit(r->w[1].env, 0);
    rig_run(r, 60 * LH_SECOND);
    assert_int_equal(c->plan.phase, LH_PHASE_END);
    const struct lh_ledger *end = &l.worker->shard[0].replica.ledger;
    const struct lh_point *told = c->worker[0].final; // the worker's last report
    assert_true(told && told->epoch == end->epoch && told->version == end->version);
    rig_life_end(r, &l, false);
}

// While no coordinator registers copies only a few are made; once one is registered they go on.
RIG_TEST(copies_go_on_when_the_coordinator_is_back, struct rig *r)
{
    struct rig_life l;
    lh_units_free(&r->units);
    setup_units(&r->units, 4000, 64, RIG_WORKERS); // the run does not end meanwhile
    rig_serve(r, 2 * LH_SECOND);
    live(r, &l);
    rig_run(r, 2 * LH_SECOND);
    rig_kill_coordinator(r);
    const struct wk_shard *s = &l.worker->shard[0];
    uint64_t v = 1;
    for (; v <= 5 * RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    uint64_t durable = s->copies.durable.version;
    assert_true(durable && s->replica.ledger.version > durable + 8); // no more are made
    rig_start_coordinator(r);
    for (int i = 0; i < 600 && s->stable.version < durable; i++) rig_run(r, 100 * LH_MS);
    for (; v <= 6 * RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, 5 * LH_SECOND);
    assert_true(s->copies.durable.version > durable);
    rig_life_end(r, &l, false);
}

// Copies of a past epoch are no longer registered. They must not keep copies of the next epoch from
// being made, or nothing would become stable until the run closes.
RIG_TEST(copies_go_on_in_the_next_epoch, struct rig *r)
{
    struct rig_life l;
    lh_units_free(&r->units);
    setup_units(&r->units, 4000, 64, RIG_WORKERS); // the run does not end meanwhile
    rig_serve(r, 2 * LH_SECOND);
    live(r, &l);
    rig_run(r, 2 * LH_SECOND);
    rig_kill_coordinator(r);
    const struct wk_shard *s = &l.worker->shard[0];
    uint64_t v = 1;
    for (; v <= 5 * RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    const struct lh_point durable = s->copies.durable;
    assert_true(durable.version && s->replica.ledger.version > durable.version + 8);
    rig_kill_server(r, false);
    rig_serve(r, 5 * LH_SECOND);
    assert_true(s->replica.ledger.epoch > durable.epoch);
    for (; v <= 7 * RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_run(r, 5 * LH_SECOND);
    assert_true(s->copies.durable.epoch > durable.epoch);
    assert_true(s->stable.epoch > durable.epoch && s->stable.version > durable.version);
    assert_true(s->copies.count <= 6); // the next copy removed older ones
    rig_life_end(r, &l, false);
}

// Releases of private workers wait for the stable point. When all of them wait, no record comes
// that would cause copies of the newest version on other workers.
RIG_TEST(under_privacy_there_is_a_copy_of_where_the_log_rests, struct rig *r)
{
    struct rig_life l;
    lh_units_free(&r->units);
    setup_units(&r->units, 4000, 64, RIG_WORKERS); // the run does not end meanwhile
    rig_start_coordinator(r);
    r->coordinator->conf.plan.privacy = r->coordinator->plan.privacy =
        (struct lh_privacy){.level = LH_PRIVACY_REGION,
                            .sigma = 80,
                            .rate = 1,
                            .clip = 0.5,
                            .epsilon = 8,
                            .delta = 1e-6,
                            .steps = 100,
                            .ahead = 16,
                            .local_steps = 8};
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    live(r, &l);
    rig_run(r, 2 * LH_SECOND);
    rig_kill_coordinator(r);
    rig_run(r, 60 * LH_SECOND); // until its leases are used up
    const struct wk_shard *s = &l.worker->shard[0];
    assert_true(s->replica.ledger.plan.privacy.level);
    // Ends at a version of which no copy is due anyway.
    for (uint64_t v = 1; v <= 40 || s->replica.ledger.version % 4 == 0; v++) {
        rig_hello(r, 0, v << 32, 0, 1);
        rig_run(r, 100 * LH_MS);
    }
    uint64_t version = s->replica.ledger.version;
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(s->replica.ledger.version, version);
    assert_int_equal(s->copies.durable.version, version);
    rig_life_end(r, &l, false);
}

// The server's history went back, so the next copy is of an older version than the earlier copies.
// They are removed once it is durable, not sooner.
TEST(the_copies_before_one_that_found_no_room_stay)
{
    struct life *l = life_begin(5, 1);
    struct wk_shard *s = &l->worker->shard[0];
    while (!s->copies.durable.version) life_cut(l, 1);
    life_rest(l);
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 5000 && s->copies.writing; i++) life_run(l, LH_MS);
    assert_null(s->copies.writing);
    struct looking before = {.version = s->copies.durable.version}, after = before;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(l->worker);
    assert_int_equal(lk_checkpoint_list(&conf, &s->replica, look, &before), LH_OK);
    assert_true(before.found);
    uint64_t version = s->replica.ledger.version;
    s->replica.ledger.version = before.version - 1;
    life_full(l, true);
    assert_int_equal(wk_durable_copy_start(s), LH_OK);
    for (int i = 0; i < 5000 && s->copies.writing; i++) life_run(l, LH_MS);
    assert_true(life_tries(l) > 0);
    s->replica.ledger.version = version;
    assert_int_equal(lk_checkpoint_list(&conf, &s->replica, look, &after), LH_OK);
    assert_true(after.found);
    assert_int_equal(s->copies.durable.version, before.version);
    life_full(l, false);
    life_end(l);
}

// Sets `made` for the versions of which a worker makes copies while none is registered.
static void make_copies(uint32_t count, uint64_t from, uint64_t to, bool made[])
{
    struct wk_worker w = {.conf = {.durable_every = 10}};
    struct wk_shard s = {.worker = &w, .copies = {.count = count}};
    s.replica.ledger.epoch = 2;
    s.copies.durable = (struct lh_point){.epoch = 2, .version = from};
    for (uint64_t v = from; v < to; v++) {
        s.replica.ledger.version = v;
        made[v] = wk_durable_copy_due(&s);
        if (!made[v]) continue;
        s.copies.count++;
        s.copies.durable.version = v;
    }
}

// Two regions may hold any number of copies, of any version, when an epoch begins. Soon they make
// copies of the same versions; otherwise no point would become stable any more.
TEST(copies_of_two_regions_meet)
{
    enum { VERSIONS = 400, SOON = 80 };
    for (uint32_t n = 0; n < 6; n++)
        for (uint64_t from = 40; from < 80; from++) {
            bool one[VERSIONS] = {false}, other[VERSIONS] = {false};
            make_copies(n, from, VERSIONS, one);
            make_copies(3, 47, VERSIONS, other);
            uint64_t apart = 0;
            for (uint64_t v = 80; v < VERSIONS; v++) {
                apart = one[v] && other[v] ? 0 : apart + 1;
                assert_true(apart < SOON);
            }
        }
}

// A worker with the maximum number of copies makes another once its newest copy, or one of a later
// epoch, is registered.
TEST(a_copy_that_is_registered_makes_room_for_the_next)
{
    struct wk_worker w = {.conf = {.durable_every = 10}};
    struct wk_shard s = {.worker = &w, .copies = {.count = 4}};
    s.replica.ledger.epoch = 3;
    s.replica.ledger.version = 50; // not a common version
    s.copies.durable = (struct lh_point){.epoch = 3, .version = 30};
    for (uint64_t epoch = 1; epoch <= 5; epoch++)
        for (uint64_t version = 29; version <= 31; version++) {
            s.stable = (struct lh_point){.epoch = epoch, .version = version};
            assert_int_equal(wk_durable_copy_due(&s), epoch > 3 || (epoch == 3 && version >= 30));
        }
}
