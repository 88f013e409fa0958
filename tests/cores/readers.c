// Peers open streams, calls and snapshots of a server and read little or nothing of them: honest
// readers still get theirs.
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "server/push/receive.h"
#include "tests/cores/rig.h"

enum { FLOOD = 2 * LH_DECIDE_QUEUE_MAX };

// A call whose peer never reads its end, as with a closed window.
struct deaf {
    struct lh_call call;
    const struct lh_call_ops *ops;
    void *self; // NULL: it is closed
    bool cancelled;
    lh_err status; // status with which the server ended it
};

static lh_err deaf_send(struct lh_call *call, const struct lh_out *message)
{
    (void)call;
    (void)message;
    return LH_OK;
}

static void deaf_read(struct lh_call *call)
{
    (void)call;
}

static void deaf_finish(struct lh_call *call, lh_err status, const char *text)
{
    (void)text;
    ((struct deaf *)call)->status = status;
}

static void deaf_cancel(struct lh_call *call)
{
    ((struct deaf *)call)->cancelled = true;
}

static const struct lh_transport_ops deaf_ops = {
    .send = deaf_send, .read = deaf_read, .finish = deaf_finish, .cancel = deaf_cancel};

static void close_deaf(struct deaf *d)
{
    if (d->self) d->ops->on_close(d->self, &d->call, LH_ERR_CANCELLED, "cancelled");
    d->self = NULL;
}

static lh_err open_deaf(struct rig *r, const struct lh_peer *peer, enum lh_rpc rpc, struct deaf *d)
{
    *d = (struct deaf){.call.transport_ops = &deaf_ops};
    return ps_server_on_call(r->server, &d->call, rpc, peer, &d->ops, &d->self);
}

RIG_TEST(answers_that_nobody_takes_keep_nobody_out, struct rig *r)
{
    struct deaf *flood = test_calloc(FLOOD, sizeof *flood), hers;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (int i = 0; i < FLOOD; i++) {
        struct deaf *d = &flood[i];
        assert_int_equal(open_deaf(r, &r->w[0].self, LH_RPC_PUSH, d), LH_OK);
        d->ops->on_half_close(d->self, &d->call); // "the stream ended inside the frame"
        assert_int_equal(d->status, LH_ERR_MALFORMED);
        for (int k = 0; k <= i; k++)
            if (flood[k].cancelled) close_deaf(&flood[k]);
    }
    assert_int_equal(r->server->push_count, LH_STREAMS_A_SHARD);
    assert_int_equal(open_deaf(r, &r->w[1].self, LH_RPC_PUSH, &hers), LH_OK);
    close_deaf(&hers);
    for (int i = 0; i < FLOOD; i++) close_deaf(&flood[i]);
    test_free(flood);
}

static void follow_with(struct rig *r, uint32_t w, const struct lh_call_ops *call_ops,
                        struct rig_call *h)
{
    struct lh_hash chain = {{0}};
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__Point from = lh_head_point(0, 1, 0, &chain);
    m.from = &from;
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    rig_call_open(r, w, LH_RPC_FOLLOW, call_ops, h);
    assert_int_equal(pb_send(h->call, &m.base), LH_OK);
}

static void follow(struct rig *r, uint32_t w, struct rig_call *h)
{
    follow_with(r, w, &rig_call_ops, h);
}

struct reader {
    struct rig_call call; // must be first
    unsigned messages;
};

static void on_part(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct reader *reader = self;
    reader->messages++;
    rig_on_message(self, call, msg);
}

// The server sends no more than the transport takes, so a reader that pauses finds the rest later.
RIG_TEST(a_reader_that_pauses_is_waited_for, struct rig *r)
{
    static const struct lh_call_ops reads = {on_part, rig_on_nothing, rig_on_nothing, rig_on_close};
    struct reader h = {.messages = 0};
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, 3 * LH_CALL_SENDS_MAX);
    follow_with(r, 0, &reads, &h.call);
    rig_run(r, LH_SECOND);
    assert_false(h.call.over);
    lh_call_read(h.call.call);
    rig_run(r, LH_SECOND);
    assert_false(h.call.over); // the stream goes on
    assert_true(h.messages >= 3 * LH_CALL_SENDS_MAX);
    lh_call_cancel(h.call.call);
    rig_run(r, LH_SECOND);
}

RIG_TEST(a_peer_that_does_not_read_is_cut_off, struct rig *r)
{
    struct rig_call *flood = test_calloc(FLOOD, sizeof *flood), other;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_log(r, 1, 3);
    const struct ps_shard *s = r->server->shard[0];
    for (int i = 0; i < FLOOD; i++) {
        follow(r, 0, &flood[i]);
        if (i % 32 == 0) rig_run(r, LH_SECOND);
    }
    rig_run(r, LH_SECOND);
    follow(r, 1, &other);
    rig_run(r, LH_SECOND);
    assert_false(other.over);
    assert_int_equal(s->follower_count, LH_STREAMS_A_SHARD + 1);
    int ended = 0;
    for (int i = 0; i < FLOOD; i++) ended += flood[i].over && flood[i].status == LH_ERR_CANCELLED;
    assert_int_equal(ended, FLOOD - LH_STREAMS_A_SHARD);
    lh_call_cancel(other.call);
    rig_run(r, 2 * LH_READ_SILENT_MS * LH_MS);
    assert_int_equal(s->follower_count, 0);
    assert_null(r->server->readers);
    test_free(flood);
}

