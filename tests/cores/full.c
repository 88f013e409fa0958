// A worker whose disk is full: a commit that fails changes nothing, in memory or after a kill. The
// worker logs it once, goes on training, and commits when there is room
// (server/docs/0000-protocol.md#rule-26).
#include <stdlib.h>
#include <string.h>

#include "tests/cores/life.h"
#include "longhaul/v1/member.pb-c.h"
#include "worker/disk_full.h"
#include "worker/push/outcome.h"

enum { OPERATIONS = 24, CRASHES = 16 }; // more file operations than a commit, a first cut

// Runs a test with one shard and with two; it looks at the last shard.
static void with_shards(void (*f)(uint32_t shards))
{
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) f(shards);
}

struct memory { // a shard's state that a commit changes
    struct wk_slot slot;
    struct wk_claim claim[WK_CLAIMS_HELD_MAX];
    float residual[LIFE_VALUES];
    size_t entries;
};

static void look(const struct wk_shard *s, struct memory *m)
{
    memset(m, 0, sizeof *m);
    m->slot = *s->slot.committed;
    memcpy(m->claim, s->slot.committed->claim, s->slot.committed->claim_count * sizeof *m->claim);
    memcpy(m->residual, s->slot.residual, s->layout->values * sizeof *m->residual);
    m->entries = s->outbox.entries;
}

static bool same(const struct wk_shard *s, const struct memory *before)
{
    struct memory now;
    look(s, &now);
    now.slot.claim = before->slot.claim;
    now.slot.position = before->slot.position;
    return memcmp(&now, before, sizeof now) == 0;
}

// ---------------------------------------------------------------- a refused push

static struct wk_shard *last_shard(const struct life *l)
{
    return &l->worker->shard[l->worker->shards - 1];
}

static bool is_cutting(const struct life *l)
{
    bool is = false;
    for (uint32_t k = 0; k < l->worker->shards; k++) is |= l->worker->shard[k].cut != NULL;
    return is;
}

// Leaves a push of the last shard undecided. The push has claims.
static struct wk_entry *leave_undecided(struct life *l)
{
    struct wk_shard *s = last_shard(l);
    struct wk_entry *e;
    life_rest(l);
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 20000 && (!(e = wk_outbox_undecided(&s->outbox)) || is_cutting(l)); i++)
        life_run(l, LH_MS);
    assert_true(e && !is_cutting(l));
    return e;
}

// Each file operation of the push's return in turn finds no room.
static void refused_many_times(uint32_t shards)
{
    struct life *l = life_begin(1, shards);
    struct wk_entry *e = leave_undecided(l);
    struct wk_shard *s = last_shard(l);
    struct memory before;
    uint64_t step = e->head.step, tokens = e->head.tokens;
    lh_err err = LH_ERR_DISK_FULL;
    unsigned tries = 0;
    look(s, &before);
    for (int n = 0; err && n < OPERATIONS; n++, tries++) {
        lh_fake_fail_at(l->rig->w[1].env, n, LH_ERR_DISK_FULL);
        err = wk_entry_decided(s, wk_outbox_undecided(&s->outbox), false);
        bool back = s->slot.committed->decided == step;
        if (err) assert_int_equal(err, LH_ERR_DISK_FULL);
        if (err) assert_int_equal(l->refused, 0);
        if (!back) assert_true(same(s, &before));
    }
    lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
    assert_int_equal(err, LH_OK);
    assert_true(tries > 4);
    assert_int_equal(s->slot.committed->decided, step);
    assert_int_equal(s->slot.committed->tokens, before.slot.tokens + tokens);
    assert_int_equal(s->outbox.entries, before.entries - 1);
    assert_int_equal(l->worker->count.returned, 1);
    assert_int_equal(l->refused, 1);
    if (shards == 1) life_mass(l); // a second shard's push is still undecided
    life_end(l);
}

TEST(a_refused_push_comes_back_once_however_often_there_is_no_room)
{
    with_shards(refused_many_times);
}

