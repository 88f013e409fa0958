// Bounds: a push reports no more steps and tokens than its server accepts; the rest is kept.
// ctest: worker_bounds
#include "worker/push/bounds.h"

#include <stdlib.h>

#include "tests/test.h"
#include "worker/worker.h"

enum { ME = 7 };

// A plan of at most 8 steps of 10 tokens: 8 + 2 + 1 steps' tokens are 110. The log has 30 tokens of
// this worker, the outbox 40 that are not folded and 50 that are.
TEST(a_push_reports_what_is_accepted)
{
    static const struct {
        uint32_t steps_max;
        float allowance;
        enum lh_data data;
        uint32_t steps;
        uint64_t tokens;
        uint32_t reports_steps;
        uint64_t reports, kept;
    } row[] = {
        {0, 500, LH_DATA_LEASED, 99, 9999, 99, 9999, 0}, // no bound yet
        {8, 500, LH_DATA_LEASED, 8, 110, 8, 110, 0},
        {8, 500, LH_DATA_LEASED, 9, 111, 8, 110, 1},
        {8, 500, LH_DATA_OWN, 9, 111, 8, 110, 1},
        {8, 0, LH_DATA_OWN, 3, 50, 3, 50, 0},
        {8, 0, LH_DATA_LEASED, 3, 50, 3, 0, 50},   // no allowance was named
        {8, 150, LH_DATA_LEASED, 3, 80, 3, 80, 0}, // 150 less 70
        {8, 150, LH_DATA_LEASED, 3, 81, 3, 80, 0}, // trained more than once
        {8, 150, LH_DATA_LEASED, 3, 500, 3, 80, 0},
        {8, 1, LH_DATA_LEASED, 3, 50, 3, 40, 0}, // one push's bound at least: 110 less 70
    };
    struct wk_worker w = {.id = ME};
    struct wk_shard *s = calloc(1, sizeof *s);
    struct lh_row rows[2] = {{.worker = 3, .tokens = 1000}, {.worker = ME, .tokens = 30}};
    struct wk_entry folded = {.version = 4, .head.tokens = 50};
    struct wk_entry waits = {.head.tokens = 40, .next = &folded};
    struct lh_plan *plan = &s->replica.ledger.plan;
    s->worker = &w;
    s->outbox.first = &waits;
    s->replica.ledger.row = rows;
    s->replica.ledger.rows = 2;
    s->progress.allowance_tag = 99;
    plan->step_tokens_max = 10;
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_frame f = {.steps = row[i].steps, .tokens = row[i].tokens};
        plan->steps_max = row[i].steps_max;
        plan->data = (uint8_t)row[i].data;
        w.allowance = row[i].allowance;
        assert_int_equal(wk_bounds_apply(s, &f), row[i].kept);
        assert_int_equal(f.steps, row[i].reports_steps);
        assert_int_equal(f.tokens, row[i].reports);
        assert_float_equal(f.allowance, row[i].allowance, 0);
        assert_int_equal(f.allowance_tag, row[i].allowance > 0 ? 99 : 0);
    }
    rows[1].tokens = 500; // more than the allowance: a store was restored from an older copy
    struct lh_frame f = {.steps = 1, .tokens = 5};
    w.allowance = 150;
    assert_int_equal(wk_bounds_apply(s, &f), 0);
    assert_int_equal(f.tokens, 0);
    free(s);
}
