// A user's trainer beside a worker's core, with the real client library and a loop of known steps
// (tests/cores/trainer.h). It trains; trainer and worker die at every point of a cut; the judge of
// tests/cores/beside_play.h checks each cut.
#include <string.h>

#include "common/base/check.h"
#include "tests/cores/beside_play.h"
#include "tests/cores/words.h"
#include "worker/external/life.h"
#include "worker/replica/follow.h"

enum { POINTS = 40 };

// ---------------------------------------------------------------- training

TEST(its_cuts_are_pushed_and_its_units_credited)
{
    play_begin(1, 2);
    play_cuts(30);
    play_check();
    uint64_t credited = 0;
    for (uint64_t u = 0; u < play->b->units->count; u++) credited += play->held[1][u] == 64;
    assert_true(credited > 2);
    assert_int_equal(play->l->worker->beside.lives, 1);
    assert_int_equal(play->l->worker->beside.lost_tokens, 0);
    play_end();
}

static void rest(void)
{
    play->b->idle = true;
    life_run(play->l, LH_SECOND);
    life_rest(play->l);
    life_run(play->l, LH_SECOND); // until the last correction is added
}

// The trainer's parameters are the view less what it lowered since the last cut, to the bit.
static void expect_view(uint32_t shard)
{
    const struct wk_shard *s = &play->l->worker->shard[shard];
    const double *cut = play->b->made[play->cut[shard] % BESIDE_CUTS].lowered;
    for (uint64_t i = 0; i < s->layout->values; i++) {
        uint64_t at = s->layout->first + i;
        double progress = play->b->now.lowered[at] - cut[at];
        double view = (double)s->replica.theta[i] - 0.5 * (double)s->slot.residual[i];
        assert_true((double)play->b->value[at] == view - progress);
    }
}

TEST(corrections_take_it_to_the_view)
{
    play_begin(2, 2);
    play_cuts(7);
    rest();
    play_check();
    for (uint32_t k = 0; k < 2; k++) expect_view(k);
    play_end();
}

// ---------------------------------------------------------------- another worker's pushes

enum { CARRIED = 10 }; // values of each push

struct other { // worker 0, by hand
    struct rig_call call;
    struct lh_frame head;
};

static void other_begin(struct other *o)
{
    struct rig *r = play->l->rig;
    *o = (struct other){.head = {.cipher = LH_CIPHER_XCHACHA20,
                                 .index_code = LK_INDEX_RICE,
                                 .value_code = LK_VALUE_FP32,
                                 .key_id = 1,
                                 .worker = lh_worker_id(&r->w[0].self),
                                 .tokens = 1,
                                 .steps = 1,
                                 .manifest = r->manifest.hash}};
    uint64_t number = (uint64_t)rig_join(r, 0, 1, 0).granted << 32;
    o->head.incarnation = (struct lh_incarnation){number, number + 7};
    memcpy(o->head.job, r->server->conf.job, LH_JOB_BYTES);
    rig_hello(r, 0, number, 0, 1);
}

// The payload lowers CARRIED values from `from` on.
static void other_encode(struct other *o, uint64_t from, struct lh_buf *plain)
{
    const struct lh_shard_layout *layout = &play->l->rig->manifest.shard[0];
    float e[LIFE_VALUES] = {0};
    struct lk_payload_info info;
    o->head.density = (float)CARRIED / (float)layout->values;
    const struct lk_codec codec = {o->head.index_code, o->head.value_code, o->head.density};
    for (uint64_t i = 0; i < CARRIED; i++) e[from + i] = 0.25f;
    assert_int_equal(lk_encode(&codec, layout, e, plain, &info), LH_OK);
    assert_int_equal(info.values, CARRIED);
    o->head.values = info.values;
    o->head.plain_bytes = (uint32_t)plain->len;
}

