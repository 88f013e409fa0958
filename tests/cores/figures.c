// Figures that a loop beside a worker reports, as many as there is room for: the loss is smoothed,
// the others have the value reported last.
#include <math.h>
#include <stdio.h>

#include "tests/cores/life.h"
#include "tests/cores/trainer.h"
#include "worker/push/beside.h"

TEST(as_many_as_there_is_room_for)
{
    struct life *l = life_begin(21, 1);
    life_rest(l);
    life_kill(l); // the built-in trainer's
    rig_boot_worker(l->rig, 1);
    struct beside *b =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, 20);
    l->beside = &b->conf;
    life_start(l);
    life_rest(l);
    beside_start(b);
    for (int i = 0; i < 60000 && l->worker->beside.cuts < 3; i++) life_run(l, LH_MS);
    const struct wk_beside *is = &l->worker->beside;
    const uint32_t room = (uint32_t)LH_COUNT(is->metric);
    for (uint32_t i = 0; i <= 2 * room; i++) {
        char name[16];
        snprintf(name, sizeof name, "figure%u", i % (room + 1));
        assert_int_equal(longhaul_report(b->client, name, i), LONGHAUL_OK);
        life_run(l, LH_MS);
        assert_int_equal(is->metrics, i < room ? i + 1 : room);
    }
    for (uint32_t i = 0; i < room; i++) {
        char name[16];
        snprintf(name, sizeof name, "figure%u", i);
        assert_string_equal(is->metric[i].name, name);
        assert_true(is->metric[i].value == room + 1 + i);
    }
    longhaul_report(b->client, "loss", 4);
    life_run(l, LH_MS);
    assert_true(l->worker->count.loss == 4);
    longhaul_report(b->client, "loss", 2);
    life_run(l, LH_MS);
    assert_true(fabs(l->worker->count.loss - 3.9) < 1e-9);
    assert_int_equal(is->metrics, room);
    json_t *o = wk_beside_status(l->worker);
    assert_int_equal(json_object_size(json_object_get(o, "metrics")), room);
    json_decref(o);
    assert_false(is->evaluates);
    longhaul_report(b->client, "heldout", 3); // counts although it has no place
    life_run(l, LH_MS);
    assert_true(is->evaluates && is->metrics == room);
    beside_kill(b);
    life_end(l);
    beside_free(b);
}
