// History: which servers are behind what a worker knows, by the answer to its greeting.
// ctest: worker_history
#include "worker/push/history.h"

#include <stdlib.h>

#include "tests/test.h"
#include "worker/worker.h"

struct rig {
    struct wk_worker w;
    struct wk_shard s;
    struct wk_slot slot;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    r->s.worker = &r->w;
    r->s.slot.committed = &r->slot;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

static void asks_for(struct rig *r, uint64_t epoch, uint64_t version)
{
    wk_history_ask(&r->s);
    assert_int_equal(r->s.history.asked.epoch, epoch);
    assert_int_equal(r->s.history.asked.version, version);
}

// The newest epoch counts, and in it the highest version that anything of this worker has.
IN_RIG(the_newest_point_is_asked_for, struct rig *r)
{
    asks_for(r, 0, 0);
    r->s.stable = (struct lh_point){.epoch = 2, .version = 20};
    asks_for(r, 2, 20);
    r->s.replica.ledger.epoch = 2;
    r->s.replica.ledger.version = 25;
    asks_for(r, 2, 20); // the replica is not ready
    r->s.ready = true;
    asks_for(r, 2, 25);
    r->s.replica.ledger.version = 19;
    asks_for(r, 2, 20);
    r->s.history.decided_epoch = 2;
    asks_for(r, 2, 20);
    r->s.history.decided_epoch = 3;
    asks_for(r, 3, 0);
    r->s.replica.ledger.epoch = 3;
    asks_for(r, 3, 19);
    r->s.history.heard_epoch = 4;
    asks_for(r, 4, 0);
    wk_history_told(&r->s, 4, 7);
    assert_int_equal(r->s.history.asked.version, 0); // it binds only the next greeting
    asks_for(r, 4, 7);
}

IN_RIG(versions_are_of_the_newest_epoch, struct rig *r)
{
    static const struct {
        uint64_t epoch, version, told_epoch, told_version;
    } row[] = {{3, 5, 3, 5}, {3, 4, 3, 5}, {3, 6, 3, 6}, {2, 9, 3, 6}, {4, 0, 4, 0}, {4, 1, 4, 1}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        wk_history_told(&r->s, row[i].epoch, row[i].version);
        assert_int_equal(r->s.history.told_epoch, row[i].told_epoch);
        assert_int_equal(r->s.history.told_version, row[i].told_version);
        assert_int_equal(r->s.history.asked.epoch, row[i].told_epoch); // a greeting in flight, too
        assert_int_equal(r->s.history.asked.version, 0);
    }
    r->s.history.heard_epoch = 6;
    for (uint64_t e = 2; e < 8; e++) {
        assert_int_equal(wk_history_named(&r->s, e), e <= 4);
        assert_int_equal(wk_history_over(&r->s, e), e < 6);
    }
    r->s.history.heard_epoch = 0;
    assert_true(wk_history_over(&r->s, 3) && !wk_history_over(&r->s, 4));
}

// The worker knows version 20 of epoch 3, in which its step 8 of incarnation 2 was decided.
IN_RIG(a_server_that_lacks_something_is_older, struct rig *r)
{
    static const struct {
        uint64_t epoch, version, incarnation, step;
        bool older;
    } row[] = {{0, 99, 2, 8, true}, {2, 99, 2, 8, true}, {3, 19, 2, 8, true},  {3, 20, 2, 8, false},
               {3, 20, 2, 7, true}, {3, 20, 1, 9, true}, {3, 20, 3, 0, false}, {3, 21, 2, 9, false},
               {4, 0, 0, 0, false}}; // a new epoch may have lost all that
    r->s.stable = (struct lh_point){.epoch = 3, .version = 20};
    r->s.history.decided_epoch = 3;
    r->w.incarnation.number = 2;
    wk_history_ask(&r->s);
    for (int decided = 8; decided >= 0; decided -= 8) {
        r->slot.decided = (uint64_t)decided;
        for (size_t i = 0; i < LH_COUNT(row); i++) {
            const struct lh_hello_reply m = {.epoch = row[i].epoch,
                                             .version = row[i].version,
                                             .last_incarnation = row[i].incarnation,
                                             .last_step = row[i].step};
            bool by_row = row[i].epoch == 3 && row[i].version >= 20; // only its row is behind
            assert_int_equal(wk_history_older(&r->s, &m), row[i].older && (decided || !by_row));
        }
    }
}
