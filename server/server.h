// The server: owner of some shards. Receives, decides, appends, acknowledges, folds, publishes.
//
// A state machine on one loop thread; group commits run on its disk lane, checkpoints on its
// copy lane, seals are opened on its compute lane. A push is walked through the files in this
// order: receive.c (hello, push stream), unseal.c (its seal), group_commit.c (decide, append, sync,
// acknowledge, fold), insync.c (a standby holds it too), follow.c (publish), checkpointer.c
// (checkpoints), disk_full.c (a full disk), recover.c, rebuild.c (start), standby.c, owner_stream.c
// (another server's shards), report.c (coordinator), status.c.
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "common/base/pool.h"
#include "common/env/log.h"
#include "common/net/transport.h"
#include "kernels/state/checkpoint.h"
#include "server/shard.h"

struct lh_unary;
struct Longhaul__V1__ReportReply;
struct ps_item;
struct ps_push;

struct ps_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_peer self;
    const char *dir, *listen, *advertise; // advertise "": the bound address
    const char *coordinator;              // its address; "": none (tests)
    const struct lh_manifest *manifest;
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
    // States are given and taken without the job key's seal too (seal.snapshots: false).
    bool unsealed_states;
    uint8_t job[LH_JOB_BYTES];
    const uint32_t *shards;
    uint32_t shard_count;
    // Initial parameters: `n` values from `first` of the model's flat order into `out`.
    lh_err (*initial)(void *arg, uint64_t first, uint64_t n, float *out);
    void *initial_arg;
    uint64_t push_bytes_max; // bytes that the pushes under way may take; 0: LH_PUSH_BYTES
    uint64_t
        ahead_bytes_min; // frames of so many bytes are written ahead (unseal.c); 0: LH_AHEAD_BYTES
    uint64_t segment_bytes, checkpoint_every, digest_every;
    uint64_t weights_every; // versions between two checkpoints of weights only; 0: there are none
    // Bytes of a state that are copied at a time; 0: checkpointer.c's.
    uint64_t checkpoint_slice_bytes;
    // The digest of a state of so many bytes is made on the loop; 0: digest.c's.
    uint64_t digest_now_bytes;
    unsigned checkpoint_keep, weights_keep;
    int64_t replay_ns; // a checkpoint is due when replay would take this long; 0: not for that
    const struct lh_signer *signer; // signs checkpoints; NULL: they are not signed
    // Those who may have signed the checkpoints that it starts from; NULL: anybody.
    const struct lh_trusted *trusted;
    int64_t report_ns, mark_ns;
    // How long a call with one answer may take on a short path (0: 10 s), and the most that a long
    // path makes of it (0: no more). ps_deadline() tells.
    int64_t deadline_ns, deadline_max_ns;
    double norm_gate;
    // A log that is damaged below its durable position is set aside, and the shards are rebuilt
    // from their followers; else the start is refused.
    bool rebuild_damaged;
    // A shard may begin anew below its stable point: what lies between is lost.
    bool below_stable;
    // Followers that are there are waited for so long, to say what they hold.
    int64_t grace_ns;
    // Acknowledges what a standby holds too, while one is in sync.
    bool replicated;
    // A standby that confirms nothing for so long is no longer waited for.
    int64_t wait_ns;
    // A long path makes at most this of it; 0: no more.
    int64_t wait_max_ns;
    // Stands by for the shards' owner, unless they were taken over before.
    bool standby;
    // Tests look on: every durable record as it is folded, also at a start. NULL: nobody does.
    void (*folded)(void *arg, uint32_t shard, const struct lh_record *r);
    void *folded_arg;
    // The process can't go on (its disk failed, its state is damaged): stop it, loudly. May be
    // called on the loop only; the server does nothing any more afterwards.
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

// Work that keeps the loop for longer the larger a shard is.
enum ps_loop {
    PS_LOOP_DECIDE,   // a group: what was not unsealed beside the loop is unsealed here
    PS_LOOP_FOLD,     // a record
    PS_LOOP_COPY,     // a slice of a checkpoint
    PS_LOOP_SNAPSHOT, // the copy for those who join
    PS_LOOP_DIGEST,   // a digest that was not made beside the loop
    PS_LOOP_COUNT
};

