// Messages on calls. See rpc.h.
#include "common/net/rpc.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

enum { BULK_TAG = 15 << 3 | 2 };
enum { USUAL_HEAD = 1024 }; // tried first, to avoid copying 64 KiB of each message

lh_err lh_rpc_pack(const ProtobufCMessage *m, struct lh_buf *out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *at = lh_buf_grow(out, n);
    if (at && n) protobuf_c_message_pack(m, at);
    return lh_buf_err(out);
}

lh_err lh_rpc_send(struct lh_call *call, const ProtobufCMessage *message)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_err err = lh_rpc_pack(message, &b);
    if (!err) err = lh_call_send(call, &(struct lh_out){.head = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
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

// Sends the packed head in `b`, which it frees, and the bulk. `err`: of packing.
static lh_err send_bulk(struct lh_call *call, struct lh_buf *b, lh_err err, struct lh_blob *bulk,
                        size_t at, size_t n)
{
    LH_ASSERT(n <= LH_PART_BYTES);
    LH_ASSERT(bulk ? at <= bulk->len && n <= bulk->len - at : n == 0);
    put_varint(b, BULK_TAG);
    put_varint(b, n);
    if (!err) err = lh_buf_err(b);
    if (!err)
        err = lh_call_send(
            call, &(struct lh_out){.head = lh_buf_span(b), .bulk = bulk, .at = at, .n = n});
    lh_buf_free(b);
    return err;
}

lh_err lh_send_bulk(struct lh_call *call, const struct lh_wire_type *type, const void *head,
                    struct lh_blob *bulk, size_t at, size_t n)
{
    struct lh_buf b = lh_buf(LH_HEAD_BYTES);
    return send_bulk(call, &b, lh_wire_put(type, head, &b), bulk, at, n);
}

lh_err lh_rpc_send_bulk(struct lh_call *call, const ProtobufCMessage *head, struct lh_blob *bulk,
                        size_t at, size_t n)
{
    struct lh_buf b = lh_buf(LH_HEAD_BYTES);
    return send_bulk(call, &b, lh_rpc_pack(head, &b), bulk, at, n);
}

// How a message is read: into a plain struct, or into protobuf-c's.
struct form {
    const struct lh_wire_type *wire; // NULL: protobuf-c's
    const ProtobufCMessageDescriptor *type;
};
struct read { // the form says which
    struct lh_got got;
    ProtobufCMessage *m;
};

static const char *name_of(const struct form *f)
{
    return f->wire ? lh_wire_name(f->wire) : f->type->name;
}

static lh_err unpack(struct lh_span s, const struct form *f, struct read *out)
{
    if (f->wire) return lh_wire_get(f->wire, s, &out->got);
    out->m = protobuf_c_message_unpack(f->type, NULL, s.len, s.data);
    return out->m ? LH_OK : lh_fail(LH_ERR_MALFORMED, "a %s that can't be read", f->type->name);
}

// Copies the first n bytes of a message (a small one, or a head) into `out`.
static lh_err flatten(const struct lh_msg *msg, size_t n, struct lh_buf *out)
{
    uint8_t *at = lh_buf_grow(out, n);
    if (n && !at) return lh_buf_err(out);
    return n == 0 || lh_msg_copy(msg, 0, at, n) ? LH_OK : LH_ERR_MALFORMED;
}

static lh_err parse(const struct lh_msg *msg, const struct form *f, struct read *out)
{
    if (msg->len > LH_SMALL_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "a %s of %zu bytes, at most %d are read", name_of(f),
                       msg->len, LH_SMALL_BYTES);
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_err err = flatten(msg, msg->len, &b);
    if (!err) err = unpack(lh_buf_span(&b), f, out);
    lh_buf_free(&b);
    return err;
}

lh_err lh_take(const struct lh_msg *msg, const struct lh_wire_type *type, struct lh_got *out)
{
    struct read r = {0};
    lh_err err = parse(msg, &(struct form){.wire = type}, &r);
    *out = r.got;
    return err;
}

lh_err lh_rpc_parse(const struct lh_msg *msg, const ProtobufCMessageDescriptor *type,
                    ProtobufCMessage **out)
{
    struct read r = {0};
    LH_TRY(parse(msg, &(struct form){.type = type}, &r));
    *out = r.m;
    return LH_OK;
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
static lh_err parse_window(const struct lh_msg *msg, size_t window, const struct form *f,
                           struct read *head, size_t *at)
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
    if (!err) err = unpack(lh_span(b.data, head_bytes), f, head);
    lh_buf_free(&b);
    return err;
}

static lh_err parse_bulk(const struct lh_msg *msg, const struct form *f, struct read *head,
                         size_t *at)
{
    if (msg->len > LH_MESSAGE_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "a message of %zu bytes, at most %d are read", msg->len,
                       LH_MESSAGE_BYTES);
    if (!parse_window(msg, USUAL_HEAD, f, head, at)) return LH_OK;
    return parse_window(msg, LH_HEAD_BYTES + 64, f, head, at);
}

lh_err lh_take_bulk(const struct lh_msg *msg, const struct lh_wire_type *type, struct lh_got *head,
                    size_t *at)
{
    struct read r = {0};
    lh_err err = parse_bulk(msg, &(struct form){.wire = type}, &r, at);
    *head = r.got;
    return err;
}

lh_err lh_rpc_parse_bulk(const struct lh_msg *msg, const ProtobufCMessageDescriptor *type,
                         ProtobufCMessage **head, size_t *at)
{
    struct read r = {0};
    LH_TRY(parse_bulk(msg, &(struct form){.type = type}, &r, at));
    *head = r.m;
    return LH_OK;
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
    struct form form;
    lh_unary_done done; // takes a protobuf-c's answer
    lh_asked_fn asked;  // takes a plain one
    void *self;
    struct read answer;
    bool answered;
    lh_err bad;
};

static void unary_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct lh_unary *u = self;
    if (u->answered || u->bad) return;
    u->bad = parse(msg, &u->form, &u->answer);
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
    if (u->done) u->done(u->self, err, err ? NULL : u->answer.m);
    if (u->asked) u->asked(u->self, err, err ? NULL : u->answer.got.message);
    if (u->answer.m) protobuf_c_message_free_unpacked(u->answer.m, NULL);
    lh_got_free(&u->answer.got);
    free(u);
}

static void ignore_call(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static const struct lh_call_ops unary_ops = {unary_message, ignore_call, ignore_call, unary_close};

// Opens the call of `is`; the caller sends the request next.
static lh_err open_unary(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                         const struct lh_unary *is, struct lh_unary **out)
{
    struct lh_unary *u = calloc(1, sizeof *u);
    if (!u) return LH_ERR_NO_MEMORY;
    *u = *is;
    lh_err err = lh_call_open(link, rpc, deadline_ns, &unary_ops, u, &u->call);
    if (err) free(u);
    if (!err) *out = u;
    return err;
}

// `err`: of sending the request.
static lh_err start_unary(struct lh_unary *u, lh_err err, struct lh_unary **out)
{
    if (err) { // the following on_close frees it
        lh_unary_cancel(u);
        return err;
    }
    lh_call_finish(u->call, LH_OK, NULL);
    lh_call_read(u->call);
    *out = u;
    return LH_OK;
}

lh_err lh_ask(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
              const struct lh_wire_type *type, const void *request,
              const struct lh_wire_type *answer, lh_asked_fn done, void *self,
              struct lh_unary **out)
{
    const struct lh_unary is = {.form = {.wire = answer}, .asked = done, .self = self};
    struct lh_unary *u;
    LH_TRY(open_unary(link, rpc, deadline_ns, &is, &u));
    return start_unary(u, lh_send(u->call, type, request), out);
}

lh_err lh_unary_start(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                      const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer,
                      lh_unary_done done, void *self, struct lh_unary **out)
{
    const struct lh_unary is = {.form = {.type = answer}, .done = done, .self = self};
    struct lh_unary *u;
    LH_TRY(open_unary(link, rpc, deadline_ns, &is, &u));
    return start_unary(u, lh_rpc_send(u->call, request), out);
}

void lh_unary_cancel(struct lh_unary *u)
{
    u->done = NULL;
    u->asked = NULL;
    lh_call_cancel(u->call);
}

// ---------------------------------------------------------------- server: one request, one answer

struct lh_request {
    struct lh_call *call; // NULL: the client is gone
    struct lh_peer peer;
    struct form form;
    lh_request_fn handle; // takes a protobuf-c's request
    lh_answer_fn answer;  // takes a plain one
    void *self;
    bool handled, replied;
};

static void request_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct lh_request *rq = self;
    if (rq->handled) return;
    struct read r = {0};
    lh_err err = parse(msg, &rq->form, &r);
    rq->handled = true;
    if (err) {
        rq->replied = true;
        lh_call_finish(call, err, lh_err_text(err));
        return;
    }
    if (rq->handle) { // handle() may free the request
        rq->handle(rq->self, rq, r.m);
        protobuf_c_message_free_unpacked(r.m, NULL);
        return;
    }
    rq->answer(rq->self, rq, r.got.message);
    lh_got_free(&r.got);
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

static const struct lh_call_ops request_ops = {request_message, request_half, ignore_call,
                                               request_close};

static lh_err accept(const struct lh_request *is, const struct lh_call_ops **ops, void **call_self)
{
    struct lh_request *rq = malloc(sizeof *rq);
    if (!rq) return LH_ERR_NO_MEMORY;
    *rq = *is;
    *ops = &request_ops;
    *call_self = rq;
    lh_call_read(rq->call);
    return LH_OK;
}

lh_err lh_request_take(struct lh_call *call, const struct lh_peer *peer,
                       const struct lh_wire_type *type, lh_answer_fn handle, void *self,
                       const struct lh_call_ops **ops, void **call_self)
{
    const struct lh_request is = {
        .call = call, .peer = *peer, .form = {.wire = type}, .answer = handle, .self = self};
    return accept(&is, ops, call_self);
}

lh_err lh_request_accept(struct lh_call *call, const struct lh_peer *peer,
                         const ProtobufCMessageDescriptor *type, lh_request_fn handle, void *self,
                         const struct lh_call_ops **ops, void **call_self)
{
    const struct lh_request is = {
        .call = call, .peer = *peer, .form = {.type = type}, .handle = handle, .self = self};
    return accept(&is, ops, call_self);
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

void lh_reply(struct lh_request *rq, const ProtobufCMessage *answer)
{
    if (replies(rq)) finish(rq, lh_rpc_send(rq->call, answer), NULL);
}

void lh_reply_packed(struct lh_request *rq, struct lh_span answer)
{
    if (replies(rq)) finish(rq, lh_call_send(rq->call, &(struct lh_out){.head = answer}), NULL);
}

void lh_reply_error(struct lh_request *rq, lh_err err, const char *text)
{
    if (replies(rq)) finish(rq, err, text);
}
