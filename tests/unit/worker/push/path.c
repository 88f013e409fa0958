// Path: what a worker measures of transfers and training, and what it tells of that.
// ctest: worker_path
#include "worker/push/path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/net/wire_member.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "worker/worker.h"

enum { SHARDS = 3, LEAST = 64 << 10 }; // bytes of a transfer that shows a rate

static struct lh_trip trip = {100 * LH_MS, 10 * LH_MS};

static struct lh_trip trip_of(struct lh_link *link)
{
    (void)link;
    return trip;
}

static const struct lh_transport_ops link_ops = {.trip = trip_of};

struct rig {
    struct lh_fake_world *world;
    struct wk_worker w;
    struct wk_shard shard[SHARDS];
    struct lh_link link;
    struct wk_entry entry;
};

static void nothing(void *arg)
{
    (void)arg;
}

// Time passes up to an event.
static void pass(struct lh_fake_world *world, int64_t seconds)
{
    lh_fake_at(world, seconds * LH_SECOND, nothing, NULL);
    lh_fake_run(world, lh_fake_now(world) + seconds * LH_SECOND);
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    r->world = lh_fake_world_create(1);
    r->w.conf.env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->w.conf.env);
    pass(r->world, 10);
    r->link.transport_ops = &link_ops;
    r->w.shard = r->shard;
    r->w.shards = SHARDS;
    for (uint32_t i = 0; i < SHARDS; i++) {
        r->shard[i].worker = &r->w;
        r->shard[i].id = i;
        r->shard[i].session.link = &r->link;
        snprintf(r->shard[i].session.address, sizeof r->shard[i].session.address, "s:%d", i < 2);
    }
    trip = (struct lh_trip){100 * LH_MS, 10 * LH_MS};
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

static void near(double is, double wanted)
{
    if (fabs(is - wanted) > 1e-6 * fmax(1, fabs(wanted))) fail_msg("%g instead of %g", is, wanted);
}

// A push of 1.1 s over a round trip of 0.1 s shows its bytes in one second, if they are many.
IN_RIG(a_long_push_shows_the_rate, struct rig *r)
{
    static const struct {
        uint64_t bytes;
        int64_t took_ns; // 0: an earlier call sent a part of it
        bool entry;
        double push_s, up;
    } row[] = {{LEAST, 1100 * LH_MS, true, 1.1, LEAST},
               {LEAST - 1, 1100 * LH_MS, true, 1.1, 0},
               {LEAST, 1100 * LH_MS, false, 0, 0},
               {LEAST, 0, true, 0, 0},
               {LEAST, 100 * LH_MS, true, 0.1, 0}, // all of it is the round trip
               {2 * LEAST, 350 * LH_MS, true, 0.35, 8 * LEAST}};
    int64_t now = lh_now(r->w.conf.env);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct wk_shard *s = &r->shard[0];
        s->path = (struct wk_path){0};
        r->entry.bytes = row[i].bytes;
        s->session.sender.entry = row[i].entry ? &r->entry : NULL;
        s->session.sender.sent_ns = row[i].took_ns ? now - row[i].took_ns : 0;
        wk_path_pushed(s);
        near(s->path.push_s.mean, row[i].push_s);
        near(s->path.up.mean, row[i].up);
        near(s->path.down.mean, 0);
    }
    r->shard[0].session.sender = (struct wk_sender){.entry = &r->entry, .sent_ns = now};
    r->shard[0].path = (struct wk_path){0};
    wk_path_pushed(&r->shard[0]); // it took no time
    near(r->shard[0].path.push_s.mean, 0);
}

