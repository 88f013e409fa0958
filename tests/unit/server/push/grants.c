// Grants: the fields of a push beside its values. A claim needs a grant of its unit to its worker;
// steps and tokens are bounded by the plan and by the worker's leases.
#include "common/base/check.h"
#include "tests/unit/server/push/decide_case.h"

static const struct lh_grant_key KEY = {{7, 7, 7}};

static void has_key(struct ps_shard *s)
{
    s->grants.key = KEY;
    s->grants.keyed = true;
}

static lh_err judged(const struct ps_shard *s, const struct lh_frame *f)
{
    struct ps_decision d = value_of(s, OPEN_GATE, f, LH_OK, 1);
    assert_int_equal(d.kind, d.error ? LH_REFUSE : LH_ADMIT);
    return d.error;
}

ON_SHARD(no_push_says_more_than_it_may, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    f.tokens = LH_PUSH_TOKENS_MAX; // the bound of a plan that sets none
    assert_int_equal(judged(s, &f), LH_OK);
    f.tokens++;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    given.plan.steps_max = 32;
    given.plan.step_tokens_max = 100;
    given.plan.data = LH_DATA_OWN;
    f.steps = 0; // refused deltas that came back, alone
    f.tokens = 4100;
    assert_int_equal(judged(s, &f), LH_OK);
    f.tokens++;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f.tokens = UINT64_C(1) << 40;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f.steps = 32;
    f.tokens = 4100;
    assert_int_equal(judged(s, &f), LH_OK);
    f.steps = 33;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
}

ON_SHARD(a_base_of_the_future_is_refused, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    f.base_version = given.version;
    assert_int_equal(judged(s, &f), LH_OK);
    f.base_version++;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f.base_epoch = 0; // a version of a lost history
    assert_int_equal(judged(s, &f), LH_OK);
    f.base_epoch = given.epoch + 1;
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f = push_of(ME, 1);
    f.base_others = UINT64_MAX; // counts as all pushes of others
    assert_int_equal(judged(s, &f), LH_OK);
}

static void claim(struct lh_frame *f, uint64_t unit, uint64_t of, uint64_t to)
{
    f->claim[f->claims] = unit;
    f->grant[f->claims++] = lh_grant_make(&KEY, f->job, of, to, 5);
}

ON_SHARD(a_claim_needs_its_grant, struct ps_shard *s)
{
    has_key(s);
    struct lh_frame f = push_of(ME, 1);
    claim(&f, 5, 5, ME);
    claim(&f, 9, 9, ME);
    assert_int_equal(judged(s, &f), LH_OK);
    f.grant[1].number++; // a number of another lease
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
    f = push_of(ME, 1);
    claim(&f, 5, 9, ME); // the grant names another unit
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
    f = push_of(ME, 1);
    claim(&f, 5, 5, OTHER); // the grant names another worker
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
    f = push_of(ME, 1);
    claim(&f, 5, 5, ME);
    claim(&f, 5, 5, ME);
    assert_int_equal(judged(s, &f), LH_ERR_GRANT); // the same unit twice
    f = push_of(ME, 1);
    claim(&f, 6, 6, ME);
    assert_int_equal(judged(s, &f), LH_ERR_GRANT); // the unit belongs to another shard
    f = push_of(ME, 1);
    claim(&f, 5, 5, ME);
    f.grant[0] = (struct lh_grant){0};
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
}

ON_SHARD(a_worker_with_own_data_may_claim_nothing, struct ps_shard *s)
{
    has_key(s);
    struct lh_frame f = push_of(ME, 1);
    claim(&f, 5, 5, ME);
    given.plan.exceptions = 1;
    given.plan.exception[0] = (struct lh_plan_exception){ME, LH_DATA_OWN};
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
    given.plan.exception[0].data = LH_DATA_PRIVATE;
    assert_int_equal(judged(s, &f), LH_ERR_GRANT);
    given.plan.exception[0].worker = OTHER;
    assert_int_equal(judged(s, &f), LH_OK);
}

ON_SHARD(all_tokens_of_a_worker_are_bounded_by_its_leases, struct ps_shard *s)
{
    has_key(s);
    given.plan.steps_max = 8;
    given.plan.step_tokens_max = 500; // one push may have 5,500 tokens
    struct lh_frame f = push_of(ME, 2);
    f.tokens = 5500;
    f.steps = 8;
    assert_int_equal(judged(s, &f), LH_OK);
    admit(s, ME, 1); // the admitted push had 4,096 tokens
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f.tokens = 5500 - 4096;
    assert_int_equal(judged(s, &f), LH_OK);
    f.tokens = 5500;
    f.allowance = 4096 + 5500;
    f.allowance_tag = lh_allowance_tag(&KEY, f.job, ME, f.allowance);
    assert_int_equal(judged(s, &f), LH_OK);
    f.allowance *= 2; // the tag is for another number
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    f.allowance_tag = lh_allowance_tag(&KEY, f.job, OTHER, f.allowance);
    assert_int_equal(judged(s, &f), LH_ERR_BOUND);
    given.plan.data = LH_DATA_OWN; // nothing is leased
    assert_int_equal(judged(s, &f), LH_OK);
}

ON_SHARD(without_a_key_nothing_is_final, struct ps_shard *s)
{
    struct lh_frame f = push_of(ME, 1);
    assert_now(s, &f); // without claims a push needs no key
    claim(&f, 5, 5, ME);
    assert_not_final(s, &f, LH_ERR_BUSY);
    f = push_of(ME, 1);
    f.allowance = 1;
    assert_not_final(s, &f, LH_ERR_BUSY);
    has_key(s);
    assert_now(s, &f);
}
