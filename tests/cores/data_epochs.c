// Data epochs: the order in which their units are leased, what a worker and a coordinator check at
// a join, and that each unit of each epoch is credited once, whichever process dies
// (server/docs/0000-protocol.md#rule-19).
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/order.h"
#include "tests/cores/rig.h"

enum { UNITS = 8, EPOCHS = 3, ALL = UNITS * EPOCHS, STEP_MS = 50 };

static lh_err ask_to_join(struct rig *r, uint32_t epochs, bool any, uint32_t *told)
{
    Longhaul__V1__JoinRequest m;
    Longhaul__V1__Wire wire;
    ProtobufCMessage *answer;
    rig_join_request(r, 5, &wire, &m);
    m.epochs = epochs;
    m.any_epochs = any;
    lh_err err = rig_ask(r, r->to_c[0], LH_RPC_JOIN, &m.base, &answer);
    if (!err) *told = ((Longhaul__V1__JoinReply *)answer)->epochs;
    rig_free_message(answer);
    return err;
}

RIG_TEST(a_join_that_expects_other_epochs_is_refused, struct rig *r)
{
    uint32_t told = 0;
    r->epochs = EPOCHS;
    rig_start_coordinator(r);
    assert_int_equal(ask_to_join(r, 2, false, &told), LH_ERR_CONFIG);
    assert_int_equal(ask_to_join(r, EPOCHS + 1, false, &told), LH_ERR_CONFIG);
    assert_int_equal(ask_to_join(r, 0, false, &told), LH_ERR_CONFIG);
    assert_int_equal(r->coordinator->workers, 0);
    assert_int_equal(ask_to_join(r, 0, true, &told), LH_OK);
    assert_int_equal(told, EPOCHS);
    assert_int_equal(ask_to_join(r, EPOCHS, false, &told), LH_OK);
    assert_int_equal(told, EPOCHS);
}

RIG_TEST(a_worker_says_how_many_epochs_it_expects, struct rig *r)
{
    uint32_t told = 0;
    rig_start_coordinator(r);
    assert_int_equal(ask_to_join(r, 0, false, &told), LH_ERR_CONFIG);
    assert_int_equal(ask_to_join(r, 1, false, &told), LH_OK);
    assert_int_equal(ask_to_join(r, 0, true, &told), LH_OK);
    assert_int_equal(told, 1);
    assert_int_equal(ask_to_join(r, 2, false, &told), LH_ERR_CONFIG);
}

// ---------------------------------------------------------------- the order

static size_t lease(struct rig *r, uint32_t w, uint32_t want, uint64_t unit[ALL])
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    ProtobufCMessage *answer;
    m.want = want;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    Longhaul__V1__LeaseReply *a = (Longhaul__V1__LeaseReply *)answer;
    size_t n = a->n_units;
    assert_true(n <= ALL);
    if (n) memcpy(unit, a->units, n * sizeof *unit);
    rig_free_message(answer);
    return n;
}

// Worker 0 has joined, and the run has begun.
static void begin(struct rig *r, uint64_t seed)
{
    uint32_t told;
    r->epochs = EPOCHS;
    r->order = seed;
    rig_serve(r, 0);
    assert_int_equal(ask_to_join(r, 0, true, &told), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_RUN);
}

static bool is_home(const struct rig *r, uint64_t unit)
{
    return strcmp(lh_units_at(&r->units, unit)->home, r->w[0].self.region) == 0;
}

// Within an epoch the region's own units come first, then the others', each in the epoch's order.
static void check_epoch(const struct rig *r, const uint64_t *unit, uint32_t epoch)
{
    uint32_t order[UNITS];
    size_t n = 0;
    ps_co_shuffle(r->order, epoch, order, UNITS);
    for (int home = 1; home >= 0; home--)
        for (uint32_t i = 0; i < UNITS; i++)
            if (is_home(r, order[i]) == home) assert_int_equal(unit[n++], epoch * UNITS + order[i]);
    assert_int_equal(n, UNITS);
}

