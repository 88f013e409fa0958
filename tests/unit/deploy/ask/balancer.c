// `longhaul balancer`: which coordinators take its orders.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "deploy/ask/balancer.h"

// One from before the balancer would answer that no standby has no name.
static void an_old_coordinator_is_told_apart(void **state)
{
    (void)state;
    json_t *now = json_pack("{s:{s:s}}", "balancer", "rule", "level"),
           *old = json_pack("{s:[]}", "drained_regions");
    assert_int_equal(dp_balancer_check(now), LH_OK);
    assert_int_equal(dp_balancer_check(old), LH_ERR_UNSUPPORTED);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), "older version"));
    json_decref(now);
    json_decref(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_coordinator_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
