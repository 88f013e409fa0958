// Pushes sent by hand: a late copy of a push, decided in one group with the push after it; frames
// that differ from their announcement.
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "tests/cores/rig.h"

enum { SEEDS = 20, PLAIN = 16, VALUES = 20000 };

struct push {
    struct rig_call call;
    struct lh_frame head;
    struct lh_blob *frame;
    bool answered;
    uint64_t step; // from the answer
};

static void make_frame(struct rig *r, struct push *p, uint64_t number, uint64_t step)
{
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES);
    // Unseals, but is no payload: the push is refused, and that is a decision too
    const uint8_t plain[PLAIN] = {0};
    *p = (struct push){.head = {.cipher = LH_CIPHER_XCHACHA20,
                                .key_id = 1,
                                .worker = lh_worker_id(&r->w[0].self),
                                .incarnation = {number, number + 7},
                                .step = step,
                                .tokens = 1,
                                .steps = 1,
                                .values = 1,
                                .plain_bytes = PLAIN,
                                .density = 0.1f,
                                .manifest = r->manifest.hash}};
    struct lh_frame *f = &p->head;
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    memcpy(f->job, r->server->conf.job, LH_JOB_BYTES);
    lh_random(r->w[0].env, f->nonce, LH_SEAL_NONCE_BYTES);
    lh_frame_write_head(f, &head);
    p->frame = lh_blob_new(lh_frame_bytes(f));
    assert_true(p->frame && !head.err);
    memcpy(p->frame->data, head.data, head.len);
    assert_int_equal(lh_seal(r->keys, LH_CIPHER_XCHACHA20, 1, &context, lh_buf_span(&head),
                             f->nonce, lh_span(plain, PLAIN), p->frame->data + head.len),
                     LH_OK);
    lh_buf_free(&head);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct push *p = self;
    ProtobufCMessage *m;
    assert_int_equal(pb_parse(msg, &longhaul__v1__push_reply__descriptor, &m), LH_OK);
    p->answered = true;
    p->step = ((Longhaul__V1__PushReply *)m)->step;
    rig_free_message(m);
    lh_call_read(call);
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)self;
    lh_call_finish(call, LH_OK, NULL);
}

static const struct lh_call_ops push_ops = {on_message, rig_on_nothing, on_sent, rig_on_close};

static void announce(struct rig *r, struct push *p, struct lh_digest digest)
{
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    p->answered = false;
    head.worker = p->head.worker;
    head.process = r->server->process;
    head.frame_bytes = p->frame->len;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, digest.b};
    rig_call_open(r, 0, LH_RPC_PUSH, &push_ops, &p->call);
    lh_call_read(p->call.call);
    assert_int_equal(pb_send_bulk(p->call.call, &head.base, p->frame, 0, p->frame->len), LH_OK);
}

static void send(struct rig *r, struct push *p)
{
    announce(r, p, lh_frame_digest(lh_blob_span(p->frame), &p->head));
}

// Starts a run with worker 0 in it.
static void begin(struct rig *r, uint64_t number)
{
    rig_serve(r, 0);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    for (int i = 0; i < 100 && r->server->shard[0]->head->plan.phase != LH_PHASE_RUN; i++)
        rig_run(r, 100 * LH_MS);
    assert_int_equal(r->server->shard[0]->head->plan.phase, LH_PHASE_RUN);
    rig_hello(r, 0, number, 0, 1);
}

// Both pushes arrive while a greeting of worker 1 is committed, so they form the next group.
// Returns false if they did not.
static bool in_one_group(struct rig *r, struct push *late, struct push *next)
{
    rig_greet(r, 1, UINT64_C(5) << 32, 0, 1);
    for (int i = 0; i < 1000 && !r->server->committing; i++) rig_run(r, 1000);
    send(r, late);
    send(r, next);
    rig_call_wait(r, &late->call);
    rig_call_wait(r, &next->call);
    assert_int_equal(r->fatal_count, 0);
    assert_true(next->answered);
    if (late->answered) { // the late copy met a group of its own, and got the earlier decision
        assert_int_equal(late->step, late->head.step);
        return false;
    }
    assert_int_equal(late->call.status, LH_ERR_PROTOCOL);
    return true;
}

