// Peers with a valid certificate that misbehave: none stops a server or a worker, or keeps others
// out.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "server/push/head.h"
#include "server/push/receive.h"
#include "tests/cores/offer.h"

enum { FLOOD = 2 * LH_DECIDE_QUEUE_MAX };

static void call(struct rig *r, uint32_t w, enum lh_rpc rpc, struct rig_call *h)
{
    rig_call_open(r, w, rpc, &rig_call_ops, h);
    lh_call_read(h->call);
}

// Calls of a flood that ended with this status.
static int ended_with(const struct rig_call *h, lh_err status)
{
    int n = 0;
    for (int i = 0; i < FLOOD; i++) n += h[i].over && h[i].status == status;
    return n;
}

// Sends the beginning of a push of `bytes`, with `n` of them.
static void send_part(struct rig *r, uint32_t w, uint64_t process, size_t bytes, size_t n,
                      struct rig_call *h)
{
    uint8_t digest[LH_DIGEST_BYTES] = {1};
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    struct lh_blob *b = lh_blob_new(bytes);
    assert_non_null(b);
    head.worker = lh_worker_id(&r->w[w].self);
    head.process = process;
    head.frame_bytes = bytes;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, digest};
    assert_int_equal(pb_send_bulk(h->call, &head.base, b, 0, n), LH_OK);
    lh_blob_release(b);
}

static void begin_push(struct rig *r, uint32_t w, uint64_t process, size_t bytes, size_t n,
                       struct rig_call *h)
{
    call(r, w, LH_RPC_PUSH, h);
    send_part(r, w, process, bytes, n, h);
}

// Whether worker w gets as far as being told to greet first.
static bool is_let_in(struct rig *r, uint32_t w)
{
    struct rig_call h;
    begin_push(r, w, r->server->process + 1, 400, 400, &h);
    rig_call_wait(r, &h);
    assert_true(h.status == LH_ERR_NEED_HELLO || h.status == LH_ERR_BUSY);
    return h.status == LH_ERR_NEED_HELLO;
}

// ---------------------------------------------------------------- a server

RIG_TEST(one_worker_too_many_is_turned_away, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    rig_hello(r, 1, 1, 0, 1);
    struct ps_shard *s = r->server->shard[0];
    struct lh_ledger *l = &s->replica.ledger;
    struct lh_row known = l->row[0];
    l->row = realloc(l->row, LH_WORKERS_MAX * sizeof *l->row);
    assert_non_null(l->row);
    for (uint32_t k = 0; k + 1 < LH_WORKERS_MAX; k++) // as if so many others had been there
        l->row[k] = (struct lh_row){.worker = k + 1};
    l->row[LH_WORKERS_MAX - 1] = known;
    l->rows = LH_WORKERS_MAX;
    assert_int_equal(ps_head_settle(s), LH_OK);
    assert_int_equal(rig_fence(r, 0, 1), LH_ERR_TOO_LARGE);
    assert_int_equal(r->fatal_count, 0);
    rig_hello(r, 1, 2, 0, 1); // the worker that was there goes on
}

static void on_time(void *arg) // virtual time passes only up to an event
{
    (void)arg;
}

// Each raised incarnation is a record, for every follower and on every disk.
RIG_TEST(a_worker_raises_so_many_incarnations_and_no_more, struct rig *r)
{
    uint64_t n = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    lh_err err = LH_OK;
    while (!err && n < 2 * LH_FENCES_MAX) err = rig_fence(r, 0, ++n);
    assert_int_equal(err, LH_ERR_BUSY);
    assert_in_range(n, LH_FENCES_MAX, LH_FENCES_MAX + 16); // a few seconds went by
    uint64_t version = l->version;
    for (int i = 0; i < 20; i++) rig_greet(r, 0, ++n, 0, 1);
    rig_run(r, 100 * LH_MS);
    assert_in_range(l->version, version, version + 1);
    assert_int_equal(rig_fence(r, 1, 1), LH_OK); // another worker is let in
    const struct lh_row *row = lh_ledger_row(l, lh_worker_id(&r->w[0].self));
    rig_hello(r, 0, row->incarnation.number, 0, 1); // its own last incarnation is let in too
    lh_fake_at(r->world, LH_FENCE_MS * LH_MS, on_time, NULL);
    rig_run(r, LH_FENCE_MS * LH_MS);
    assert_int_equal(rig_fence(r, 0, ++n), LH_OK); // later on it is granted
}

