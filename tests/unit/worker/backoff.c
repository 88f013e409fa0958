// The wait before a worker retries is bounded by the cause of the failure and randomised, so that
// workers do not retry in step.
#include "tests/test.h"
#include "worker/worker.h"

enum { DRAWS = 400, LATE = 20 }; // retries after which every bound is reached

static struct wk_worker worker;

static int make(void **state)
{
    (void)state;
    worker.conf.retry_base_ns = 200 * LH_MS;
    worker.conf.retry_max_ns = 30 * LH_SECOND;
    worker.conf.reconnect_max_ns = LH_SECOND;
    return lh_env_real_create(&worker.conf.env) == LH_OK ? 0 : -1;
}

static int unmake(void **state)
{
    (void)state;
    lh_env_real_destroy(worker.conf.env);
    return 0;
}

static int64_t longest(uint32_t tries, lh_err why)
{
    int64_t most = 0;
    for (int i = 0; i < DRAWS; i++) {
        uint32_t n = tries;
        int64_t wait = wk_backoff(&worker, &n, why);
        assert_int_equal(n, tries + 1);
        assert_true(wait > 0);
        if (wait > most) most = wait;
    }
    return most;
}

TEST(doubles_up_to_its_bound)
{
    assert_in_range(longest(0, LH_ERR_BUSY), 100 * LH_MS, 200 * LH_MS);
    assert_in_range(longest(1, LH_ERR_BUSY), 200 * LH_MS, 400 * LH_MS);
    assert_in_range(longest(LATE, LH_ERR_BUSY), 15 * LH_SECOND, 30 * LH_SECOND);
}

TEST(looks_often_for_a_server_that_is_gone)
{
    assert_in_range(longest(0, LH_ERR_UNAVAILABLE), 100 * LH_MS, 200 * LH_MS);
    assert_in_range(longest(LATE, LH_ERR_UNAVAILABLE), LH_SECOND / 2, LH_SECOND);
    // the server is reading its log
    assert_in_range(longest(LATE, LH_ERR_DEADLINE), LH_SECOND / 2, LH_SECOND);
}

TEST(asks_a_server_that_settles_its_history_often)
{
    assert_in_range(longest(0, LH_ERR_REBUILDING), 100 * LH_MS, 200 * LH_MS);
    assert_in_range(longest(LATE, LH_ERR_REBUILDING), 200 * LH_MS, 400 * LH_MS);
}

int main(void)
{
    return test_run(make, unmake);
}
