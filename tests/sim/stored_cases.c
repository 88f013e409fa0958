// The coordinator's answers against its disk: the product writes the store, the messages are
// hand-made. A row that was put but not committed is on no disk, whatever memory has.
#include <stdlib.h>
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/store.h"
#include "tests/sim/stored.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { WORKER = 9, UNIT = 5 };

struct disk {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_store *store;
    struct sim_stored stored;
};

static int set_up(void **state)
{
    struct disk *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->world = lh_fake_world_create(1);
    d->env = lh_fake_node(d->world, NULL, NULL);
    lh_fake_boot(d->env);
    assert_int_equal(ps_store_open(d->env, "co", &d->store), LH_OK);
    *state = d;
    return 0;
}

static int tear_down(void **state)
{
    struct disk *d = *state;
    ps_store_close(d->store);
    sim_stored_free(&d->stored);
    lh_fake_world_destroy(d->world);
    free(d);
    return 0;
}

static void put(struct disk *d, const char *key, const uint64_t *numbers, size_t count)
{
    struct lh_buf b = lh_buf(4096);
    for (size_t i = 0; i < count; i++) lh_put_u64(&b, numbers[i]);
    lh_put_zeros(&b, LH_HASH_BYTES); // a chain, or spare bytes
    assert_int_equal(ps_store_put(d->store, key, lh_buf_span(&b)), LH_OK);
    lh_buf_free(&b);
}

static const char LEASE[] = "lease/0000000000";

// Puts a range of leases in which WORKER holds only UNIT.
static void put_lease(struct disk *d)
{
    struct lh_buf b = lh_buf(32);
    lh_put_u8(&b, UNIT);
    lh_put_u8(&b, 1);
    lh_put_u64(&b, WORKER);
    lh_put_u64(&b, 0);
    assert_int_equal(ps_store_put(d->store, LEASE, lh_buf_span(&b)), LH_OK);
    lh_buf_free(&b);
}

static lh_err try_to_commit(struct ps_store *s)
{
    bool begun;
    LH_TRY(ps_store_begin(s, &begun));
    assert_true(begun);
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    return err;
}

static void commit(struct disk *d)
{
    assert_int_equal(try_to_commit(d->store), LH_OK);
}

static void look(struct disk *d)
{
    struct lh_span file;
    assert_true(lh_fake_durable(d->env, "co/store", &file));
    sim_stored_read(&d->stored, file);
}

static uint64_t file_bytes(struct disk *d)
{
    struct lh_buf file = lh_buf(1 << 20);
    assert_int_equal(lh_file_load(d->env, "co/store", &file), LH_OK);
    uint64_t n = file.len;
    lh_buf_free(&file);
    return n;
}

// Makes the file much longer than its content, so that the next commit rewrites it.
static void fill(struct disk *d)
{
    static const uint64_t filler[500];
    while (file_bytes(d) < 1 << 16) {
        put(d, "filler", filler, 500);
        commit(d);
    }
}

static const char *lease_of(struct disk *d, uint64_t worker, uint64_t unit)
{
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    m.units = &unit;
    m.n_units = 1;
    look(d);
    return sim_stored_lease(&d->stored, worker, &m);
}

#define STORED_TEST(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

STORED_TEST(a_lease_is_on_the_disk_once_it_is_committed, struct disk *d)
{
    put_lease(d);
    assert_string_equal(lease_of(d, WORKER, UNIT), "a lease");
    commit(d);
    assert_null(lease_of(d, WORKER, UNIT));
    assert_string_equal(lease_of(d, WORKER + 1, UNIT), "a lease");
    assert_string_equal(lease_of(d, WORKER, UNIT + 1), "a lease");
    assert_int_equal(ps_store_remove(d->store, LEASE), LH_OK);
    assert_null(lease_of(d, WORKER, UNIT));
    commit(d);
    assert_string_equal(lease_of(d, WORKER, UNIT), "a lease");
}

STORED_TEST(a_commit_that_failed_left_nothing, struct disk *d)
{
    put_lease(d);
    lh_fake_fail_at(d->env, 1, LH_ERR_IO); // the sync, after the write
    assert_int_equal(try_to_commit(d->store), LH_ERR_IO);
    assert_string_equal(lease_of(d, WORKER, UNIT), "a lease");
}

