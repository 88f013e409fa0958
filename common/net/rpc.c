// Messages on calls. See rpc.h.
#include "common/net/rpc.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_data.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"

enum { BULK_TAG = 15 << 3 | 2 };
enum { USUAL_HEAD = 1024 }; // tried first, to avoid copying 64 KiB of each message

static const struct {
    const struct lh_wire_type *request, *answer;
} types[LH_RPC_COUNT] = {
#define LH_RPC_ROW(id, path, roles, request_, answer_)                                             \
    [id] = {&lh_wire_##request_, &lh_wire_##answer_},
    LH_RPCS(LH_RPC_ROW)
#undef LH_RPC_ROW
};

const struct lh_wire_type *lh_rpc_request(enum lh_rpc rpc)
{
    LH_ASSERT((unsigned)rpc < LH_RPC_COUNT);
    return types[rpc].request;
}

const struct lh_wire_type *lh_rpc_answer(enum lh_rpc rpc)
{
    LH_ASSERT((unsigned)rpc < LH_RPC_COUNT);
    return types[rpc].answer;
}

lh_err lh_rpc_pack(const ProtobufCMessage *m, struct lh_buf *out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *at = lh_buf_grow(out, n);
    if (at && n) protobuf_c_message_pack(m, at);
    return lh_buf_err(out);
}

lh_err lh_send(struct lh_call *call, const struct lh_wire_type *type, const void *message)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_err err = lh_wire_put(type, message, &b);
    if (!err) err = lh_call_send(call, &(struct lh_out){.head = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static void put_varint(struct lh_buf *b, uint64_t v)
{
    for (; v >= 128; v >>= 7) lh_put_u8(b, (uint8_t)(v | 128));
    lh_put_u8(b, (uint8_t)v);
}

lh_err lh_send_bulk(struct lh_call *call, const struct lh_wire_type *type, const void *head,
                    struct lh_blob *bulk, size_t at, size_t n)
{
    struct lh_buf b = lh_buf(LH_HEAD_BYTES);
    LH_ASSERT(n <= LH_PART_BYTES);
    LH_ASSERT(bulk ? at <= bulk->len && n <= bulk->len - at : n == 0);
    lh_err err = lh_wire_put(type, head, &b);
    put_varint(&b, BULK_TAG);
    put_varint(&b, n);
    if (!err) err = lh_buf_err(&b);
    if (!err)
        err = lh_call_send(
            call, &(struct lh_out){.head = lh_buf_span(&b), .bulk = bulk, .at = at, .n = n});
    lh_buf_free(&b);
    return err;
}

// Copies the first n bytes of a message (a small one, or a head) into `out`.
static lh_err flatten(const struct lh_msg *msg, size_t n, struct lh_buf *out)
{
    uint8_t *at = lh_buf_grow(out, n);
    if (n && !at) return lh_buf_err(out);
    return n == 0 || lh_msg_copy(msg, 0, at, n) ? LH_OK : LH_ERR_MALFORMED;
}

lh_err lh_take(const struct lh_msg *msg, const struct lh_wire_type *type, struct lh_got *out)
{
    *out = (struct lh_got){0};
    if (msg->len > LH_SMALL_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "a %s of %zu bytes, at most %d are read",
                       lh_wire_name(type), msg->len, LH_SMALL_BYTES);
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_err err = flatten(msg, msg->len, &b);
    if (!err) err = lh_wire_get(type, lh_buf_span(&b), out);
    lh_buf_free(&b);
    return err;
}

// Walks fields in `c` until the bulk's tag. Returns the head's length and the bulk's claimed
// length.
static lh_err find_bulk(struct lh_cursor *c, size_t *head, uint64_t *bulk)
{
    const uint8_t *start = c->at;
    uint64_t tag, n;
    for (;;) {
        *head = (size_t)(c->at - start);
        if (!lh_wire_tag(c, &tag, &n))
            return lh_fail(LH_ERR_MALFORMED, "a bulk message without its bulk");
        if (tag == BULK_TAG) {
            *bulk = n;
            return LH_OK;
        }
        if ((tag & 7) == 2) (void)lh_get(c, n < SIZE_MAX ? (size_t)n : SIZE_MAX);
    }
}

// Parses the head from the first `window` bytes of a message, or from all of a shorter one.
static lh_err parse_window(const struct lh_msg *msg, size_t window, const struct lh_wire_type *type,
                           struct lh_got *head, size_t *at)
{
    struct lh_buf b = lh_buf(window);
    if (window > msg->len) window = msg->len;
    lh_err err = flatten(msg, window, &b);
    struct lh_cursor c = lh_cursor(lh_buf_span(&b));
    size_t head_bytes = 0;
    uint64_t bulk = 0;
    if (!err) err = find_bulk(&c, &head_bytes, &bulk);
    *at = window - lh_left(&c);
    if (!err && bulk != msg->len - *at)
        err = lh_fail(LH_ERR_MALFORMED, "a bulk of %llu bytes in a message with %zu",
                      (unsigned long long)bulk, msg->len - *at);
    if (!err) err = lh_wire_get(type, lh_span(b.data, head_bytes), head);
    lh_buf_free(&b);
    return err;
}

lh_err lh_take_bulk(const struct lh_msg *msg, const struct lh_wire_type *type, struct lh_got *head,
                    size_t *at)
{
    *head = (struct lh_got){0};
    if (msg->len > LH_MESSAGE_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "a message of %zu bytes, at most %d are read", msg->len,
                       LH_MESSAGE_BYTES);
    if (!parse_window(msg, USUAL_HEAD, type, head, at)) return LH_OK;
    return parse_window(msg, LH_HEAD_BYTES + 64, type, head, at);
}

lh_err lh_wire_negotiate(uint32_t peer_min, uint32_t peer_max, uint32_t *out)
{
    uint32_t low = peer_min > LH_WIRE_VERSION_MIN ? peer_min : LH_WIRE_VERSION_MIN;
    uint32_t high = peer_max < LH_WIRE_VERSION_MAX ? peer_max : LH_WIRE_VERSION_MAX;
    if (low > high)
        return lh_fail(LH_ERR_VERSION,
                       "peer speaks wire versions %u to %u, this build %d to %d; "
                       "upgrade the older side",
                       peer_min, peer_max, LH_WIRE_VERSION_MIN, LH_WIRE_VERSION_MAX);
    *out = high;
    return LH_OK;
}

// ---------------------------------------------------------------- client: one request, one answer

struct lh_unary {
    struct lh_call *call;
    const struct lh_wire_type *type;
    lh_asked_fn done; // NULL: cancelled
    void *self;
    struct lh_got answer;
    bool answered;
    lh_err bad;
};

static void unary_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct lh_unary *u = self;
    if (u->answered || u->bad) return;
    u->bad = lh_take(msg, u->type, &u->answer);
    u->answered = !u->bad;
    if (u->bad)
        lh_call_cancel(call);
    else
        lh_call_read(call); // the status follows the last message
}

static void unary_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct lh_unary *u = self;
    lh_err err = u->bad ? u->bad : status;
    if (!err && !u->answered)
        err = lh_fail(LH_ERR_MALFORMED, "an empty answer");
    else if (err && !u->bad)
        err = lh_fail(err, "%s", text);
    if (u->done) u->done(u->self, err, err ? NULL : u->answer.message);
    lh_got_free(&u->answer);
    free(u);
}

static const struct lh_call_ops unary_ops = {unary_message, lh_call_nothing, lh_call_nothing,
                                             unary_close};

lh_err lh_ask(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
              const struct lh_wire_type *type, const void *request, lh_asked_fn done, void *self,
              struct lh_unary **out)
{
    LH_ASSERT(type == lh_rpc_request(rpc));
    struct lh_unary *u = calloc(1, sizeof *u);
    if (!u) return LH_ERR_NO_MEMORY;
    *u = (struct lh_unary){.type = lh_rpc_answer(rpc), .done = done, .self = self};
    lh_err err = lh_call_open(link, rpc, deadline_ns, &unary_ops, u, &u->call);
    if (err) free(u);
    LH_TRY(err);
    err = lh_send(u->call, type, request);
    if (err) { // the following on_close frees it
        lh_unary_cancel(u);
        return err;
    }
    lh_call_finish(u->call, LH_OK, NULL);
    lh_call_read(u->call);
    *out = u;
    return LH_OK;
}

void lh_unary_cancel(struct lh_unary *u)
{
    u->done = NULL;
    lh_call_cancel(u->call);
}

// ---------------------------------------------------------------- server: one request, one answer

struct lh_request {
    struct lh_call *call; // NULL: the client is gone
    struct lh_peer peer;
    const struct lh_wire_type *type;
    lh_answer_fn handle;
    void *self;
    bool handled, replied;
};

static void request_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct lh_request *rq = self;
    if (rq->handled) return;
    struct lh_got got;
    lh_err err = lh_take(msg, rq->type, &got);
    rq->handled = true;
    if (err) {
        rq->replied = true;
        lh_call_finish(call, err, lh_err_text(err));
        return;
    }
    rq->handle(rq->self, rq, got.message); // it may free the request
    lh_got_free(&got);
}

