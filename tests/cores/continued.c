// A run is stopped in the middle of a data epoch and started again: the same units are credited as
// without the stop (server/docs/0000-protocol.md#rule-19).
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
    if (record->version <= seen.version) return; // a restart reads it again
    seen.version = record->version;
    if (record->kind != LH_ADMIT) return;
    assert_int_equal(lh_frame_parse_head(record->body, &f), LH_OK);
    for (uint32_t i = 0; i < f.claims; i++) {
        if (is_in(seen.unit, seen.units, f.claim[i])) continue;
        assert_true(seen.units < ALL);
        seen.unit[seen.units++] = f.claim[i];
    }
}

static void start_coordinator(struct rig *r)
{
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    r->coordinator->conf.budget_tokens = ALL * TOKENS;
    balance_by(r, PS_BALANCE_FINISH);
}

static void start_worker(struct rig *r, struct rig_life *l)
{
    struct wk_conf conf = rig_life_conf(r, l, STEP_MS);
    conf.epochs = EPOCHS;
    rig_life_start(l, &conf);
}

static void stop_and_start(struct rig *r, struct rig_life *l)
{
    rig_life_end(r, l, false);
    rig_kill_server(r, false);
    rig_kill_coordinator(r);
    rig_run(r, 5 * LH_SECOND);
    start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_boot_worker(r, 1);
    start_worker(r, l);
}

static void until_credited(struct rig *r, size_t units)
{
    for (int i = 0; i < 60000 && seen.units < units; i++) rig_run(r, 10 * LH_MS);
    assert_true(seen.units >= units);
}

// Plays a run, and stops it once.
static void play(void)
{
    struct rig *r = rig_new(1);
    struct rig_life l = {0};
    memset(&seen, 0, sizeof seen);
    lh_units_free(&r->units);
    setup_units(&r->units, UNITS, TOKENS, RIG_WORKERS);
    r->epochs = EPOCHS;
    r->folded = on_record;
    start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    start_worker(r, &l);
    until_credited(r, STOP_AT);
    assert_true(seen.units < ALL);
    stop_and_start(r, &l);
    until_credited(r, ALL);
    rig_life_end(r, &l, false);
    rig_free(r);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

TEST(the_same_set_is_credited)
{
    play();
    assert_int_equal(seen.units, ALL);
    qsort(seen.unit, ALL, sizeof *seen.unit, by_number);
    for (uint64_t u = 0; u < ALL; u++) assert_int_equal(seen.unit[u], u);
}