RIG_TEST(nobody_has_all_snapshots, struct rig *r)
{
    enum { HIS = 3 * LH_SNAPSHOT_RANGES, ASKED = HIS + 3, HERS = LH_SNAPSHOT_RANGES };
    struct rig_call h[ASKED], hers[HERS + 1];
    int busy = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (int i = 0; i < ASKED; i++) rig_call_open(r, 0, LH_RPC_SNAPSHOT, &rig_call_ops, &h[i]);
    rig_run(r, LH_SECOND);
    // Both together ask for no more snapshots than the server makes at once.
    for (int i = 0; i <= HERS; i++) rig_call_open(r, 1, LH_RPC_SNAPSHOT, &rig_call_ops, &hers[i]);
    rig_run(r, LH_SECOND);
    for (int i = 0; i < ASKED; i++) busy += h[i].over && h[i].status == LH_ERR_BUSY;
    assert_int_equal(busy, ASKED - HIS);
    for (int i = 0; i < HERS; i++) assert_false(hers[i].over);
    assert_true(hers[HERS].over && hers[HERS].status == LH_ERR_BUSY);
    assert_int_equal(r->server->snapshots, HIS + HERS);
    rig_run(r, 2 * LH_JOIN_SILENT_MS * LH_MS);
    assert_int_equal(r->server->snapshots, 0);
}

// Asks for a snapshot and reads nothing of it.
static lh_err ask_as(struct rig *r, const struct lh_peer *peer, struct deaf *d)
{
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    uint8_t challenge[LH_STATE_RANDOM_BYTES] = {0}, bytes[256];
    m.challenge = (ProtobufCBinaryData){sizeof challenge, challenge};
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    struct lh_span part = lh_span(bytes, longhaul__v1__snapshot_request__pack(&m, bytes));
    const struct lh_msg msg = {.part = &part, .parts = 1, .len = part.len};
    LH_TRY(open_deaf(r, peer, LH_RPC_SNAPSHOT, d));
    d->ops->on_message(d->self, &d->call, &msg);
    return LH_OK;
}

static lh_err ask_snapshot(struct rig *r, uint32_t w, struct deaf *d)
{
    return ask_as(r, &r->w[w].self, d);
}

// A small state is sent whole, and its call ended.
RIG_TEST(snapshots_that_nobody_reads_keep_nobody_out, struct rig *r)
{
    struct deaf flood[3 * LH_SNAPSHOT_RANGES + 1];
    size_t let_in = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (size_t i = 0; i < LH_COUNT(flood); i++) {
        if (ask_snapshot(r, 0, &flood[i])) continue;
        assert_int_equal(flood[let_in++].status, LH_OK);
    }
    assert_int_equal(let_in, LH_COUNT(flood) - 1);
    rig_run(r, 2 * LH_JOIN_SILENT_MS * LH_MS);
    for (size_t i = 0; i < let_in; i++) assert_true(flood[i].cancelled);
    for (size_t i = 0; i < let_in; i++) close_deaf(&flood[i]);
    assert_int_equal(r->server->snapshots, 0);
}

// Without this rule two peers that keep asking for snapshots would hold all places.
RIG_TEST(a_reader_without_a_snapshot_gets_a_place_of_those_with_many, struct rig *r)
{
    struct deaf his[3 * LH_SNAPSHOT_RANGES], hers[LH_SNAPSHOT_RANGES], theirs[LH_SNAPSHOT_RANGES];
    struct deaf more;
    struct lh_peer third = r->w[1].self;
    snprintf(third.name, sizeof third.name, "third");
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (size_t i = 0; i < LH_COUNT(his); i++) assert_int_equal(ask_snapshot(r, 0, &his[i]), LH_OK);
    for (size_t i = 0; i < LH_COUNT(hers); i++)
        assert_int_equal(ask_snapshot(r, 1, &hers[i]), LH_OK);
    rig_run(r, LH_JOIN_TURN_MS * LH_MS); // a peer with its full share takes no other's place
    assert_int_equal(ask_snapshot(r, 0, &more), LH_ERR_BUSY);
    assert_int_equal(ask_snapshot(r, 1, &more), LH_ERR_BUSY);
    for (size_t i = 0; i < LH_COUNT(his); i++) assert_false(his[i].cancelled);
    for (size_t i = 0; i < LH_COUNT(theirs); i++) {
        assert_int_equal(ask_as(r, &third, &theirs[i]), LH_OK);
        assert_true(his[LH_COUNT(his) - 1 - i].cancelled); // his newest one
        assert_int_equal(ask_snapshot(r, 0, &more), LH_ERR_BUSY);
    }
    assert_false(hers[0].cancelled || hers[1].cancelled);
    for (size_t i = 0; i < LH_COUNT(his); i++) close_deaf(&his[i]);
    for (size_t i = 0; i < LH_COUNT(hers); i++) close_deaf(&hers[i]);
    for (size_t i = 0; i < LH_COUNT(theirs); i++) close_deaf(&theirs[i]);
    assert_int_equal(r->server->snapshots, 0);
}