RIG_TEST(pushes_that_say_nothing_keep_nobody_out, struct rig *r)
{
    struct rig_call *flood = test_calloc(FLOOD, sizeof *flood);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (int i = 0; i < FLOOD; i++) {
        call(r, 0, LH_RPC_PUSH, &flood[i]);
        if (i % 32 == 0) rig_run(r, LH_SECOND);
    }
    rig_run(r, LH_SECOND);
    assert_true(is_let_in(r, 1));
    assert_int_equal(ended_with(flood, LH_ERR_BUSY), FLOOD - LH_STREAMS_A_SHARD); // the older ones
    assert_int_equal(r->server->push_count, LH_STREAMS_A_SHARD);
    rig_run(r, 2 * LH_PUSH_SILENT_MS * LH_MS);
    assert_int_equal(ended_with(flood, LH_ERR_DEADLINE), LH_STREAMS_A_SHARD);
    assert_int_equal(r->server->push_count, 0);
    test_free(flood);
}

// Starts a server, and worker 0's push of 400 bytes, of which `n` have arrived.
static void come_to_a_stop(struct rig *r, size_t n, struct rig_call *h)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    begin_push(r, 0, r->server->process, 400, n, h);
    rig_run(r, LH_SECOND);
}

// Memory that is held by a push whose rest does not come is released.
RIG_TEST(a_push_that_stops_holds_no_room, struct rig *r)
{
    struct rig_call h;
    come_to_a_stop(r, 0, &h);
    assert_int_equal(r->server->push_memory.frames, 400);
    rig_run(r, 2 * LH_PUSH_SILENT_MS * LH_MS);
    assert_int_equal(h.status, LH_ERR_DEADLINE);
    assert_int_equal(r->server->push_memory.frames, 0);
}

// A worker that sends the beginning of a push again and again would hold its memory for ever.
RIG_TEST(a_push_begins_once_on_a_call, struct rig *r)
{
    struct rig_call h;
    come_to_a_stop(r, 100, &h);
    assert_false(h.over);
    send_part(r, 0, r->server->process, 400, 100, &h);
    rig_call_wait(r, &h);
    assert_int_equal(h.status, LH_ERR_MALFORMED);
    begin_push(r, 0, r->server->process, 400, 50, &h); // another call may
    rig_run(r, LH_SECOND);
    assert_false(h.over);
    lh_call_cancel(h.call);
    rig_call_wait(r, &h);
}

// Bytes that came with its beginning are kept until there is memory for the frame.
RIG_TEST(a_push_that_finds_no_room_waits_with_what_it_brought, struct rig *r)
{
    struct rig_call h;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_push_memory *room = &r->server->push_memory;
    room->frames += room->bytes_max; // others' frames
    begin_push(r, 0, r->server->process, 400, 100, &h);
    rig_run(r, LH_SECOND);
    assert_false(h.over);
    assert_non_null(room->first);
    room->frames -= room->bytes_max;
    ps_receive_waiting(r->server);
    assert_null(room->first);
    assert_int_equal(room->frames, 400);
    rig_run(r, LH_SECOND);
    assert_false(h.over);
    lh_call_cancel(h.call);
    rig_call_wait(r, &h);
}

// Large frames that are begun and do not come hold memory; so do a worker's earlier attempts.
RIG_TEST(begun_pushes_hold_no_memory_that_others_wait_for, struct rig *r)
{
    struct rig_call his[3], hers, small;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    uint64_t process = r->server->process;
    struct ps_push_memory *room = &r->server->push_memory;
    room->bytes_max = 1000; // two frames of 400 bytes do not fit
    for (size_t i = 0; i < LH_COUNT(his); i++) {
        begin_push(r, 0, process, 400, 0, &his[i]);
        rig_run(r, LH_SECOND);
    }
    assert_true(his[0].over && his[0].status == LH_ERR_BUSY && his[1].over && !his[2].over);
    assert_int_equal(room->frames, 400);
    begin_push(r, 1, process, 400, 100, &hers);
    rig_run(r, LH_PUSH_SLOW_MS / 2 * LH_MS);
    assert_non_null(room->first); // worker 0 still has time
    assert_false(his[2].over);
    rig_run(r, LH_PUSH_SLOW_MS * LH_MS);
    assert_null(room->first);
    assert_int_equal(his[2].status, LH_ERR_BUSY);
    assert_false(hers.over);
    lh_call_cancel(hers.call);
    rig_call_wait(r, &hers);
    room->bytes_max = 8 * 300; // 300 bytes are small
    room->frames += 1700;      // others': one of 400 bytes does not fit beside them
    begin_push(r, 0, process, 400, 0, &his[0]);
    rig_run(r, LH_SECOND);
    assert_non_null(room->first);
    begin_push(r, 1, process, 250, 0, &small);
    rig_run(r, LH_SECOND);
    assert_non_null(room->first); // the small push passes the large one
    assert_int_equal(room->frames, 1700 + 250);
    lh_call_cancel(small.call);
    rig_call_wait(r, &small);
    room->frames -= 1700;
    if (!his[0].over) lh_call_cancel(his[0].call);
    rig_call_wait(r, &his[0]);
}

