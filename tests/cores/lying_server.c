// Answers that are lies: some of a server's messages to a worker and to its standby are changed on
// their way: numbers, bytes and lists, the bulk behind them, and the status of a call. Worker and
// standby survive, and go on when the server tells the truth again.
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "tests/cores/life.h"

enum { ROUNDS = 12, HEAD_BYTES = 1 << 16, BULK_TAG = 15 << 3 | 2 };

static struct {
    uint64_t random;
    uint32_t every; // one message of so many is changed; 0: none
    uint32_t lies;
    enum lh_rpc about; // LH_RPC_COUNT: all calls
} liar;

static uint64_t draw(uint64_t below)
{
    liar.random = liar.random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (liar.random >> 33) % below;
}

static bool lies(enum lh_rpc rpc)
{
    bool about = liar.about == LH_RPC_COUNT || liar.about == rpc;
    if (!about || !liar.every || draw(liar.every)) return false;
    liar.lies++;
    return true;
}

// ---------------------------------------------------------------- a message's bytes

static uint64_t number(uint64_t was)
{
    static const uint64_t of[] = {0,
                                  1,
                                  2,
                                  UINT32_MAX,
                                  UINT64_C(1) << 32,
                                  UINT64_C(1) << 40,
                                  (UINT64_C(1) << 62) - 1,
                                  UINT64_C(1) << 62,
                                  INT64_MAX,
                                  UINT64_C(1) << 63,
                                  UINT64_MAX - 1,
                                  UINT64_MAX};
    switch (draw(4)) {
    case 0: return was + 1;
    case 1: return was - 1;
    case 2: return was + draw(1 << 21);
    default: return of[draw(sizeof of / sizeof *of)];
    }
}

static uint64_t varint(struct lh_cursor *c)
{
    uint64_t v = 0;
    for (unsigned at = 0; at < 70; at += 7) {
        uint8_t b = lh_get_u8(c);
        if (at < 64) v |= (uint64_t)(b & 127) << at;
        if (!(b & 128)) break;
    }
    return v;
}

static void put_varint(struct lh_buf *out, uint64_t v)
{
    for (; v > 127; v >>= 7) lh_put_u8(out, (uint8_t)(v | 128));
    lh_put_u8(out, (uint8_t)v);
}

static void copy_changed(struct lh_span message, struct lh_buf *out, unsigned depth);

static void put_part(struct lh_span was, bool change, struct lh_buf *out, unsigned depth)
{
    struct lh_buf part = lh_buf(HEAD_BYTES);
    switch (change ? draw(5) : 9) {
    case 0: break; // empty
    case 1:        // shorter
        if (was.len) lh_put(&part, was.data, draw(was.len));
        break;
    case 2: // one bit
        lh_put(&part, was.data, was.len);
        if (part.len) part.data[draw(part.len)] ^= (uint8_t)(1 << draw(8));
        break;
    case 3:
    case 4: // as a message
        copy_changed(was, &part, depth + 1);
        break;
    default: lh_put(&part, was.data, was.len);
    }
    put_varint(out, part.len);
    lh_put(out, part.data, part.len);
    lh_buf_free(&part);
}

// Copies the message with a few fields changed, left out or repeated.
static void copy_changed(struct lh_span message, struct lh_buf *out, unsigned depth)
{
    struct lh_cursor c = lh_cursor(message);
    while (lh_left(&c) && !c.failed && depth < 4) {
        uint64_t key = varint(&c);
        bool change = !draw(3);
        bool leave = change && !draw(4);
        struct lh_buf field = lh_buf(HEAD_BYTES);
        put_varint(&field, key);
        switch (key & 7) {
        case 0: {
            uint64_t v = varint(&c);
            put_varint(&field, change ? number(v) : v);
            break;
        }
        case 1: {
            uint64_t v = lh_get_u64(&c);
            lh_put_u64(&field, change ? number(v) : v);
            break;
        }
        case 5: {
            uint32_t v = lh_get_u32(&c);
            lh_put_u32(&field, change ? (uint32_t)number(v) : v);
            break;
        }
        case 2: {
            uint64_t n = varint(&c);
            struct lh_span part = lh_get(&c, n <= lh_left(&c) ? (size_t)n : lh_left(&c));
            put_part(part, change, &field, depth);
            break;
        }
        default: c.failed = true;
        }
        for (int times = leave ? 0 : change && !draw(6) ? 2 : 1; times > 0; times--)
            lh_put(out, field.data, field.len);
        lh_buf_free(&field);
    }
}

