// Connection: a shard's state about its server: the session, the push in flight, and the known
// history. See worker/shard.h.
#ifndef WK_CONNECTION_H
#define WK_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/estimate.h"
#include "common/net/rpc.h"
#include "common/net/transport.h"

struct wk_entry;

// One push in flight to the server (push/sender.c).
struct wk_sender {
    struct lh_call *call;
    struct wk_entry *entry;
    struct lh_blob *frame; // the entry's frame, held during the call
    size_t at;             // bytes of the frame given to the call
    int sending;           // parts that the call has not sent yet
    bool probing, finished;
    int64_t sent_ns; // when this call got the frame's first byte; 0: an earlier call sent a part
};

// The path to the server, as measured from transfers (push/path.c).
struct wk_path {
    struct lh_estimate push_s, up, down; // up, down: bytes a second
};

// The session with the shard's server (push/session.c; member.c sets address and link).
struct wk_session {
    char address[LH_ADDRESS_BYTES];
    struct lh_link *link;    // NULL: the coordinator has named no address yet
    uint64_t server;         // the server's identity, as the coordinator names it; 0: not known
    uint64_t process;        // the server process of the open session; 0: no session
    uint64_t ignored;        // last server process logged as having an older history
    struct lh_unary *hello;  // the greeting in flight; NULL: none
    struct wk_sender sender; // the push in flight
    uint64_t timer;          // the next greeting; 0: none is due
    uint32_t tries;          // greetings in a row that failed
    uint32_t refused;        // pushes in a row that were refused
    bool after_cut;          // an answer arrived during a cut: greet again after the cut
    bool filled;             // this session's path was filled (push/fill.c)
    uint32_t raises;         // incarnations that its rows made this worker open, of late
    int64_t raised_ns;       // since when the oldest of them is being forgotten
};

// The known history of the shard (push/history.c). Within an epoch it never goes back.
struct wk_history {
    uint64_t heard_epoch;   // epoch of the last server accepted in this life; 0: none
    uint64_t decided_epoch; // epoch of the last decision heard (slot.h); 0: not known
    uint64_t told_epoch;    // newest epoch that the coordinator named; 0: none
    uint64_t told_version;  // newest version of told_epoch that the coordinator named
    struct {                // as of the last hello sent
        uint64_t epoch, version;
    } asked;
};

#endif
