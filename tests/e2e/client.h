// A worker that trains nothing, for tests and benches of real servers: it dials one with a run's
// certificates, greets it, and seals frames of what its caller makes up.
#ifndef TESTS_E2E_CLIENT_H
#define TESTS_E2E_CLIENT_H

#include "common/format/frame.h"
#include "common/net/transport.h"
#include "common/net/wire_shard.h"
#include "kernels/codec.h"

// argv[1] to argv[7] of a program that has a client
#define CLIENT_USAGE "CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS"
enum { CLIENT_ARGS = 8 };

struct client {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_link *link;
    struct lh_keyring *keys;
    struct lh_manifest manifest;
    const struct lh_shard_layout *layout;
    struct lh_frame head; // head of its frames; `step` is the last one decided, once it has greeted
    uint64_t process;     // the server's
    lh_err err;           // result of the greeting
    bool greeted;
};

// Whatever fails, client_close() frees what there is.
LH_MUST lh_err client_open(struct client *c, char **argv);
// Runs the env until the server has answered.
LH_MUST lh_err client_greet(struct client *c);
// Appends a payload of the values step, 2 step, ... period step, step, ... to `plain`, and puts
// what the codec says of it into the head.
LH_MUST lh_err client_encode(struct client *c, const struct lk_codec *codec, float step,
                             uint64_t period, struct lh_buf *plain);
// A frame of the head and this payload, into *frame: a blob of its size, or NULL for a new one.
LH_MUST lh_err client_seal(struct client *c, struct lh_span plain, struct lh_blob **frame);
// The head of the frame's push.
struct lh_push_head client_push_head(const struct client *c, const struct lh_blob *frame,
                                     const struct lh_digest *digest);
void client_half_closed(void *self, struct lh_call *call); // nothing follows from it
void client_close(struct client *c);

#endif
