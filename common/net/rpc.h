// Messages on calls: plain structs (wire.h) for small messages, hand-framed bulk bytes.
//
// A bulk message is a protobuf message whose last field, number 15 of type bytes, is opaque. Its
// head (all other fields) is packed as usual; the bulk's tag and length follow, then its bytes as
// slices of a shared blob. The receiver finds the bulk by walking the tags, copies the small head
// and walks the bulk's slices. So we copy the bulk once on receipt (into the assembled frame) and
// never on sending.
#ifndef LH_COMMON_RPC_H
#define LH_COMMON_RPC_H

#include <protobuf-c/protobuf-c.h>

#include "common/net/transport.h"
#include "common/net/wire.h"

// The types of an RPC's request and answer, which its row in transport.h names.
const struct lh_wire_type *lh_rpc_request(enum lh_rpc rpc);
const struct lh_wire_type *lh_rpc_answer(enum lh_rpc rpc);

// Sends a message without bulk.
LH_MUST lh_err lh_send(struct lh_call *call, const struct lh_wire_type *type, const void *message);
// Sends `head` and bytes [at, at + n) of `bulk`; n <= LH_PART_BYTES.
LH_MUST lh_err lh_send_bulk(struct lh_call *call, const struct lh_wire_type *type, const void *head,
                            struct lh_blob *bulk, size_t at, size_t n);
// Reads a message without bulk of at most LH_SMALL_BYTES; free with lh_got_free().
// LH_ERR_MALFORMED, LH_ERR_TOO_LARGE.
LH_MUST lh_err lh_take(const struct lh_msg *msg, const struct lh_wire_type *type,
                       struct lh_got *out);
// Splits a bulk message; the bulk is bytes [*at, msg->len).
LH_MUST lh_err lh_take_bulk(const struct lh_msg *msg, const struct lh_wire_type *type,
                            struct lh_got *head, size_t *at);

// A call with one request, of the RPC's type, and one answer, from the client's side. Calls
// done(self, LH_OK, answer) with the answer's plain struct, which is valid until done() returns, or
// done(self, error, NULL) with its text in lh_err_text(): exactly once, then frees the unary.
struct lh_unary;
typedef void (*lh_asked_fn)(void *self, lh_err err, const void *answer);
LH_MUST lh_err lh_ask(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                      const struct lh_wire_type *type, const void *request, lh_asked_fn done,
                      void *self, struct lh_unary **out);
void lh_unary_cancel(struct lh_unary *u); // done() is no longer called

// The same from the server's side: one request is read, handed to `handle`, and answered by
// lh_answer() or lh_reply_error(), at once or later, even after the client has gone.
struct lh_request;
typedef void (*lh_answer_fn)(void *self, struct lh_request *rq, const void *request);
LH_MUST lh_err lh_request_take(struct lh_call *call, const struct lh_peer *peer,
                               const struct lh_wire_type *type, lh_answer_fn handle, void *self,
                               const struct lh_call_ops **ops, void **call_self);
const struct lh_peer *lh_request_peer(const struct lh_request *rq);
void lh_answer(struct lh_request *rq, const struct lh_wire_type *type, const void *answer);
// `answer` comes from lh_wire_put().
void lh_reply_packed(struct lh_request *rq, struct lh_span answer);
void lh_reply_error(struct lh_request *rq, lh_err err, const char *text);

// Packs protobuf-c's own struct, for etcd's messages.
LH_MUST lh_err lh_rpc_pack(const ProtobufCMessage *message, struct lh_buf *out);

// ---- version negotiation (proto/longhaul/v1/README.md)
// Highest common wire version, or LH_ERR_VERSION with a text that names both ranges.
LH_MUST lh_err lh_wire_negotiate(uint32_t peer_min, uint32_t peer_max, uint32_t *out);

#endif
