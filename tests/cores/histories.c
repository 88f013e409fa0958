// Older histories (server/docs/0000-protocol.md#rule-27): a worker ignores a server that answers
// for an epoch below the one it knows, or for less of that epoch. It takes nothing back, pushes
// nothing there, logs this once, and goes on with the server that has everything. A later epoch
// that lost history is another matter (#rule-6).
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/head.h"
#include "server/coordinator/owners/epochs.h"
#include "tests/cores/image.h"
#include "tests/cores/life.h"
#include "worker/push/history.h"
#include "worker/push/session.h"

enum answer { SERVED, IGNORED, RAISED };
enum { NONE = -1000 };

enum {
    NO_EPOCH = 1,
    NO_VERSION = 2,
    RESTARTED = 4, // the worker was: it knows only what its disk and the coordinator know
    STABLE = 8,    // the coordinator said that a later version is stable
    UNTOLD = 16,   // the coordinator is older than that field, and tells no versions
};

struct words { // a server's answer, relative to what the worker knows
    const char *what;
    int epoch, version; // added to the replica's or, of a restarted worker, to the server's log
    int row;            // added to the last decided step; 1: a step that was never made; NONE
    unsigned but;
    enum answer answer;
};

static const struct words words[] = {
    {"what is there", 0, 0, 0, 0, SERVED},
    {"what is there, without a version", 0, 0, 0, NO_VERSION, IGNORED},
    {"an older epoch that lacks pushes", -1, -4, -3, 0, IGNORED},
    {"an older epoch that lacks pushes, and went on", -1, 9, -3, 0, IGNORED},
    {"an older epoch that lacks none", -1, 9, 0, 0, IGNORED},
    {"an older epoch, without a version", -1, 0, -3, NO_VERSION, IGNORED},
    {"no epoch", 0, 0, 0, NO_EPOCH, IGNORED},
    {"no epoch, and it lacks pushes", 0, 0, -3, NO_EPOCH | NO_VERSION, IGNORED},
    {"this epoch with less in it", 0, -1, 0, 0, IGNORED},
    {"this epoch without pushes, and it went on", 0, 9, -3, 0, IGNORED},
    {"this epoch without a push or a version", 0, 0, -1, NO_VERSION, IGNORED},
    {"this epoch below its stable point", 0, 2, 0, STABLE, IGNORED},
    {"a later epoch that lacks none", 1, 1, 0, 0, SERVED},
    {"a later epoch that lacks pushes", 1, -3, -3, 0, RAISED},
    {"this epoch, one step ahead of what was sent", 0, 1, 1, 0, RAISED},
    {"what is there, to a new process", 0, 0, 0, RESTARTED, SERVED},
    {"an older epoch that lacks pushes, to a new process", -1, 9, -3, RESTARTED, IGNORED},
    {"this epoch with less in it, to a new process", 0, -1, 0, RESTARTED, IGNORED},
    {"this epoch without pushes, and it went on, to a new process", 0, 9, -3, RESTARTED, IGNORED},
    {"that, of which the coordinator says nothing", 0, 9, -3, RESTARTED | UNTOLD, IGNORED},
    {"this epoch without any, to a new process", 0, 0, NONE, NO_VERSION | RESTARTED, IGNORED},
    {"no epoch, to a new process", 0, 0, 0, NO_EPOCH | RESTARTED, IGNORED},
};

static struct {
    const struct words *words;  // NULL: the server answers itself
    unsigned greetings, pushes; // the last shard's
    struct lh_request *waiting[16];
    size_t waits;
} hand;

static struct wk_shard *shard(const struct life *l)
{
    return &l->worker->shard[l->worker->shards - 1];
}

static struct lh_digest digest_of(const struct life *l, const struct wk_shard *s, uint64_t step)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, l->worker->id);
    const struct wk_entry *e = wk_outbox_find(&s->outbox, l->worker->incarnation.number, step);
    assert_non_null(row);
    return e ? e->digest : row->last_digest;
}

