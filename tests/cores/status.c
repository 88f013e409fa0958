// The coordinator names everybody who takes part to operators, once, as what he is.
#include <jansson.h>
#include <string.h>

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

// How many rows of this list have that name, and that role where one is named.
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

static void each_worker_is_named_once(void **state)
{
    struct rig *r = *state;
    rig_start_coordinator(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    json_t *all = told(r);
    assert_int_equal(json_array_size(json_object_get(all, "workers")), RIG_WORKERS);
    for (uint32_t w = 0; w < RIG_WORKERS; w++)
        assert_int_equal(named(all, "workers", r->w[w].self.name, NULL), 1);
    json_decref(all);
}

static void a_standby_that_took_over_is_a_server(void **state)
{
    struct rig *r = *state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(each_worker_is_named_once),
        RIG_TEST(a_standby_that_took_over_is_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
