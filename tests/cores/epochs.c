// The registry of epochs: a compare-and-swap, durable before it is answered (PROTOCOL 13, 17).
#include <string.h>

#include "common/check.h"
#include "tests/cores/rig.h"

static struct ps_co_point point(uint64_t epoch, uint64_t version, uint8_t history)
{
    return (struct ps_co_point){epoch, version, {{history}}};
}

static bool open(struct rig *r, uint64_t expect, struct ps_co_point p, uint64_t token, bool below)
{
    bool opened;
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, expect, &p, token, 0, below, &opened),
                     LH_OK);
    return opened;
}

static struct ps_co_shard *shard(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static lh_err adopt(struct rig *r, uint64_t epoch)
{
    struct ps_co_point begins = {.epoch = epoch};
    return ps_co_adopt_epoch(r->coordinator, 0, &begins);
}

static void again(struct rig *r)
{
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
}

static void an_epoch_is_opened_once_over_the_one_that_is_expected(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    assert_int_equal(ps_co_epoch(shard(r)), 0);
    assert_false(open(r, 1, point(2, 0, 0), 7, false)); // none is registered
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    assert_false(open(r, 0, point(2, 5, 1), 8, false)); // by somebody who did not hear of it
    assert_false(open(r, 1, point(1, 5, 1), 8, false)); // not above it
    assert_true(open(r, 1, point(2, 5, 1), 8, false));
    assert_int_equal(ps_co_epoch(shard(r)), 2);
}

static void asked_again_it_is_opened_again_for_the_same_asker_only(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 3, 1), 7, false));
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 1);
    assert_true(open(r, 0, point(1, 3, 1), 7, false));  // the answer was lost
    assert_false(open(r, 0, point(1, 3, 1), 8, false)); // another directory
    assert_false(open(r, 0, point(1, 3, 2), 7, false)); // another history
    assert_false(open(r, 0, point(1, 4, 1), 7, false));
    assert_int_equal(shard(r)->epochs, 1);
}

static void none_begins_below_the_stable_point_unless_that_is_given_up(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    shard(r)->stable = point(1, 10, 1);
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    assert_false(open(r, 1, point(2, 9, 1), 8, false));
    assert_false(open(r, 1, point(2, 10, 2), 8, false)); // there, of another history
    assert_true(open(r, 1, point(2, 10, 1), 8, false));
    assert_true(open(r, 2, point(3, 9, 1), 9, true));
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 3);
    assert_int_equal(shard(r)->stable.version, 0);
}

static void what_the_stable_point_has_overtaken_is_forgotten(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    for (uint64_t e = 1; e <= 4; e++) assert_true(open(r, e - 1, point(e, 10 * e, 1), e, false));
    assert_int_equal(shard(r)->epochs, 4);
    shard(r)->stable = point(3, 35, 1);
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    assert_true(open(r, 4, point(5, 50, 1), 5, false));
    again(r);
    assert_int_equal(shard(r)->epochs, 2); // 4 and 5 began above it
    assert_int_equal(shard(r)->begun[0].epoch, 4);
    assert_int_equal(shard(r)->begun[0].version, 40);
}

// A store from a copy is older than what servers report.
static void an_epoch_that_is_only_told_of_is_taken_up(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    assert_true(open(r, 0, point(1, 0, 0), 7, false));
    assert_int_equal(adopt(r, 4), LH_OK);
    assert_int_equal(adopt(r, 3), LH_OK); // older: nothing
    again(r);
    assert_int_equal(ps_co_epoch(shard(r)), 4);
    assert_false(open(r, 1, point(5, 6, 1), 8, false));
    assert_true(open(r, 4, point(5, 6, 1), 8, false));
}

static void a_row_that_is_too_short_is_refused(void **state)
{
    struct rig *r = *state;
    static const struct {
        const char *key;
        lh_err (*load)(struct ps_coordinator *c);
    } row[] = {{"stable/0000", ps_co_load_points},
               {"epoch/0000", ps_co_load_epochs},
               {"insync/0000", ps_co_load_insync},
               {"move/0000", ps_co_load_moves}};
    rig_start_coordinator(r);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct ps_store *store = r->coordinator->store;
        assert_int_equal(ps_store_put(store, row[i].key, lh_span("12345678 9", 10)), LH_OK);
        assert_int_equal(row[i].load(r->coordinator), LH_ERR_CORRUPT);
        assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), row[i].key));
    }
}

int main(void)
{
#define WITH_RIG(test) RIG_TEST(test)
    const struct CMUnitTest tests[] = {
        WITH_RIG(an_epoch_is_opened_once_over_the_one_that_is_expected),
        WITH_RIG(asked_again_it_is_opened_again_for_the_same_asker_only),
        WITH_RIG(none_begins_below_the_stable_point_unless_that_is_given_up),
        WITH_RIG(what_the_stable_point_has_overtaken_is_forgotten),
        WITH_RIG(an_epoch_that_is_only_told_of_is_taken_up),
        WITH_RIG(a_row_that_is_too_short_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
