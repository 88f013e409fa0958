// In sync: which standby must hold a record before it is acknowledged.
#ifndef PS_INSYNC_H
#define PS_INSYNC_H

#include <jansson.h>

#include "common/format/point.h"
#include "common/net/listener.h"
#include "common/net/transport.h"

struct lh_unary;
struct ps_item;
struct ps_server;
struct ps_shard;

enum ps_insync_state { PS_ALONE, PS_CATCHING, PS_JOINING, PS_IN_SYNC, PS_LEAVING };

struct ps_insync { // the standby that must hold a record before it is acknowledged
    enum ps_insync_state state;
    uint64_t standby;        // the number of its directory; 0: none
    uint64_t noted;          // the standby that the coordinator's last answer named; 0: none
    uint64_t confirmed;      // version up to which the standby holds the log durably
    uint64_t answered;       // version that it must hold to join, while it is catching up
    bool known;              // `changes` is known
    bool settled;            // the coordinator has noted what is wanted
    bool failed;             // the last request failed
    uint64_t changes;        // changes of the note so far
    uint64_t least;          // changes of the note once what is wanted is noted
    struct lh_point checked; // what the coordinator said that the standby holds; all of it is ours
    struct ps_item *waiting, **waiting_end; // answers, by the version that they wait for
    struct lh_listener listener;            // listens since the first of them waits
    int64_t progress_ns;                    // the standby's last progress, by the listener's clock
    struct lh_trip trip;                    // the round trip of its path to us, as it says
    int64_t hold_ns; // until then the noted standby may still show that this log is an older copy
    struct lh_unary *ask;
    uint64_t timer;
};

// The shards are served from here on. `noted`: the coordinator named a standby at this start.
LH_MUST lh_err ps_insync_start(struct ps_server *s, bool noted);
// Takes a decided item: it is done, and freed, now or when the standby in sync holds it.
void ps_insync_answer(struct ps_item *i);
// The standby that the coordinator noted, as far as its answers say (0: none), and how often the
// note changed; *changes 0: not known.
uint64_t ps_insync_noted(const struct ps_shard *s, uint64_t *changes);
LH_MUST lh_err ps_confirm_accept(struct ps_server *s, struct lh_call *call,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **self);
json_t *ps_insync_status(const struct ps_shard *s); // gives it
void ps_insync_close(struct ps_shard *s);           // takes no timer any more
void ps_insync_free(struct ps_shard *s);

#endif
