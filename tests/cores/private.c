// A private region at region level: a worker with a loop beside it, on the fake env. The cost of a
// push is charged before the push can leave, whichever process dies; a returned push is sealed
// again with the same payload; and at the budget the region leaves while the run goes on
// (server/docs/0000-protocol.md#rule-34).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/codec.h"
#include "kernels/privacy/pool.h"
#include "tests/cores/charge.h"
#include "tests/cores/trainer.h"
#include "worker/privacy/release.h"
#include "worker/push/outcome.h"
#include "worker/push/view.h"

enum { STEP_MS = 20, H = 4, STEP_TOKENS = 16, PAYLOAD_MAX = 1024 };

// ---------------------------------------------------------------- checks of the log

// A refused frame's record has only its head, so payloads are compared for admitted frames.
static void on_folded(void *arg, uint32_t shard, const struct lh_record *record)
{
    const struct rig *r = arg;
    struct lh_frame f;
    struct lh_span plain;
    struct lk_payload_info info;
    bool opened = false;
    struct seen *s = charge_see(shard, record, &f);
    if (!s) return;
    assert_int_equal(f.steps, H);
    assert_int_equal(f.tokens, H * STEP_TOKENS);
    assert_int_equal(f.claims, 0);
    assert_true(f.density == 1);
    if (!s->admitted) return;
    struct lk_replica *replica = &r->server->shard[shard]->replica;
    assert_int_equal(lk_replica_unseal(replica, record->body, &plain, &opened, &info), LH_OK);
    s->payload = lh_hash_of((struct lh_span){0}, &plain, 1);
}

static struct lh_privacy charged_terms(uint64_t steps)
{
    return (struct lh_privacy){.level = LH_PRIVACY_REGION,
                               .sigma = steps > 1000 ? 2 * sqrt((double)steps) : 80,
                               .rate = 1,
                               .clip = 0.5,
                               .epsilon = 8,
                               .delta = 1e-6,
                               .steps = steps,
                               .ahead = 16,
                               .local_steps = H,
                               .record_tokens = 64};
}

// Everything that was sent is charged, no payload is in the log twice, each shard's log shows at
// least as many charged steps as releases, and nothing is above the budget.
static void judge(void)
{
    uint32_t shards = play.l->rig->manifest.shards;
    for (uint32_t k = 0; k < shards; k++) {
        uint64_t most = 0, releases = 0, charged = charge_file(k);
        for (uint32_t i = 0; i < play.count; i++) {
            const struct seen *s = &play.seen[i];
            if (s->shard != k) continue;
            if (s->charged > most) most = s->charged;
            releases += s->admitted;
            for (uint32_t j = 0; s->admitted && j < i; j++)
                assert_false(play.seen[j].admitted && play.seen[j].shard == k &&
                             lh_hash_equal(&play.seen[j].payload, &s->payload));
        }
        assert_true(charged >= most);
        assert_true(most >= releases);
        assert_true(charged <= play.terms.steps);
    }
}

// ---------------------------------------------------------------- a play

static void start_worker(void)
{
    play.l->beside = &play.b->conf;
    play.l->privacy = (struct wk_private_conf){CHARGE_FILE, 8, 1e-5, true, false};
    life_start(play.l);
}

static void begin(uint64_t seed, uint32_t shards, uint64_t steps)
{
    const struct lh_privacy terms = charged_terms(steps);
    charge_begin(seed, shards, &terms, STEP_TOKENS, on_folded);
    struct life *l = play.l;
    play.b =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, STEP_MS);
    play.b->own_data = true;
    start_worker();
    beside_start(play.b);
}

static void end(void)
{
    beside_kill(play.b);
    life_end(play.l);
    beside_free(play.b);
}

static void over(void)
{
    life_kill(play.l);
    judge();
    end();
}

TEST(each_push_is_noise_on_all_values_and_charged)
{
    begin(3, 2, 100);
    until_admitted(10);
    struct wk_worker *w = play.l->worker;
    for (uint32_t k = 0; k < w->shards; k++) {
        const struct wk_shard *s = &w->shard[k];
        if (s->cut) continue;
        for (uint64_t i = 0; i < s->layout->values; i++) assert_true(s->slot.residual[i] == 0);
    }
    uint64_t last[RIG_SHARDS] = {0};
    for (uint32_t i = 0; i < play.count; i++) {
        assert_int_equal(play.seen[i].charged, last[play.seen[i].shard] + 1);
        last[play.seen[i].shard]++;
    }
    // Nothing of class training (server/docs/0005-telemetry.md) was sent.
    const struct ps_co_worker *row = &play.l->rig->coordinator->worker[0];
    assert_true(row->tokens == 0 && row->step_tokens == 0 && row->measured.paths == 0);
    assert_true(row->stall.step_ns == 0 && row->stall.idle_ns == 0 && !row->stall.failing);
    // With sigma 80 and a clip of 0.5 a value has noise of 40; the noise energy must be as high.
    assert_true(w->privacy.delta_energy <= 0.5 * 0.5 / w->shards + 1e-9);
    assert_true(w->privacy.noise_energy > 100 * w->privacy.delta_energy);
    json_t *status = wk_private_status(w);
    double epsilon = json_real_value(json_object_get(status, "epsilon"));
    assert_true(epsilon > 0 && epsilon < 8);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "releases");
    json_decref(status);
    over();
}