STORED_TEST(a_file_that_is_written_anew_is_read_anew, struct disk *d)
{
    put_lease(d);
    commit(d);
    assert_null(lease_of(d, WORKER, UNIT));
    fill(d);
    assert_int_equal(ps_store_remove(d->store, LEASE), LH_OK);
    commit(d);
    assert_true(file_bytes(d) < 1 << 16);
    assert_string_equal(lease_of(d, WORKER, UNIT), "a lease");
    put_lease(d);
    commit(d);
    assert_null(lease_of(d, WORKER, UNIT));
    put(d, "pause", NULL, 0);
    commit(d);
    look(d);
    assert_true(d->stored.paused);
    fill(d);
    assert_int_equal(ps_store_remove(d->store, "pause"), LH_OK);
    commit(d);
    assert_true(file_bytes(d) < 1 << 16);
    look(d);
    assert_false(d->stored.paused);
}

STORED_TEST(the_phase_is_the_stored_plans, struct disk *d)
{
    uint8_t plan[33] = {1, 0, 7, [10] = 1}; // version 1, number 7, phase RUN, no live worker
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    m.phase = 1;
    look(d);
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a phase of the run");
    assert_int_equal(ps_store_put(d->store, "plan", lh_span(plan, sizeof plan)), LH_OK);
    commit(d);
    look(d);
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
    m.phase = 2; // this worker drains
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
    m.phase = 3;
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a phase of the run");
}

STORED_TEST(a_pause_is_on_the_disk, struct disk *d)
{
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    look(d);
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
    m.paused = true;
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a pause");
    assert_int_equal(ps_store_put(d->store, "pause", lh_span("x", 1)), LH_OK);
    commit(d);
    look(d);
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
    m.paused = false;
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a pause");
    assert_int_equal(ps_store_remove(d->store, "pause"), LH_OK);
    commit(d);
    look(d);
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
}

static Longhaul__V1__Point point(uint64_t epoch, uint64_t version)
{
    static uint8_t chain[LH_HASH_BYTES]; // zeros, as in put()
    Longhaul__V1__Point p = LONGHAUL__V1__POINT__INIT;
    p.epoch = epoch;
    p.version = version;
    p.chain = (ProtobufCBinaryData){sizeof chain, chain};
    return p;
}

STORED_TEST(a_stable_point_is_on_the_disk, struct disk *d)
{
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    Longhaul__V1__Point p = point(2, 10), *points[] = {&p};
    m.stable = points;
    m.n_stable = 1;
    put(d, "stable/0000", (uint64_t[]){2, 10}, 2);
    look(d);
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a stable point");
    commit(d);
    look(d);
    assert_null(sim_stored_lease(&d->stored, WORKER, &m));
    p.version = 11;
    assert_string_equal(sim_stored_lease(&d->stored, WORKER, &m), "a stable point");
}

STORED_TEST(an_incarnation_is_on_the_disk, struct disk *d)
{
    Longhaul__V1__JoinReply m = LONGHAUL__V1__JOIN_REPLY__INIT;
    m.worker = WORKER;
    m.granted = 3;
    put(d, "worker/0000000000000009", (uint64_t[]){WORKER, 3}, 2);
    look(d);
    assert_string_equal(sim_stored_join(&d->stored, &m), "an incarnation");
    commit(d);
    look(d);
    assert_null(sim_stored_join(&d->stored, &m));
    put(d, "worker/0000000000000009", (uint64_t[]){WORKER, 2}, 2);
    commit(d);
    look(d);
    assert_false(d->stored.unreadable); // its commit was taken back, and no answer had it
    sim_stored_answered(&d->stored, &m);
    put(d, "worker/0000000000000009", (uint64_t[]){WORKER, 1}, 2);
    commit(d);
    look(d);
    assert_true(d->stored.unreadable); // an answered number never goes back
}

STORED_TEST(an_in_sync_row_is_on_the_disk, struct disk *d)
{
    Longhaul__V1__InSyncReply m = LONGHAUL__V1__IN_SYNC_REPLY__INIT;
    m.standby = 7;
    m.changes = 2;
    put(d, "insync/0000", (uint64_t[]){0, 7, 2, 0, 0}, 5);
    look(d);
    assert_string_equal(sim_stored_in_sync(&d->stored, 0, &m), "an in-sync row");
    commit(d);
    look(d);
    assert_null(sim_stored_in_sync(&d->stored, 0, &m));
    m.standby = 0;
    assert_string_equal(sim_stored_in_sync(&d->stored, 0, &m), "an in-sync row");
}

STORED_TEST(epochs_are_on_the_disk, struct disk *d)
{
    Longhaul__V1__EpochReply m = LONGHAUL__V1__EPOCH_REPLY__INIT;
    Longhaul__V1__Point p = point(1, 4), *points[] = {&p};
    m.begun = points;
    m.n_begun = 1;
    m.token = 8;
    put(d, "epoch/0000", (uint64_t[]){8, 1, 4}, 3);
    look(d);
    assert_string_equal(sim_stored_epochs(&d->stored, 0, &m), "an epoch");
    commit(d);
    look(d);
    assert_null(sim_stored_epochs(&d->stored, 0, &m));
    p.version = 5;
    assert_string_equal(sim_stored_epochs(&d->stored, 0, &m), "an epoch");
    p.version = 4;
    m.token = 9;
    assert_string_equal(sim_stored_epochs(&d->stored, 0, &m), "an epoch");
}

