// Restore: which offers are kept, and whose turn passes, by the time since they were heard.
#include <stdlib.h>
#include <string.h>

#include "server/core.h"
#include "server/recovery/rebuilding.h"
#include "server/recovery/restore.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static const int64_t GRACE = 10 * LH_SECOND, NOW = 100 * LH_SECOND;

struct rig {
    struct lh_fake_world *world;
    struct ps_rebuild b;
    struct ps_shard shard;
    struct ps_server server;
};

static void nothing(void *arg)
{
    (void)arg;
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    r->world = lh_fake_world_create(1);
    r->server.conf.env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->server.conf.env);
    lh_fake_at(r->world, NOW, nothing, NULL); // time passes up to an event
    lh_fake_run(r->world, NOW);
    assert_int_equal(lh_now(r->server.conf.env), NOW);
    r->server.conf.grace_ns = GRACE;
    r->shard.server = &r->server;
    r->b.shard = &r->shard;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_fake_world_destroy(r->world);
    free(r);
    return 0;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

// An offer is dropped after the grace time, unless its worker lied or had a turn, which must not be
// forgotten. It then counts no more, but stays.
IN_RIG(silent_offers_are_dropped, struct rig *r)
{
    static const struct {
        int64_t age_ns, asked_ns;
        bool lied;
        uint32_t turns;
        bool kept, counts;
    } row[] = {
        {10 * LH_SECOND - 1, 0, false, 0, true, true}, {10 * LH_SECOND, 0, false, 0, false, false},
        {10 * LH_SECOND, 0, true, 0, true, false},     {10 * LH_SECOND, 0, false, 1, true, false},
        {10 * LH_SECOND, 1, false, 0, true, false},    {0, 1, true, 1, true, true}};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < LH_COUNT(row); i++)
        r->b.offer[r->b.offer_count++] = (struct ps_offer){.worker = i + 1,
                                                           .heard_ns = NOW - row[i].age_ns,
                                                           .asked_ns = row[i].asked_ns,
                                                           .lied = row[i].lied,
                                                           .turns = row[i].turns,
                                                           .have_count = 1};
    ps_restore_drop_silent(&r->b);
    for (uint32_t i = 0; i < LH_COUNT(row); i++) {
        if (!row[i].kept) continue;
        assert_int_equal(r->b.offer[kept].worker, i + 1);
        assert_int_equal(r->b.offer[kept++].have_count, row[i].counts);
    }
    assert_int_equal(r->b.offer_count, kept);
}

// A turn passes after the grace time without a part, or after three broken transfers.
IN_RIG(turns_pass, struct rig *r)
{
    static const struct {
        int64_t asked_ns; // 0: it was not asked
        uint32_t broken;
        bool passes;
    } row[] = {{0, 0, false},
               {0, 3, false},
               {90 * LH_SECOND + 1, 0, false},
               {90 * LH_SECOND, 0, true},
               {90 * LH_SECOND + 1, 2, false},
               {90 * LH_SECOND + 1, 3, true}};
    for (uint32_t i = 0; i < LH_COUNT(row); i++)
        r->b.offer[r->b.offer_count++] = (struct ps_offer){
            .worker = i + 1, .asked_ns = row[i].asked_ns, .broken = row[i].broken, .turns = 5};
    ps_restore_pass_over(&r->b);
    assert_int_equal(r->b.offer_count, LH_COUNT(row));
    for (uint32_t i = 0; i < LH_COUNT(row); i++) {
        const struct ps_offer *o = &r->b.offer[i];
        assert_int_equal(o->turns, row[i].passes ? 6 : 5);
        assert_int_equal(o->asked_ns, row[i].passes ? 0 : row[i].asked_ns);
        assert_int_equal(o->broken, row[i].passes ? 0 : row[i].broken);
    }
}

IN_RIG(no_transfer_is_none_that_comes, struct rig *r)
{
    assert_false(ps_restore_coming(&r->b));
    ps_restore_forget(&r->b);
    assert_null(r->b.restore);
}