// The answer is about the last shard; for the others it has everything.
static void greet(void *self, struct lh_request *rq, const void *message)
{
    static const struct words well = {.what = "what is there"};
    struct life *l = self;
    const struct lh_hello_request *m = message;
    const struct wk_shard *s = &l->worker->shard[m->shard];
    const struct words *w = s == shard(l) ? hand.words : &well;
    bool restarted = hand.words->but & RESTARTED;
    const struct lh_ledger *ledger =
        &(restarted ? &l->rig->server->shard[m->shard]->replica : &s->replica)->ledger;
    struct lh_hello_reply out = {.wire = lh_versions_ours()};
    hand.greetings += s == shard(l);
    out.process = l->rig->server->process;
    out.incarnation = m->incarnation;
    out.last_incarnation = w->row == NONE ? 0 : m->incarnation.number;
    out.last_step = w->row > 0 ? m->next : w->row == NONE ? 0 : m->decided - (uint64_t)-w->row;
    out.last_digest = digest_of(l, s, out.last_step);
    out.last_admitted = true;
    out.epoch = w->but & NO_EPOCH ? 0 : ledger->epoch + (uint64_t)(int64_t)w->epoch;
    out.version = w->but & NO_VERSION ? 0 : ledger->version + (uint64_t)(int64_t)w->version;
    out.session = true;
    lh_answer(rq, LH_MESSAGE(hello_reply, &out));
}

static bool speak(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                  const struct lh_call_ops **ops, void **self)
{
    if (!hand.words) return false;
    hand.pushes += rpc == LH_RPC_PUSH && shard(l)->session.sender.call;
    if (rpc != LH_RPC_HELLO) return false;
    return !lh_request_take(call, &l->rig->w[1].self, &lh_wire_hello_request, greet, l, ops, self);
}

// The server's disk is lost, and its shards are rebuilt from the worker, under epoch 2.
static struct life *life_in_epoch_2(uint64_t seed, uint32_t shards)
{
    struct life *l = life_begin(seed, shards);
    life_rest(l);
    rig_kill_server(l->rig, false);
    lh_fake_disk_wipe(l->rig->s.env);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    life_cut(l, 3);
    life_rest(l);
    for (uint32_t k = 0; k < shards; k++)
        assert_int_equal(l->worker->shard[k].replica.ledger.epoch, 2);
    return l;
}

// The coordinator knows all that the server has, as right after a report.
static void report(const struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct lh_ledger *have = &l->rig->server->shard[k]->replica.ledger;
        struct ps_co_shard *known = &l->rig->coordinator->shard[k];
        assert_int_equal(known->head.epoch, have->epoch);
        known->head.version = have->version;
        known->head.chain = have->chain;
    }
}

static void forget_what_was_told(struct life *l)
{
    struct wk_shard *s = shard(l);
    for (int i = 0; i < 5000 && !s->session.address[0]; i++) life_run(l, LH_MS);
    assert_true(s->history.told_version > s->replica.ledger.version);
    rig_kill_coordinator(l->rig); // it would tell the version again
    for (uint32_t k = 0; k < l->worker->shards; k++) l->worker->shard[k].history.told_version = 0;
}

// Its newest durable copy is older than the log.
static bool lacks(const struct wk_shard *s)
{
    return s->replica.ledger.version % s->worker->conf.durable_every != 0;
}