// ---------------------------------------------------------------- a call in between

struct between {
    struct lh_call call; // the server's end
    struct lh_call *real;
    const struct lh_call_ops *ops; // the server's
    void *self;
    enum lh_rpc rpc;
};

static size_t size_of_varint(size_t n)
{
    size_t bytes = 1;
    for (; n > 127; n >>= 7) bytes++;
    return bytes;
}

static lh_err send_lie(const struct between *b, const struct lh_out *m)
{
    size_t tail = m->bulk ? 1 + size_of_varint(m->n) : 0;
    struct lh_buf head = lh_buf(HEAD_BYTES);
    struct lh_blob *bulk = m->bulk ? lh_blob_new(m->n ? m->n : 1) : NULL;
    size_t n = m->n;
    copy_changed(lh_span(m->head.data, m->head.len - tail), &head, 0);
    if (bulk) {
        memcpy((uint8_t *)(uintptr_t)lh_blob_span(bulk).data, lh_blob_span(m->bulk).data + m->at,
               n);
        if (n && !draw(2)) ((uint8_t *)(uintptr_t)lh_blob_span(bulk).data)[draw(n)] ^= 1;
        if (n && !draw(4)) n = draw(n);
        lh_put_u8(&head, BULK_TAG);
        put_varint(&head, n);
    }
    const struct lh_out out = {lh_buf_span(&head), bulk, 0, n};
    lh_err err = b->real->transport_ops->send(b->real, &out);
    lh_buf_free(&head);
    if (bulk) lh_blob_release(bulk);
    return err;
}

static lh_err on_send(struct lh_call *call, const struct lh_out *m)
{
    const struct between *b = (const struct between *)call;
    return lies(b->rpc) ? send_lie(b, m) : b->real->transport_ops->send(b->real, m);
}

static void on_read(struct lh_call *call)
{
    lh_call_read(((struct between *)call)->real);
}

static void on_finish(struct lh_call *call, lh_err status, const char *text)
{
    struct between *b = (struct between *)call;
    if (lies(b->rpc) && !draw(4)) status = (lh_err)draw(LH_ERR_COUNT);
    lh_call_finish(b->real, status, text);
}

static void on_cancel(struct lh_call *call)
{
    lh_call_cancel(((struct between *)call)->real);
}

static const struct lh_transport_ops between_ops = {
    .send = on_send, .read = on_read, .finish = on_finish, .cancel = on_cancel};

static void pass_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct between *b = self;
    (void)call;
    b->ops->on_message(b->self, &b->call, msg);
}

static void pass_half_close(void *self, struct lh_call *call)
{
    struct between *b = self;
    (void)call;
    b->ops->on_half_close(b->self, &b->call);
}

static void pass_sent(void *self, struct lh_call *call)
{
    struct between *b = self;
    (void)call;
    b->ops->on_sent(b->self, &b->call);
}

static void pass_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct between *b = self;
    (void)call;
    b->ops->on_close(b->self, &b->call, status, text);
    test_free(b);
}

static const struct lh_call_ops passing = {pass_message, pass_half_close, pass_sent, pass_close};

static lh_err open_between(const struct lh_service *server, const struct lh_peer *peer,
                           enum lh_rpc rpc, struct lh_call *call, const struct lh_call_ops **ops,
                           void **self)
{
    struct between *b = test_calloc(1, sizeof *b);
    b->call.transport_ops = &between_ops;
    b->real = call;
    b->rpc = rpc;
    lh_err err = server->on_call(server->self, &b->call, rpc, peer, &b->ops, &b->self);
    if (err) {
        test_free(b);
        return err;
    }
    *ops = &passing;
    *self = b;
    return LH_OK;
}

static bool stand_between(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                          const struct lh_call_ops **ops, void **self)
{
    return liar.every && !open_between(&l->service, &l->rig->w[1].self, rpc, call, ops, self);
}

// ---------------------------------------------------------------- lives

static uint32_t ended;

static void note_end(void *arg, lh_err err, const char *text)
{
    (void)arg;
    print_message("it ended: %s, %s\n", lh_err_name(err), text);
    ended++;
}