// Others' frames take so many bytes from now on.
static void others_take(struct rig *r, uint64_t bytes, uint64_t *taken)
{
    r->server->push_memory.frames += bytes - *taken;
    *taken = bytes;
    ps_receive_waiting(r->server);
    rig_run(r, LH_SECOND);
}

RIG_TEST(small_pushes_neither_wait_for_a_large_one_nor_keep_it_waiting, struct rig *r)
{
    struct rig_call large, small[3];
    uint64_t taken = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    struct ps_push_memory *room = &r->server->push_memory;
    room->bytes_max = 8 * 300; // 300 bytes are small
    others_take(r, 8 * 300, &taken);
    begin_push(r, 0, r->server->process, 400, 0, &large);
    rig_run(r, LH_SECOND);
    begin_push(r, 1, r->server->process, 250, 0, &small[0]);
    rig_run(r, LH_SECOND);
    assert_int_equal(room->frames, taken); // both wait
    others_take(r, 1700, &taken);
    assert_int_equal(room->frames, taken + 250); // the small one passes
    lh_call_cancel(small[0].call);
    rig_call_wait(r, &small[0]);
    rig_run(r, LH_PUSH_SLOW_MS * LH_MS);
    for (int i = 1; i < 3; i++) { // now those that come wait behind the large one
        begin_push(r, 1, r->server->process, 250, 0, &small[i]);
        rig_run(r, LH_SECOND);
        assert_int_equal(room->frames, taken);
    }
    assert_non_null(room->first);
    others_take(r, 0, &taken);
    assert_null(room->first);
    assert_int_equal(room->frames, 400 + 250);
    assert_int_equal(room->passed_ns, 0);
    lh_call_cancel(large.call);
    rig_call_wait(r, &large);
    lh_call_cancel(small[2].call);
    rig_call_wait(r, &small[2]);
}

RIG_TEST(parts_that_wait_keep_nobody_out, struct rig *r)
{
    struct rig_call h;
    come_to_a_stop(r, 100, &h);
    lh_call_cancel(h.call);
    rig_call_wait(r, &h);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->push_count, 1); // the part
    const uint32_t others = LH_DECIDE_QUEUE_MAX - 1;
    r->server->push_count += others; // pushes of so many other workers and shards
    assert_true(is_let_in(r, 1));
    r->server->push_count -= others;
}

RIG_TEST(pushes_of_one_worker_take_no_place_that_another_waits_for, struct rig *r)
{
    struct rig_call his[LH_STREAMS_A_SHARD];
    const uint32_t others = LH_DECIDE_QUEUE_MAX - LH_STREAMS_A_SHARD;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (size_t i = 0; i < LH_COUNT(his); i++) {
        call(r, 0, LH_RPC_PUSH, &his[i]);
        rig_run(r, LH_SECOND);
    }
    r->server->push_count += others; // other workers' pushes
    assert_true(is_let_in(r, 1));
    assert_int_equal(his[0].status, LH_ERR_BUSY);
    for (size_t i = 1; i < LH_COUNT(his); i++) assert_false(his[i].over);
    r->server->push_count -= others;
    for (size_t i = 1; i < LH_COUNT(his); i++) {
        lh_call_cancel(his[i].call);
        rig_call_wait(r, &his[i]);
    }
}

