// The budget of a record set: a charge is durable before it is answered, the count never falls and
// never exceeds the terms, whatever the disk does.
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "worker/privacy/budget.h"

enum { SHARDS = 3, STEPS = 40, AHEAD = 64, BLOCK = AHEAD / 16 };
static const char FILE_NAME[] = "data/privacy.budget";
static const uint8_t JOB[LH_JOB_BYTES] = {1, 2}, OTHER_JOB[LH_JOB_BYTES] = {3};

static struct lh_privacy terms_of(uint8_t level)
{
    return (struct lh_privacy){.level = level,
                               .sigma = 1.5,
                               .rate = level == LH_PRIVACY_REGION ? 1 : 0.01,
                               .clip = 2,
                               .epsilon = 8,
                               .delta = 1e-6,
                               .steps = STEPS,
                               .ahead = AHEAD,
                               .local_steps = 8,
                               .record_tokens = 1024};
}

static struct lh_fake_world *world;
static struct lh_env *env;

static int make_world(void **state)
{
    (void)state;
    world = lh_fake_world_create(11);
    env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(env);
    return env->ops->files->make_dir(env, "data") == LH_OK ? 0 : -1;
}

static int end_world(void **state)
{
    (void)state;
    lh_fake_world_destroy(world);
    return 0;
}

static struct wk_budget *open_of(const uint8_t *job, const struct lh_privacy *terms)
{
    struct wk_budget *b = NULL;
    assert_int_equal(wk_budget_open(env, FILE_NAME, job, terms, SHARDS, &b), LH_OK);
    return b;
}

static struct wk_budget *open_region(void)
{
    struct lh_privacy terms = terms_of(LH_PRIVACY_REGION);
    return open_of(JOB, &terms);
}

static void restart(bool power)
{
    if (lh_fake_alive(env)) lh_fake_kill(env, power);
    lh_fake_boot(env);
}

#define IN_WORLD(name) TEST_WITH(name, void *unused, make_world, end_world)

IN_WORLD(blocks_are_charged_and_a_crash_wastes_one_at_most)
{
    struct wk_budget *b = open_region();
    assert_false(b->found);
    for (uint64_t total = 1; total <= 6; total++) {
        assert_int_equal(wk_budget_charge(b, 1, total), LH_OK);
        uint64_t charged = wk_budget_charged(b, 1);
        assert_true(charged >= total && charged < total + BLOCK);
    }
    assert_int_equal(wk_budget_charged(b, 0), 0); // each shard has its own count
    assert_int_equal(wk_budget_charged(b, 1), 2 * BLOCK);
    wk_budget_close(b);
    restart(true);
    b = open_region();
    assert_true(b->found);
    assert_int_equal(wk_budget_charged(b, 1), 2 * BLOCK);
    wk_budget_close(b);
}

IN_WORLD(nothing_is_charged_above_the_terms)
{
    struct wk_budget *b = open_region();
    assert_int_equal(wk_budget_charge(b, 0, STEPS - 1), LH_OK);
    assert_int_equal(wk_budget_charged(b, 0), STEPS);       // the last block is cut at the bound
    assert_int_equal(wk_budget_charge(b, 0, STEPS), LH_OK); // charged already
    assert_int_equal(wk_budget_charge(b, 0, STEPS + 1), LH_ERR_BUDGET);
    assert_int_equal(wk_budget_charged(b, 0), STEPS);
    wk_budget_close(b);
}

IN_WORLD(at_record_level_all_shards_share_a_count)
{
    struct lh_privacy terms = terms_of(LH_PRIVACY_RECORD);
    struct wk_budget *b = open_of(JOB, &terms);
    assert_int_equal(wk_budget_charge(b, 2, 3), LH_OK);
    assert_true(wk_budget_charged(b, 0) >= 3);
    assert_int_equal(wk_budget_charged(b, 0), wk_budget_charged(b, 2));
    wk_budget_close(b);
}

IN_WORLD(two_workers_with_one_record_set_are_refused)
{
    struct lh_privacy terms = terms_of(LH_PRIVACY_REGION);
    struct wk_budget *b = open_region(), *second = NULL;
    assert_int_equal(wk_budget_open(env, FILE_NAME, OTHER_JOB, &terms, SHARDS, &second),
                     LH_ERR_BUSY);
    assert_null(second);
    wk_budget_close(b);
    b = open_of(OTHER_JOB, &terms);
    wk_budget_close(b);
}