STORED_TEST(take_overs_moves_and_plans_are_on_the_disk, struct disk *d)
{
    Longhaul__V1__ReportReply m = LONGHAUL__V1__REPORT_REPLY__INIT;
    Longhaul__V1__ShardTurn turn = LONGHAUL__V1__SHARD_TURN__INIT, *turns[] = {&turn};
    Longhaul__V1__ShardMove move = LONGHAUL__V1__SHARD_MOVE__INIT, *moves[] = {&move};
    uint8_t plan[3] = {1, 2, 3};
    turn.epoch = 6;
    m.turns = turns;
    m.n_turns = 1;
    look(d);
    assert_string_equal(sim_stored_report(&d->stored, &m), "a take-over");
    put(d, "insync/0000", (uint64_t[]){7, 0, 1, 6, 0}, 5);
    commit(d);
    look(d);
    assert_null(sim_stored_report(&d->stored, &m));
    move.epoch = 9;
    move.target = 70;
    m.moves = moves;
    m.n_moves = 1;
    assert_string_equal(sim_stored_report(&d->stored, &m), "a move");
    move.shard = SIM_STORED_SHARDS;
    assert_string_equal(sim_stored_report(&d->stored, &m), "a move");
    move.shard = 0;
    put(d, "move/0000", (uint64_t[]){9, 70}, 2);
    commit(d);
    look(d);
    assert_null(sim_stored_report(&d->stored, &m));
    m.plan = (ProtobufCBinaryData){sizeof plan, plan};
    assert_string_equal(sim_stored_report(&d->stored, &m), "a plan");
    assert_int_equal(ps_store_put(d->store, "plan", lh_span(plan, sizeof plan)), LH_OK);
    commit(d);
    look(d);
    assert_null(sim_stored_report(&d->stored, &m));
}

static const char *check_stable(const struct sim_stored *stored, void *m)
{
    return sim_stored_lease(stored, WORKER, m);
}

static const char *check_other(const struct sim_stored *stored, void *m)
{
    return sim_stored_lease(stored, WORKER + 1, m);
}

// Judges an answer with this stable point.
static const char *held_stable(struct disk *d, uint64_t version)
{
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    Longhaul__V1__Point p = point(1, version), *points[] = {&p};
    m.stable = points;
    m.n_stable = 1;
    look(d);
    return sim_stored_held(&d->stored, check_stable, &m);
}

static void put_stable(struct disk *d, uint64_t version)
{
    put(d, "stable/0000", (uint64_t[]){1, version}, 2);
}

STORED_TEST(an_answer_may_tell_what_its_commit_replaced, struct disk *d)
{
    put_stable(d, 8);
    commit(d);
    put_stable(d, 16);
    assert_string_equal(held_stable(d, 16), "a stable point");
    assert_null(held_stable(d, 8));
    put_stable(d, 24);
    commit(d);
    assert_null(held_stable(d, 8));
    assert_null(held_stable(d, 16)); // a state at the request
    assert_null(held_stable(d, 24));
    assert_string_equal(held_stable(d, 20), "a stable point");
}

STORED_TEST(an_answer_may_not_tell_what_an_earlier_commit_replaced, struct disk *d)
{
    put_stable(d, 8);
    commit(d);
    put_stable(d, 16);
    commit(d);
    assert_null(held_stable(d, 8));
    put_lease(d); // no row of the point
    commit(d);
    assert_null(held_stable(d, 16));
    assert_string_equal(held_stable(d, 8), "a stable point");
}

STORED_TEST(an_answer_is_of_one_state, struct disk *d)
{
    uint64_t unit = UNIT;
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    Longhaul__V1__Point p = point(1, 8), *points[] = {&p};
    put_stable(d, 8);
    commit(d);
    put_stable(d, 16);
    put_lease(d);
    commit(d);
    m.units = &unit;
    m.n_units = 1;
    m.stable = points;
    m.n_stable = 1;
    look(d);
    // the lease came after the point
    assert_string_equal(sim_stored_held(&d->stored, check_stable, &m), "a stable point");
    p.version = 16;
    assert_null(sim_stored_held(&d->stored, check_stable, &m));
}

