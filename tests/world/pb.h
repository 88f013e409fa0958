// Messages on calls as protobuf-c's own structs, for tests that play a peer: the tables of
// common/net/wire.h then read bytes that they did not make.
#ifndef TESTS_WORLD_PB_H
#define TESTS_WORLD_PB_H

#include <protobuf-c/protobuf-c.h>

#include "common/net/transport.h"

// Sends a message without bulk.
LH_MUST lh_err pb_send(struct lh_call *call, const ProtobufCMessage *message);
// Sends `head` and bytes [at, at + n) of `bulk`.
LH_MUST lh_err pb_send_bulk(struct lh_call *call, const ProtobufCMessage *head,
                            struct lh_blob *bulk, size_t at, size_t n);
// Unpacks a message without bulk; free with protobuf_c_message_free_unpacked(m, NULL).
// LH_ERR_MALFORMED.
LH_MUST lh_err pb_parse(const struct lh_msg *msg, const ProtobufCMessageDescriptor *type,
                        ProtobufCMessage **out);

// A call with one request and one answer. Calls done(self, LH_OK, answer) with the answer, which is
// valid until done() returns, or done(self, error, NULL) with its text in lh_err_text(): exactly
// once.
typedef void (*pb_done_fn)(void *self, lh_err err, const ProtobufCMessage *answer);
LH_MUST lh_err pb_ask(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                      const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer,
                      pb_done_fn done, void *self);

#endif