// The worker is killed after such a failure: the next process finds the push where it was, or
// returned.
static void refused_and_killed(uint32_t shards)
{
    unsigned kept = 0, back = 0;
    for (int n = 0; n < OPERATIONS; n++) {
        struct life *l = life_begin(2, shards);
        struct wk_entry *e = leave_undecided(l);
        struct wk_shard *s = last_shard(l);
        uint64_t step = e->head.step;
        uint32_t claims = e->head.claims;
        float *after = calloc(s->layout->values, sizeof *after);
        struct memory before;
        assert_non_null(after);
        look(s, &before);
        lh_fake_fail_at(l->rig->w[1].env, n, LH_ERR_DISK_FULL);
        lh_err err = wk_entry_decided(s, e, false);
        lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
        memcpy(after, s->slot.residual, s->layout->values * sizeof *after);
        bool returned = s->slot.committed->decided == step;
        if (!err) assert_true(returned);
        life_kill(l);
        life_start(l);
        s = last_shard(l);
        assert_int_equal(s->slot.committed->decided == step, returned);
        assert_int_equal(wk_outbox_undecided(&s->outbox) != NULL, !returned);
        assert_memory_equal(s->slot.residual, after, s->layout->values * sizeof *after);
        assert_int_equal(s->slot.committed->claim_count,
                         before.slot.claim_count + (returned ? claims : 0));
        kept += !returned;
        back += returned;
        free(after);
        life_end(l);
    }
    assert_true(kept > 2 && back > 2);
}

TEST(killed_in_between_it_is_returned_or_not)
{
    with_shards(refused_and_killed);
}

// The whole way: the server's answer, greetings, the ledger row that repeats the refusal.
static struct {
    struct wk_entry entry; // the head and digest of the push that was refused
    unsigned answers;
} refusal;

static void refuse(void *self, struct lh_call *call)
{
    struct life *l = self;
    struct wk_shard *s = last_shard(l);
    Longhaul__V1__PushReply m = LONGHAUL__V1__PUSH_REPLY__INIT;
    const struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    assert_non_null(e);
    refusal.entry = *e;
    refusal.answers++;
    m.process = l->rig->server->process;
    m.incarnation = e->head.incarnation.number;
    m.step = e->head.step;
    m.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, refusal.entry.digest.b};
    life_full(l, true);
    assert_int_equal(pb_send(call, &m.base), LH_OK);
    lh_call_finish(call, LH_OK, NULL);
}

static void greet(void *self, struct lh_request *rq, const void *message)
{
    struct life *l = self;
    const struct lh_hello_request *m = message;
    const struct lh_ledger *ledger = &l->rig->server->shard[m->shard]->replica.ledger;
    const struct wk_entry *e = &refusal.entry;
    struct lh_hello_reply out = {.wire = lh_versions_ours()};
    out.process = l->rig->server->process;
    out.incarnation = m->incarnation;
    out.last_incarnation = m->incarnation.number;
    out.last_step = e->head.step;
    out.last_digest = e->digest;
    out.epoch = ledger->epoch;
    out.version = ledger->version + 1;
    out.session = true;
    refusal.answers++;
    lh_answer(rq, LH_MESSAGE(hello_reply, &out));
}

static const struct lh_call_ops refuser = {rig_on_message, refuse, rig_on_nothing, rig_on_gone};

static bool refuse_one(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                       const struct lh_call_ops **ops, void **self)
{
    struct wk_shard *s = last_shard(l);
    const struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    if (rpc == LH_RPC_HELLO && refusal.answers)
        return !lh_request_take(call, &l->rig->w[1].self, &lh_wire_hello_request, greet, l, ops,
                                self);
    if (rpc != LH_RPC_PUSH || refusal.answers || !e || s->session.sender.call == NULL) return false;
    if (s->session.sender.entry != e || !e->head.claims) return false;
    *ops = &refuser;
    *self = l;
    lh_call_read(call);
    return true;
}

