// Stable points from workers' words: the server's log vouches for what is below its head, so that a
// false word makes nothing stable, takes no other's place, and stops no server
// (server/docs/0000-protocol.md#rule-13, #rule-27).
#include <stdlib.h>
#include <string.h>

#include "common/net/head.h"
#include "server/coordinator/stable.h"
#include "tests/cores/rig.h"

enum { HEAD = 24 };

static struct ps_co_shard *row(const struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

static const struct lh_ledger *ledger(const struct rig *r, uint32_t shard)
{
    return &r->server->shard[shard]->replica.ledger;
}

static void log_all(struct rig *r, uint64_t from, uint64_t to)
{
    for (r->shard = 0; r->shard < r->manifest.shards; r->shard++)
        for (uint64_t i = from; i <= to; i++) rig_hello(r, 0, i << 32, 0, 1);
    r->shard = 0;
    rig_run(r, 2 * LH_SECOND);
}

// Both workers joined, and each shard's head is reported.
static struct rig *begun(uint32_t shards, uint64_t segment_bytes)
{
    struct rig *r = rig_new(7);
    r->segment_bytes = segment_bytes;
    if (shards > 1) rig_two_shards(r);
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 1).granted, 1);
    rig_run(r, 3 * LH_SECOND);
    log_all(r, 2, HEAD);
    for (uint32_t k = 0; k < shards; k++) {
        assert_true(ledger(r, k)->version >= HEAD - 1);
        assert_int_equal(row(r, k)->head.version, ledger(r, k)->version);
    }
    return r;
}

static struct lh_point of_log(const struct rig *r, uint32_t shard, uint64_t back)
{
    const struct lh_ledger *l = ledger(r, shard);
    struct lh_point p = {l->epoch, l->version - back, {{0}}};
    assert_int_equal(ps_shard_chain(r->server->shard[shard], p.version, &p.chain), LH_OK);
    return p;
}

static struct lh_point made_up(const struct rig *r, uint32_t shard, uint64_t back)
{
    struct lh_point p = of_log(r, shard, back);
    p.chain.b[0] ^= 1;
    return p;
}

static struct ps_co_worker *worker_of(const struct rig *r, uint32_t w)
{
    struct ps_coordinator *c = r->coordinator;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].id == lh_worker_id(&r->w[w].self)) return &c->worker[i];
    fail_msg("worker %u is unknown", w);
    return NULL;
}

// Worker w says that it holds this of each shard.
static void say(struct rig *r, uint32_t w, const struct lh_point *p)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    Longhaul__V1__Point item[RIG_SHARDS], *list[RIG_SHARDS];
    ProtobufCMessage *answer;
    for (uint32_t k = 0; k < r->manifest.shards; k++) {
        item[k] = lh_head_point(k, p[k].epoch, p[k].version, &p[k].chain);
        list[k] = &item[k];
    }
    m.worker = lh_worker_id(&r->w[w].self);
    m.incarnation = UINT64_C(1) << 32;
    m.n_durable = r->manifest.shards;
    m.durable = list;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base,
                             &longhaul__v1__lease_reply__descriptor, &answer),
                     LH_OK);
    rig_free_message(answer);
}

static bool is_stable(const struct rig *r, uint32_t shard, const struct lh_point *p)
{
    const struct lh_point *s = &row(r, shard)->stable;
    return s->epoch == p->epoch && s->version == p->version && lh_hash_equal(&s->chain, &p->chain);
}

// The next start of the server compares its log with what is stable.
static void starts_again(struct rig *r)
{
    uint64_t epoch = ledger(r, 0)->epoch;
    rig_settle(r);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r, 0)->epoch, epoch);
}

static void a_made_up_history_below_the_head_is_not_stable(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) {
        struct rig *r = begun(shards, 0);
        struct lh_point lie[RIG_SHARDS], honest[RIG_SHARDS];
        for (uint32_t k = 0; k < shards; k++) {
            lie[k] = made_up(r, k, 1);
            honest[k] = of_log(r, k, 3);
        }
        for (int i = 0; i < 10; i++) {
            say(r, 0, lie);
            rig_run(r, 300 * LH_MS);
            for (uint32_t k = 0; k < shards; k++) assert_int_equal(row(r, k)->stable.version, 0);
        }
        rig_run(r, 2 * LH_SECOND); // once the server has said no, it is not asked again
        for (uint32_t k = 0; k < shards; k++)
            assert_int_equal(worker_of(r, 0)->claim[k].said.version, 0);
        for (int i = 0; i < 10; i++) {
            say(r, 1, honest);
            say(r, 0, lie);
            rig_run(r, 300 * LH_MS);
        }
        for (uint32_t k = 0; k < shards; k++) assert_true(is_stable(r, k, &honest[k]));
        starts_again(r);
        rig_free(r);
    }
}