STORED_TEST(a_file_that_is_written_anew_has_no_order, struct disk *d)
{
    uint64_t unit = UNIT;
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    Longhaul__V1__Point old = point(1, 8), new = point(1, 24), *points[] = {&old, &new};
    m.units = &unit;
    m.n_units = 1;
    m.stable = points;
    m.n_stable = 2;
    new.shard = 1;
    put_stable(d, 8);
    put(d, "stable/0001", (uint64_t[]){1, 8}, 2);
    commit(d);
    fill(d);
    look(d);
    put(d, "stable/0001", (uint64_t[]){1, 24}, 2);
    put_lease(d); // the answered state is this one
    put_stable(d, 16);
    commit(d);
    assert_true(file_bytes(d) < 1 << 16);
    look(d);
    assert_null(sim_stored_held(&d->stored, check_stable, &m));
    old.version = 12;
    assert_string_equal(sim_stored_held(&d->stored, check_stable, &m), "a stable point");
    old.version = 8;
    m.units[0]++; // free: its lease may have come and gone within the commit
    assert_null(sim_stored_held(&d->stored, check_stable, &m));
    put(d, "pause", NULL, 0);
    commit(d); // into the same file
    m.paused = true;
    look(d);
    assert_string_equal(sim_stored_held(&d->stored, check_stable, &m), "a lease");
}

// Another worker holds the unit after the rewrite, so no answer had this lease.
STORED_TEST(a_file_that_is_written_anew_has_the_holders, struct disk *d)
{
    uint64_t unit = UNIT;
    Longhaul__V1__LeaseReply m = LONGHAUL__V1__LEASE_REPLY__INIT;
    m.units = &unit;
    m.n_units = 1;
    fill(d);
    look(d);
    put_lease(d);
    commit(d);
    assert_true(file_bytes(d) < 1 << 16);
    look(d);
    assert_null(sim_stored_held(&d->stored, check_stable, &m));
    assert_string_equal(sim_stored_held(&d->stored, check_other, &m), "a lease");
}

STORED_TEST(a_file_that_is_written_anew_replaced_what_it_was, struct disk *d)
{
    put_stable(d, 8);
    commit(d);
    assert_null(held_stable(d, 8));
    fill(d);
    assert_null(held_stable(d, 8));
    put_stable(d, 16);
    commit(d);
    assert_true(file_bytes(d) < 1 << 16);
    assert_null(held_stable(d, 16));
    assert_null(held_stable(d, 8));
    put_stable(d, 24);
    commit(d);
    assert_null(held_stable(d, 16));
    assert_string_equal(held_stable(d, 8), "a stable point");
}

// Appends to the former file the commit that rewrote it as `anew`: its last row before the mark.
static void add_last_row(struct lh_buf *was, struct lh_span anew)
{
    enum { HEADER = 8, COMMIT_HEAD = 28 };
    struct lh_cursor c = lh_cursor(lh_span(anew.data + HEADER, anew.len - HEADER));
    lh_get(&c, COMMIT_HEAD);
    struct lh_span row = {0};
    while (!c.failed && lh_left(&c) > COMMIT_HEAD) {
        const uint8_t *at = c.at;
        uint32_t bytes = lh_get_u32(&c);
        lh_get(&c, 4 + bytes);
        row = lh_span(at, (size_t)(c.at - at));
    }
    assert_false(c.failed);
    struct lh_buf head = lh_buf(COMMIT_HEAD);
    lh_put_u64(&head, 1); // its number, which is not checked
    lh_put_u32(&head, 1);
    lh_put_zeros(&head, 8);
    lh_put_u32(was, 0x4353484c);
    lh_put_u32(was, lh_crc32c(0, head.data, head.len));
    lh_put(was, head.data, head.len);
    lh_put(was, row.data, row.len);
    lh_buf_free(&head);
}

// As in etcd: a reader first sees the commit in the former log.
STORED_TEST(a_log_that_is_written_anew_had_the_commit_before, struct disk *d)
{
    struct lh_buf was = lh_buf(1 << 20);
    put_stable(d, 8);
    commit(d);
    fill(d);
    assert_int_equal(lh_file_load(d->env, "co/store", &was), LH_OK);
    put_stable(d, 16);
    commit(d);
    struct lh_span anew;
    assert_true(lh_fake_durable(d->env, "co/store", &anew));
    assert_true(anew.len < was.len);
    add_last_row(&was, anew);
    sim_stored_read(&d->stored, lh_buf_span(&was));
    assert_null(held_stable(d, 8)); // reads the rewritten file
    assert_null(held_stable(d, 16));
    assert_string_equal(held_stable(d, 12), "a stable point");
    lh_buf_free(&was);
}