// A state that a follower made up does not displace another follower's.
RIG_TEST(a_state_that_is_not_the_offered_one_is_not_asked_for_again, struct rig *r)
{
    struct offer_held h;
    r->unsealed = true;
    offer_lose_directory(r, &h);
    struct lh_hash none = {{1}};
    Longhaul__V1__Point made_up = lh_head_point(0, h.at.epoch, h.at.version + 100, &none);
    bool wanted = false;
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        wanted = !offer_say(r, 1, &h.at) && offer_say(r, 0, &made_up);
    }
    assert_true(wanted);
    assert_int_equal(offer_bring(r, 0, &made_up, h.state), LH_ERR_MALFORMED);
    wanted = false;
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        assert_false(offer_say(r, 0, &made_up));
        wanted = offer_say(r, 1, &h.at);
    }
    assert_true(wanted);
    assert_int_equal(offer_bring(r, 1, &h.at, h.state), LH_OK);
    for (int i = 0; i < 100 && r->server->phase != PS_SERVING; i++) rig_run(r, 100 * LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    assert_true(r->server->shard[0]->replica.ledger.version >= h.at.version);
    lh_blob_release(h.state);
}

static void until_the_honest_one_is_asked(struct rig *r, struct offer_held *h)
{
    bool wanted = false;
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        wanted = offer_say(r, 1, &h->at);
    }
    assert_true(wanted);
}

// The highest version of all, an epoch above which none could come, and another history at the
// version that was reported last: a follower that offers them is passed over at once.
RIG_TEST(a_point_that_no_log_can_have_is_not_asked_for, struct rig *r)
{
    struct offer_held h;
    r->unsealed = true;
    offer_lose_directory(r, &h);
    struct lh_hash none = {{1}};
    const struct lh_point *head = &r->coordinator->shard[0].head;
    assert_true(head->version > 0);
    const struct lh_point made_up[] = {
        {h.at.epoch, 1000000000, none},     {h.at.epoch, UINT64_MAX, none},
        {UINT64_MAX, h.at.version, none},   {UINT64_MAX, UINT64_MAX, none},
        {head->epoch, head->version, none},
    };
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        Longhaul__V1__Point p = lh_head_point(0, made_up[i].epoch, made_up[i].version, &none);
        rig_run(r, 300 * LH_MS);
        assert_false(offer_say(r, 0, &p));
        (void)offer_say(r, 1, &h.at);
    }
    until_the_honest_one_is_asked(r, &h);
    assert_int_equal(offer_bring(r, 1, &h.at, h.state), LH_OK);
    for (int i = 0; i < 100 && r->server->phase != PS_SERVING; i++) rig_run(r, 100 * LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    lh_blob_release(h.state);
}

// The state's point is right, but its parameters are not finite. It replaces nothing.
RIG_TEST(a_state_that_is_not_finite_is_not_taken, struct rig *r)
{
    struct offer_held h;
    r->unsealed = true;
    offer_lose_directory(r, &h);
    // The ledger is followed by the number of parameters, and by the parameters.
    uint64_t values = r->server->shard[0]->replica.layout->values;
    uint8_t kept[8], *middle = (uint8_t *)h.state->data + 100;
    while (memcmp(middle, &values, sizeof values) != 0) middle++;
    middle += sizeof values;
    memcpy(kept, middle, sizeof kept);
    until_the_honest_one_is_asked(r, &h);
    memset(middle, 0xff, sizeof kept);
    assert_int_equal(offer_bring(r, 1, &h.at, h.state), LH_ERR_NON_FINITE);
    assert_false(r->server->phase == PS_SERVING);
    assert_int_equal(r->fatal_count, 0);
    memcpy(middle, kept, sizeof kept);
    lh_blob_release(h.state);
}

// A certificate alone does not make a peer trusted (server/docs/0003-sealed-states.md).
RIG_TEST(a_state_without_the_seal_is_not_taken, struct rig *r)
{
    struct offer_held h;
    bool wanted = false;
    offer_lose_directory(r, &h);
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        wanted = offer_say(r, 1, &h.at);
    }
    assert_true(wanted);
    assert_int_equal(offer_bring(r, 1, &h.at, h.state), LH_ERR_UNSEAL);
    assert_false(r->server->phase == PS_SERVING);
    lh_blob_release(h.state);
}

// ---------------------------------------------------------------- a coordinator

static Longhaul__V1__LeaseReply *lease(struct rig *r, uint32_t w, double speed,
                                       Longhaul__V1__Point *durable, uint64_t *claimed, size_t n)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    ProtobufCMessage *answer;
    m.want = 1;
    m.tokens_per_s = speed;
    m.n_durable = durable != NULL;
    m.durable = &durable;
    m.claimed = claimed;
    m.n_claimed = n;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    return (Longhaul__V1__LeaseReply *)answer;
}

