// Core: the server's memory, and what every file of the server may call: look-ups, the end of a
// process that can't go on, and the events by which a lower file tells those above it. core.c calls
// none of them.
//
// A struct that one module changes stands in that module's header.
#ifndef PS_CORE_H
#define PS_CORE_H

#include "common/format/histogram.h"
#include "common/env/slow.h"
#include "common/net/transport.h"
#include "kernels/state/checkpoint.h"
#include "server/give.h"
#include "server/push/push_memory.h"
#include "server/recovery/recover.h"
#include "server/recovery/standby.h"
#include "server/report.h"
#include "server/server.h"
#include "server/shard.h"
#include "server/state/checkpointer.h"
#include "server/state/disk_full.h"

struct Longhaul__V1__ReportReply;
struct ps_item;
struct ps_push;

// Work that keeps the loop for longer the larger a shard is.
enum ps_loop {
    PS_LOOP_DECIDE,   // a group: what was not unsealed beside the loop is unsealed here
    PS_LOOP_FOLD,     // a record
    PS_LOOP_COPY,     // a slice of a checkpoint
    PS_LOOP_SNAPSHOT, // the copy for those who join
    PS_LOOP_DIGEST,   // a digest that was not made beside the loop
    PS_LOOP_COUNT
};

// Durations that a histogram is kept of.
enum ps_span { PS_SPAN_DECIDE, PS_SPAN_FOLD, PS_SPAN_SYNC, PS_SPAN_CHECKPOINT, PS_SPAN_COUNT };

// Events: what a file tells those above it (server/README.md has who raises and who hears each).
enum ps_event {
    PS_WISHED,  // a record is wished for: something was queued, or a shard's own record may be due
    PS_FREED,   // pushes that wait for memory may find some
    PS_SETTLED, // the history of every shard is settled
    PS_DURABLE, // more is durable: a group was folded, or a snapshot was written
    PS_EVENTS
};
enum { PS_HEARERS_MAX = 2 };
typedef void (*ps_hearer)(struct ps_server *s);

struct ps_events {
    unsigned raised;                           // a bit for each, until it is delivered
    bool posted;                               // they are delivered soon
    const ps_hearer (*hearer)[PS_HEARERS_MAX]; // those who hear each event; borrows
    // The coordinator's answer to a report, as it comes.
    void (*answered)(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
};

enum ps_phase {
    PS_RECOVERING, // checkpoints and log are being read
    PS_SETTLING,   // the shards' history is being settled with others (rebuild.c)
    PS_STANDBY,    // the shards are another server's, and followed
    PS_SERVING,
    PS_STOPPED, // nothing happens any more
};

struct ps_server {
    struct ps_conf conf;
    enum ps_phase phase;
    struct ps_events events;
    uint64_t process; // random at every start
    uint64_t former;  // the process that served this directory last; 0: none, or not known
    char address[LH_ADDRESS_BYTES];
    char checkpoint_dir[LH_PATH_BYTES], wal_dir[LH_PATH_BYTES];
    struct ps_wal *wal;
    struct ps_shard **shard; // conf.shard_count of them
    struct ps_push_memory push_memory;
    struct ps_item *received, **received_end; // pushes that wait for memory to be unsealed
    struct ps_item *unsealing;                // pushes on the compute lane
    struct ps_item *queue, **queue_end;       // items that the next group may decide
    struct ps_item *group, **group_end;       // the group that is being committed
    struct lh_blob *ahead; // a frame that is written ahead, until the next commit is done
    bool committing;
    struct lh_slow slow; // the group that is being committed
    bool ending;         // the next status is the last: nothing is left to be told later
    struct ps_log_condition log;
    struct {
        uint64_t records, bytes; // folded by the start
    } replay;
    struct ps_standby standby;
    lh_err commit_result;
    uint64_t mark_timer, report_timer, retry_timer, move_timer, take_over_timer, checkpoint_timer;
    struct lh_link *coordinator;
    struct ps_report report[PS_REPORTS_MAX];
    uint64_t reports_sent;             // their count, which numbers them
    uint64_t report_heard;             // the number of the last one whose answer was taken
    uint32_t report_shard, report_row; // the ledger's row that the next report begins with
    struct lh_service service;
    struct ps_push *pushes; // open push streams
    uint32_t push_count, snapshots;
    int64_t snapshot_rate;       // bytes a second that snapshots were read at lately; 0: not known
    struct ps_follower *readers; // streams that follow, and snapshots; the newest first
    uint64_t silent_timer;       // looks for streams that do not get on
    uint64_t shared_bytes;       // bytes of frames that followers are sent from memory
    struct ps_trim trim;
    struct ps_give give;
    struct lh_histogram span[PS_SPAN_COUNT]; // seconds
    int64_t longest_ns[PS_LOOP_COUNT];       // the longest that each kept the loop, since the start
    struct ps_disk_full disk_full;
    struct {
        uint64_t admitted, refused, repeated, not_final, bytes_in, bytes_out, groups, full;
    } count;
};

struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id); // NULL: another server's
// Does a shard's log, or the coordinator's newest plan, expel this identity?
bool ps_expelled(const struct ps_server *s, uint64_t identity);
// This process can't go on. Nothing happens in it any more; the first error is the one that counts.
void ps_fatal(struct ps_server *s, lh_err err);
// The server's next phase; one that has stopped stays so.
void ps_become(struct ps_server *s, enum ps_phase phase);
// The loop was kept by this from start_ns until now.
void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns);
// This began at start_ns and is over.
void ps_lasted(struct ps_server *s, enum ps_span what, int64_t start_ns);
// Does a request of `who` name this server's run? LH_ERR_DENIED or LH_ERR_MANIFEST: it does not.
LH_MUST lh_err ps_check_run(const struct ps_server *s, const ProtobufCBinaryData *job,
                            const ProtobufCBinaryData *manifest, const char *who);
// How long a call over `link` may take, in ns; NULL: over a short path. Calls to the coordinator
// have half of the deadline. What answers wait for has a fifth: the call that asks again may find
// another connection sooner.
enum { PS_HALF_OF_DEADLINE = 2, PS_FIFTH_OF_DEADLINE = 5 };
int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part);
struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s);

// Whoever hears of it is called when what goes on now is over, once however often it is raised
// before that. server.c has the table of hearers.
void ps_raise(struct ps_server *s, enum ps_event what);

#endif