static struct lh_blob *other_frame(struct other *o, uint64_t from)
{
    struct rig *r = play->l->rig;
    struct lh_frame *f = &o->head;
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES), plain = lh_buf(LH_MESSAGE_BYTES);
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    other_encode(o, from, &plain);
    f->step++;
    f->base_version = l->version;
    f->base_epoch = l->epoch;
    f->base_others = lh_ledger_others(l, f->worker);
    lh_random(r->w[0].env, f->nonce, LH_SEAL_NONCE_BYTES);
    lh_frame_write_head(f, &head);
    struct lh_blob *frame = lh_blob_new(lh_frame_bytes(f));
    assert_true(frame && !head.err);
    memcpy(frame->data, head.data, head.len);
    assert_int_equal(lh_seal(r->keys, f->cipher, 1, &context, lh_buf_span(&head), f->nonce,
                             lh_buf_span(&plain), frame->data + head.len),
                     LH_OK);
    lh_buf_free(&plain);
    lh_buf_free(&head);
    return frame;
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)self;
    lh_call_finish(call, LH_OK, NULL);
}

static const struct lh_call_ops push_ops = {rig_on_message, rig_on_nothing, on_sent, rig_on_close};

// Worker 0 pushes; the worker and its trainer get the record.
static void other_push(struct other *o, uint64_t from)
{
    struct rig *r = play->l->rig;
    struct lh_blob *frame = other_frame(o, from);
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    struct lh_digest digest = lh_frame_digest(lh_blob_span(frame), &o->head);
    const struct lk_replica *replica = &play->l->worker->shard[0].replica;
    uint64_t others = lh_ledger_others(&replica->ledger, play->l->worker->id);
    head.worker = o->head.worker;
    head.process = r->server->process;
    head.frame_bytes = frame->len;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, digest.b};
    o->call = (struct rig_call){0};
    rig_call_open(r, 0, LH_RPC_PUSH, &push_ops, &o->call);
    lh_call_read(o->call.call);
    assert_int_equal(pb_send_bulk(o->call.call, &head.base, frame, 0, frame->len), LH_OK);
    rig_call_wait(r, &o->call);
    assert_int_equal(o->call.status, LH_OK);
    lh_blob_release(frame);
    life_run(play->l, LH_SECOND);
    assert_int_equal(lh_ledger_others(&replica->ledger, play->l->worker->id), others + 1);
}

// Their corrections hold the values that the records carry, and no others.
TEST(others_records_are_small_corrections)
{
    play_begin(5, 1);
    play_cuts(3);
    rest();
    struct other o;
    other_begin(&o);
    const struct wk_external *x = play->l->worker->external;
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t before = x->part[0].published;
        other_push(&o, 7 * i);
        expect_view(0);
        assert_int_equal(x->part[0].published, before + 1);
        const struct wk_channel_entry *e =
            &wk_channel_part(&x->channel, 0)->entry[(before + 1) % WK_CHANNEL_LIVE];
        assert_true(e->kind == WK_CHANNEL_SPARSE && e->count == CARRIED);
    }
    play_end();
}

// A snapshot may change any value: after it, the next correction compares all of them.
TEST(a_snapshot_is_corrected_as_a_whole)
{
    play_begin(6, 1);
    play_cuts(3);
    rest();
    struct other o;
    other_begin(&o);
    struct wk_shard *s = &play->l->worker->shard[0];
    s->replica.theta[0] += 64; // a damaged replica, of which the trainer gets value 0
    other_push(&o, 0);
    expect_view(0);
    uint64_t snapshots = play->l->worker->count.snapshots;
    s->stream.need_snapshot = true;
    wk_follow_stop(s);
    life_run(play->l, 5 * LH_SECOND);
    assert_int_equal(play->l->worker->count.snapshots, snapshots + 1);
    other_push(&o, 20);
    expect_view(0);
    play_end();
}

// ---------------------------------------------------------------- deaths

TEST(the_trainer_dies_at_any_point)
{
    play_begin(3, 2);
    for (int k = 0; k < POINTS; k++) {
        play_cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        beside_kill(play->b);
        play_until(WK_BESIDE_AWAY);
        beside_start(play->b);
        play_until(WK_BESIDE_THERE);
    }
    play_cuts(4);
    play_check();
    assert_int_equal(play->l->worker->beside.lives, POINTS + 1);
    assert_true(play->l->worker->beside.lost_tokens > 0);
    play_end();
}