IN_WORLD(it_outlives_runs_and_keeps_their_terms)
{
    struct lh_privacy terms = terms_of(LH_PRIVACY_REGION), others = terms;
    struct wk_budget *b = open_region();
    assert_int_equal(wk_budget_charge(b, 0, 7), LH_OK);
    wk_budget_close(b);
    b = open_of(OTHER_JOB, &terms);
    assert_false(b->found);
    assert_int_equal(b->runs, 1);
    assert_int_equal(b->run[0].charged[0], 7 + BLOCK - 1);
    assert_int_equal(wk_budget_charged(b, 0), 0);
    assert_int_equal(wk_budget_charge(b, 0, 1), LH_OK);
    wk_budget_close(b);
    b = open_region();
    assert_int_equal(b->runs, 2);
    assert_int_equal(wk_budget_charged(b, 0), 7 + BLOCK - 1);
    wk_budget_close(b);
    others.sigma = 0.5;
    assert_int_equal(wk_budget_open(env, FILE_NAME, JOB, &others, SHARDS, &b), LH_ERR_CONFIG);
    assert_int_equal(wk_budget_open(env, FILE_NAME, JOB, &terms, SHARDS + 1, &b), LH_ERR_CONFIG);
}

IN_WORLD(damage_is_no_empty_budget)
{
    struct lh_privacy terms = terms_of(LH_PRIVACY_REGION);
    struct wk_budget *b = open_region();
    struct lh_buf bytes = lh_buf(1 << 16);
    assert_int_equal(wk_budget_charge(b, 0, 1), LH_OK);
    wk_budget_close(b);
    assert_int_equal(lh_file_load(env, FILE_NAME, &bytes), LH_OK);
    for (size_t at = 0; at < bytes.len; at++) {
        assert_int_equal(lh_fake_flip(env, FILE_NAME, at, 1), LH_OK);
        assert_int_equal(wk_budget_open(env, FILE_NAME, JOB, &terms, SHARDS, &b), LH_ERR_CORRUPT);
        assert_int_equal(lh_fake_flip(env, FILE_NAME, at, 1), LH_OK);
    }
    for (size_t n = 0; n < bytes.len; n++) {
        assert_int_equal(lh_file_replace(env, FILE_NAME, lh_span(bytes.data, n)), LH_OK);
        assert_int_equal(wk_budget_open(env, FILE_NAME, JOB, &terms, SHARDS, &b), LH_ERR_CORRUPT);
    }
    lh_buf_free(&bytes);
}

// A kill or a power cut at every file operation of a charge: every answered charge is on the disk,
// and at most one block more.
IN_WORLD(a_crash_at_any_operation_refunds_nothing)
{
    uint64_t answered = 0;
    for (int at = 0; at < 60; at++) {
        struct wk_budget *b = open_region();
        uint64_t had = wk_budget_charged(b, 0);
        assert_true(had >= answered);
        assert_true(had < answered + 2 * BLOCK);
        uint64_t total = had + 1;
        if (total > STEPS) {
            wk_budget_close(b);
            break;
        }
        lh_fake_crash_at(env, at % 12, at & 1);
        bool done = wk_budget_charge(b, 0, total) == LH_OK;
        lh_fake_crash_at(env, -1, false);
        answered = done ? wk_budget_charged(b, 0) : had;
        wk_budget_close(b);
        restart(at & 1);
    }
    assert_true(answered > 2 * BLOCK);
}

IN_WORLD(a_full_disk_charges_nothing)
{
    struct wk_budget *b = open_region();
    assert_int_equal(wk_budget_charge(b, 0, 1), LH_OK);
    uint64_t had = wk_budget_charged(b, 0);
    for (int at = 0; at < 6; at++) {
        lh_fake_fail_at(env, at, LH_ERR_DISK_FULL);
        lh_err err = wk_budget_charge(b, 0, had + 1);
        if (!lh_fake_failed(env)) break;
        if (err) assert_int_equal(wk_budget_charged(b, 0), had);
        had = wk_budget_charged(b, 0);
    }
    lh_fake_fail_at(env, -1, LH_OK);
    assert_int_equal(wk_budget_charge(b, 0, had + 1), LH_OK);
    wk_budget_close(b);
}
