// Stock: after any changes its free units, lists and sums are those that a walk over all units
// finds.
#include "server/coordinator/balance/stock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/manifest.h"
#include "server/coordinator/order.h"
#include "tests/test.h"

enum { DATA = 2600, EPOCHS = 2, UNITS = DATA * EPOCHS, SHARDS = 3, WORKERS = 3, POOLS = 6 };

static struct ps_coordinator *c;
static struct lh_units data;
static struct lh_manifest manifest;
static uint64_t state_of_random;

static uint32_t random_below(uint32_t end)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % end;
}

// Asia has few units, a part of Europe's may leave it, all of America's may.
static void describe(uint64_t i, struct lh_unit *u)
{
    static const char *const HOME[] = {"asia", "europe", "america"};
    uint32_t home = i < 5 ? 0 : i / 70 % 2 ? 1 : 2;
    *u = (struct lh_unit){.id = i, .tokens = 100 + i % 7, .may_leave = home == 2 || i % 5 == 0};
    snprintf(u->home, sizeof u->home, "%s", HOME[home]);
}

static int begin(void **state)
{
    (void)state;
    state_of_random = 29;
    c = calloc(1, sizeof *c);
    data = (struct lh_units){.unit = calloc(DATA, sizeof *data.unit), .count = DATA};
    for (uint64_t i = 0; i < DATA; i++) describe(i, &data.unit[i]);
    manifest.shards = SHARDS;
    c->conf.units = &data;
    c->conf.manifest = &manifest;
    c->conf.seed = 5;
    c->units = UNITS;
    c->epochs = EPOCHS;
    c->workers = WORKERS;
    c->lease = calloc(UNITS, sizeof *c->lease);
    c->begun = calloc(UNITS, sizeof *c->begun);
    c->wanted_by = calloc(UNITS, sizeof *c->wanted_by);
    c->shard = calloc(SHARDS, sizeof *c->shard);
    for (int i = 0; i < SHARDS; i++) {
        c->shard[i].credit_bytes = UNITS / SHARDS / 8 + 1;
        c->shard[i].credit = calloc(c->shard[i].credit_bytes, 1);
    }
    assert_int_equal(ps_co_make_order(c), LH_OK);
    assert_int_equal(ps_co_stock_make(c), LH_OK);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ps_co_stock_free(c);
    for (int i = 0; i < SHARDS; i++) free(c->shard[i].credit);
    free(c->shard);
    free(c->wanted_by);
    free(c->begun);
    free(c->lease);
    free(c->order);
    free(data.unit);
    free(c);
    return 0;
}

static void credit(uint64_t unit)
{
    uint64_t i = unit / SHARDS;
    c->shard[unit % SHARDS].credit[i / 8] |= (uint8_t)(1 << i % 8);
}

// A unit is leased, begun, recalled, kept, given back or credited.
static void change(uint64_t unit)
{
    ps_co_stock_out(c, unit);
    switch (random_below(8)) {
    case 0: c->lease[unit] = CO_FREE; break;
    case 1: c->wanted_by[unit] = (uint16_t)random_below(WORKERS + 2); break; // the last: not there
    case 2: credit(unit); break;
    default:
        c->lease[unit] = (uint16_t)(1 + random_below(WORKERS));
        c->begun[unit] = (uint8_t)random_below(CO_BEGUN_COUNT);
    }
    ps_co_stock_in(c, unit);
}

static void change_many(void)
{
    for (int i = 0; i < 6000; i++) change(random_below(UNITS));
}

static bool is_free(uint64_t unit)
{
    return c->lease[unit] == CO_FREE && !ps_co_credited(c, unit);
}

static void assert_next(uint32_t pool, uint64_t from)
{
    const struct ps_co_pool *p = &c->stock.pool[pool];
    uint64_t slot = from < p->first ? p->first : from;
    while (slot < p->end && !is_free(ps_co_stock_unit(c, slot))) slot++;
    assert_int_equal(ps_co_stock_next(c, pool, from), slot < p->end ? slot : PS_CO_NO_SLOT);
}

static void assert_nexts(void)
{
    for (uint32_t p = 0; p < POOLS; p++) {
        for (uint64_t from = 0; from < 300; from++) assert_next(p, from);
        for (int i = 0; i < 300; i++) assert_next(p, random_below(UNITS + 200));
        const struct ps_co_pool *pool = &c->stock.pool[p];
        for (uint64_t k = 0; k < 130; k++) assert_next(p, pool->end + 2 - k % (pool->end + 2));
    }
}

#define IN_RUN(name) TEST_WITH(name, void *unused, begin, end)

IN_RUN(each_pool_has_its_units_in_the_order_of_the_run)
{
    assert_int_equal(c->stock.pools, POOLS);
    assert_int_equal(c->stock.homes, 3);
    assert_int_equal(ps_co_stock_home(c, "asia"), 0);
    assert_int_equal(ps_co_stock_home(c, "nowhere"), 3);
    uint64_t slot = 0, turns = 0;
    for (uint32_t p = 0; p < POOLS; p++) {
        const struct ps_co_pool *pool = &c->stock.pool[p];
        assert_int_equal(pool->first, slot);
        for (; slot < pool->end; slot++) {
            uint64_t unit = ps_co_stock_unit(c, slot), turn = ps_co_stock_turn(c, unit);
            const struct lh_unit *u = &data.unit[unit % DATA];
            assert_string_equal(u->home, c->stock.home[pool->home]);
            assert_int_equal(u->may_leave, pool->leaves);
            assert_int_equal(ps_co_nth(c, turn), unit);
            if (slot > pool->first) assert_true(turn > turns);
            turns = turn;
        }
    }
    assert_int_equal(slot, UNITS);
}