static void hear(const struct words *w, uint32_t shards)
{
    struct life *l = life_in_epoch_2(11, shards);
    struct wk_shard *s = shard(l);
    for (int i = 0; i < 20 && s->stable.epoch != 2; i++) { // A copy of the new epoch is stable.
        life_cut(l, 1);
        life_rest(l);
    }
    for (int i = 0; w->but & UNTOLD && i < 20 && !lacks(s); i++) {
        life_cut(l, 1);
        life_rest(l);
    }
    l->on_call = speak;
    uint64_t number = l->worker->incarnation.number, returned = l->worker->count.returned;
    uint64_t decided = s->slot.committed->decided;
    assert_true(decided >= 3);
    hand.words = w;
    hand.greetings = hand.pushes = 0;
    if (w->but & RESTARTED) {
        report(l);
        rig_kill_server(l->rig, false); // the worker's durable copy must not advance
        life_kill(l);
        life_start(l);
        s = shard(l);
        decided = s->slot.committed->decided;
        returned = 0;
        if (w->but & UNTOLD) forget_what_was_told(l);
        assert_int_equal(rig_start_server(l->rig, w->but & UNTOLD), LH_OK);
        life_hook(l);
    } else {
        // The coordinator knows an epoch before it is served.
        if (w->epoch > 0) wk_history_told(s, s->replica.ledger.epoch + (uint64_t)w->epoch, 0);
        if (w->but & STABLE) rig_kill_coordinator(l->rig); // it would tell another version
        if (w->but & STABLE) s->stable.version = s->replica.ledger.version + 5;
        assert_int_equal(s->stable.epoch, 2);
        wk_session_lost(s);
    }
    for (int i = 0; i < 5000 && hand.greetings < 1; i++) life_run(l, LH_MS);
    for (int i = 0; i < 5000 && w->answer == SERVED && !s->session.process && !hand.pushes; i++)
        life_run(l, LH_MS);
    life_run(l, w->answer == IGNORED ? 10 * LH_SECOND : w->answer == RAISED ? 20 * LH_MS : 0);
    bool served = s->session.process || hand.pushes;
    if (served != (w->answer == SERVED)) fail_msg("%s: session", w->what);
    if ((l->worker->incarnation.number == number) == (w->answer == RAISED))
        fail_msg("%s: incarnation", w->what);
    if (w->answer != RAISED) {
        assert_true(s->slot.committed->decided >= decided);
        assert_int_equal(l->worker->count.returned, returned);
    }
    if (life_said(l, "hello.older") != (w->answer == IGNORED)) fail_msg("%s: said", w->what);
    if (w->answer == IGNORED && (hand.greetings < 5 || hand.greetings > 50))
        fail_msg("%s: asked %u times", w->what, hand.greetings);
    hand.words = NULL;                                           // the server answers itself again
    if (w->answer == IGNORED && !(w->but & (STABLE | UNTOLD))) { // the coordinator is up
        life_cut(l, 3);
        life_rest(l);
        life_mass(l);
        assert_int_equal(l->worker->count.returned, returned);
        assert_int_equal(l->worker->incarnation.number, number);
    }
    life_end(l);
}

TEST(a_greeting_is_heard_as_far_as_its_history_goes)
{
    for (size_t i = 0; i < LH_COUNT(words); i++)
        for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) hear(&words[i], shards);
}

// The later epoch lost history: the worker raised its incarnation, and nothing has been decided or
// folded in that epoch yet.
TEST(a_greeting_of_before_the_one_that_was_heard_is_not)
{
    static const struct words later = {"a later epoch that lacks pushes", 1, -3, -3, 0, RAISED};
    static const struct words before = {"the epoch before", 0, 0, 0, 0, IGNORED};
    struct life *l = life_begin(14, 1);
    struct wk_shard *s = shard(l);
    life_rest(l);
    rig_kill_coordinator(l->rig);
    wk_history_told(s, 2, 0);
    l->on_call = speak;
    hand.words = &later;
    wk_session_lost(s);
    for (int i = 0; i < 50000 && s->history.heard_epoch < 2; i++) life_run(l, LH_MS / 10);
    assert_int_equal(s->history.heard_epoch, 2);
    assert_int_equal(s->history.decided_epoch, 1);
    hand.words = &before;
    hand.greetings = 0;
    wk_session_lost(s);
    life_run(l, 10 * LH_SECOND);
    assert_int_equal(s->session.process, 0);
    assert_true(hand.greetings > 1);
    assert_int_equal(s->history.heard_epoch, 2);
    assert_int_equal(life_said(l, "hello.older"), 1);
    hand.words = NULL;
    life_end(l);
}

static struct {
    struct lh_service service; // the coordinator's own
} silent;

static lh_err hear_servers(void *self, struct lh_call *call, enum lh_rpc rpc,
                           const struct lh_peer *peer, const struct lh_call_ops **ops,
                           void **call_self)
{
    (void)self;
    if (peer->role == LH_W) return LH_ERR_UNAVAILABLE;
    return silent.service.on_call(silent.service.self, call, rpc, peer, ops, call_self);
}