// Whenever no cut is under way, the noise of the next release is ready, or the compute lane is
// drawing it. No cut draws noise itself, and none begins before it is ready.
TEST(noise_is_drawn_before_a_cut_begins)
{
    begin(4, 2, 100);
    const struct wk_worker *w = play.l->worker;
    unsigned full = 0, cuts = 0;
    for (int i = 0; i < 60000 && admitted() < 12; i++) {
        life_run(play.l, LH_MS);
        for (uint32_t k = 0; k < w->shards; k++) {
            const struct wk_shard *s = &w->shard[k];
            if (!s->release.begun) continue;
            cuts += s->cut != NULL;
            if (s->cut || s->release.draws) continue;
            assert_true(lk_pool_is_full(s->release.pool));
            full++;
        }
    }
    assert_true(admitted() >= 12 && full > 0 && cuts > 0);
    over();
}

// Kills the worker's process at each of its file operations in turn, by kill -9 and by a power cut.
TEST(no_crash_leaves_a_release_uncharged)
{
    for (int power = 0; power < 2; power++) {
        begin(5 + (uint64_t)power, 2, 5000);
        until_admitted(4);
        for (int at = 0; at < 70; at++) {
            struct lh_env *env = play.l->rig->w[1].env;
            lh_fake_crash_at(env, at % 40, power);
            for (int i = 0; i < 4000 && lh_fake_alive(env); i++) life_run(play.l, LH_MS);
            lh_fake_crash_at(env, -1, false);
            beside_kill(play.b);
            life_kill(play.l);
            judge();
            start_worker();
            beside_start(play.b);
            until_admitted(admitted() + 1);
        }
        over();
    }
}

// The worker raises its incarnation while a push is on its way. Whatever the fence's answer says,
// payload and total are those that were charged, and nothing is charged for them again.
TEST(a_fenced_push_is_sealed_again_as_it_was)
{
    begin(7, 1, 1000);
    until_admitted(3);
    struct life *l = play.l;
    struct wk_shard *s = &l->worker->shard[0];
    uint32_t before = admitted();
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && (s->cut || !wk_outbox_undecided(&s->outbox)); i++)
        life_run(l, LH_MS);
    struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    assert_non_null(e);
    uint64_t charged = e->head.charged, used = s->release.used;
    struct lh_hash payload;
    struct lh_span plain = lh_buf_span(&e->plain);
    payload = lh_hash_of((struct lh_span){0}, &plain, 1);
    // The push must get a new view before it is sent again: on the old one it would be too stale.
    for (int i = 0; i < WK_VIEWS_HELD; i++) s->view.by[i] = (struct wk_view_of){.version = 1};
    s->view.of = s->view.by[0];
    uint64_t version = s->replica.ledger.version;
    assert_int_equal(wk_bump(l->worker, 0), LH_OK);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    until_admitted(before + 1);
    assert_int_equal(play.seen[play.count - 1].charged, charged);
    assert_true(play.seen[play.count - 1].base >= version);
    assert_true(lh_hash_equal(&play.seen[play.count - 1].payload, &payload));
    assert_true(s->release.used <= used + 1);
    until_admitted(before + 3);
    over();
}

// At its budget the region drains and leaves the live workers; it still follows the log.
TEST(at_the_budget_the_region_leaves)
{
    begin(9, 2, 6);
    until_admitted(12);
    const struct ps_coordinator *c = play.l->rig->coordinator;
    for (int i = 0; i < 60000 && !c->worker[0].left; i++) life_run(play.l, LH_MS);
    assert_true(c->worker[0].left);
    life_run(play.l, 20 * LH_SECOND);
    assert_int_equal(admitted(), 12);
    json_t *status = wk_private_status(play.l->worker);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "spent");
    json_decref(status);
    over();
}

// The budget's file is lost, with or without the worker's directory. At most A steps more than the
// total of the log were charged, so the count goes on above that.
TEST(a_lost_file_goes_on_beyond_what_was_charged)
{
    begin(11, 1, 1000);
    until_admitted(5);
    uint64_t used = play.l->worker->shard[0].release.used;
    beside_kill(play.b);
    life_kill(play.l);
    charge_lose_file();
    start_worker();
    charge_covers(used); // this works without a loop
    start_worker();
    beside_start(play.b);
    until_admitted(admitted() + 1);
    assert_true(play.seen[play.count - 1].charged > used + play.terms.ahead - 2);
    assert_int_equal(life_said(play.l, "privacy.budget_lost"), 1);
    life_kill(play.l);
    end();
}