static void request_half(void *self, struct lh_call *call)
{
    struct lh_request *rq = self;
    if (rq->handled) return;
    rq->handled = rq->replied = true;
    lh_call_finish(call, LH_ERR_MALFORMED, "a call without its request");
}

static void request_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct lh_request *rq = self;
    rq->call = NULL;
    if (rq->replied || !rq->handled) free(rq); // a request that is held is freed by its reply
}

static const struct lh_call_ops request_ops = {request_message, request_half, lh_call_nothing,
                                               request_close};

lh_err lh_request_take(struct lh_call *call, const struct lh_peer *peer,
                       const struct lh_wire_type *type, lh_answer_fn handle, void *self,
                       const struct lh_call_ops **ops, void **call_self)
{
    struct lh_request *rq = malloc(sizeof *rq);
    if (!rq) return LH_ERR_NO_MEMORY;
    *rq = (struct lh_request){
        .call = call, .peer = *peer, .type = type, .handle = handle, .self = self};
    *ops = &request_ops;
    *call_self = rq;
    lh_call_read(rq->call);
    return LH_OK;
}

const struct lh_peer *lh_request_peer(const struct lh_request *rq)
{
    return &rq->peer;
}

// Whether the client is still there; if not, the request is freed.
static bool replies(struct lh_request *rq)
{
    LH_ASSERT(!rq->replied);
    rq->replied = true;
    bool there = rq->call != NULL;
    if (!there) free(rq);
    return there;
}

static void finish(struct lh_request *rq, lh_err err, const char *text)
{
    lh_call_finish(rq->call, err, err ? text ? text : lh_err_text(err) : "");
}

void lh_answer(struct lh_request *rq, const struct lh_wire_type *type, const void *answer)
{
    if (replies(rq)) finish(rq, lh_send(rq->call, type, answer), NULL);
}

void lh_reply_packed(struct lh_request *rq, struct lh_span answer)
{
    if (replies(rq)) finish(rq, lh_call_send(rq->call, &(struct lh_out){.head = answer}), NULL);
}

void lh_reply_error(struct lh_request *rq, lh_err err, const char *text)
{
    if (replies(rq)) finish(rq, err, text);
}