RIG_TEST(epochs_are_leased_one_after_the_other, struct rig *r)
{
    uint64_t unit[ALL], again[ALL];
    begin(r, 77);
    for (uint32_t want = 1; want <= ALL; want++) {
        assert_int_equal(lease(r, 0, want, unit), want);
        if (want % UNITS) continue;
        bool seen[ALL] = {false};
        for (uint32_t i = 0; i < want; i++) seen[unit[i]] = true;
        for (uint32_t i = 0; i < want; i++) assert_true(seen[i]); // none of a later epoch
    }
    assert_int_equal(lease(r, 0, ALL, unit), ALL); // all its leases, in the order of the epochs
    for (uint32_t e = 0; e < EPOCHS; e++) {
        uint32_t order[UNITS];
        ps_co_shuffle(r->order, e, order, UNITS);
        for (uint32_t i = 0; i < UNITS; i++)
            assert_int_equal(unit[e * UNITS + i], e * UNITS + order[i]);
    }
    rig_kill_coordinator(r); // a restart knows the leases, and lists them in the same order
    rig_start_coordinator(r);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(lease(r, 0, ALL, again), ALL);
    assert_memory_equal(again, unit, sizeof unit);
}

RIG_TEST(each_epoch_has_its_own_order, struct rig *r)
{
    uint64_t unit[ALL];
    begin(r, 78);
    assert_int_equal(lease(r, 0, ALL, unit), ALL);
    // New leases are listed in the order in which they were taken.
    for (uint32_t e = 0; e < EPOCHS; e++) check_epoch(r, unit + e * UNITS, e);
}

// Units that may not leave the other region delay nobody.
RIG_TEST(nobody_waits_for_the_end_of_an_epoch, struct rig *r)
{
    uint64_t unit[ALL];
    for (uint64_t u = 0; u < UNITS; u++) r->units.unit[u].may_leave = false;
    begin(r, 79);
    assert_int_equal(lease(r, 0, ALL, unit), ALL / 2);
    for (uint32_t i = 0; i < ALL / 2; i++) {
        assert_true(is_home(r, unit[i]));
        assert_int_equal(unit[i] / UNITS, i / (UNITS / 2));
    }
}

RIG_TEST(a_budget_counts_units_of_all_epochs, struct rig *r)
{
    uint64_t unit[ALL];
    begin(r, 80);
    r->coordinator->conf.budget_tokens = (UNITS + 3) * 64;
    assert_int_equal(lease(r, 0, ALL, unit), UNITS + 3);
}

// ---------------------------------------------------------------- a whole run

static lh_err ended;
static char ended_text[300];

static void on_end(void *arg, lh_err err, const char *text)
{
    (void)arg;
    ended = err;
    snprintf(ended_text, sizeof ended_text, "%s", text);
}

static void start(struct rig *r, struct rig_life *l, uint32_t epochs)
{
    struct wk_conf conf = rig_life_conf(r, l, STEP_MS);
    conf.epochs = epochs;
    conf.fatal = on_end;
    ended = LH_OK;
    rig_life_start(l, &conf);
}

static uint64_t credited(const struct rig *r)
{
    return r->server->shard[0]->replica.ledger.credited;
}

static void until_credited(struct rig *r, uint64_t units)
{
    for (int i = 0; i < 60000 && credited(r) < units; i++) rig_run(r, 10 * LH_MS);
    assert_true(credited(r) >= units);
}

static void until_over(struct rig *r, const struct rig_life *l)
{
    for (int i = 0; i < 60000 && r->coordinator->plan.phase < LH_PHASE_END; i++)
        rig_run(r, 10 * LH_MS);
    assert_int_equal(r->coordinator->plan.phase, LH_PHASE_END);
    assert_int_equal(ended, LH_OK);
    assert_int_equal(l->worker->epochs, EPOCHS);
    assert_int_equal(credited(r), ALL);
    assert_int_equal(ps_co_credited_tokens(r->coordinator), ALL * 64);
    for (uint64_t u = 0; u < ALL; u++) assert_true(ps_co_credited(r->coordinator, u));
    assert_false(ps_co_credited(r->coordinator, ALL));
}

RIG_TEST(every_unit_of_every_epoch_is_credited_once, struct rig *r)
{
    struct rig_life l = {0};
    r->epochs = EPOCHS;
    rig_serve(r, 0);
    start(r, &l, EPOCHS);
    assert_int_equal(ps_co_data_epoch(r->coordinator), 0);
    until_credited(r, UNITS);
    until_credited(r, UNITS + UNITS / 2);
    assert_in_range(ps_co_data_epoch(r->coordinator), 0, 2);
    until_over(r, &l);
    assert_int_equal(ps_co_data_epoch(r->coordinator), EPOCHS - 1);
    assert_int_equal(l.worker->count.tokens, ALL * 64); // nobody died: none is trained twice
    rig_life_end(r, &l, false);
}