IN_RUN(finds_the_next_free_unit_of_a_pool)
{
    assert_nexts();
    change_many();
    assert_nexts();
    for (int i = 0; i < 6; i++) { // few are free: words, and words of words, have none
        for (uint64_t u = 0; u < UNITS; u++)
            if (random_below(6)) change(u);
        assert_nexts();
    }
    for (uint64_t u = 0; u < UNITS; u++) {
        if (random_below(1000) == 0 || !is_free(u)) continue;
        ps_co_stock_out(c, u);
        c->lease[u] = 1;
        ps_co_stock_in(c, u);
    }
    assert_nexts();
}

// Sums of changes are those of a stock that is filled anew.
IN_RUN(its_sums_stay_those_of_its_units)
{
    change_many();
    struct ps_co_stock was = c->stock;
    struct ps_co_pool pool[POOLS];
    struct ps_co_worker *w = calloc(WORKERS, sizeof *w);
    memcpy(pool, c->stock.pool, sizeof pool);
    memcpy(w, c->worker, WORKERS * sizeof *w);
    assert_true(was.free_units && was.leased_units && was.credited_units);
    assert_int_equal(was.free_units + was.leased_units + was.credited_units, UNITS);
    ps_co_stock_fill(c);
    assert_int_equal(c->stock.free_units, was.free_units);
    assert_int_equal(c->stock.leased_units, was.leased_units);
    assert_int_equal(c->stock.credited_units, was.credited_units);
    assert_int_equal(c->stock.credited_tokens, was.credited_tokens);
    assert_int_equal(c->stock.committed_tokens, was.committed_tokens);
    size_t from = offsetof(struct ps_co_pool, first);
    for (int p = 0; p < POOLS; p++)
        assert_memory_equal((char *)&c->stock.pool[p] + from, (char *)&pool[p] + from,
                            sizeof *pool - from);
    for (int i = 0; i < WORKERS; i++) {
        w[i].held.head = c->worker[i].held.head; // the lists' order may be another one
        w[i].wanted.head = c->worker[i].wanted.head;
        assert_memory_equal(&c->worker[i].held, &w[i].held, sizeof w[i].held);
        assert_memory_equal(&c->worker[i].wanted, &w[i].wanted, sizeof w[i].wanted);
    }
    free(w);
    assert_nexts();
}

// One worker's units, as a walk over all units finds them.
struct found {
    uint64_t held, wanted, kept, committed, away, coming, kept_tokens, of[CO_BEGUN_COUNT];
};

static struct found walk(uint16_t worker, const uint32_t *held, const uint32_t *wanted)
{
    struct found f = {0};
    for (uint64_t turn = 0; turn < UNITS; turn++) {
        uint64_t u = ps_co_nth(c, turn), tokens = data.unit[u % DATA].tokens;
        bool leased = c->lease[u] != CO_FREE, credited = ps_co_credited(c, u);
        f.committed += leased || credited ? tokens : 0;
        if (credited) continue;
        if (c->lease[u] == worker + 1) {
            assert_int_equal(held[f.held++], u);
            f.of[c->begun[u]] += tokens;
            bool away = c->wanted_by[u] && c->wanted_by[u] <= WORKERS;
            if (away && c->begun[u] == CO_WAITS) f.away += tokens;
        }
        if (c->wanted_by[u] != worker + 1) continue;
        assert_int_equal(wanted[f.wanted++], u);
        f.kept += !leased;
        *(leased ? &f.coming : &f.kept_tokens) += tokens;
    }
    return f;
}

IN_RUN(each_worker_has_its_units_in_lists)
{
    change_many();
    for (uint16_t i = 0; i < WORKERS; i++) {
        size_t held_count, wanted_count;
        uint32_t *held = ps_co_stock_held(c, i, &held_count);
        uint32_t *wanted = ps_co_stock_wanted(c, i, &wanted_count);
        struct found f = walk(i, held, wanted);
        const struct ps_co_worker *w = &c->worker[i];
        assert_true(f.held && f.wanted && f.kept && f.away);
        assert_int_equal(held_count, f.held);
        assert_int_equal(wanted_count, f.wanted);
        assert_int_equal(w->held.units, f.held);
        assert_memory_equal(w->held.tokens, f.of, sizeof f.of);
        assert_int_equal(w->held.away_tokens, f.away);
        assert_int_equal(w->wanted.units, f.wanted);
        assert_int_equal(w->wanted.kept_units, f.kept);
        assert_int_equal(w->wanted.kept_tokens, f.kept_tokens);
        assert_int_equal(w->wanted.coming_tokens, f.coming);
        assert_int_equal(c->stock.committed_tokens, f.committed);
        free(held);
        free(wanted);
    }
}

IN_RUN(without_epochs_a_unit_has_its_number_for_its_turn)
{
    ps_co_stock_free(c);
    free(c->order);
    c->order = NULL;
    assert_int_equal(ps_co_stock_make(c), LH_OK);
    assert_int_equal(ps_co_stock_turn(c, 77), 77);
    assert_nexts();
    change_many();
    assert_nexts();
}
