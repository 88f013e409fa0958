// Leases: what a worker was told, the coordinator still knows after a power cut; units go to one
// worker at a time; stable points are told to all (PROTOCOL 13, 19).
#include "common/head.h"
#include "tests/cores/rig.h"

enum { SEEDS = 6 }; // a power cut keeps or loses by chance what was not synced

static Longhaul__V1__LeaseReply *lease(struct rig *r, uint32_t w, uint32_t want,
                                       Longhaul__V1__Point *durable)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    ProtobufCMessage *answer;
    m.worker = lh_worker_id(&r->w[w].self);
    m.incarnation = UINT64_C(1) << 32;
    m.want = want;
    m.n_durable = durable != NULL;
    m.durable = &durable;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base,
                             &longhaul__v1__lease_reply__descriptor, &answer),
                     LH_OK);
    return (Longhaul__V1__LeaseReply *)answer;
}

// A coordinator, a server that has reported, and both workers: the run has begun.
static struct rig *begun(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 1).granted, 1);
    rig_run(r, 5 * LH_SECOND);
    return r;
}

static void cut_its_power(struct rig *r)
{
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

static void what_was_leased_is_known_after_a_power_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = begun(seed);
        struct ps_co_worker *first;
        for (uint32_t w = 0; w < RIG_WORKERS; w++) {
            Longhaul__V1__LeaseReply *m = lease(r, w, 2, NULL);
            assert_int_equal(m->n_units, 2);
            cut_its_power(r);
            assert_int_equal(r->coordinator->workers, RIG_WORKERS);
            for (size_t i = 0; i < m->n_units; i++) {
                uint32_t holder = r->coordinator->lease[m->units[i]];
                assert_int_not_equal(holder, CO_FREE);
                first = &r->coordinator->worker[holder - 1];
                assert_int_equal(first->id, lh_worker_id(&r->w[w].self));
            }
            rig_free_message(m);
            rig_run(r, 2 * LH_SECOND); // the server reports again
        }
        rig_free(r);
    }
}

static void a_unit_has_one_holder(void **state)
{
    (void)state;
    struct rig *r = begun(1);
    unsigned held = 0;
    for (uint32_t w = 0; w < RIG_WORKERS; w++) {
        Longhaul__V1__LeaseReply *m = lease(r, w, 3, NULL), *again = lease(r, w, 3, NULL);
        assert_int_equal(m->n_units, 3);
        assert_int_equal(again->n_units, 3); // the same: it has as many as it wants
        for (size_t i = 0; i < m->n_units; i++) {
            assert_int_equal(again->units[i], m->units[i]);
            assert_int_equal(held >> m->units[i] & 1, 0);
            held |= 1u << m->units[i];
        }
        rig_free_message(m);
        rig_free_message(again);
    }
    rig_free(r);
}

static void a_stable_point_is_told_and_survives_a_power_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig *r = begun(seed);
        const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
        assert_true(l->version > 0); // the plan
        struct lh_hash chain = l->chain;
        Longhaul__V1__Point have = lh_head_point(0, l->epoch, l->version, &chain);
        Longhaul__V1__LeaseReply *m = lease(r, 0, 1, NULL);
        assert_int_equal(m->n_stable, 0);
        rig_free_message(m);
        rig_free_message(lease(r, 0, 1, &have));
        cut_its_power(r);
        m = lease(r, 1, 1, NULL); // whoever asks
        assert_int_equal(m->n_stable, 1);
        assert_true(m->stable[0]->epoch == have.epoch && m->stable[0]->version == have.version);
        assert_memory_equal(m->stable[0]->chain.data, chain.b, LH_HASH_BYTES);
        rig_free_message(m);
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_leased_is_known_after_a_power_cut),
        cmocka_unit_test(a_unit_has_one_holder),
        cmocka_unit_test(a_stable_point_is_told_and_survives_a_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