struct ps_push_memory { // memory of the pushes under way (push_memory.c)
    struct lh_pool *pool;
    uint64_t bytes_max, frames, payloads, largest; // bytes; the largest frame since there was none
    struct ps_push *first, **last;                 // pushes that wait for memory for their frame
    const struct ps_push *arriving; // the large one whose turn it is; the next large one waits
    int64_t let_in_at, begun_at;    // when it was let in; when its first bytes came, or -1
    uint64_t begun_with;            // bytes that came first
    uint64_t turn_timer;
};

struct ps_disk_full { // what is known of a full disk (disk_full.c)
    bool now;         // no whole segment found room, and none has since
    bool may_squeeze; // no checkpoint is under way that would make room: any room at all will do
    bool squeezed;    // the commit looked for no more room than its group takes
    bool stuck;       // it did not find that either
    uint64_t small_reserve; // bytes that the segment of such a group has to leave
};

// Reports that may be under way at once: as many as are due within the deadline of one (report.c).
enum { PS_REPORTS_MAX = 32 };
struct ps_report {
    struct ps_server *server;
    struct lh_unary *call; // NULL: this place is free
    uint64_t number;       // the report's number, ascending
};

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
    struct ps_item *opening;                  // pushes on the compute lane
    struct ps_item *queue, **queue_end;
    struct ps_item *group, **group_end; // the group that is being committed
    struct lh_blob *ahead; // a frame that is written ahead, until the next commit is done
    bool committing;
    bool ending; // the next status is the last: nothing is left to be told later
    struct {
        bool torn;        // bytes at its end were cut
        bool damaged;     // it can't be gone on with
        bool unreliable;  // nor can what was folded from it
        bool replayed;    // it has records
        bool given_up;    // it is of another history than the checkpoints
        bool older;       // an earlier start found the directory to be an older copy
        bool aside;       // it was set aside, and the next one has no room yet
        bool installed;   // what was fetched is durable, and its log begun
        char damage[256]; // why it is damaged
    } log;                // the condition of the log
    struct {
        uint64_t records, bytes; // what the start folded
    } replay;
    struct {
        uint64_t identity; // the number of this directory, where it may stand by; else 0
        bool lost;         // the directory may lack what it confirmed
        bool unwritten;    // a snapshot was taken that is in memory only: the disk was full
        bool taking;       // it takes the shards over as soon as nothing is under way
    } standby;
    lh_err commit_result;
    uint64_t mark_timer, report_timer, retry_timer, move_timer, take_over_timer;
    struct lh_link *coordinator;
    struct ps_report report[PS_REPORTS_MAX];
    uint64_t reports_sent, report_heard; // how many; number of the last one whose answer was taken
    struct lh_service service;
    struct ps_push *pushes; // open push streams
    uint32_t push_count, snapshots;
    struct ps_follower *readers; // streams that follow, and snapshots; the newest first
    uint64_t silent_timer;       // looks for streams that do not get on
    uint64_t shared_bytes;       // bytes of frames that followers are sent from memory
    struct {
        struct ps_segments segments;
        lh_err result;
        bool busy;
    } removal; // removes the log's beginning, on the copy lane
    int64_t
        longest_ns[PS_LOOP_COUNT]; // the longest that each kept the loop at once, since the start
    struct ps_disk_full disk_full;
    struct {
        uint64_t admitted, refused, repeated, not_final, bytes_in, bytes_out, groups, full;
    } count;
};

LH_MUST lh_err ps_server_start(const struct ps_conf *conf, struct ps_server **out);
// Takes and makes no calls any more; what its lanes do comes back to nothing. Then the transport
// may go, and then stop().
void ps_server_close(struct ps_server *s);
void ps_server_stop(struct ps_server *s); // frees it; its transport must be gone or dead already
// The door: hand LH_RPC_HELLO..LH_RPC_SHARD_STATUS and health calls to it (node.c does).
LH_MUST lh_err ps_server_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **call_self);
// State of this server as JSON (status.json, `longhaul get`).
LH_MUST lh_err ps_server_status(struct ps_server *s, struct lh_buf *out);
// Every shard holds its last version, and its status has that version's digest.
bool ps_server_over(struct ps_server *s);

#endif