IN_RIG(a_snapshot_shows_the_rate_of_the_way_down, struct rig *r)
{
    int64_t now = lh_now(r->w.conf.env);
    wk_path_fetched(&r->shard[0], 4 * LEAST, 0); // asked for by an earlier call
    near(r->shard[0].path.down.mean, 0);
    wk_path_fetched(&r->shard[0], 4 * LEAST, now - 2100 * LH_MS);
    near(r->shard[0].path.down.mean, 2 * LEAST);
    r->shard[1].session.link = NULL; // without a link there is no round trip to leave out
    wk_path_fetched(&r->shard[1], LEAST, now - 500 * LH_MS);
    near(r->shard[1].path.down.mean, 2 * LEAST);
    near(r->shard[1].path.up.mean, 0);
}

// Shards 0 and 1 are of one server: the first one of which something is known tells of its path.
IN_RIG(each_path_is_told_once, struct rig *r)
{
    struct lh_lease_request m = {0};
    wk_path_tell(&r->w, &m);
    assert_int_equal(m.n_paths, 2);
    assert_int_equal(m.paths[0].shard, 0);
    assert_int_equal(m.paths[1].shard, 2);
    assert_int_equal(m.paths[1].trip.mean_ns, 100 * LH_MS);
    trip.mean_ns = 0; // nothing is known
    wk_path_tell(&r->w, &m);
    assert_int_equal(m.n_paths, 0);
    r->shard[1].path.push_s.mean = 3;
    r->shard[2].path.down.mean = 4;
    wk_path_tell(&r->w, &m);
    assert_int_equal(m.n_paths, 2);
    assert_int_equal(m.paths[0].shard, 1);
    near(m.paths[0].push_s.mean, 3);
    near(m.paths[1].down_bytes_per_s.mean, 4);
    r->shard[1].session.link = NULL;
    wk_path_tell(&r->w, &m);
    assert_int_equal(m.n_paths, 1);
    assert_int_equal(m.paths[0].shard, 2);
}

IN_RIG(a_speed_is_a_moving_mean, struct rig *r)
{
    wk_path_trained(&r->w, 100, 0.25);
    near(r->w.tokens_per_s, 100);
    near(r->w.tokens_spread, 25);
    wk_path_trained(&r->w, 60, 0.25);
    near(r->w.tokens_per_s, 90);
    near(r->w.tokens_spread, 25 + 0.25 * (40 - 25));
    struct lh_lease_request m = {0};
    r->w.batch_s = (struct lh_estimate){0.5, 0.1};
    r->w.count.loss = 2;
    wk_path_tell(&r->w, &m);
    near(m.speed.mean, 90);
    near(m.speed.spread, r->w.tokens_spread);
    near(m.batch_s.mean, 0.5);
    near(m.loss, 2);
}

// The share of the time between two requests in which a step ran, the present one too.
IN_RIG(utilisation_is_the_share_of_time_in_steps, struct rig *r)
{
    struct wk_beside_conf beside = {0};
    struct lh_lease_request m = {0};
    wk_path_tell(&r->w, &m);
    near(m.utilisation, 0); // nothing passed yet
    r->w.busy_ns = 1 * LH_SECOND;
    r->w.stepping = true;
    r->w.step_started = lh_now(r->w.conf.env) + 3 * LH_SECOND;
    pass(r->world, 4);
    wk_path_tell(&r->w, &m);
    near(m.utilisation, 0.5); // four seconds: one in steps, and one in the step under way
    r->w.utilised = (struct lh_estimate){0};
    r->w.busy_ns = 2 * LH_SECOND;
    r->w.stepping = false;
    pass(r->world, 4);
    wk_path_tell(&r->w, &m);
    near(m.utilisation, 1e-3); // a step told before does not count again
    r->w.utilised = (struct lh_estimate){0};
    r->w.busy_ns = 60 * LH_SECOND;
    pass(r->world, 2);
    wk_path_tell(&r->w, &m);
    near(m.utilisation, 1);
    m.utilisation = 0;
    r->w.conf.beside = &beside; // a loop beside it says nothing of that
    r->w.external = NULL;
    r->w.beside.state = WK_BESIDE_AWAY;
    wk_path_tell(&r->w, &m);
    near(m.utilisation, 0);
}