// A worker, the coordinator, or both, are killed in the second epoch.
TEST(a_run_that_was_killed_in_a_later_epoch_goes_on)
{
    for (uint32_t who = 1; who <= 3; who++)
        for (uint32_t after = UNITS; after < 2 * UNITS; after += 3) {
            struct rig *r = rig_new(after);
            struct rig_life l = {0};
            r->epochs = EPOCHS;
            rig_serve(r, 0);
            start(r, &l, 0);
            until_credited(r, after);
            if (who & 1) {
                rig_life_end(r, &l, after % 2);
                rig_boot_worker(r, 1);
                start(r, &l, 0);
            }
            if (who & 2) {
                rig_kill_coordinator(r);
                rig_run(r, LH_SECOND);
                rig_start_coordinator(r);
            }
            until_over(r, &l);
            rig_life_end(r, &l, false);
            rig_free(r);
        }
}

RIG_TEST(a_worker_that_expects_other_epochs_ends, struct rig *r)
{
    struct rig_life l = {0};
    r->epochs = EPOCHS;
    rig_start_coordinator(r);
    start(r, &l, 2);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(ended, LH_ERR_CONFIG);
    assert_non_null(strstr(ended_text, "the run has 3 data epochs"));
    assert_non_null(strstr(ended_text, "the worker expects 2 (run.epochs)"));
    rig_life_end(r, &l, false);
}

// The coordinator restarts with other settings, and the worker does not join again.
TEST(a_worker_hears_of_a_change_with_its_leases)
{
    for (uint32_t expects = 0; expects <= 1; expects++) {
        struct rig *r = rig_new(1 + expects);
        struct rig_life l = {0};
        r->epochs = 1;
        rig_serve(r, 0);
        start(r, &l, expects);
        until_credited(r, 1);
        rig_kill_coordinator(r);
        r->epochs = EPOCHS;
        rig_start_coordinator(r);
        rig_run(r, 5 * LH_SECOND);
        if (!expects) {
            until_over(r, &l);
        } else {
            assert_int_equal(ended, LH_ERR_CONFIG);
            assert_non_null(strstr(ended_text, "this worker expects 1 (run.epochs)"));
        }
        rig_life_end(r, &l, false);
        rig_free(r);
    }
}

// ---------------------------------------------------------------- the largest run

// Two shards of one server have credits that are too large for a message as they are.
RIG_TEST(credits_of_the_largest_run_are_reported, struct rig *r)
{
    static const uint64_t in[] = {0, 1, 2, 5, LH_UNITS_MAX - 2, LH_UNITS_MAX - 1};
    rig_two_shards(r);
    r->epochs = LH_UNITS_MAX / UNITS;
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->units, LH_UNITS_MAX);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (uint32_t k = 0; k < 2; k++) {
        struct lh_ledger *l = &r->server->shard[k]->replica.ledger;
        free(l->credit);
        l->credit_bytes = LH_UNITS_MAX / 8;
        l->credit = calloc(l->credit_bytes, 1);
        assert_non_null(l->credit);
        for (size_t i = 0; i < LH_COUNT(in); i++)
            if (in[i] % 2 == k) l->credit[in[i] / 8] |= (uint8_t)(1u << in[i] % 8);
    }
    rig_run(r, 5 * LH_SECOND);
    for (size_t i = 0; i < LH_COUNT(in); i++) assert_true(ps_co_credited(r->coordinator, in[i]));
    assert_false(ps_co_credited(r->coordinator, 3));
    assert_false(ps_co_credited(r->coordinator, LH_UNITS_MAX - 3));
    assert_int_equal(ps_co_credited_tokens(r->coordinator), LH_COUNT(in) * 64);
    assert_int_equal(ps_co_data_epoch(r->coordinator), 0);
    struct ps_co_span span = ps_co_under_way(r->coordinator);
    assert_true(span.from == 0 && span.to == LH_UNITS_MAX);
    for (uint32_t k = 0; k < 2; k++) { // the first half of the run is credited in whole
        struct lh_ledger *l = &r->server->shard[k]->replica.ledger;
        for (size_t i = 0; i < l->credit_bytes; i++)
            l->credit[i] = (uint8_t)(i < l->credit_bytes / 2 ? 0x55 << k : 0);
    }
    rig_run(r, LH_SECOND); // the same version with other credits, as if an epoch had lost some
    span = ps_co_under_way(r->coordinator);
    assert_true(span.from == LH_UNITS_MAX / 2 && span.to == LH_UNITS_MAX / 2);
    assert_int_equal(ps_co_data_epoch(r->coordinator), r->epochs / 2);
    assert_int_equal(ps_co_credited_tokens(r->coordinator), LH_UNITS_MAX / 2 * UINT64_C(64));
}
