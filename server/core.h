// Core: the server's memory, and functions that every file of the server may call: look-ups, the
// end of a process that can't go on, and the events by which a lower file informs those above it.
// core.c calls no other file.
//
// A struct that only one module changes is declared in that module's header.
#ifndef PS_CORE_H
#define PS_CORE_H

#include "common/env/slow.h"
#include "common/format/histogram.h"
#include "common/net/transport.h"
#include "common/net/wire.h"
#include "kernels/storage/checkpoint.h"
#include "server/give.h"
#include "server/push/push_memory.h"
#include "server/recovery/recover.h"
#include "server/recovery/refold.h"
#include "server/recovery/standby.h"
#include "server/report.h"
#include "server/server.h"
#include "server/shard.h"
#include "server/state/checkpointer.h"
#include "server/state/disk_full.h"

struct lh_report_reply;
struct ps_item;
struct ps_push;

// Loop work whose time grows with the size of a shard.
enum ps_loop {
    PS_LOOP_DECIDE,   // a group, with any unsealing not done beside the loop
    PS_LOOP_FOLD,     // one record
    PS_LOOP_COPY,     // one slice of a checkpoint
    PS_LOOP_SNAPSHOT, // the copy for joining followers
    PS_LOOP_DIGEST,   // a digest not made beside the loop
    PS_LOOP_COUNT
};

// Durations with a histogram.
enum ps_span { PS_SPAN_DECIDE, PS_SPAN_FOLD, PS_SPAN_SYNC, PS_SPAN_CHECKPOINT, PS_SPAN_COUNT };

// Events: notices of a file to those above it (server/README.md lists senders and hearers).
enum ps_event {
    PS_WISHED,  // a record is due: an item was queued, or a shard's own record may be due
    PS_FREED,   // push memory may be free for waiting pushes
    PS_SETTLED, // every shard's history is settled
    PS_DURABLE, // more is durable: a group was folded, or a snapshot was written
    PS_EVENTS
};
enum { PS_HEARERS_MAX = 2 };
typedef void (*ps_hearer)(struct ps_server *s);

struct ps_events {
    unsigned raised;                           // one bit per event, until delivery
    bool posted;                               // delivery is scheduled
    const ps_hearer (*hearer)[PS_HEARERS_MAX]; // hearers of each event; borrows
    // Called with the coordinator's answer to a report.
    void (*answered)(struct ps_server *s, const struct lh_report_reply *m);
};

enum ps_phase {
    PS_RECOVERING, // reading checkpoints and log
    PS_SETTLING,   // settling the shards' history with others (rebuild.c)
    PS_STANDBY,    // following another server's shards
    PS_SERVING,
    PS_STOPPED, // nothing happens any more
};

struct ps_begun {  // snapshots that a peer began
    uint64_t peer; // lh_worker_id()
    uint32_t snapshots;
};
enum { PS_BEGUN = 64 };

struct ps_server {
    struct ps_conf conf;
    enum ps_phase phase;
    struct ps_events events;
    uint64_t process; // random at every start
    uint64_t former;  // the last process that served this directory; 0: none, or not known
    char address[LH_ADDRESS_BYTES];
    char checkpoint_dir[LH_PATH_BYTES], wal_dir[LH_PATH_BYTES];
    struct ps_wal *wal;
    struct ps_shard **shard; // conf.shard_count of them
    struct ps_push_memory push_memory;
    struct ps_item *received, **received_end; // pushes that wait for payload memory
    struct ps_item *unsealing;                // pushes on the compute lane
    struct ps_item *queue, **queue_end;       // items for the next groups
    struct ps_item *group, **group_end;       // the group being committed
    struct lh_blob *ahead; // a frame written ahead, until the next commit is done
    bool committing;
    struct lh_slow slow; // timing of the group being committed
    bool ending;         // the next status is the last one
    struct ps_log_condition log;
    struct {
        uint64_t records, bytes; // folded at the start
    } replay;
    struct ps_standby standby;
    lh_err commit_result;
    uint64_t mark_timer, report_timer, retry_timer, move_timer, take_over_timer, checkpoint_timer;
    struct lh_link *coordinator;
    struct ps_report report[PS_REPORTS_MAX];
    uint64_t reports_sent;             // number of reports sent; numbers them
    uint64_t report_heard;             // number of the newest report whose answer was taken
    uint32_t report_shard, report_row; // ledger row at which the next report begins
    struct lh_service service;
    struct ps_push *pushes; // open push streams
    uint32_t push_count, snapshots;
    struct ps_begun begun[PS_BEGUN]; // snapshots that peers began lately; peers with 0 have no row
    int64_t begun_since_ns;
    int64_t snapshot_rate;       // recent rate of snapshot readers, in bytes a second; 0: not known
    struct ps_follower *readers; // follow and snapshot streams, newest first
    uint64_t silent_timer;       // checks for silent streams
    uint64_t shared_bytes;       // bytes of frames sent to followers from memory
    struct ps_trim trim;
    struct ps_give give;
    struct ps_refold refold;
    struct lh_histogram span[PS_SPAN_COUNT]; // seconds
    int64_t longest_ns[PS_LOOP_COUNT];       // longest loop time of each kind, since the start
    struct ps_disk_full disk_full;
    struct {
        uint64_t admitted, refused, repeated, not_final, bytes_in, bytes_out, groups, full;
    } count;
};

struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id); // NULL: another server's
// Does a shard's log, or the coordinator's newest plan, expel this identity?
bool ps_expelled(const struct ps_server *s, uint64_t identity);
// Stops this process, which can't go on. The first error counts.
void ps_fatal(struct ps_server *s, lh_err err);
// Sets the server's phase; a stopped server stays stopped.
void ps_become(struct ps_server *s, enum ps_phase phase);
// Notes that this work occupied the loop from start_ns until now.
void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns);
// Notes a duration from start_ns until now.
void ps_lasted(struct ps_server *s, enum ps_span what, int64_t start_ns);
// Is the request from `who` for this server's run? LH_ERR_DENIED or LH_ERR_MANIFEST: no.
LH_MUST lh_err ps_check_run(const struct ps_server *s, const struct lh_run *run, const char *who);
// Time limit of a call over `link`, in ns; NULL: over a short path. Calls to the coordinator get
// half of the deadline. A call for which answers wait gets a fifth: a retry may find another
// connection sooner.
enum { PS_HALF_OF_DEADLINE = 2, PS_FIFTH_OF_DEADLINE = 5 };
int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part);
struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s);

// Calls the event's hearers after the current handler, once however often it was raised before
// that. server.c has the table of hearers.
void ps_raise(struct ps_server *s, enum ps_event what);

#endif
