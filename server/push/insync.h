// In sync: which standby must hold a record before it is acknowledged.
#ifndef PS_INSYNC_H
#define PS_INSYNC_H

#include <jansson.h>

#include "common/format/point.h"
#include "common/net/listener.h"
#include "common/net/transport.h"

struct lh_request;
struct lh_unary;
struct ps_item;
struct ps_server;
struct ps_shard;

enum ps_insync_state { PS_ALONE, PS_CATCHING, PS_JOINING, PS_IN_SYNC, PS_LEAVING };

struct ps_insync { // the standby that must hold a record before it is acknowledged
    enum ps_insync_state state;
    uint64_t standby;        // number of the standby's directory; 0: none
    uint64_t noted;          // standby named by the coordinator's last answer; 0: none
    uint64_t confirmed;      // version up to which the standby holds the log durably
    uint64_t answered;       // version at which a catching-up standby may join
    bool known;              // `changes` is known
    bool settled;            // the coordinator's note is the wanted one
    bool failed;             // the last request failed
    uint64_t changes;        // number of changes of the note
    uint64_t least;          // lowest `changes` of an answer that settles the wanted note
    struct lh_point checked; // the standby's point, from the coordinator; checked against our log
    struct ps_item *waiting, **waiting_end; // answers, in order of the version they wait for
    struct lh_listener listener;            // runs from the first waiting answer on
    int64_t progress_ns;                    // the standby's last progress, by the listener's clock
    struct lh_trip trip;                    // round trip to the standby, as it reports
    int64_t hold_ns; // until then the noted standby may still prove this log to be an older copy
    struct lh_unary *ask;
    uint64_t timer;
};

// Serving starts. `noted`: the coordinator named a standby at this start.
LH_MUST lh_err ps_insync_start(struct ps_server *s, bool noted);
// Takes a decided item: completes and frees it, now or when the standby in sync holds the record.
void ps_insync_answer(struct ps_item *i);
// The standby noted by the coordinator, from its answers (0: none), and how often the note has
// changed; *changes 0: not known.
uint64_t ps_insync_noted(const struct ps_shard *s, uint64_t *changes);
void ps_on_confirm(void *self, struct lh_request *rq, const void *request);
json_t *ps_insync_status(const struct ps_shard *s); // gives the object
void ps_insync_close(struct ps_shard *s);           // cancels the timer
void ps_insync_free(struct ps_shard *s);

#endif