// Peers that keep to their share, but renew it in turn before their time is up, would hold all
// places. A peer that began none lately gets one at once.
RIG_TEST(a_new_reader_gets_a_place_of_a_renewing_peer, struct rig *r)
{
    enum { PEERS = 4, TURNS = 6 };
    struct deaf held[PEERS][LH_SNAPSHOT_RANGES], hers[LH_SNAPSHOT_RANGES], more;
    struct lh_peer peer[PEERS + 1];
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (int i = 0; i <= PEERS; i++) {
        peer[i] = r->w[0].self;
        snprintf(peer[i].name, sizeof peer[i].name, "peer-%d", i);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < PEERS; i++)
            for (int k = 0; k < LH_SNAPSHOT_RANGES; k++) {
                if (turn) close_deaf(&held[i][k]);
                assert_int_equal(ask_as(r, &peer[i], &held[i][k]), LH_OK);
            }
        rig_run(r, LH_JOIN_TURN_MS / 2 * LH_MS);
    }
    for (int k = 0; k < LH_SNAPSHOT_RANGES; k++)
        assert_int_equal(ask_as(r, &peer[PEERS], &hers[k]), LH_OK);
    int cancelled = 0;
    for (int i = 0; i < PEERS; i++)
        for (int k = 0; k < LH_SNAPSHOT_RANGES; k++) cancelled += held[i][k].cancelled;
    assert_int_equal(cancelled, LH_SNAPSHOT_RANGES);
    assert_int_equal(ask_as(r, &peer[0], &more), LH_ERR_BUSY); // the other peer began fewer
    assert_false(hers[0].cancelled);
    for (int k = 0; k < LH_SNAPSHOT_RANGES; k++) close_deaf(&hers[k]);
    for (int i = 0; i < PEERS; i++)
        for (int k = 0; k < LH_SNAPSHOT_RANGES; k++) close_deaf(&held[i][k]);
    assert_int_equal(r->server->snapshots, 0);
}

// Makes the states stale, so that the log does not go on from them; their readers go on reading.
static void make_stale(struct rig *r)
{
    for (int i = 0; i < PS_SNAPSHOTS; i++) r->server->shard[0]->snapshot[i].lost = true;
}

// While one slow reader has an older state, others can use the second one. With two slow readers,
// one is cut off when another reader waits and it has had its turn.
RIG_TEST(slow_readers_of_snapshots_keep_nobody_out, struct rig *r)
{
    struct deaf slow[PS_SNAPSHOTS], hers;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (int i = 0; i < PS_SNAPSHOTS; i++) {
        assert_int_equal(ask_snapshot(r, 0, &slow[i]), LH_OK);
        assert_int_equal(slow[i].status, LH_OK);
        make_stale(r);
    }
    assert_int_equal(ask_snapshot(r, 1, &hers), LH_OK);
    assert_int_equal(hers.status, LH_ERR_BUSY);
    close_deaf(&hers);
    assert_false(slow[0].cancelled || slow[1].cancelled); // their turn is not over
    rig_run(r, LH_JOIN_TURN_MS * LH_MS);
    assert_int_equal(ask_snapshot(r, 1, &hers), LH_OK);
    assert_int_equal(hers.status, LH_ERR_BUSY);
    close_deaf(&hers);
    assert_true(slow[0].cancelled || slow[1].cancelled);
    for (int i = 0; i < PS_SNAPSHOTS; i++)
        if (slow[i].cancelled) close_deaf(&slow[i]);
    assert_int_equal(ask_snapshot(r, 1, &hers), LH_OK);
    assert_int_equal(hers.status, LH_OK);
    close_deaf(&hers);
    for (int i = 0; i < PS_SNAPSHOTS; i++) close_deaf(&slow[i]);
}

// A reader that takes a message now and then does not extend its time: it is limited for the
// snapshot as a whole.
RIG_TEST(a_snapshot_has_a_time_as_a_whole, struct rig *r)
{
    struct deaf slow;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(ask_snapshot(r, 0, &slow), LH_OK);
    for (int i = 0; i < 8 && !slow.cancelled; i++) {
        rig_run(r, LH_JOIN_SILENT_MS / 4 * LH_MS);
        if (!slow.cancelled) slow.ops->on_sent(slow.self, &slow.call);
    }
    assert_true(slow.cancelled);
    close_deaf(&slow);
}