// The coordinator answers no worker.
static void silence(const struct life *l)
{
    silent.service = l->rig->coordinator->service;
    l->rig->coordinator->service = (struct lh_service){NULL, hear_servers};
}

// A server may make up an epoch that the coordinator does not name. Its greetings, records and
// states are not taken: otherwise the shard's next owner could open no later epoch.
TEST(an_epoch_that_the_coordinator_does_not_name_is_not_followed)
{
    for (int wiped = 0; wiped < 2; wiped++) { // 0: its log goes on; 1: its state is another one
        struct life *l = life_begin(17, 1);
        struct wk_shard *s = shard(l);
        life_rest(l);
        rig_kill_server(l->rig, false);
        rig_kill_coordinator(l->rig);
        if (wiped) lh_fake_disk_wipe(l->rig->s.env);
        l->rig->below_stable = true;
        rig_start_coordinator(l->rig);
        silence(l);
        assert_int_equal(rig_start_server(l->rig, false), LH_OK);
        life_hook(l);
        const struct lh_ledger *its = &l->rig->server->shard[0]->replica.ledger;
        for (int i = 0; i < 100 && its->epoch < 2; i++) life_run(l, LH_SECOND);
        assert_int_equal(its->epoch, 2);
        life_run(l, 10 * LH_SECOND);
        assert_int_equal(s->session.process, 0);
        assert_int_equal(s->replica.ledger.epoch, 1);
        assert_true(life_said(l, "hello.unnamed") > 0);
        l->rig->coordinator->service = silent.service;
        life_cut(l, 2);
        life_rest(l);
        assert_int_equal(s->replica.ledger.epoch, 2);
        life_end(l);
    }
}

// Another process of this worker has raised its local number: the worker's number goes above it.
static void number_ahead(void *self, struct lh_request *rq, const void *message)
{
    struct life *l = self;
    const struct lh_hello_request *m = message;
    const struct lh_ledger *ledger = &l->rig->server->shard[0]->replica.ledger;
    struct lh_hello_reply out = {.wire = lh_versions_ours()};
    out.process = l->rig->server->process;
    out.incarnation = (struct lh_incarnation){m->incarnation.number + 5, 0};
    out.last_incarnation = m->incarnation.number;
    out.last_step = m->decided;
    out.last_digest = digest_of(l, shard(l), m->decided);
    out.last_admitted = true;
    out.epoch = ledger->epoch;
    out.version = ledger->version;
    lh_answer(rq, LH_MESSAGE(hello_reply, &out));
}

static bool speak_ahead(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                        const struct lh_call_ops **ops, void **self)
{
    bool raised = l->worker->incarnation.number & UINT32_MAX;
    if (rpc != LH_RPC_HELLO || raised) return false; // it greets again if a cut was under way
    return !lh_request_take(call, &l->rig->w[1].self, &lh_wire_hello_request, number_ahead, l, ops,
                            self);
}

TEST(a_number_that_is_ahead_is_passed)
{
    struct life *l = life_begin(13, 1);
    life_rest(l);
    uint64_t number = l->worker->incarnation.number;
    l->on_call = speak_ahead;
    wk_session_lost(shard(l));
    life_cut(l, 3);
    assert_int_equal(l->worker->incarnation.number, number + 6);
    life_rest(l);
    life_mass(l);
    life_end(l);
}

RIG_TEST(a_server_says_which_version_it_answers_for, struct rig *r)
{
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    ProtobufCMessage *answer;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, 7);
    m.wire = &wire;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.worker = lh_worker_id(&r->w[1].self);
    m.incarnation = 1;
    m.next = 1;
    assert_int_equal(rig_ask(r, r->to_s[1], LH_RPC_HELLO, &m.base, &answer), LH_OK);
    const Longhaul__V1__HelloReply *reply = (const Longhaul__V1__HelloReply *)answer;
    assert_int_equal(reply->version, 8); // its own record is the last
    assert_int_equal(reply->epoch, r->server->shard[0]->replica.ledger.epoch);
    rig_free_message(answer);
}

