// Charge: a private push raises its worker's total of charged steps by what the push costs, and the
// total stays within the plan. Other pushes have no total.
#include <math.h>

#include "server/push/charge.h"
#include "tests/test.h"

enum { ME = 101, OTHER = 102, BEFORE = 10, STEPS = 20 };

static struct lh_ledger ledger_of(uint8_t level)
{
    static struct lh_row row[1];
    row[0] = (struct lh_row){.worker = ME, .charged = BEFORE};
    return (struct lh_ledger){
        .shards = 4,
        .row = row,
        .rows = 1,
        .plan = {.data = LH_DATA_LEASED,
                 .exceptions = 1,
                 .exception = {{ME, LH_DATA_PRIVATE}},
                 .privacy = {.level = level, .sigma = 3, .clip = 2, .rate = 1, .steps = STEPS}}};
}

static lh_err check(uint8_t level, uint64_t worker, uint32_t steps, uint64_t charged)
{
    struct lh_ledger l = ledger_of(level);
    struct lh_frame f = {.worker = worker, .steps = steps, .charged = charged};
    return ps_charge_check(&l, &f);
}

TEST(the_total_rises_by_what_a_push_costs)
{
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 4, BEFORE + 4), LH_OK);
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 4, BEFORE + 5), LH_OK); // a block was wasted
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 4, BEFORE + 3), LH_ERR_BUDGET);
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 0, BEFORE), LH_OK); // only refused deltas
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 0, BEFORE - 1), LH_ERR_BUDGET);
    assert_int_equal(check(LH_PRIVACY_REGION, ME, 0, BEFORE), LH_ERR_BUDGET);
    assert_int_equal(check(LH_PRIVACY_REGION, ME, 8, BEFORE + 1), LH_OK); // one release
    assert_int_equal(check(LH_PRIVACY_REPORTED, ME, 2, BEFORE + 2), LH_OK);
}

TEST(nothing_goes_beyond_the_plan)
{
    assert_int_equal(check(LH_PRIVACY_REGION, ME, 1, STEPS), LH_OK);
    assert_int_equal(check(LH_PRIVACY_REGION, ME, 1, STEPS + 1), LH_ERR_BUDGET);
    assert_int_equal(check(LH_PRIVACY_RECORD, ME, 1, UINT64_MAX), LH_ERR_BUDGET);
}

TEST(a_worker_that_is_not_private_charges_nothing)
{
    assert_int_equal(check(LH_PRIVACY_REGION, OTHER, 1, 0), LH_OK);
    assert_int_equal(check(LH_PRIVACY_REGION, OTHER, 1, 1), LH_ERR_BUDGET);
    assert_int_equal(check(LH_PRIVACY_NONE, ME, 1, 0), LH_ERR_BUDGET); // private without terms
}

TEST(the_terms_bound_a_norm_at_region_level_alone)
{
    struct lh_frame mine = {.worker = ME, .values = 10000}, others = {.worker = OTHER};
    struct lh_ledger region = ledger_of(LH_PRIVACY_REGION), record = ledger_of(LH_PRIVACY_RECORD);
    assert_true(ps_charge_bounds_norm(&region, &mine));
    assert_true(fabs(ps_charge_norm_max(&region, &mine) - (1 + 6 * 108.)) < 1e-9);
    region = ledger_of(LH_PRIVACY_REGION);
    assert_false(ps_charge_bounds_norm(&region, &others));
    record = ledger_of(LH_PRIVACY_RECORD);
    assert_false(ps_charge_bounds_norm(&record, &mine));
}