static bool a_late_copy(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    const uint64_t number = UINT64_C(1) << 32;
    struct push first, second;
    begin(r, number);
    make_frame(r, &first, number, 1);
    make_frame(r, &second, number, 2);
    send(r, &first);
    rig_call_wait(r, &first.call);
    assert_true(first.answered);
    bool met = in_one_group(r, &first, &second);
    lh_blob_release(first.frame);
    lh_blob_release(second.frame);
    rig_free(r);
    return met;
}

TEST(a_late_copy_beside_the_step_after_it_is_turned_down)
{
    unsigned met = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) met += a_late_copy(seed);
    assert_true(met > 0);
}

// Announces `digest` with push `p`; returns how the call ended, and checks its text for
// `why`.
static lh_err ends_with(struct rig *r, struct push *p, struct lh_digest digest, const char *why)
{
    announce(r, p, digest);
    rig_call_wait(r, &p->call);
    assert_false(p->answered);
    assert_non_null(strstr(p->call.text, why));
    assert_int_equal(r->server->shard[0]->replica.ledger.refused, 0); // nothing was decided
    return p->call.status;
}

TEST(a_frame_that_is_not_what_was_announced_is_turned_down)
{
    struct rig *r = rig_new(1);
    const uint64_t number = UINT64_C(1) << 32;
    struct push p, other;
    begin(r, number);
    make_frame(r, &p, number, 1);
    make_frame(r, &other, number, 2);
    struct lh_digest digest = lh_frame_digest(lh_blob_span(other.frame), &other.head);
    assert_int_equal(ends_with(r, &p, digest, "announced"), LH_ERR_MALFORMED);
    p.frame->data[40] ^= 1; // the frame's worker; the announcement still names the sender
    p.head.worker ^= 1;
    digest = lh_frame_digest(lh_blob_span(p.frame), &p.head);
    p.head.worker ^= 1;
    assert_int_equal(ends_with(r, &p, digest, "another worker"), LH_ERR_DENIED);
    p.frame->data[40] ^= 1;
    send(r, &p); // the session goes on
    rig_call_wait(r, &p.call);
    assert_true(p.answered);
    lh_blob_release(p.frame);
    lh_blob_release(other.frame);
    rig_free(r);
}

static struct {
    const struct lh_env_ops *real;
    const struct ps_server *server;
    unsigned early;    // writes of a frame before its group's commit
    unsigned unsealed; // unseal jobs that the compute lane got
    uint64_t read;     // bytes read from files
} watch;

static lh_err watched_write(struct lh_file *file, uint64_t at, struct lh_span bytes)
{
    const struct ps_server *s = watch.server;
    watch.early += s->ahead && !s->committing && bytes.data == s->ahead->data;
    return watch.real->files->write(file, at, bytes);
}

static void watched_work(struct lh_env *env, enum lh_lane lane, lh_job run, lh_fn done, void *arg)
{
    watch.unsealed += lane == LH_LANE_COMPUTE && watch.server->unsealing == arg;
    watch.real->work(env, lane, run, done, arg);
}

// The server's loop answers others while a large frame is unsealed.
TEST(a_push_is_unsealed_beside_the_loop)
{
    struct rig *r = rig_new(1);
    const uint64_t number = UINT64_C(1) << 32;
    struct push p;
    begin(r, number);
    watch.real = r->s.env->ops;
    watch.server = r->server;
    watch.unsealed = 0;
    struct lh_env_ops ops = *watch.real;
    ops.work = watched_work;
    r->s.env->ops = &ops;
    for (uint64_t step = 1; step <= 3; step++) {
        make_frame(r, &p, number, step);
        send(r, &p);
        rig_call_wait(r, &p.call);
        assert_true(p.answered);
        assert_int_equal(watch.unsealed, step);
        lh_blob_release(p.frame);
    }
    r->s.env->ops = watch.real;
    rig_free(r);
}