// The later one of two workers' copies counts; a copy of the head is known at once.
static void the_latest_copy_of_the_log_is_stable(void **state)
{
    (void)state;
    struct rig *r = begun(1, 0);
    struct lh_point older = of_log(r, 0, 5), later = of_log(r, 0, 2), head = of_log(r, 0, 0);
    say(r, 0, &later);
    say(r, 1, &older);
    assert_int_equal(row(r, 0)->stable.version, 0);
    rig_run(r, 2 * LH_SECOND);
    assert_true(is_stable(r, 0, &later));
    say(r, 1, &head);
    assert_true(is_stable(r, 0, &head));
    starts_again(r);
    rig_free(r);
}

// A worker that says something new with every lease is answered all the same.
static void a_worker_that_goes_on_is_not_passed_over(void **state)
{
    (void)state;
    struct rig *r = begun(1, 0);
    uint64_t head = ledger(r, 0)->version;
    for (uint64_t back = 12; back > 0; back--) {
        struct lh_point p = of_log(r, 0, back);
        say(r, 1, &p);
        rig_run(r, 170 * LH_MS); // three leases a report, which comes every 500 ms
    }
    assert_in_range(row(r, 0)->stable.version, head - 9, head - 1);
    rig_free(r);
}

static void a_copy_that_is_gone_is_not_stable(void **state)
{
    (void)state;
    struct rig *r = begun(1, 0);
    struct lh_point p = of_log(r, 0, 2);
    say(r, 1, &p);
    assert_int_equal(rig_join(r, 1, 22, 2).granted, 2); // without its directory
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(row(r, 0)->stable.version, 0);
    rig_free(r);
}

// The coordinator was away while the server cut its log: the workers' last copies lie below that.
static void a_copy_below_what_the_log_begins_with_is_believed(void **state)
{
    (void)state;
    struct rig *r = begun(1, 4096);
    struct lh_point p = of_log(r, 0, 2);
    for (uint64_t i = HEAD + 1; i < 300 && ps_shard_place(r->server->shard[0], p.version); i++) {
        rig_hello(r, 0, i << 32, 0, 1);
        rig_run(r, 100 * LH_MS);
    }
    rig_run(r, 2 * LH_SECOND);
    assert_null(ps_shard_place(r->server->shard[0], p.version));
    say(r, 1, &p);
    rig_run(r, 2 * LH_SECOND);
    assert_true(is_stable(r, 0, &p));
    starts_again(r);
    rig_free(r);
}

static void a_server_that_does_not_vouch_is_not_asked(void **state)
{
    (void)state;
    struct rig *r = begun(1, 0);
    struct lh_point p = of_log(r, 0, 2);
    row(r, 0)->vouches = false; // as an older server's report says
    say(r, 1, &p);
    assert_true(is_stable(r, 0, &p));
    rig_free(r);
}

// The number of a shard comes from the network: behind the last there is nothing to write to.
static void a_copy_of_a_shard_that_does_not_exist_is_no_claim(void **state)
{
    (void)state;
    struct rig *r = begun(RIG_SHARDS, 0);
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    struct ps_co_worker *w = worker_of(r, 0);
    static const struct ps_co_claim untouched = {{.epoch = 77}, {.epoch = 78}};
    ProtobufCMessage *answer;
    ps_co_forget_copies(w);
    w->claim = calloc(RIG_SHARDS + 1, sizeof *w->claim);
    assert_non_null(w->claim);
    w->claim[RIG_SHARDS] = untouched;
    struct lh_point p = of_log(r, 0, 0);
    Longhaul__V1__Point item = lh_head_point(RIG_SHARDS, p.epoch, p.version, &p.chain);
    Longhaul__V1__Point *list = &item;
    m.worker = lh_worker_id(&r->w[0].self);
    m.incarnation = UINT64_C(1) << 32;
    m.n_durable = 1;
    m.durable = &list;
    assert_int_equal(rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base,
                             &longhaul__v1__lease_reply__descriptor, &answer),
                     LH_OK);
    rig_free_message(answer);
    assert_memory_equal(&w->claim[RIG_SHARDS], &untouched, sizeof untouched);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_of_a_shard_that_does_not_exist_is_no_claim),
        cmocka_unit_test(a_made_up_history_below_the_head_is_not_stable),
        cmocka_unit_test(the_latest_copy_of_the_log_is_stable),
        cmocka_unit_test(a_worker_that_goes_on_is_not_passed_over),
        cmocka_unit_test(a_copy_that_is_gone_is_not_stable),
        cmocka_unit_test(a_copy_below_what_the_log_begins_with_is_believed),
        cmocka_unit_test(a_server_that_does_not_vouch_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
