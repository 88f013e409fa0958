// A run that stands still in the middle of a data epoch and is started again: the same units are
// credited as if nothing had happened, and by a static split in the same sequence
// (server/docs/0000-protocol.md#rule-19).
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "server/coordinator/balance/balance.h"
#include "tests/cores/words.h"
#include "worker/worker.h"

enum { UNITS = 40, EPOCHS = 2, ALL = UNITS * EPOCHS, TOKENS = 64, STEP_MS = 50, STOP_AT = 27 };

// Units that the shard's log credits, in its order, over all lives of its server.
static struct {
    uint64_t version, unit[ALL];
    size_t units;
} seen;

static void on_record(void *arg, uint32_t shard, const struct lh_record *record)
{
    struct lh_frame f;
    (void)arg;
    (void)shard;
    if (record->version <= seen.version) return; // A start reads them again.
    seen.version = record->version;
    if (record->kind != LH_ADMIT) return;
    assert_int_equal(lh_frame_parse_head(record->body, &f), LH_OK);
    for (uint32_t i = 0; i < f.claims; i++) {
        if (is_in(seen.unit, seen.units, f.claim[i])) continue;
        assert_true(seen.units < ALL);
        seen.unit[seen.units++] = f.claim[i];
    }
}

static void start_coordinator(struct rig *r, enum ps_balance_kind kind)
{
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    r->coordinator->conf.budget_tokens = ALL * TOKENS;
    balance_by(r, kind);
}

static void start_worker(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, STEP_MS);
    conf.epochs = EPOCHS;
    rig_life_start(l, &conf);
}

static void stop_and_start(struct rig *r, struct rig_life *l, enum ps_balance_kind kind)
{
    rig_life_end(r, l, false);
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    rig_run(r, 5 * LH_SECOND);
    start_coordinator(r, kind);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_boot_worker(r, 1);
    start_worker(r, l);
}

static void until_credited(struct rig *r, size_t units)
{
    for (int i = 0; i < 60000 && seen.units < units; i++) rig_run(r, 10 * LH_MS);
    assert_true(seen.units >= units);
}

// Worker 0 has its share of a static split, and trains nothing of it.
static size_t share_of_other(struct rig *r, struct words *s)
{
    size_t n = 0;
    for (int i = 0; i < 600 && n < UNITS / 2; i++) {
        n = say(r, 0, s).units;
        rig_run(r, 100 * LH_MS);
    }
    assert_in_range(n, UNITS / 2, UNITS + 10);
    return n;
}

// Plays a run, and stops it once where `stops`. Returns how many units are credited in the end.
static size_t play(enum ps_balance_kind kind, bool stops)
{
    struct rig *r = rig_new(1);
    struct rig_life l = {0};
    struct words other = {.want = 2, .ahead = LH_LEASES_MAX, .units_per_s = 5};
    size_t left = 0;
    memset(&seen, 0, sizeof seen);
    lh_units_free(&r->units);
    setup_units(&r->units, UNITS, TOKENS, RIG_WORKERS);
    r->epochs = EPOCHS;
    r->folded = on_record;
    start_coordinator(r, kind);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    if (kind == PS_BALANCE_STATIC) assert_int_equal(rig_join(r, 0, 11, 1).granted, 1);
    start_worker(r, &l);
    if (kind == PS_BALANCE_STATIC) left = share_of_other(r, &other);
    until_credited(r, STOP_AT);
    assert_true(seen.units < ALL - left);
    if (stops) stop_and_start(r, &l, kind);
    until_credited(r, ALL - left);
    rig_life_end(r, &l, false);
    rig_free(r);
    return seen.units;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void the_same_set_is_credited(void **state)
{
    (void)state;
    assert_int_equal(play(PS_BALANCE_FINISH, true), ALL);
    qsort(seen.unit, ALL, sizeof *seen.unit, by_number);
    for (uint64_t u = 0; u < ALL; u++) assert_int_equal(seen.unit[u], u);
}

static void by_a_static_split_in_the_same_sequence(void **state)
{
    (void)state;
    uint64_t once[ALL];
    size_t n = play(PS_BALANCE_STATIC, false);
    memcpy(once, seen.unit, sizeof once);
    assert_int_equal(play(PS_BALANCE_STATIC, true), n);
    assert_memory_equal(seen.unit, once, n * sizeof *once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_set_is_credited),
        cmocka_unit_test(by_a_static_split_in_the_same_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