TEST(a_push_that_finds_the_disk_full_is_to_come_again)
{
    struct rig *r = rig_new(1);
    const uint64_t number = UINT64_C(1) << 32;
    struct push p = {.answered = true};
    r->segment_bytes = 1024;
    begin(r, number);
    r->server->conf.checkpoint_every = 0;
    lh_fake_disk_limit(r->s.env, 1);
    uint64_t step = 0;
    while (p.answered && step < 50) { // until the segment is full
        if (step) lh_blob_release(p.frame);
        make_frame(r, &p, number, ++step);
        send(r, &p);
        rig_call_wait(r, &p.call);
    }
    assert_true(step > 1 && step < 50);
    assert_int_equal(p.call.status, LH_ERR_BUSY);
    assert_non_null(strstr(p.call.text, "disk is full"));
    lh_fake_disk_limit(r->s.env, 0);
    rig_run(r, 5 * LH_SECOND);
    send(r, &p);
    rig_call_wait(r, &p.call);
    assert_true(p.answered);
    assert_int_equal(p.step, step);
    lh_blob_release(p.frame);
    rig_free(r);
}

static lh_err watched_read(struct lh_file *file, uint64_t at, void *out, size_t n, size_t *got)
{
    watch.read += n;
    return watch.real->files->read(file, at, out, n, got);
}

struct reader {
    struct rig_call call; // must be first
    uint64_t bytes;
};

static void on_record(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    ((struct reader *)self)->bytes += msg->len;
    rig_on_message(self, call, msg);
}

static void follow(struct rig *r, struct reader *reader)
{
    static const struct lh_call_ops ops = {on_record, rig_on_nothing, rig_on_nothing, rig_on_close};
    struct lh_hash chain = {{0}};
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__Point from = lh_head_point(0, 1, 0, &chain);
    m.from = &from;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    rig_call_open(r, 0, LH_RPC_FOLLOW, &ops, &reader->call);
    assert_int_equal(pb_send(reader->call.call, &m.base), LH_OK);
    lh_call_read(reader->call.call);
}

// A follower at the log's end gets each push from memory; only the record's beginning is read from
// the log.
TEST(a_just_committed_push_is_sent_from_memory)
{
    struct rig *r = rig_new(1);
    struct rig_life l = {0};
    struct reader reader = {.bytes = 0};
    rig_enlarge(r, VALUES);
    rig_serve(r, 0);
    r->server->conf.checkpoint_every = 0;
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    conf.codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 0.25f};
    rig_life_start(&l, &conf);
    for (int i = 0; i < 60000 && !r->server->count.admitted; i++) rig_run(r, LH_MS);
    follow(r, &reader);
    rig_run(r, 100 * LH_MS);
    watch.real = r->s.env->ops;
    watch.read = 0;
    struct lh_files_ops files = *watch.real->files;
    struct lh_env_ops ops = *watch.real;
    files.read = watched_read;
    ops.files = &files;
    r->s.env->ops = &ops;
    uint64_t before = reader.bytes, admitted = r->server->count.admitted;
    for (int i = 0; i < 60000 && r->server->count.admitted < admitted + 5; i++) rig_run(r, LH_MS);
    rig_run(r, 100 * LH_MS);
    admitted = r->server->count.admitted - admitted;
    assert_true(admitted >= 5 && !reader.call.over);
    assert_true(reader.bytes - before > admitted * VALUES);
    // This includes the reads for the worker's own stream
    assert_true(watch.read < admitted * VALUES / 2);
    r->s.env->ops = watch.real;
    lh_call_cancel(reader.call.call);
    rig_life_end(r, &l, false);
    rig_free(r);
}

// How often a push is written ahead if ahead_bytes_min is its frame's size plus `more`.
static unsigned written_ahead(int64_t more)
{
    struct rig *r = rig_new(1);
    const uint64_t number = UINT64_C(1) << 32;
    struct push p;
    begin(r, number);
    make_frame(r, &p, number, 1);
    watch.real = r->s.env->ops;
    watch.server = r->server;
    watch.early = 0;
    struct lh_files_ops files = *watch.real->files;
    struct lh_env_ops ops = *watch.real;
    files.write = watched_write;
    ops.files = &files;
    r->s.env->ops = &ops;
    r->server->conf.ahead_bytes_min = (uint64_t)((int64_t)p.frame->len + more);
    send(r, &p);
    rig_call_wait(r, &p.call);
    assert_true(p.answered);
    r->s.env->ops = watch.real;
    lh_blob_release(p.frame);
    rig_free(r);
    return watch.early;
}

// The disk writes the frame while it is unsealed, so that the commit need not.
TEST(a_large_frame_is_written_before_its_commit)
{
    assert_int_equal(written_ahead(-1), 1);
    assert_int_equal(written_ahead(0), 1);
    assert_int_equal(written_ahead(1), 0);
}