// ---------------------------------------------------------------- a whole server

// A server of epoch 1 takes the place of the one of epoch 2, with a lower or a higher version than
// the worker's, which follows it and asks it for its state.
static void stand_in(uint64_t versions, bool unsealed)
{
    struct life *l = life_in_epoch_2(12, 1);
    struct wk_worker *w = l->worker;
    struct wk_shard *s = shard(l);
    w->conf.unsealed_states = unsealed;
    uint64_t version = s->replica.ledger.version, number = w->incarnation.number;
    uint64_t snapshots = w->count.snapshots, returned = w->count.returned;
    rig_kill_server(l->rig, false);
    lh_fake_disk_wipe(l->rig->s.env);
    l->rig->unsealed = unsealed;
    assert_int_equal(rig_start_server(l->rig, true), LH_OK);
    for (uint64_t v = 1; v <= versions; v++) rig_hello(l->rig, 0, v << 32, 0, 1);
    life_run(l, 10 * LH_SECOND);
    assert_int_equal(s->replica.ledger.epoch, 2);
    assert_int_equal(s->replica.ledger.version, version);
    assert_int_equal(w->count.snapshots, snapshots);
    assert_int_equal(w->count.returned, returned);
    assert_int_equal(w->incarnation.number, number);
    assert_int_equal(s->session.process, 0);
    assert_int_equal(life_said(l, "hello.older"), 1);
    assert_true(life_said(l, "snapshot.refused") + life_said(l, "follow.broken") > 0);
    life_end(l);
}

TEST(a_state_of_an_older_epoch_is_not_taken)
{
    for (int unsealed = 0; unsealed < 2; unsealed++) {
        stand_in(2, unsealed);
        stand_in(60, unsealed);
    }
}

// ---------------------------------------------------------------- an epoch that was only heard of

static void wait(void *self, struct lh_request *rq, const void *message)
{
    (void)self;
    (void)message;
    assert_true(hand.waits < LH_COUNT(hand.waiting));
    hand.waiting[hand.waits++] = rq;
}

static void end_waiting(void)
{
    while (hand.waits) lh_reply_error(hand.waiting[--hand.waits], LH_ERR_UNAVAILABLE, "");
}

// Once the server serves, its records do not reach the worker.
static bool keep_records(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                         const struct lh_call_ops **ops, void **self)
{
    bool follows = rpc == LH_RPC_FOLLOW, records = follows || rpc == LH_RPC_SNAPSHOT;
    if (!records || l->rig->server->phase != PS_SERVING) return false;
    const struct lh_wire_type *type = follows ? &lh_wire_follow_request : &lh_wire_snapshot_request;
    return !lh_request_take(call, &l->rig->w[1].self, type, wait, l, ops, self);
}

static void swap_server(struct life *l, struct image *out, const struct image *in)
{
    rig_kill_server(l->rig, false);
    image_take(&l->rig->s, out);
    if (in) image_put(&l->rig->s, in);
}

static bool decided_in_epoch_2(const struct life *l, const uint64_t *admitted)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_shard *s = &l->worker->shard[k];
        if (s->history.heard_epoch != 2 || s->slot.committed->decided <= admitted[k]) return false;
    }
    return true;
}

// A push of each shard was decided in epoch 2, and nothing of that epoch was folded. `old` gets the
// server's directory from the middle of epoch 1.
static struct life *life_that_heard_of_epoch_2(uint64_t seed, uint32_t shards, struct image *old)
{
    struct life *l = life_begin(seed, shards);
    uint64_t decided[RIG_SHARDS];
    life_rest(l);
    swap_server(l, old, NULL);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    life_cut(l, 3);
    life_rest(l);
    for (uint32_t k = 0; k < shards; k++) decided[k] = l->worker->shard[k].slot.committed->decided;
    rig_kill_server(l->rig, false);
    lh_fake_disk_wipe(l->rig->s.env);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    l->on_call = keep_records;
    life_hook(l);
    for (int i = 0; i < 60000 && !decided_in_epoch_2(l, decided); i++) life_run(l, LH_MS);
    assert_true(decided_in_epoch_2(l, decided));
    for (uint32_t k = 0; k < shards; k++)
        assert_int_equal(l->worker->shard[k].replica.ledger.epoch, 1);
    return l;
}

