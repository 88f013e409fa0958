// server/coordinator/store/move: a run moves from a file into etcd, and back.
#include "server/coordinator/store/move.h"
#include "tests/unit/server/coordinator/store/rig.h"

// A run's file store moves once into an etcd that has no rows. An etcd that has rows is left alone.
TEST(a_file_store_moves)
{
    struct rig *r = start(ON_FAKE);
    struct ps_store *file;
    bool begun, moved;
    assert_int_equal(ps_store_move(r->env, "state", r->store, &moved), LH_OK);
    assert_false(moved); // there is no file
    assert_int_equal(r->env->ops->files->make_dir(r->env, "state"), LH_OK);
    assert_int_equal(ps_store_open(r->env, "state", &file), LH_OK);
    assert_int_equal(ps_store_put(file, "a", lh_span_str("one")), LH_OK);
    assert_int_equal(ps_store_put(file, "b", lh_span_str("two")), LH_OK);
    assert_int_equal(ps_store_begin(file, &begun), LH_OK);
    lh_err err = ps_store_write(file);
    ps_store_end(file, err);
    assert_int_equal(err, LH_OK);
    assert_int_equal(ps_store_move(r->env, "state", r->store, &moved), LH_ERR_BUSY);
    ps_store_close(file);
    assert_int_equal(ps_store_move(r->env, "state", r->store, &moved), LH_OK);
    assert_true(moved);
    open_store(r);
    assert_true(holds(r, "a", "one") && holds(r, "b", "two"));

    assert_int_equal(ps_store_open(r->env, "state", &file), LH_OK); // a new one, without rows
    assert_int_equal(ps_store_put(file, "a", lh_span_str("three")), LH_OK);
    ps_store_close(file);
    assert_int_equal(ps_store_move(r->env, "state", r->store, &moved), LH_OK);
    assert_false(moved);
    assert_true(holds(r, "a", "one"));
    finish(r);
}

static void let_go(struct rig *r)
{
    size_t i = fake_find(&r->fake, LEADER, strlen(LEADER));
    if (fake_is(&r->fake, i, (ProtobufCBinaryData){strlen(LEADER), (uint8_t *)LEADER}))
        fake_remove(&r->fake, i);
}

static lh_err move_back(struct rig *r, bool *before)
{
    struct ps_etcd *etcd = client(r);
    lh_err err = ps_store_move_back(r->env, etcd, client(r), BASE, "back", before);
    ps_etcd_destroy(etcd);
    return err;
}

// The state moves back into a file, once, with the last leader's number. After that the etcd holds
// none.
TEST(a_store_moves_back_into_a_file)
{
    struct rig *r = start(ON_FAKE);
    struct ps_store *file;
    bool before;
    put(r, "a", "one");
    commit(r);
    uint64_t number = number_of(r), next;
    assert_int_equal(move_back(r, &before), LH_ERR_BUSY); // a leader is active
    let_go(r);
    assert_int_equal(move_back(r, &before), LH_OK);
    assert_false(before);
    assert_int_equal(move_back(r, &before), LH_OK);
    assert_true(before);
    assert_int_equal(ps_store_open(r->env, "back", &file), LH_OK);
    struct lh_span value;
    assert_true(ps_store_get(file, "a", &value) && lh_span_equal(value, lh_span_str("one")));
    assert_int_equal(ps_store_number(r->env, file, &next), LH_OK);
    assert_true(next > number);
    ps_store_close(file);
    put(r, "a", "late");
    assert_int_equal(try_to_commit(r), LH_ERR_CONFLICT); // the former leader
    (void)lead(r, "another");
    assert_int_equal(try_to_open(r), LH_ERR_CONFIG);
    let_go(r);
    finish(r);
}

// The command dies after each of its requests in turn, and is run again as its message says.
TEST(the_way_back_may_end_at_any_request)
{
    bool before = false;
    lh_err err = LH_ERR_UNAVAILABLE;
    for (uint64_t at = 1; err; at++) {
        for (int after = 0; after < 2; after++) {
            struct rig *r = start(ON_FAKE);
            struct ps_store *file;
            struct lh_span value;
            r->patience_ns = 0;
            put(r, "a", "one");
            commit(r);
            let_go(r);
            r->fake.fault = after ? FAKE_AFTER : FAKE_BEFORE;
            r->fake.fault_at = r->fake.requests + at;
            r->fake.fault_count = 1;
            err = move_back(r, &before);
            if (err) {
                assert_true(err == LH_ERR_UNAVAILABLE);
                r->fake.fault_count = 0;
                let_go(r); // the lease would expire in time
                lh_err again = move_back(r, &before);
                if (again == LH_ERR_EXISTS) {
                    assert_int_equal(r->env->ops->files->remove(r->env, "back/store"), LH_OK);
                    again = move_back(r, &before);
                }
                assert_int_equal(again, LH_OK);
            }
            assert_int_equal(ps_store_open(r->env, "back", &file), LH_OK);
            assert_true(ps_store_get(file, "a", &value) &&
                        lh_span_equal(value, lh_span_str("one")));
            ps_store_close(file);
            let_go(r);
            (void)lead(r, "another");
            assert_int_equal(try_to_open(r), LH_ERR_CONFIG);
            let_go(r);
            finish(r);
        }
    }
}