static void refused_by_its_server(uint32_t shards)
{
    struct life *l = life_begin(3, shards);
    struct wk_shard *s = last_shard(l);
    memset(&refusal, 0, sizeof refusal);
    l->on_call = refuse_one;
    for (int i = 0; i < 60000 && !refusal.answers; i++) life_run(l, LH_MS);
    assert_int_equal(refusal.answers, 1);
    uint64_t step = refusal.entry.head.step, steps = l->worker->count.steps;
    struct memory before;
    look(s, &before);
    life_run(l, 10 * LH_SECOND);                              // no room
    assert_true(refusal.answers > 3 && refusal.answers < 50); // not too often
    before.entries = s->outbox.entries;                       // others may have been trimmed
    assert_true(same(s, &before));
    assert_ptr_equal(wk_outbox_undecided(&s->outbox),
                     wk_outbox_find(&s->outbox, l->worker->incarnation.number, step));
    assert_true(l->worker->count.steps > steps + 50);
    assert_int_equal(life_said(l, "outbox.disk_full"), 1);
    assert_int_equal(l->refused, 0);
    life_full(l, false);
    life_run(l, 3 * LH_SECOND);
    assert_int_equal(s->slot.committed->decided, step);
    assert_int_equal(l->worker->count.returned, 1);
    assert_int_equal(l->refused, 1);
    assert_null(wk_outbox_undecided(&s->outbox));
    if (shards == 1) life_mass(l);
    life_end(l);
}

TEST(a_server_that_refuses_is_asked_again_until_there_is_room)
{
    with_shards(refused_by_its_server);
}

// How long the worker says that a shard has waited for a push to be admitted. Whatever keeps it
// from pushing, the coordinator judges it by this time alone
// (server/docs/0000-protocol.md#rule-30).
static int64_t waits_s(const struct life *l)
{
    struct lh_progress p;
    wk_idle_tell(l->worker, &p);
    return (int64_t)(p.waits_ms / 1000);
}

// ---------------------------------------------------------------- a disk that hangs

TEST(one_that_hangs_is_told_and_training_goes_on)
{
    struct life *l = life_begin(5, 1);
    uint64_t steps = l->worker->count.steps;
    life_rest(l);
    lh_fake_hang(l->rig->w[1].env, 60 * LH_SECOND);
    for (int i = 0; i < 6000 && life_said(l, "disk.slow") < 3; i++) {
        life_run(l, 10 * LH_MS);
        const struct lh_slow *slow = &l->worker->shard[0].disk.slow; // from its first moment on
        assert_true(wk_disk_slow_age_s(l->worker) == lh_slow_age_s(slow, lh_now(l->rig->w[1].env)));
    }
    assert_int_equal(life_said(l, "disk.slow"), 3); // logged at 2, 4 and 8 s
    assert_int_equal(life_said(l, "disk.again"), 0);
    assert_true(wk_disk_slow_age_s(l->worker) >= 8);
    assert_true(waits_s(l) >= 7);
    assert_true(l->worker->count.steps > steps + 50);
    for (int i = 0; i < 9000 && !life_said(l, "disk.again"); i++) life_run(l, 10 * LH_MS);
    assert_int_equal(life_said(l, "disk.again"), 1);
    life_cut(l, 3);
    life_rest(l);
    assert_true(wk_disk_slow_age_s(l->worker) == 0);
    life_mass(l);
    assert_int_equal(l->worker->count.returned + l->worker->count.lost, 0);
    life_end(l);
}

// ---------------------------------------------------------------- a cut

static void nothing_for_a_while(uint32_t shards)
{
    struct life *l = life_begin(4, shards);
    uint64_t cuts[RIG_SHARDS];
    life_rest(l);
    life_full(l, true);
    for (uint32_t k = 0; k < shards; k++) cuts[k] = l->worker->shard[k].progress.cut_count;
    uint64_t steps = l->worker->count.steps;
    life_run(l, 20 * LH_SECOND);
    assert_true(waits_s(l) >= 15);
    for (uint32_t k = 0; k < shards; k++)
        assert_int_equal(l->worker->shard[k].progress.cut_count, cuts[k]);
    assert_true(l->worker->count.steps > steps + 200);
    assert_int_equal(life_said(l, "outbox.disk_full"), 1);
    assert_int_equal(life_said(l, "outbox.room"), 0);
    assert_true(life_tries(l) > 10 && life_tries(l) < 60 * shards); // not too often
    life_full(l, false);
    life_cut(l, 5);
    assert_int_equal(life_said(l, "outbox.disk_full"), 1);
    assert_int_equal(life_said(l, "outbox.room"), 1);
    life_rest(l);
    life_mass(l);
    assert_int_equal(l->worker->count.returned + l->worker->count.lost, 0);
    life_end(l);
}

