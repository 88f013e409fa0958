// The coordinator's status lists each worker and each server once, in its present role.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/status.h"
#include "tests/cores/rig.h"

static json_t *told(struct rig *r)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(r->coordinator, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    assert_non_null(all);
    lh_buf_free(&out);
    return all;
}

// Counts the rows of this list with that name, and with that role if `role` is not NULL.
static unsigned named(const json_t *all, const char *list, const char *name, const char *role)
{
    const json_t *rows = json_object_get(all, list);
    unsigned n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *has = json_string_value(json_object_get(row, "role"));
        n += !strcmp(json_string_value(json_object_get(row, "name")), name) &&
             (!role || !strcmp(has, role));
    }
    return n;
}

RIG_TEST(each_worker_is_named_once, struct rig *r)
{
    rig_start_coordinator(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    json_t *all = told(r);
    assert_int_equal(json_array_size(json_object_get(all, "workers")), RIG_WORKERS);
    for (uint32_t w = 0; w < RIG_WORKERS; w++)
        assert_int_equal(named(all, "workers", r->w[w].self.name, NULL), 1);
    json_decref(all);
}

// The status of as many workers as a run may have needs more than one answer.
static void fill(struct ps_coordinator *c)
{
    static const char NAME[] =
        "\u00e4 name that is as long as a name of a worker may be \u00e4\u00e4";
    for (uint64_t id = 1; c->workers < LH_WORKERS_MAX; id++) {
        struct ps_co_worker *w = &c->worker[c->workers++];
        *w = (struct ps_co_worker){.id = id, .trip = {LH_SECOND, LH_SECOND}};
        snprintf(w->region, sizeof w->region, "%s", NAME);
        snprintf(w->name, sizeof w->name, "%s", NAME);
        snprintf(w->machine.system, sizeof w->machine.system, "%s", NAME);
        snprintf(w->machine.gpu, sizeof w->machine.gpu, "%s", NAME);
        snprintf(w->machine.processor, sizeof w->machine.processor, "%s", NAME);
        w->machine.processors = 64;
        w->measured.path = calloc(LH_PATHS_MAX, sizeof *w->measured.path);
        w->measured.paths = 8;
    }
}

// Gives the first slice.
static uint64_t begin_reading(struct ps_coordinator *c, uint64_t reader, struct lh_buf *out)
{
    uint64_t number = 0, bytes = 0;
    *out = lh_buf(16 << 20);
    assert_int_equal(ps_co_status_slice(c, reader, &number, 0, out, &bytes), LH_OK);
    assert_true(number && out->len < bytes && out->len < LH_SMALL_BYTES);
    return number;
}

static void read_the_rest(struct ps_coordinator *c, uint64_t number, struct lh_buf *whole)
{
    struct lh_buf slice = lh_buf(LH_SMALL_BYTES);
    uint64_t bytes = whole->len + 1;
    while (whole->len < bytes) {
        lh_buf_clear(&slice);
        assert_int_equal(ps_co_status_slice(c, 1, &number, whole->len, &slice, &bytes), LH_OK);
        assert_true(slice.len > 0 && slice.len < LH_SMALL_BYTES);
        lh_put(whole, slice.data, slice.len);
    }
    json_t *all = json_loadb((const char *)whole->data, whole->len, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "workers")), LH_WORKERS_MAX);
    json_decref(all);
    lh_buf_free(&slice);
    lh_buf_free(whole);
}

RIG_TEST(a_state_of_any_size_is_told_in_slices, struct rig *r)
{
    rig_start_coordinator(r);
    struct ps_coordinator *c = r->coordinator;
    fill(c);
    struct lh_buf far, near[PS_CO_READERS_MAX];
    enum { FAR = 100 };
    uint64_t number[PS_CO_READERS_MAX], bytes, of_far = begin_reading(c, FAR, &far);
    for (int i = 0; i < 2 * PS_CO_READERS_MAX; i++) { // operators who read faster
        number[0] = begin_reading(c, 1, &near[0]);
        read_the_rest(c, number[0], &near[0]);
    }
    read_the_rest(c, of_far, &far);
    of_far = begin_reading(c, FAR, &far);
    for (int i = 0; i < 2 * PS_CO_READERS_MAX; i++) { // one that begins anew and reads nothing
        rig_run(r, LH_MS);
        (void)begin_reading(c, 2, &near[0]);
        lh_buf_free(&near[0]);
    }
    read_the_rest(c, of_far, &far);
    of_far = begin_reading(c, FAR, &far);
    for (uint32_t i = 0; i < PS_CO_READERS_MAX; i++) {
        rig_run(r, LH_MS);
        number[i] = begin_reading(c, 10 + i, &near[i]);
    }
    struct lh_buf slice = lh_buf(LH_SMALL_BYTES);
    assert_int_equal(ps_co_status_slice(c, FAR, &of_far, far.len, &slice, &bytes), LH_ERR_BUSY);
    for (int i = 0; i < PS_CO_READERS_MAX; i++) read_the_rest(c, number[i], &near[i]);
    lh_buf_free(&slice);
    lh_buf_free(&far);
}

RIG_TEST(a_standby_that_took_over_is_a_server, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_run(r, LH_SECOND);
    json_t *all = told(r);
    assert_int_equal(json_array_size(json_object_get(all, "servers")), 2);
    assert_int_equal(named(all, "servers", r->s.self.name, "server"), 1);
    assert_int_equal(named(all, "servers", r->t.self.name, "standby"), 1);
    json_decref(all);
    const struct ps_co_shard *row = &r->coordinator->shard[0];
    rig_kill_server(r, false);
    for (int i = 0; i < 600 && !row->owner; i++) rig_run(r, 100 * LH_MS);
    assert_int_equal(row->owner, r->standby->standby.identity);
    rig_run(r, 5 * LH_SECOND);
    all = told(r);
    assert_int_equal(json_array_size(json_object_get(all, "servers")), 1);
    assert_int_equal(named(all, "servers", r->t.self.name, "server"), 1);
    json_decref(all);
}
