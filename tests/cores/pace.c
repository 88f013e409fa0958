// One worker pushes without a pause, beside one whose rounds take a second.
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "kernels/codec.h"
#include "tests/cores/rig.h"

enum { HONEST = 0, FLOOD = 1, ROUNDS = 20, FLOOD_HZ = 200 };
static const uint64_t NUMBER = UINT64_C(1) << 32;

struct base {
    uint64_t version, epoch, others;
};

struct pusher {
    struct rig_call call;
    struct rig *rig;
    uint32_t w;
    struct lh_frame head;
    struct lh_blob *frame; // the last push sent
    uint64_t answered, admitted, busy;
    bool stops;
};

// ---------------------------------------------------------------- pushes by hand

static struct base base_now(const struct pusher *p)
{
    const struct lh_ledger *l = &p->rig->server->shard[0]->replica.ledger;
    return (struct base){l->version, l->epoch, lh_ledger_others(l, p->head.worker)};
}

// Encodes a payload of zeros.
static void encode(const struct rig *r, struct lh_frame *f, struct lh_buf *plain)
{
    const struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_FP32, 0.1f};
    const struct lh_shard_layout *layout = &r->manifest.shard[0];
    struct lk_payload_info info;
    float *e = test_calloc(layout->values, sizeof *e);
    assert_int_equal(lk_encode(&codec, layout, e, plain, &info), LH_OK);
    f->index_code = codec.index;
    f->value_code = codec.value;
    f->density = codec.density;
    f->values = info.values;
    f->plain_bytes = (uint32_t)plain->len;
    test_free(e);
}

static void make_frame(struct pusher *p, struct base base)
{
    struct rig *r = p->rig;
    struct lh_frame *f = &p->head;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES), plain = lh_buf(LH_MESSAGE_BYTES);
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    encode(r, f, &plain);
    f->step++;
    f->base_version = base.version;
    f->base_epoch = base.epoch;
    f->base_others = base.others;
    lh_random(r->w[p->w].env, f->nonce, LH_SEAL_NONCE_BYTES);
    lh_frame_write_head(f, &head);
    lh_blob_release(p->frame);
    p->frame = lh_blob_new(lh_frame_bytes(f));
    assert_true(p->frame && !head.err);
    memcpy(p->frame->data, head.data, head.len);
    assert_int_equal(lh_seal(r->keys, LH_CIPHER_XCHACHA20, 1, &context, lh_buf_span(&head),
                             f->nonce, lh_buf_span(&plain), p->frame->data + head.len),
                     LH_OK);
    lh_buf_free(&plain);
    lh_buf_free(&head);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct pusher *p = self;
    ProtobufCMessage *m;
    assert_int_equal(pb_parse(msg, &longhaul__v1__push_reply__descriptor, &m), LH_OK);
    p->answered++;
    p->admitted += (uint64_t)((Longhaul__V1__PushReply *)m)->admitted;
    rig_free_message(m);
    lh_call_read(call);
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)self;
    lh_call_finish(call, LH_OK, NULL);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct pusher *p = self;
    p->busy += status == LH_ERR_BUSY;
    assert_true(!status || status == LH_ERR_BUSY);
    rig_on_close(self, call, status, text);
}

static const struct lh_call_ops push_ops = {on_message, rig_on_nothing, on_sent, on_close};

static void send(struct pusher *p)
{
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    struct lh_digest digest = lh_frame_digest(lh_blob_span(p->frame), &p->head);
    head.worker = p->head.worker;
    head.process = p->rig->server->process;
    head.frame_bytes = p->frame->len;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, digest.b};
    rig_call_open(p->rig, p->w, LH_RPC_PUSH, &push_ops, &p->call);
    lh_call_read(p->call.call);
    assert_int_equal(pb_send_bulk(p->call.call, &head.base, p->frame, 0, p->frame->len), LH_OK);
}

// ---------------------------------------------------------------- tests

