// Connection: the parts of a shard about its server: the session, the push on its way, and what is
// known of the history that it serves. See worker/shard.h.
#ifndef WK_CONNECTION_H
#define WK_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/estimate.h"
#include "common/net/rpc.h"
#include "common/net/transport.h"

struct wk_entry;

// One push on its way to the server (push/sender.c).
struct wk_sender {
    struct lh_call *call;
    struct wk_entry *entry;
    struct lh_blob *frame; // the entry's, held while there is a call
    size_t at;             // bytes of the frame that were given to the call
    int sending;           // parts that the call has not sent yet
    bool probing, finished;
    int64_t sent_ns; // when the frame's first byte was given to this call; 0: not all of it was
};

// The way to the server as transfers show it (push/path.c).
struct wk_path {
    struct lh_estimate push_s, up, down; // up, down: bytes a second
};

// The session with the shard's server (push/session.c; member.c sets address and link).
struct wk_session {
    char address[LH_ADDRESS_BYTES];
    struct lh_link *link;    // NULL: the coordinator has named no address yet
    uint64_t server;         // its identity, as the coordinator says; 0: not known
    uint64_t process;        // the server process that knows this incarnation; 0: no session
    uint64_t ignored;        // the last process of which was said that its history is older
    struct lh_unary *hello;  // the greeting under way; NULL: none
    struct wk_sender sender; // the push under way
    uint64_t timer;          // the next greeting; 0: none is due
    uint32_t tries;          // greetings in a row that failed
    uint32_t refused;        // pushes in a row that were refused
    bool after_cut;          // an answer came during a cut: greets again when the cut is over
};

// The shard's history as far as it is known here (push/history.c). Within an epoch it never goes
// back.
struct wk_history {
    uint64_t heard_epoch;   // the last server that was believed in this life had it; 0: none
    uint64_t decided_epoch; // the last decision that was heard belongs to it (slot.h); 0: not known
    uint64_t told_epoch;    // the newest that the coordinator named; 0: none
    uint64_t told_version;  // the newest version of told_epoch that the coordinator named
    struct {                // as of the last hello that was sent
        uint64_t epoch, version;
    } asked;
};

#endif