// Worker 1 holds units that wait, and worker 0 the rest of the budget. From now on worker 0, which
// sends *w, could train them faster. Returns the coordinator's counts of what worker 1 holds.
static const struct ps_co_held *begin_to_hold(struct words *w)
{
    *w = (struct words){.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.5};
    play_begin(15, 2);
    struct rig *r = play->l->rig;
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    play_cuts(2);
    const struct ps_coordinator *c = r->coordinator;
    const struct ps_co_held *has =
        &c->worker[ps_co_worker_index(c, lh_worker_id(&r->w[1].self))].held;
    assert_true(has->tokens[CO_WAITS] > 0);
    assert_true(say(r, 0, w).units > 40);
    r->coordinator->conf.budget_tokens = c->stock.committed_tokens; // no other units are free
    w->units_per_s = 10;
    return has;
}

// Other workers need its units, and nobody knows when the loop will come back.
TEST(a_loop_that_is_away_keeps_no_units)
{
    struct words w;
    const struct ps_co_held *has = begin_to_hold(&w);
    struct rig *r = play->l->rig;
    beside_kill(play->b);
    play_until(WK_BESIDE_AWAY);
    life_run(play->l, 2 * LH_SECOND); // from then on, its units that are not begun use up no budget
    r->coordinator->conf.budget_tokens -= has->tokens[CO_WAITS];
    for (int i = 0; i < 200 && has->tokens[CO_WAITS] + has->tokens[CO_BEGUN]; i++) {
        say(r, 0, &w);
        life_run(play->l, LH_SECOND);
    }
    assert_int_equal(has->tokens[CO_WAITS] + has->tokens[CO_BEGUN], 0);
    play_end();
}

// The worker was killed, and its loop may have outlived it with units in hand. Until a loop
// connects, nobody else gets these units.
TEST(a_worker_that_was_restarted_waits_for_its_loop)
{
    struct words w;
    const struct ps_co_held *has = begin_to_hold(&w);
    struct rig *r = play->l->rig;
    beside_kill(play->b);
    life_kill(play->l);
    rig_boot_worker(r, 1);
    play_start_worker();
    life_run(play->l, 5 * LH_SECOND); // its pushes are credited
    uint64_t before = has->units;
    assert_true(has->tokens[CO_WAITS] > 0);
    for (int i = 0; i < 30; i++) {
        say(r, 0, &w);
        life_run(play->l, LH_SECOND);
    }
    assert_int_equal(play_state(), WK_BESIDE_AWAY);
    assert_int_equal(has->units, before);
    beside_start(play->b);
    play_until(WK_BESIDE_THERE);
    play_cuts(2);
    play_end();
}

TEST(the_worker_dies_at_any_moment)
{
    play_begin(4, 2);
    for (int k = 0; k < POINTS; k++) {
        play_cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        life_kill(play->l);
        rig_boot_worker(play->l->rig, 1);
        life_run(play->l, (k % 5) * 50 * LH_MS); // training goes on without it
        play_start_worker();
        play_until(WK_BESIDE_THERE);
    }
    play_cuts(4);
    play_check();
    assert_int_equal(play->b->lives, 1); // the trainer never ended
    assert_int_equal(play->b->restarts, 0);
    play_end();
}

static uint64_t steps_told(void)
{
    return play->l->worker->count.steps;
}

