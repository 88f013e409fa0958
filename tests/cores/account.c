// What a worker's status.json says was accepted, over its lives: each push of the logs once,
// wherever it was killed.
#include <jansson.h>

#include "tests/cores/life.h"

enum { LIVES = 12 };

static uint64_t accepted(const struct life *l)
{
    struct lh_buf text = lh_buf(1 << 20);
    json_error_t why;
    assert_int_equal(wk_worker_status(l->worker, &text), LH_OK);
    json_t *o = json_loadb((const char *)text.data, text.len, 0, &why);
    assert_non_null(o);
    uint64_t n = (uint64_t)json_integer_value(json_object_get(o, "accepted"));
    json_decref(o);
    lh_buf_free(&text);
    return n;
}

static uint64_t in_logs(const struct life *l)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct lh_ledger *there = &l->rig->server->shard[k]->replica.ledger;
        const struct lh_row *row = lh_ledger_row(there, l->worker->id);
        assert_non_null(row);
        n += row->admitted;
    }
    return n;
}

// The decision is in memory alone: the slot notes it with the next cut.
static bool heard_and_not_noted(const struct life *l)
{
    const struct wk_shard *s = &l->worker->shard[0];
    return !s->cut && !wk_outbox_undecided(&s->outbox) &&
           s->slot.committed->decided + 1 == s->slot.committed->next;
}

static void each_push_is_counted_once_over_all_lives(void **state)
{
    (void)state;
    struct life *l = life_begin(51, RIG_SHARDS);
    for (int i = 0; i < LIVES; i++) {
        for (int k = 0; k < 20000 && !heard_and_not_noted(l); k++) life_run(l, LH_MS);
        assert_true(heard_and_not_noted(l));
        life_kill(l);
        life_start(l);
        life_cut(l, 1);
        life_rest(l);
        assert_int_equal(accepted(l), in_logs(l));
    }
    assert_true(accepted(l) > LIVES * RIG_SHARDS);
    life_end(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_push_is_counted_once_over_all_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