TEST(training_goes_on_and_the_push_is_made_when_there_is_room)
{
    with_shards(nothing_for_a_while);
}

// Each file operation of a cut finds no room; then the worker goes on, or is killed there and
// restarted.
static void any_operation_of_a_cut(uint32_t shards)
{
    for (int n = 0; n < 2 * OPERATIONS; n++) {
        struct life *l = life_begin(5, shards);
        life_rest(l);
        lh_fake_fail_at(l->rig->w[1].env, n / 2, LH_ERR_DISK_FULL);
        for (int i = 0; i < 10000 && !lh_fake_failed(l->rig->w[1].env); i++) life_run(l, LH_MS);
        assert_true(lh_fake_failed(l->rig->w[1].env));
        for (int i = 0; i < 20000 && is_cutting(l); i++) life_run(l, LH_MS);
        for (uint32_t k = 0; k < shards; k++) assert_false(l->worker->shard[k].slot.moved);
        if (n % 2) {
            life_kill(l);
            life_start(l);
        }
        life_cut(l, 3);
        life_rest(l);
        life_mass(l);
        assert_int_equal(l->lost + l->worker->count.returned, 0);
        life_end(l);
    }
}

TEST(a_cut_that_found_no_room_leaves_nothing_behind)
{
    with_shards(any_operation_of_a_cut);
}

// ---------------------------------------------------------------- an incarnation

// True: the raise had fewer operations.
static bool raise(struct life *l, int n, bool *raised)
{
    struct wk_worker *w = l->worker;
    struct lh_incarnation was = w->incarnation;
    struct memory before[RIG_SHARDS];
    for (uint32_t k = 0; k < w->shards; k++) look(&w->shard[k], &before[k]);
    lh_fake_fail_at(l->rig->w[1].env, n, LH_ERR_DISK_FULL);
    lh_err err = wk_bump(w, 0);
    bool reached = lh_fake_failed(l->rig->w[1].env);
    lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
    *raised = !err;
    if (err) assert_int_equal(err, LH_ERR_DISK_FULL);
    if (err) assert_true(lh_incarnation_equal(w->incarnation, was));
    for (uint32_t k = 0; err && k < w->shards; k++) assert_true(same(&w->shard[k], &before[k]));
    if (!err) assert_int_equal(w->incarnation.number, was.number + 1);
    for (uint32_t k = 0; !err && k < w->shards; k++) {
        assert_int_equal(w->shard[k].slot.committed->next, 1);
        assert_int_equal(w->shard[k].slot.committed->decided, 0);
        assert_true(lh_incarnation_equal(w->shard[k].slot.committed->incarnation, w->incarnation));
    }
    return !reached;
}

// The number is in force once it is durable, for all shards, even where their slots find no room.
// Wherever the worker dies in the first cuts under it, no mass counts twice.
static void any_operation_of_a_raise(uint32_t shards)
{
    unsigned kept = 0, behind = 0;
    for (int n = 0, over = 0; n < OPERATIONS && !over; n++)
        for (int crash = -1; crash < CRASHES; crash++) {
            struct life *l = life_begin(6, shards);
            bool raised;
            life_rest(l);
            over = raise(l, n, &raised);
            if (!raised) crash = CRASHES; // nothing changed: one life is enough
            kept += !raised;
            behind += raised && !over;
            if (raised && crash >= 0) {
                lh_fake_crash_at(l->rig->w[1].env, crash, false);
                for (int i = 0; i < 10000 && lh_fake_alive(l->rig->w[1].env); i++)
                    life_run(l, LH_MS);
                assert_false(lh_fake_alive(l->rig->w[1].env));
            }
            life_kill(l);
            life_start(l);
            life_cut(l, 3);
            life_rest(l);
            life_mass(l);
            assert_int_equal(l->lost, 0);
            life_end(l);
        }
    assert_true(kept && behind);
}

