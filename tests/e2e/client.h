// A worker that trains nothing, for tests and benches of real servers: dials a server with a run's
// certificates, greets it, and seals frames whose contents the caller chooses.
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
    struct lh_frame head; // head of its frames; after the greeting `step` is the last decided one
    uint64_t process;     // the server's
    lh_err err;           // result of the greeting
    bool greeted;
};

// Even after an error client_close() frees everything.
LH_MUST lh_err client_open(struct client *c, char **argv);
// Runs the env until the server has answered.
LH_MUST lh_err client_greet(struct client *c);
// Appends a payload of the values step, 2 step, ... period step, step, ... to `plain`, and writes
// the codec's lengths and counts into the head.
LH_MUST lh_err client_encode(struct client *c, const struct lk_codec *codec, float step,
                             uint64_t period, struct lh_buf *plain);
// Seals head and payload into *frame: a blob of the right size, or NULL for a new one.
LH_MUST lh_err client_seal(struct client *c, struct lh_span plain, struct lh_blob **frame);
// The head of the frame's push.
struct lh_push_head client_push_head(const struct client *c, const struct lh_blob *frame,
                                     const struct lh_digest *digest);
void client_half_closed(void *self, struct lh_call *call); // does nothing
void client_close(struct client *c);

#endif