static void tell_truth_again(struct life *l)
{
    liar.every = 0;
    rig_kill_server(l->rig, false); // ends the calls that are under way
    assert_int_equal(rig_start_server(l->rig, false), LH_OK);
    life_hook(l);
    const struct wk_shard *s = &l->worker->shard[0];
    const uint64_t cuts = s->progress.cut_count + 2;
    // The worker may have to wait before it opens another incarnation (incarnation.held).
    for (int i = 0; i < 100 && s->progress.cut_count < cuts; i++) life_run(l, LH_SECOND);
    assert_true(s->progress.cut_count >= cuts);
    life_rest(l);
}

static void live_beside(enum lh_rpc about, uint32_t every, uint64_t seed)
{
    const char *more = getenv("LIES_SEED"); // set by hand to try other lies
    liar.random = seed + (more ? strtoull(more, NULL, 10) : 941);
    struct life *l = life_begin(seed, 1);
    l->worker->conf.fatal = note_end;
    l->on_call = stand_between;
    for (int i = 0; i < ROUNDS; i++) {
        liar.about = about;
        liar.every = every;
        // The worker greets and follows again, and every second time it needs a snapshot.
        if (i % 2) l->worker->shard[0].stream.need_snapshot = true;
        rig_kill_server(l->rig, false);
        if (about == LH_RPC_OFFER) lh_fake_disk_wipe(l->rig->s.env); // it needs a state
        assert_int_equal(rig_start_server(l->rig, false), LH_OK);
        life_hook(l);
        life_run(l, 5 * LH_SECOND);
        if (ended || l->worker->stopped) fail_msg("%s: it ended", lh_rpc_path(about));
        tell_truth_again(l);
    }
    l->on_call = NULL;
    life_end(l);
}

TEST(no_answer_of_a_server_ends_a_worker_or_keeps_it)
{
    static const enum lh_rpc rpcs[] = {LH_RPC_HELLO, LH_RPC_PUSH, LH_RPC_FOLLOW, LH_RPC_SNAPSHOT,
                                       LH_RPC_OFFER};
    liar.lies = 0;
    for (size_t i = 0; i < sizeof rpcs / sizeof *rpcs; i++) {
        uint32_t before = liar.lies;
        live_beside(rpcs[i], 2, 31 + i);
        assert_true(liar.lies > before); // some answers were changed
    }
}

TEST(no_mix_of_lies_ends_a_worker_or_keeps_it)
{
    for (uint64_t seed = 0; seed < 6; seed++) live_beside(LH_RPC_COUNT, 3, 50 + seed);
}

static struct lh_service honest;

static lh_err to_standby(void *self, struct lh_call *call, enum lh_rpc rpc,
                         const struct lh_peer *peer, const struct lh_call_ops **ops,
                         void **call_self)
{
    (void)self;
    if (liar.every && peer->role == LH_S)
        return open_between(&honest, peer, rpc, call, ops, call_self);
    return honest.on_call(honest.self, call, rpc, peer, ops, call_self);
}

static void start_owner(struct rig *r)
{
    assert_int_equal(rig_start_server(r, false), LH_OK);
    honest = r->server->service;
    r->server->service = (struct lh_service){NULL, to_standby};
}

// The servers of a shard trust each other, but no message of one may end the other.
TEST(a_standby_lives_beside_an_owner_that_lies)
{
    const char *more = getenv("LIES_SEED");
    for (uint64_t seed = 0; seed < 4; seed++) {
        const uint32_t before = liar.lies;
        struct rig *r = rig_new(70 + seed);
        uint64_t number = 6;
        rig_begin_in_sync(r);
        liar.random = 90 + seed + (more ? strtoull(more, NULL, 10) : 0);
        liar.about = LH_RPC_COUNT;
        for (int i = 0; i < ROUNDS; i++) {
            liar.every = 0;
            rig_kill_server(r, false);
            start_owner(r);
            rig_run(r, 3 * LH_SECOND);
            liar.every = 3;
            for (int k = 0; k < 4; k++) {
                rig_greet(r, 0, ++number << 32, 0, 1);
                rig_run(r, 2 * LH_SECOND);
            }
            if (r->fatal_count) fail_msg("it ended: %s", r->fatal_text);
        }
        liar.every = 0;
        rig_kill_server(r, false);
        start_owner(r);
        rig_run(r, 20 * LH_SECOND);
        rig_hello(r, 0, ++number << 32, 0, 1);
        rig_run(r, 2 * LH_SECOND);
        assert_true(liar.lies > before + ROUNDS);
        assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
        assert_int_equal(rig_fenced(r, r->standby, 0), number);
        rig_free(r);
    }
}