// Its speed, which decides leases, counts what was trained since the worker came back. Its steps
// and tokens are those of its whole life, and the coordinator is told each once.
TEST(a_life_that_outlived_its_worker_is_counted_whole)
{
    play_begin(13, 2);
    uint64_t built_in = wk_all_tokens(play->l->worker);
    play_cuts(300);
    double speed = play->l->worker->tokens_per_s;
    assert_true(speed > 0);
    life_kill(play->l);
    rig_boot_worker(play->l->rig, 1);
    life_run(play->l, 700 * LH_MS); // the trainer goes on
    play_start_worker();
    play_until(WK_BESIDE_THERE);
    life_run(play->l, 1500 * LH_MS);
    play->b->idle = true; // its boundaries are no steps from here on
    life_run(play->l, LH_SECOND);
    assert_true(play->b->step > play->b->trained + 10);
    assert_int_equal(steps_told(), play->b->trained);
    assert_int_equal(play->l->worker->count.tokens, play->b->tokens);
    double since = play->l->worker->tokens_per_s;
    // If the life before counted, it would be many times as much. A loop that got its units late is
    // slower than one that has them.
    if (!(since > 0 && since < 2 * speed)) fail_msg("%g tokens/s, then %g", speed, since);
    life_rest(play->l);
    assert_int_equal(wk_all_tokens(play->l->worker), built_in + play->b->tokens);
    play_check();
    play_end();
}

// Boundaries that a loop passes after its end, or while it waits, are no steps. Steps of a dead
// life stay counted.
TEST(steps_are_those_that_trained)
{
    play_begin(16, 2);
    play_cuts(5);
    beside_kill(play->b);
    play_until(WK_BESIDE_AWAY);
    beside_start(play->b);
    const struct wk_idle *idle = &play->l->worker->idle;
    while (!idle->stepped || idle->lives < 2) life_run(play->l, LH_MS);
    assert_true(idle->step_s.mean > 0);
    play->b->stops_at = play->b->step + 7;
    for (int i = 0; i < 20000 && !play->l->worker->beside.over; i++) life_run(play->l, LH_MS);
    uint64_t passed = wk_external_step(play->l->worker->external);
    life_run(play->l, 20 * LH_SECOND);
    assert_true(wk_external_step(play->l->worker->external) > passed + 20);
    assert_int_equal(steps_told(), play->b->trained);
    play_end();
}

// A round has H trained steps, however long a step takes, even when nothing is left to lease and
// the loop asks for more while it trains what it has.
TEST(a_slow_loop_pushes_as_often_as_a_fast_one)
{
    static const uint64_t step_ms[] = {50, 500, 5000};
    enum { H = 8, STEPS = 40 * H };
    for (size_t i = 0; i < LH_COUNT(step_ms); i++) {
        play_begin(17, 2);
        struct ps_coordinator *c = play->l->rig->coordinator;
        c->conf.h_base = H;
        play->b->reads_ahead = true;
        play->b->conf.ahead = 1000; // the loop holds all leased units
        for (int k = 0; k < 60000 && play->l->worker->local_steps != H; k++)
            life_run(play->l, LH_MS);
        assert_int_equal(play->l->worker->local_steps, H);
        life_run(play->l, 3 * LH_SECOND);
        c->frozen = true;
        for (int k = 0; k < 60000 && !play->l->worker->leased_out; k++) life_run(play->l, LH_MS);
        assert_true(play->l->worker->leased_out);
        play_cuts(4);
        play->b->step_ms = step_ms[i];
        uint64_t trained = play->b->trained, rounds = play->l->worker->count.rounds;
        uint64_t bytes = play->l->worker->count.payload_up;
        for (int k = 0; k < 6000000 && play->b->trained < trained + STEPS; k++)
            life_run(play->l, LH_MS);
        double made = (double)(play->b->trained - trained) / H;
        rounds = play->l->worker->count.rounds - rounds;
        bytes = play->l->worker->count.payload_up - bytes;
        print_message("steps of %u ms: %.1f rounds of H, %u pushed, %u bytes\n",
                      (unsigned)step_ms[i], made, (unsigned)rounds, (unsigned)bytes);
        assert_true(made > 39 && (double)rounds > 0.9 * made && (double)rounds < 1.1 * made);
        play_end();
    }
}