static void begin(struct rig *r, struct pusher *p, uint32_t w)
{
    *p = (struct pusher){.rig = r, .w = w};
    p->head = (struct lh_frame){.cipher = LH_CIPHER_XCHACHA20,
                                .key_id = 1,
                                .worker = lh_worker_id(&r->w[w].self),
                                .incarnation = {NUMBER, NUMBER + 7},
                                .tokens = 1,
                                .steps = 1,
                                .manifest = r->manifest.hash};
    memcpy(p->head.job, r->server->conf.job, LH_JOB_BYTES);
    rig_hello(r, w, NUMBER, 0, 1);
}

// Starts a run in which both workers are live, or only the first one.
static void begin_run(struct rig *r, uint32_t live)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct lh_plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    *plan = (struct lh_plan){.number = 1,
                             .phase = LH_PHASE_RUN,
                             .eta = 1,
                             .damping = 0.5f,
                             .staleness_per_live = 4,
                             .live = live};
    uint64_t a = lh_worker_id(&r->w[0].self), b = lh_worker_id(&r->w[1].self);
    plan->worker[0] = live == 1 || a < b ? a : b;
    plan->worker[1] = a < b ? b : a;
    r->server->shard[0]->plan = plan;
    ps_raise(r->server, PS_WISHED);
    for (int i = 0; i < 100 && r->server->shard[0]->head->plan.phase != LH_PHASE_RUN; i++)
        rig_run(r, 10 * LH_MS);
    assert_int_equal(r->server->shard[0]->head->plan.phase, LH_PHASE_RUN);
}

// Sends the next push, or the last one again if it was not decided.
static void flood(void *arg)
{
    struct pusher *p = arg;
    if (p->stops) return;
    if (p->call.over || !p->frame) {
        if (!p->frame || p->call.status == LH_OK) make_frame(p, base_now(p));
        p->call = (struct rig_call){0};
        send(p);
    }
    lh_fake_at(p->rig->world, LH_SECOND / FLOOD_HZ, flood, p);
}

// Sends a push whose base is a second old.
static void push_round(struct pusher *p)
{
    struct base base = base_now(p);
    rig_run(p->rig, LH_SECOND);
    make_frame(p, base);
    send(p);
    rig_call_wait(p->rig, &p->call);
}

RIG_TEST(a_flood_is_held_to_a_rate_and_keeps_nobody_out, struct rig *r)
{
    struct pusher *honest = test_calloc(1, sizeof *honest), *rogue = test_calloc(1, sizeof *rogue);
    begin_run(r, 2);
    begin(r, honest, HONEST);
    begin(r, rogue, FLOOD);
    lh_fake_at(r->world, LH_MS, flood, rogue);
    for (int i = 0; i < 5; i++) push_round(honest);
    uint64_t before = rogue->answered;
    int64_t start = lh_fake_now(r->world);
    for (int i = 0; i < ROUNDS; i++) push_round(honest);
    double s = (double)(lh_fake_now(r->world) - start) / (double)LH_SECOND;
    assert_int_equal(honest->admitted, ROUNDS + 5);
    assert_int_equal(honest->busy, 0);
    // At most eight times the other worker's rate, and a burst.
    double decided = (double)(rogue->answered - before);
    assert_true(decided >= 4 * s && decided <= 8.5 * s + PS_PACE_BURST);
    assert_true(rogue->busy > 0);
    assert_int_equal(r->fatal_count, 0);
    rogue->stops = true;
    rig_run(r, LH_SECOND);
    lh_blob_release(honest->frame);
    lh_blob_release(rogue->frame);
    test_free(honest);
    test_free(rogue);
}

// A worker that is the only live one is not held back.
RIG_TEST(one_that_pushes_alone_is_not_held_back, struct rig *r)
{
    struct pusher *only = test_calloc(1, sizeof *only);
    begin_run(r, 1);
    begin(r, only, HONEST);
    for (int i = 0; i < 200; i++) {
        make_frame(only, base_now(only));
        send(only);
        rig_call_wait(r, &only->call);
    }
    assert_int_equal(only->admitted, 200);
    assert_int_equal(only->busy, 0);
    lh_blob_release(only->frame);
    test_free(only);
}
