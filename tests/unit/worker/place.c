// GPUs that a state may be spread over, by the settings.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "worker/place.h"

static const char good[] =
    "run.name: demo\nnode: {region: asia, name: w0}\ntls: {ca: a, cert: b, key: c}\n"
    "coordinator: 10.0.0.1:7000\nseal.keys: k\nmodel.manifest: m.json\ndir: d\n"
    "data: {units: u.json, dir: tokens}\ncodec: {density: 0.075}\n"
    "trainer: {backend: cuda}\ngpu: {state: spread}\n";

enum { SETS = 4 };

static struct lh_config *load(const char *const set[SETS])
{
    struct lh_config *c;
    assert_int_equal(lh_config_create(&wk_settings_table, &c), LH_OK);
    assert_int_equal(lh_config_text(c, "good", lh_span_str(good)), LH_OK);
    for (size_t k = 0; k < SETS && set[k]; k++) assert_int_equal(lh_config_set(c, set[k]), LH_OK);
    if (lh_config_finish(c)) fail_msg("%s: %s", set[0], lh_err_text(LH_ERR_CONFIG));
    return c;
}

static void the_gpus_of_the_ranks_or_those_that_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *set[SETS];
        int there, gpu[3]; // the list ends with -1
        const char *says;  // it says that there is no list
    } row[] = {
        {{"ranks.count=2", "ranks.reduce=tcp"}, 8, {0, 1, -1}, NULL},
        {{"ranks.count=8", "ranks.reduce=tcp"}, 2, {0, 1, -1}, NULL},
        {{"gpu.spread=3,1"}, 4, {3, 1, -1}, NULL},
        {{"gpu.spread=0"}, 1, {0, -1}, NULL},
        {{"gpu.spread=1,4"},
         4,
         {0},
         "gpu.spread is \"1,4\", but there is no GPU 4: this process sees 4, from 0 on"},
        {{NULL}, 8, {0}, "one GPU trains here; gpu.spread may name others"},
        {{"ranks.count=8", "ranks.reduce=tcp"}, 1, {0}, "this process sees one GPU"},
        {{"ranks.count=2", "ranks.reduce=tcp", "gpu.device=1"},
         8,
         {0},
         "gpu.device is set, so gpu.spread has to say which others there are"},
        {{"gpu.device=1", "gpu.spread=2,1"}, 8, {2, 1, -1}, NULL},
        {{"ranks.count=2", "ranks.reduce=tcp", "ranks.listen=10.0.0.1:7001",
          "ranks.address=10.0.0.1"},
         8,
         {0},
         "the ranks are on several hosts, so gpu.spread has to say which GPUs of this one there "
         "are"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = load(row[i].set);
        int list[WK_STATE_GPUS_MAX];
        uint32_t count = 0;
        lh_err err = wk_place_gpus(lh_config_settings(c), row[i].there, list, &count);
        if (row[i].says) {
            assert_int_equal(err, LH_ERR_UNSUPPORTED);
            assert_string_equal(lh_err_text(err), row[i].says);
        } else {
            assert_int_equal(err, LH_OK);
            for (uint32_t k = 0; k < count; k++) assert_int_equal(list[k], row[i].gpu[k]);
            assert_int_equal(row[i].gpu[count], -1);
        }
        lh_config_destroy(c);
    }
}

static void ranks_that_train_on_a_gpu(void **state)
{
    (void)state;
    static const struct {
        const char *set[SETS];
        int shared, alone; // -1: none is
    } row[] = {
        {{NULL}, -1, 1},
        {{"ranks.count=4", "ranks.reduce=tcp"}, 3, 4},
        {{"ranks.count=9", "ranks.reduce=tcp"}, 7, -1},
        {{"ranks.count=2", "ranks.reduce=tcp", "gpu.device=0"}, 7, -1},
        {{"ranks.count=2", "ranks.reduce=tcp", "ranks.listen=10.0.0.1:7001",
          "ranks.address=10.0.0.1"},
         7,
         -1},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = load(row[i].set);
        const struct wk_settings *s = lh_config_settings(c);
        assert_true(row[i].shared < 0 || wk_place_shares(s, 8, row[i].shared));
        assert_false(row[i].alone >= 0 && wk_place_shares(s, 8, row[i].alone));
        lh_config_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gpus_of_the_ranks_or_those_that_are_named),
        cmocka_unit_test(ranks_that_train_on_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
