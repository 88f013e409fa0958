// The worker's end of the boundary when the n-th allocation fails: the channel is not made, or the
// trainer is told to try again and is then let in. Nothing is left half begun.
#include "tests/fault/fault.h"
#include "tests/unit/worker/external/external_rig.h"

enum { TRIES_MAX = 100 };

IN_RIG(no_channel_without_memory, struct rig *r)
{
    struct wk_external_conf conf = {
        .env = r->env, .values = VALUES, .parts = PARTS, .first = first, .ranks = RANKS};
    bool failed = true;
    for (long n = 0; failed; n++) {
        struct wk_external *x = NULL;
        assert_true(n < TRIES_MAX);
        fault_alloc(n);
        lh_err err = wk_external_create(&conf, &ops, r, &r->io, &x);
        failed = fault_over();
        assert_int_equal(err, failed ? LH_ERR_NO_MEMORY : LH_OK);
        assert_true(failed == (x == NULL));
        wk_external_destroy(x);
    }
}

// Both ranks connect; a rank that was refused connects again.
IN_RIG(no_life_without_memory, struct rig *r)
{
    bool failed = true;
    for (long n = 0; failed; n++) {
        assert_true(n < TRIES_MAX);
        fault_alloc(n);
        greet(r, 1, 0, NULL, 0, 700);
        greet(r, 2, 1, NULL, 700, 1300);
        failed = fault_over();
        if (!failed) break;
        assert_int_equal(r->comes, 0);
        assert_true(r->sents > 0);
        for (uint32_t i = 0; i < r->sents; i++) {
            assert_int_equal(r->sent[i].m.kind, WK_CHANNEL_REFUSED);
            assert_int_equal(r->sent[i].m.as.refused.why, WK_CHANNEL_BUSY);
        }
        wk_external_closed(r->x, 1);
        wk_external_closed(r->x, 2);
        r->sents = 0;
    }
    assert_int_equal(r->comes, 1);
    assert_int_equal(r->sents, RANKS);
}
