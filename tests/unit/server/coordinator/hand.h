// A coordinator made by hand, for tests of files that read its memory. It has an empty store.
//
// Two homes: asia has units 0 to 3, europe 4 to 7. The first two of each may leave their home. Unit
// u has 100 + u tokens of two bytes each. Four workers, one token a second each times their number
// and 10: ann and bob in asia, cem in europe, dee in america. Two shards.
#ifndef TESTS_UNIT_HAND_H
#define TESTS_UNIT_HAND_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/assign.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/order.h"
#include "server/coordinator/scale.h"
#include "server/coordinator/watch/hook.h"
#include "server/coordinator/watch/states.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { ANN, BOB, CEM, DEE, WORKERS, DATA = 8, SHARDS = 2, ASIA = 0, EUROPE = 1 };
enum { ASIA_STAYS, ASIA_LEAVES, EUROPE_STAYS, EUROPE_LEAVES, POOLS };

static struct lh_fake_world *world;
static struct ps_coordinator *c;
static struct lh_units data;
static struct lh_manifest manifest;

static inline void hand_units(void)
{
    static const char *const LANGUAGE[] = {"zh", "zh", "zh", "ja", "de", "de", "de", "de"};
    data = (struct lh_units){.unit = calloc(DATA, sizeof *data.unit), .count = DATA};
    data.token_bytes = 2;
    for (uint64_t i = 0; i < DATA; i++) {
        struct lh_unit *u = &data.unit[i];
        *u = (struct lh_unit){.id = i, .tokens = 100 + i, .may_leave = i % 4 < 2};
        snprintf(u->home, sizeof u->home, "%s", i < 4 ? "asia" : "europe");
        snprintf(u->language, sizeof u->language, "%s", LANGUAGE[i]);
        c->epoch_tokens += u->tokens;
    }
}

static inline void hand_workers(void)
{
    static const char *const NAME[] = {"ann", "bob", "cem", "dee"};
    static const char *const REGION[] = {"asia", "asia", "europe", "america"};
    c->workers = WORKERS;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct ps_co_worker *w = &c->worker[i];
        w->id = 100 + i;
        w->live = w->joined = w->gives = true;
        w->tokens_per_s = w->tokens_said = 10.0 * (i + 1);
        snprintf(w->name, sizeof w->name, "%s", NAME[i]);
        snprintf(w->region, sizeof w->region, "%s", REGION[i]);
    }
}

static inline void hand_epochs(uint32_t epochs)
{
    ps_co_stock_free(c);
    free(c->order);
    free(c->lease);
    c->order = NULL;
    c->epochs = epochs;
    c->units = (uint64_t)DATA * epochs;
    c->lease = calloc(c->units, sizeof *c->lease + sizeof *c->wanted_by + sizeof *c->begun);
    c->wanted_by = c->lease + c->units;
    c->begun = (uint8_t *)(c->wanted_by + c->units);
    free(c->leased_s);
    c->leased_s = calloc(c->units, sizeof *c->leased_s + sizeof *c->number);
    c->number = c->leased_s + c->units;
    assert_int_equal(ps_co_make_order(c), LH_OK);
    assert_int_equal(ps_co_stock_make(c), LH_OK);
}

static inline int hand_begin(void **state)
{
    (void)state;
    world = lh_fake_world_create(1);
    c = calloc(1, sizeof *c);
    c->conf.env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(c->conf.env);
    manifest.shards = SHARDS;
    c->conf.manifest = &manifest;
    c->conf.units = &data;
    c->guess = calloc(PS_CO_GUESSES, sizeof *c->guess);
    c->shard = calloc(SHARDS, sizeof *c->shard);
    for (int i = 0; i < SHARDS; i++) {
        c->shard[i].credit_bytes = 4;
        c->shard[i].credit = calloc(4, 1);
    }
    c->plan.phase = LH_PHASE_RUN;
    lh_listener_start(&c->listener, lh_now(c->conf.env), INT64_MAX, 0);
    hand_units();
    hand_workers();
    hand_epochs(1);
    assert_int_equal(ps_store_open(c->conf.env, "state", &c->store), LH_OK);
    assert_int_equal(ps_co_commit_open(c, NULL), LH_OK);
    assert_int_equal(ps_co_balancer_make(c), LH_OK);
    assert_int_equal(ps_co_decided_make(c), LH_OK);
    assert_int_equal(ps_co_states_make(c), LH_OK);
    assert_int_equal(ps_co_scale_make(c), LH_OK);
    assert_int_equal(ps_co_hook_make(c), LH_OK);
    return 0;
}

static inline int hand_end(void **state)
{
    (void)state;
    ps_co_commit_close(c);
    ps_co_commit_free(c);
    ps_store_close(c->store);
    ps_co_stock_free(c);
    for (uint32_t i = 0; i < c->workers; i++) ps_co_free_worker(&c->worker[i]);
    for (int i = 0; i < SHARDS; i++) free(c->shard[i].credit);
    free(c->balancer);
    free(c->decided);
    free(c->states);
    free(c->scale);
    free(c->hook);
    free(c->leased_s);
    free(c->shard);
    free(c->guess);
    free(c->lease);
    free(c->order);
    free(data.unit);
    free(c);
    lh_fake_world_destroy(world);
    return 0;
}

#define HAND(name) TEST_WITH(name, void *unused, hand_begin, hand_end)

static inline void lease(uint64_t unit, uint32_t worker, enum ps_co_begun begun)
{
    ps_co_stock_out(c, unit);
    c->lease[unit] = (uint16_t)(worker + 1);
    c->begun[unit] = (uint8_t)begun;
    ps_co_stock_in(c, unit);
}

static inline void want(uint64_t unit, uint32_t worker)
{
    ps_co_stock_out(c, unit);
    c->wanted_by[unit] = (uint16_t)(worker + 1);
    ps_co_stock_in(c, unit);
}

static inline void credit(uint64_t unit)
{
    ps_co_stock_out(c, unit);
    c->shard[unit % SHARDS].credit[unit / SHARDS / 8] |= (uint8_t)(1 << unit / SHARDS % 8);
    ps_co_stock_in(c, unit);
}

static inline void near(double is, double wanted)
{
    if (fabs(is - wanted) > 1e-6 * fmax(1, fabs(wanted))) fail_msg("%g instead of %g", is, wanted);
}

// JSON with ' for ".
static inline json_t *json_of(const char *said)
{
    char *text = strdup(said);
    for (char *at = text; *at; at++)
        if (*at == '\'') *at = '"';
    json_t *out = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!out) fail_msg("%s is not JSON", text);
    free(text);
    return out;
}

static inline void assert_same_json(const json_t *is, const json_t *as)
{
    char *told = json_dumps(is, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    char *text = json_dumps(as, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    if (!is || !json_equal(is, as)) fail_msg("%s\ninstead of\n%s", told ? told : "nothing", text);
    free(told);
    free(text);
}

// Takes `is`.
static inline void assert_json(json_t *is, const char *wanted)
{
    json_t *as = json_of(wanted);
    assert_same_json(is, as);
    json_decref(as);
    json_decref(is);
}

// `is` has these members, among others. One that is wanted as null is absent or null.
static inline void assert_has(const json_t *is, const char *wanted)
{
    json_t *as = json_of(wanted), *value;
    const char *key;
    json_object_foreach(as, key, value)
    {
        const json_t *its = json_object_get(is, key);
        if (its || !json_is_null(value)) assert_same_json(its, value);
    }
    json_decref(as);
}

#endif