TEST(an_incarnation_that_was_not_stored_is_not_in_force)
{
    with_shards(any_operation_of_a_raise);
}

// A join is granted a number that can't be stored, and asks again.
static void joins_on_a_full_disk(uint32_t shards)
{
    unsigned waited = 0;
    for (int n = 0, over = 0; n < OPERATIONS && !over; n++) {
        struct life *l = life_begin(7, shards);
        life_kill(l);
        lh_fake_disk_wipe(l->rig->w[1].env);
        life_start(l);
        assert_int_equal(l->worker->incarnation.number, 0);
        lh_fake_fail_at(l->rig->w[1].env, n, LH_ERR_DISK_FULL);
        for (int i = 0; i < 10000 && l->worker->fresh; i++) {
            life_run(l, LH_MS);
            if (l->worker->fresh) assert_int_equal(l->worker->incarnation.number, 0);
        }
        assert_false(l->worker->fresh);
        over = !life_said(l, "outbox.disk_full"); // it had joined before
        waited += !over;
        assert_int_equal(l->worker->incarnation.number >> 32, 2); // one more number, no more
        lh_fake_fail_at(l->rig->w[1].env, -1, LH_OK);
        life_cut(l, 2);
        life_end(l);
    }
    assert_true(waited > 5 * shards);
}

TEST(a_join_that_finds_no_room_is_tried_again)
{
    with_shards(joins_on_a_full_disk);
}

// ---------------------------------------------------------------- the end of the run

TEST(an_undecided_push_at_the_end_waits_for_disk_space)
{
    struct life *l = life_begin(8, 1);
    leave_undecided(l);
    struct wk_shard *s = last_shard(l);
    s->ended = true; // its log has no END
    lh_fake_fail_at(l->rig->w[1].env, 0, LH_ERR_DISK_FULL);
    assert_int_equal(wk_settle_end(s), LH_OK);
    assert_non_null(wk_outbox_undecided(&s->outbox));
    life_run(l, 3 * LH_SECOND);
    assert_null(wk_outbox_undecided(&s->outbox));
    assert_int_equal(l->worker->count.returned, 1);
    life_mass(l);
    life_end(l);
}

static const struct lh_env_ops *fake;

static lh_err no_room_for_slots(struct lh_env *env, const char *path, unsigned flags,
                                struct lh_file **out)
{
    bool slot = flags & LH_OPEN_WRITE && strstr(path, "/slot-");
    if (slot) return lh_fail(LH_ERR_DISK_FULL, "%s: no space left", path);
    return fake->files->open(env, path, flags, out);
}

static lh_err nothing_goes(struct lh_env *env, const char *path)
{
    (void)env;
    return lh_fail(LH_ERR_IO, "%s: not removed", path);
}

static lh_err ended_with;

static void note_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg;
    (void)text;
    ended_with = err;
}

// A restart may or may not find the new push. A worker that went on could cut another push of the
// same step.
TEST(a_cut_that_can_be_neither_made_nor_undone_ends_the_worker)
{
    struct life *l = life_begin(51, 1);
    struct lh_env *env = l->rig->w[1].env;
    life_rest(l);
    uint64_t next = l->worker->shard[0].slot.committed->next;
    fake = env->ops;
    struct lh_files_ops files = *fake->files;
    struct lh_env_ops ops = *fake;
    files.open = no_room_for_slots;
    files.remove = nothing_goes;
    ops.files = &files;
    l->worker->conf.fatal = note_fatal;
    ended_with = LH_OK;
    env->ops = &ops;
    life_run(l, 5 * LH_SECOND);
    env->ops = fake;
    assert_int_equal(ended_with, LH_ERR_IO);
    assert_int_equal(l->worker->shard[0].slot.committed->next, next);
    life_end(l);
}
