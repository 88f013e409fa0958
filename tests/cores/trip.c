// A worker without files, and a server that gives units: see trip.h.
#include "tests/cores/trip.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/tokens.h"

static bool is_asia(uint64_t unit)
{
    return unit % 2 == 0;
}

uint32_t trip_kept_now(const struct trip *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->units; i++) n += t->kept[i];
    return n;
}

static bool find(void *arg, uint64_t unit, bool *kept)
{
    struct trip *t = arg;
    assert_true(is_asia(unit)); // own units are not looked up
    *kept = t->kept[unit] |= t->cached;
    if (trip_kept_now(t) > t->most_kept) t->most_kept = trip_kept_now(t);
    return *kept;
}

static lh_err keep(void *arg, uint64_t unit, const uint8_t *tokens, size_t n)
{
    struct trip *t = arg;
    assert_int_equal(n, TRIP_BYTES);
    assert_memory_equal(tokens, t->tokens + unit * TRIP_BYTES, TRIP_BYTES);
    t->kept[unit] = true;
    t->arrived++;
    if (trip_kept_now(t) > t->most_kept) t->most_kept = trip_kept_now(t);
    return LH_OK;
}

static void drop(void *arg, uint64_t unit)
{
    ((struct trip *)arg)->kept[unit] = false;
}

static void stepped(void *arg, const struct wk_step_in *in)
{
    struct trip *t = arg;
    for (uint32_t i = 0; i < in->pieces; i++) {
        uint64_t unit = in->piece[i].unit % t->units;
        assert_true(!is_asia(unit) || t->kept[unit]);
        t->trained[unit] += in->piece[i].tokens;
    }
}

void trip_hash(struct rig *r, const uint8_t *tokens)
{
    for (uint32_t i = 0; i < r->units.count; i++) {
        struct lh_unit *u = &r->units.unit[i];
        assert_int_equal(
            EVP_Digest(tokens + i * TRIP_BYTES, TRIP_BYTES, u->sha256, NULL, EVP_sha256(), NULL),
            1);
    }
}

void trip_write_file(struct trip *t)
{
    struct rig *r = t->r;
    struct lh_buf file = lh_buf(1 << 20);
    lh_tokens_put_header(&file, 2, (uint64_t)t->units * TRIP_TOKENS);
    lh_put(&file, t->tokens, (size_t)t->units * TRIP_BYTES);
    assert_int_equal(r->s.env->ops->files->make_dir(r->s.env, "units"), LH_OK);
    assert_int_equal(lh_file_replace(r->s.env, "units/all.bin", lh_buf_span(&file)), LH_OK);
    lh_buf_free(&file);
}

void trip_start_server(struct trip *t, const struct lh_units *units)
{
    assert_int_equal(rig_start_server(t->r, false), LH_OK);
    t->r->server->conf.units = units;
    t->r->server->conf.units_dir = "units";
}

struct trip *trip_begin_with(uint32_t units, uint32_t epochs)
{
    struct trip *t = calloc(1, sizeof *t);
    assert_non_null(t);
    struct rig *r = t->r = rig_new(1);
    lh_units_free(&r->units);
    t->units = units;
    setup_units(&r->units, units, TRIP_TOKENS, RIG_WORKERS);
    for (size_t i = 0; i < sizeof t->tokens; i++) t->tokens[i] = (uint8_t)(i * 37 >> 3);
    for (uint32_t i = 0; i < units; i++) {
        r->units.unit[i].from = (uint64_t)i * TRIP_TOKENS;
        snprintf(r->units.unit[i].file, sizeof r->units.unit[i].file, "all.bin");
    }
    trip_hash(r, t->tokens);
    r->epochs = epochs;
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    trip_start_server(t, &r->units);
    trip_write_file(t);
    rig_boot_standby(r); // its disk keeps the log
    t->log = rig_log_lines(r);
    r->server->conf.log = t->log;
    t->travel = (struct wk_travel_conf){find, keep, drop, t, 8 * TRIP_BYTES};
    t->observer = (struct wk_observer){.arg = t, .stepped = stepped};
    return t;
}

struct trip *trip_begin(void)
{
    return trip_begin_with(TRIP_UNITS, 1);
}

void trip_start_worker_with(struct trip *t, uint64_t step_ms, uint32_t queue_units)
{
    struct wk_conf conf = rig_life_conf(t->r, &t->l, step_ms);
    conf.travel = &t->travel;
    conf.observer = &t->observer;
    conf.log = t->log;
    conf.queue_units = queue_units;
    rig_life_start(&t->l, &conf);
}

void trip_start_worker(struct trip *t)
{
    trip_start_worker_with(t, 200, 10);
}

void trip_end_worker(struct trip *t, bool power)
{
    rig_life_end(t->r, &t->l, power);
    memset(t->kept, 0, sizeof t->kept);
}

void trip_over(struct trip *t)
{
    struct rig *r = t->r;
    if (t->l.worker) trip_end_worker(t, false);
    if (r->server) r->server->conf.log = NULL;
    lh_log_close(t->log);
    assert_int_equal(r->fatal_count, 0);
    rig_free(r);
    free(t);
}

int trip_set_up(void **state)
{
    *state = trip_begin();
    return 0;
}

int trip_tear_down(void **state)
{
    trip_over(*state);
    return 0;
}

uint64_t trip_credited(const struct trip *t)
{
    return t->r->server->shard[0]->replica.ledger.credited;
}

void trip_run_until_credited(struct trip *t, uint64_t units)
{
    for (int i = 0; i < 6000 && trip_credited(t) < units; i++) rig_run(t->r, 100 * LH_MS);
    assert_int_equal(trip_credited(t), units);
}

json_int_t trip_told(const struct trip *t, const char *key)
{
    json_t *is = wk_travel_status(t->l.worker);
    json_int_t n = json_integer_value(json_object_get(is, key));
    json_decref(is);
    return n;
}

void trip_check_trained_once(const struct trip *t)
{
    for (uint32_t i = 0; i < t->units; i++) assert_int_equal(t->trained[i], TRIP_TOKENS);
}