RIG_TEST(a_false_word_of_a_worker_changes_nothing_for_others, struct rig *r)
{
    static uint64_t claimed[100000];
    rig_start_coordinator(r);
    r->coordinator->conf.dylu = true;
    r->coordinator->conf.h_base = 32;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    rig_run(r, 5 * LH_SECOND);
    for (size_t i = 0; i < LH_COUNT(claimed); i++) claimed[i] = UINT64_MAX - i;
    const double speeds[] = {HUGE_VAL, (double)NAN, -1, 1e300, 1e-300};
    for (size_t i = 0; i < LH_COUNT(speeds); i++) {
        rig_free_message(lease(r, 0, speeds[i], NULL, claimed, LH_COUNT(claimed)));
        Longhaul__V1__LeaseReply *m = lease(r, 1, 100, NULL, NULL, 0);
        assert_int_equal(m->local_steps, 32);
        rig_free_message(m);
    }
    const struct ps_co_shard *s = &r->coordinator->shard[0];
    rig_log(r, r->server->shard[0]->replica.ledger.version + 1,
            r->server->shard[0]->replica.ledger.version + 1);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(s->head.version, r->server->shard[0]->replica.ledger.version);
    struct lh_hash chain = s->head.chain, other = {{1}};
    Longhaul__V1__Point p = lh_head_point(0, s->head.epoch, s->head.version, &other);
    rig_free_message(lease(r, 0, 1, &p, NULL, 0));
    assert_int_equal(s->stable.version, 0); // it is of no history of the shard
    p = lh_head_point(0, s->head.epoch, s->head.version, &chain);
    rig_free_message(lease(r, 0, 1, &p, NULL, 0));
    assert_int_equal(s->stable.version, 0); // it is not proved (proofs: claims.c)
}

// ---------------------------------------------------------------- a worker

static uint32_t told; // how often the server told where to resume

static void tell_to_go_on(void *self, struct lh_call *call)
{
    Longhaul__V1__PushReply out = LONGHAUL__V1__PUSH_REPLY__INIT;
    Longhaul__V1__PushResume have = LONGHAUL__V1__PUSH_RESUME__INIT;
    (void)self;
    out.resume = &have;
    assert_int_equal(pb_send(call, &out.base), LH_OK);
    told++;
}

// Tells a worker that has sent its whole push to resume from the beginning.
static const struct lh_call_ops liar = {rig_on_message, tell_to_go_on, rig_on_nothing, rig_on_gone};

static lh_err lie(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                  const struct lh_call_ops **call_ops, void **call_self)
{
    if (rpc != LH_RPC_PUSH) return ps_server_on_call(self, call, rpc, peer, call_ops, call_self);
    *call_ops = &liar;
    *call_self = NULL;
    lh_call_read(call);
    return LH_OK;
}

RIG_TEST(a_worker_that_is_told_to_go_on_after_the_end_tries_again, struct rig *r)
{
    struct rig_life l;
    rig_serve(r, 0);
    r->server->service.on_call = lie;
    told = 0;
    rig_run(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &l, 50);
    rig_life_start(&l, &conf);
    for (int i = 0; i < 6000 && told < 3; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(told, 3);
    rig_life_end(r, &l, false);
}

// A worker that claims to be ahead stops no server.
RIG_TEST(a_worker_that_is_ahead_stops_nobody, struct rig *r)
{
    struct rig_call h;
    rig_serve(r, 3 * LH_SECOND);
    rig_log(r, 1, 8);
    struct lh_hash chain = {{1}};
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__Point from = lh_head_point(0, 1, 20, &chain);
    m.from = &from;
    m.standby = 7;
    r->server->shard[0]->insync.noted = 7; // the request names the standby, but comes from a worker
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    rig_call_open(r, 0, LH_RPC_FOLLOW, &rig_call_ops, &h);
    assert_int_equal(pb_send(h.call, &m.base), LH_OK);
    lh_call_read(h.call);
    rig_call_wait(r, &h);
    assert_int_equal(h.status, LH_ERR_NOT_FOUND);
    assert_int_equal(r->fatal_count, 0);
    rig_log(r, 9, 9);
}
