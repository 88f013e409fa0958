// ctest: privacy_audit_command
// deploy/privacy/audit.c: charges and epsilon from a log, or from the checkpoint below a log whose
// beginning is gone.
#include <stdio.h>
#include <stdlib.h>

#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/history/files.h"
#include "tests/history/rig.h"
#include "tests/test.h"

// A private worker makes two pushes to shard 0, which cost four steps each; then a checkpoint, and
// another generation of the log without pushes.
static int set_up(void **state)
{
    struct history_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    *state = r;
    history_rig_start(r);
    r->h.privacy = (struct lh_privacy){.level = LH_PRIVACY_RECORD,
                                       .sigma = 1,
                                       .rate = 0.1,
                                       .clip = 1,
                                       .epsilon = 8,
                                       .delta = 1e-6,
                                       .steps = 100,
                                       .ahead = 64,
                                       .local_steps = 4,
                                       .record_tokens = 64};
    static const enum lh_kind kind[] = {LH_PLAN, LH_FENCE, LH_ADMIT, LH_ADMIT};
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++) history_add(&r->h, 0, kind[i]);
    history_write(&r->h, 0, false);
    history_reopen(&r->h);
    history_add(&r->h, 0, LH_EPOCH);
    history_mark(&r->h);
    history_rig_root(r);
    history_write_job(&r->h, r->root);
    history_copy_out(&r->h, history_in_root(r, "server"));
    return 0;
}

static void audit(struct history_rig *r, const char *line, int code)
{
    assert_int_equal(history_command(r, "privacy", line), code);
}

#define IN_HISTORY(name, parameter) TEST_WITH(name, parameter, set_up, history_tear_down)

IN_HISTORY(charges_are_in_the_log, struct history_rig *r)
{
    audit(r, "audit @server -o json", DP_OK);
    assert_true(history_says(r, "\"charged\": 8.0") && history_says(r, "\"releases\": 2"));
    assert_true(history_says(r, "\"from\": \"log\"") && history_says(r, "within the plan"));
}

IN_HISTORY(a_trimmed_log_has_its_charges_in_the_checkpoint, struct history_rig *r)
{
    assert_int_equal(remove(history_in_root(r, "server/log/0000000000000001.seg")), 0);
    audit(r, "audit @server -o json", DP_OK);
    assert_false(history_says(r, "charged"));
    audit(r, "audit @server JOB -o json", DP_OK);
    assert_true(history_says(r, "\"charged\": 8.0") && history_says(r, "\"releases\": 0"));
    assert_true(history_says(r, "\"from\": \"checkpoint\""));
    assert_true(history_says(r, "\"sigma\": 1.0") && history_says(r, "within the plan"));
}