// The old server went on: its versions are above all that is on the worker's disk.
static void old_server(struct life *l, uint32_t shards)
{
    assert_int_equal(rig_start_server(l->rig, true), LH_OK);
    for (l->rig->shard = 0; l->rig->shard < shards; l->rig->shard++)
        for (uint64_t i = 1; i <= 60; i++) rig_hello(l->rig, 0, i << 32, 0, 1);
    l->rig->shard = 0;
    l->on_call = NULL;
    life_hook(l);
}

static void heard_of_before_the_kill(uint32_t shards)
{
    struct image old = {0}, now = {0};
    struct life *l = life_that_heard_of_epoch_2(14, shards, &old);
    uint64_t number = l->worker->incarnation.number;
    life_kill(l);
    end_waiting();
    swap_server(l, &now, &old);
    old_server(l, shards);
    life_start(l);
    for (int i = 0; i < 10000; i++) {
        life_run(l, LH_MS);
        assert_int_equal(l->worker->incarnation.number, number);
        for (uint32_t k = 0; k < shards; k++)
            assert_int_equal(l->worker->shard[k].session.process, 0);
    }
    assert_int_equal(l->worker->count.returned, 0);
    assert_int_equal(life_said(l, "hello.older"), shards);
    rig_kill_server(l->rig, false);
    image_put(&l->rig->s, &now);
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    life_cut(l, 3);
    life_rest(l);
    life_mass(l);
    assert_int_equal(l->worker->incarnation.number, number);
    assert_int_equal(l->worker->count.returned, 0);
    image_free(&old);
    image_free(&now);
    life_end(l);
}

TEST(an_epoch_that_was_only_heard_of_outlives_the_worker)
{
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) heard_of_before_the_kill(shards);
}

// A running worker hears of an epoch with its leases; an older coordinator names none.
static void told_with_a_lease(bool says)
{
    struct life *l = life_begin(15, 1);
    struct wk_shard *s = shard(l);
    struct lh_point begins = {.epoch = says ? 2 : 0, .version = 1};
    life_rest(l);
    rig_kill_server(l->rig, false);
    assert_int_equal(ps_co_adopt_epoch(l->rig->coordinator, 0, &begins), LH_OK);
    if (!says) l->rig->coordinator->shard[0].epochs = 0;
    life_run(l, 2 * LH_SECOND);
    assert_int_equal(s->history.told_epoch, says ? 2 : 1);
    assert_int_equal(s->history.heard_epoch, 1);
    assert_int_equal(rig_start_server(l->rig, true), LH_OK);
    for (int i = 0; i < 5000 && !s->session.process; i++) life_run(l, LH_MS);
    assert_int_equal(s->session.process != 0, !says);
    assert_int_equal(life_said(l, "hello.older"), says);
    assert_int_equal(s->history.decided_epoch, 1);
    life_end(l);
}

TEST(an_epoch_is_heard_of_with_a_lease)
{
    told_with_a_lease(true);
    told_with_a_lease(false);
}

// A state of an older epoch is not taken, even by a worker that has nothing to compare it with.
TEST(a_first_state_is_of_the_newest_epoch)
{
    struct life *l = life_begin(16, 1);
    life_rest(l);
    rig_kill_server(l->rig, false);
    life_kill(l);
    lh_fake_disk_wipe(l->rig->w[1].env);
    struct lh_point begins = {.epoch = 2, .version = 1};
    assert_int_equal(ps_co_adopt_epoch(l->rig->coordinator, 0, &begins), LH_OK);
    assert_int_equal(rig_start_server(l->rig, true), LH_OK);
    life_start(l);
    life_run(l, 5 * LH_SECOND);
    assert_false(shard(l)->ready);
    assert_int_equal(l->worker->count.snapshots, 0);
    assert_true(life_said(l, "snapshot.refused") > 0);
    life_end(l);
}