// A loop that waits may pass boundaries rarely, at most one between two looks of the worker.
TEST(a_loop_that_waits_slowly_is_seen_to_wait)
{
    play_begin(18, 2);
    play_cuts(2);
    const struct wk_beside *b = &play->l->worker->beside;
    struct ps_coordinator *c = play->l->rig->coordinator;
    play->b->step_ms = 300;
    c->conf.budget_tokens = c->stock.committed_tokens; // no more units for it
    for (int k = 0; k < 600 && !b->starves; k++) life_run(play->l, 100 * LH_MS);
    assert_true(b->starves);
    play_end();
}

// The model has as many values as the run's, but another number of parameters, another order, name
// or shape.
TEST(a_loop_with_another_model_is_refused)
{
    static const char *const names[][2] = {
        {"a.weight"}, {"b.weight", "a.weight"}, {"a.weight", "b.bias"}, {"a.weight", "b.weight"}};
    static const uint64_t shapes[][2][5] = {{{80}}, {{40}, {40}}, {{40}, {40}}, {{40}, {5, 8}}};
    play_begin(19, 2);
    struct beside *b = play->b;
    const struct lh_manifest *own = b->manifest;
    assert_true(own->tensors == 2 && own->values == 80);
    play_cuts(1);
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        struct lh_manifest other;
        assert_int_equal(lh_manifest_build(&other, i ? 2 : 1, names[i], shapes[i], 1, NULL), LH_OK);
        beside_kill(b);
        play_until(WK_BESIDE_AWAY);
        b->manifest = &other;
        b->refusals = 0;
        beside_start(b);
        life_run(play->l, LH_SECOND);
        assert_true(b->refusals > 0 && play_state() == WK_BESIDE_AWAY);
        beside_kill(b);
        b->manifest = own;
        lh_manifest_free(&other);
        beside_start(b);
        play_until(WK_BESIDE_THERE);
    }
    play_cuts(2);
    play_check();
    play_end();
}

// The worker dies at the n-th file operation from now; all file operations of a cut are among them.
TEST(the_worker_dies_at_every_step_of_a_commit)
{
    play_begin(5, 2);
    uint32_t died = 0;
    for (int n = 0; n < POINTS; n++) {
        struct lh_env *env = play->l->rig->w[1].env;
        play_cuts(1);
        lh_fake_crash_at(env, n, false);
        for (int i = 0; i < 3000 && lh_fake_alive(env); i++) life_run(play->l, LH_MS);
        died += !lh_fake_alive(env);
        life_kill(play->l);
        rig_boot_worker(play->l->rig, 1);
        play_start_worker();
        play_until(WK_BESIDE_THERE);
    }
    assert_int_equal(died, POINTS);
    play_cuts(4);
    play_check();
    assert_int_equal(play->b->lives, 1);
    play_end();
}

TEST(both_die)
{
    play_begin(6, 2);
    for (int k = 0; k < POINTS; k++) {
        play_cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        if (k % 2) beside_kill(play->b);
        life_kill(play->l);
        if (k % 2 == 0) beside_kill(play->b);
        rig_boot_worker(play->l->rig, 1);
        if (k % 3) beside_start(play->b); // before the worker is there, or after
        play_start_worker();
        if (k % 3 == 0) beside_start(play->b);
        play_until(WK_BESIDE_THERE);
    }
    play_cuts(4);
    play_check();
    play_end();
}

// When the worker looks, both parts' cuts are complete, and the earlier one was completed last. The
// worker claims no unit and keeps no position that only the later cut holds.
TEST(the_worker_looks_late)
{
    play_begin(12, 2);
    play->b->late_ms = 3 * STEP_MS;
    for (int k = 0; k < 2 * POINTS; k++) {
        play_cuts(1);
        life_run(play->l, k * STEP_MS * LH_MS / 8);
        if (k % 2) {
            life_kill(play->l);
            rig_boot_worker(play->l->rig, 1);
            play_start_worker();
        } else {
            beside_kill(play->b);
            play_until(WK_BESIDE_AWAY);
            beside_start(play->b);
        }
        play_until(WK_BESIDE_THERE);
    }
    play_cuts(4);
    play_check();
    play_end();
}
