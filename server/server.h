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
struct lh_request;
struct Longhaul__V1__ReportReply;
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
    bool unsealed_states; // given and taken without the job key's seal too (seal.snapshots: false)
    uint8_t job[LH_JOB];
    const uint32_t *shards;
    uint32_t shard_count;
    // Initial parameters: `n` values from `first` of the model's flat order into `out`.
    lh_err (*initial)(void *arg, uint64_t first, uint64_t n, float *out);
    void *initial_arg;
    uint64_t push_bytes_max;  // memory of the pushes under way; 0: LH_PUSH_BYTES
    uint64_t ahead_bytes_min; // frames that are written ahead (unseal.c); 0: LH_AHEAD_BYTES
    uint64_t segment_bytes, checkpoint_every, digest_every;
    uint64_t weights_every;    // checkpoints of weights only; 0: none
    uint64_t keep_slice_bytes; // of a state are copied at a time; 0: checkpointer.c's
    uint64_t digest_now_bytes; // up to which a state's digest is made on the loop; 0: digest.c's
    unsigned checkpoint_keep, weights_keep;
    int64_t replay_ns; // a checkpoint is due when replay would take this long; 0: not for that
    const struct lh_signer *signer;   // of checkpoints; NULL: they are not signed
    const struct lh_trusted *trusted; // who may have signed those it starts from; NULL: anybody
    int64_t report_ns, mark_ns;
    // Of a call with one answer on a short path (0: 10 s), and the most that a long one makes of it
    // (0: no more). ps_deadline() tells.
    int64_t deadline_ns, deadline_max_ns;
    double norm_gate;
    // A log that is damaged below its durable position is set aside, and the shards are rebuilt
    // from their followers; else the start is refused.
    bool rebuild_damaged;
    bool below_stable;   // a shard may begin anew below its stable point: what lies between is lost
    int64_t grace_ns;    // how long followers that are there are waited for, to say what they hold
    bool replicated;     // acknowledge what a standby holds too, while one is in sync
    int64_t wait_ns;     // after which a standby that confirms nothing is no longer waited for
    int64_t wait_max_ns; // what a long path makes of that, at most; 0: no more
    bool standby;        // stand by for the shards' owner, unless they were taken over before
    // Tests look on: every durable record as it is folded, also at a start. NULL: nobody does.
    void (*folded)(void *arg, uint32_t shard, const struct lh_record *r);
    void *folded_arg;
    // The process can't go on (its disk failed, its state is damaged): stop it, loudly. May be
    // called on the loop only; the server does nothing any more afterwards.
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

enum ps_item_kind {
    PS_ITEM_PUSH,
    PS_ITEM_FENCE,
    PS_ITEM_PLAN,
    PS_ITEM_DIGEST,
    PS_ITEM_EPOCH,
    PS_ITEM_MOVE,
    PS_ITEM_COPY
};

// Somebody's wish for a record: queued, then decided and part of a group, then answered.
struct ps_item {
    struct ps_item *next;
    enum ps_item_kind kind;
    struct ps_shard *shard;
    // push
    struct ps_push *push; // NULL: its call is gone; the decision stands all the same
    struct lh_blob *frame;
    struct lh_frame head;
    struct lh_digest digest;
    struct ps_decision decision;
    struct lh_blob *payload; // once it was opened (unseal.c); NULL: there is none
    uint64_t room;           // taken for it (push_memory.c)
    struct lk_payload_info info;
    bool open_tried, opened;
    lh_err open_result;
    int64_t open_ns; // that it took
    char text[256];  // of that error: texts belong to their threads
    // fence: whose hello waits for it
    struct lh_request *hello;
    uint64_t worker, decided, next_step;
    struct lh_incarnation incarnation;
    uint64_t wait_version; // answered when the standby holds it (insync.c)
    // in the group
    bool appended;
    struct lh_record record;
    struct lh_buf body; // of records other than ADMIT
    struct ps_place place;
};

// What keeps the loop for longer the larger a shard is.
enum ps_loop {
    PS_LOOP_DECIDE,   // a group: what was not opened beside the loop is opened here
    PS_LOOP_FOLD,     // a record
    PS_LOOP_COPY,     // a slice of a checkpoint
    PS_LOOP_SNAPSHOT, // the copy for those who join
    PS_LOOP_DIGEST,   // one that was not made beside the loop
    PS_LOOP_COUNT
};

struct ps_push_memory { // push_memory.c
    struct lh_pool *pool;
    uint64_t bytes_max, frames, payloads, largest; // largest frame since there was none
    struct ps_push *first, **last;                 // wait for room for their frame
    bool posted;                                   // they are looked at soon
    const struct ps_push *arriving; // a large one whose turn it is; the next large one waits
    int64_t let_in_at, begun_at;    // when it was let in; its first bytes came, or -1
    uint64_t begun_with;            // bytes that it had then
    uint64_t turn_timer;
};

struct ps_disk_full { // disk_full.c
    bool now;         // no whole segment found room, and none has since
    bool may_squeeze; // no checkpoint is under way that would make room: any room at all will do
    bool squeezed;    // the commit looked for no more room than its group's,
    bool stuck;       // and did not find that either
    uint64_t small_reserve; // what the segment of such a group has to leave
};

// Calls to the coordinator have half of the deadline. What answers wait for has a fifth: the call
// that asks again may find another connection sooner.
enum { PS_HALF_OF_DEADLINE = 2, PS_FIFTH_OF_DEADLINE = 5 };
// `link` NULL: on a short path.
int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part); // server.c

// Reports that may be under way at once: as many as are due within the deadline of one (report.c).
enum { PS_REPORTS_MAX = 32 };
struct ps_report {
    struct ps_server *server;
    struct lh_unary *call; // NULL: this place is free
    uint64_t number;       // of this report, ascending
};

struct ps_server {
    struct ps_conf conf;
    uint64_t process; // random at every start
    uint64_t former;  // the last that served this directory; 0: none, or not known
    char address[LH_ADDRESS_SIZE];
    char checkpoint_dir[LH_PATH_SIZE], wal_dir[LH_PATH_SIZE];
    struct ps_wal *wal;
    struct ps_shard **shard; // conf.shard_count of them
    struct ps_push_memory room;
    struct ps_item *received, **received_end; // pushes that wait for room to be opened
    struct ps_item *opening;                  // that are on the compute lane
    struct ps_item *queue, **queue_end;
    size_t queued;
    struct ps_item *group, **group_end; // being committed
    struct lh_blob *ahead; // frame that is written ahead, until the next commit is done
    bool committing, stopped;
    bool ending;     // the next status is the last: nothing is left to be told later
    bool serving;    // else: some shard's history is being settled (rebuild.c), or we stand by
    bool torn;       // bytes were cut at the log's end
    bool damaged;    // the log can't be gone on with
    bool unreliable; // and neither can what was folded from it
    bool replayed;   // there are records in it
    bool given_up;   // the log is of another history than the checkpoints
    bool aside;      // it is set aside, the next one has no room yet
    bool installed;  // what was fetched is durable, and its log begun
    struct {
        uint64_t records, bytes; // that the start folded
    } replay;
    char damage[256]; // in words
    struct {
        uint64_t identity; // of this directory, where it may stand by; else 0
        bool standing;     // the shards are another server's
        bool lost;         // it may lack what it confirmed
        bool unwritten;    // a snapshot was taken that is in memory only: the disk was full
        bool taking;       // takes them over as soon as nothing is under way
    } standby;
    lh_err commit_result;
    uint64_t mark_timer, report_timer, retry_timer, move_timer;
    struct lh_link *coordinator;
    struct ps_report report[PS_REPORTS_MAX];
    uint64_t reports_sent, report_heard; // the last report whose answer was taken, by number
    struct lh_service service;
    struct ps_push *pushes; // open streams
    uint32_t push_count, snapshots;
    struct ps_follower *readers; // streams that follow, and snapshots: the newest
    uint64_t silent_timer;       // streams that do not get on are looked for
    uint64_t shared_bytes;       // of frames that followers are sent from memory
    struct {
        struct ps_segments segments;
        lh_err result;
        bool busy;
    } removal;                         // of the log's beginning, on the copy lane
    int64_t longest_ns[PS_LOOP_COUNT]; // that each kept the loop at once, since the start
    struct ps_disk_full full;
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

// ---- between the files of the server
struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id); // NULL: another server's
void ps_fatal(struct ps_server *s, lh_err err);
void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns); // it ends now
// Whether a request is of this server's run. LH_ERR_DENIED, LH_ERR_MANIFEST: of a `who` that is
// not.
LH_MUST lh_err ps_check_run(const struct ps_server *s, const ProtobufCBinaryData *job,
                            const ProtobufCBinaryData *manifest, const char *who);
struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s);
// receive.c
LH_MUST lh_err ps_hello_accept(struct ps_server *s, struct lh_call *call,
                               const struct lh_peer *peer, const struct lh_call_ops **ops,
                               void **self);
LH_MUST lh_err ps_push_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                              const struct lh_call_ops **ops, void **self);
void ps_push_answer(struct ps_push *p, const struct ps_item *item);
void ps_push_error(struct ps_push *p, lh_err err);
void ps_hello_answer(struct ps_item *fence);
void ps_receive_waiting(struct ps_server *s); // there may be room for more
void ps_receive_watch(struct ps_server *s);   // pushes that say nothing are ended in time
void ps_receive_free(struct ps_server *s);
// unseal.c
// takes a received push: opens, queues it
void ps_unseal(struct ps_server *s, struct ps_item *item);
void ps_unseal_now(struct ps_item *item);
void ps_unseal_waiting(struct ps_server *s); // there may be room for more
// push_memory.c
LH_MUST lh_err ps_push_memory_open(struct ps_server *s);
// May a frame of so many bytes come in now, as far as the one that arrives is concerned?
bool ps_push_memory_turn(const struct ps_server *s, uint64_t bytes);
// Its turn begins, if it is a large one; it has so many bytes, and so many are left; its turn is
// over: it will get no more, or the next one may as well come.
void ps_push_memory_arrives(struct ps_server *s, const struct ps_push *p, uint64_t bytes);
void ps_push_memory_arriving(struct ps_server *s, const struct ps_push *p, uint64_t have,
                             uint64_t left);
void ps_push_memory_arrived(struct ps_server *s, const struct ps_push *p);
// False: no room now. Else a blob, NULL: out of memory.
bool ps_push_memory_frame(struct ps_server *s, uint64_t bytes, struct lh_blob **out);
void ps_push_memory_give_frame(struct ps_server *s, struct lh_blob *frame); // NULL is allowed
bool ps_push_memory_payload(struct ps_server *s, uint64_t bytes);
void ps_push_memory_give_payload(struct ps_server *s, uint64_t bytes);
// digest.c
// Is the digest of the replica's version there? Else it is made beside the loop, and kicks the
// group when it is. `holds`: nothing of the shard is decided before it is asked for again.
bool ps_digest_ready(struct ps_shard *s, bool holds);
// Those of all shards, for records of one group: nothing of any shard is decided before.
bool ps_digest_all_ready(struct ps_server *s);
bool ps_digest_holds(const struct ps_shard *s);
bool ps_digest_busy(const struct ps_shard *s);    // one is made, or its record is not decided yet
struct lh_hash ps_digest_now(struct ps_shard *s); // at once, however long it takes
// A DIGEST record: checked against the digest that is there, or against one that is made now.
LH_MUST lh_err ps_digest_fold(struct ps_shard *s, const struct lh_record *r);
void ps_digest_free(struct ps_shard *s);
// head.c: what is decided from. Nobody else changes it, and the log's next group gets no record by
// another way but marks.
LH_MUST lh_err ps_head_create(struct ps_shard *s);
void ps_head_free(struct ps_shard *s);
LH_MUST lh_err ps_head_settle(struct ps_shard *s); // the replica's state was replaced
// The item's record goes into its shard's head and into the log's group. *refused: why it does not
// follow; nothing happened then. Any other error: the process must end.
LH_MUST lh_err ps_head_append(struct ps_item *i, lh_err *refused);
void ps_head_committed(struct ps_server *s);           // the group is durable and folded,
LH_MUST lh_err ps_head_take_back(struct ps_server *s); // or none of it happened
// group_commit.c
void ps_queue(struct ps_server *s, struct ps_item *item); // takes it
struct ps_item *ps_item_new(enum ps_item_kind kind, struct ps_shard *shard);
void ps_item_free(struct ps_item *i);
void ps_group_commit_kick(struct ps_server *s);
void ps_item_answer(struct ps_item *i);
// insync.c
LH_MUST lh_err ps_insync_start(struct ps_server *s); // its shards are served from here on
// The standby that the coordinator noted, as far as its answers say; *changes 0: there was none.
uint64_t ps_insync_noted(const struct ps_shard *s, uint64_t *changes);
void ps_insync_close(struct ps_shard *s);
void ps_insync_free(struct ps_shard *s);
// Is this the standby that is in sync, as the coordinator said when it was asked last?
bool ps_insync_is_noted(const struct ps_shard *s, uint64_t standby);
// It has not said yet, and a standby may be in sync.
bool ps_insync_is_open(const struct ps_shard *s);
// Does what a standby in sync holds show this directory to be an older copy? Then the error says
// so.
LH_MUST lh_err ps_insync_overtaken(const struct ps_shard *s, uint64_t standby,
                                   const struct lh_point *held, bool *overtaken);
LH_MUST lh_err ps_insync_older_copy(const struct ps_shard *s, const struct lh_point *held);
void ps_answer(struct ps_item *i); // takes it: answers and frees it, now or when a standby holds it
uint64_t ps_visible(const struct ps_shard *s); // version up to which anybody may know the log
LH_MUST lh_err ps_confirm_accept(struct ps_server *s, struct lh_call *call,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **self);
json_t *ps_insync_status(const struct ps_shard *s); // gives it
// vouch.c: the coordinator asks which of workers' copies are of a shard's log; the next report says
// so. It borrows from the shard until ps_vouch_free().
void ps_vouch_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
void ps_vouch_answer(struct ps_shard *s, struct Longhaul__V1__ShardReport *out);
void ps_vouch_free(struct ps_shard *s);
// standby.c
LH_MUST lh_err ps_standby_begin(struct ps_server *s);
// Its log's tail was cut, not yet durably: of a directory that stands by, it may lack what it
// confirmed.
LH_MUST lh_err ps_standby_torn(struct ps_server *s);
void ps_standby_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
LH_MUST lh_err ps_standby_write(struct ps_server *s); // what was taken and is in memory only
void ps_standby_moved(struct ps_server *s);  // if its log gives it every shard, it serves them
void ps_standby_folded(struct ps_server *s); // a group is done
// Nothing comes from the former owner any more; what came is durable, then the shards are served.
// Called again while anything is under way.
void ps_standby_take_over(struct ps_server *s);
bool ps_at_rest(const struct ps_server *s); // no record and no checkpoint is under way
// owner_stream.c
LH_MUST lh_err ps_owner_stream_begin(struct ps_shard *shard);
// follows that server from here on
void ps_owner_stream_owner(struct ps_owner_stream *c, const char *address);
// takes nothing any more
void ps_owner_stream_hang_up(struct ps_owner_stream *c);
void ps_owner_stream_look_again(struct ps_owner_stream *c); // soon
void ps_owner_stream_folded(struct ps_owner_stream *c);     // a group is done
void ps_owner_stream_refused(struct ps_shard *s, const struct lh_record *r, lh_err err);
void ps_owner_stream_gone(struct ps_item *i, bool lost); // it was folded, or could not be
void ps_owner_stream_close(struct ps_owner_stream *c);   // NULL is allowed
void ps_owner_stream_free(struct ps_owner_stream *c);
json_t *ps_owner_stream_status(const struct ps_shard *s); // gives it
// recover.c
LH_MUST lh_err ps_recover(struct ps_server *s);
bool ps_unsettled(const struct ps_shard *shard);  // its history is to be settled first,
bool ps_epoch_due(const struct ps_shard *shard);  // and an epoch is to be opened for it
LH_MUST lh_err ps_recovered(struct ps_server *s); // all are: makes it durable
// What the replicas hold becomes all there is: checkpoints of it, and a new log.
LH_MUST lh_err ps_start_over(struct ps_server *s);
// DIR/epoch-<shard>: the highest epoch that the directory asked for, and under which token (0: of
// none). LH_ERR_NOT_FOUND: it never did. LH_ERR_CORRUPT. A write is durable when it returns.
LH_MUST lh_err ps_epoch_read(struct lh_env *env, const char *dir, uint32_t shard, uint64_t *epoch,
                             uint64_t *token);
LH_MUST lh_err ps_epoch_write(struct lh_env *env, const char *dir, uint32_t shard, uint64_t epoch,
                              uint64_t token);
// The epoch that the shard asks for, under a new token; durable.
LH_MUST lh_err ps_epoch_store(struct ps_shard *shard, uint64_t epoch);
// checkpointer.c
bool ps_checkpointer_due(const struct ps_shard *s);         // a full checkpoint,
bool ps_checkpointer_weights_due(const struct ps_shard *s); // one of weights only
void ps_checkpointer_start(struct ps_shard *s);             // a checkpoint, if one is due
bool ps_checkpointer_busy(const struct ps_server *s);       // one is being made
// What the next full one takes at most, of any shard: parameters, optimizer, ledger, seals.
uint64_t ps_checkpointer_bytes(const struct ps_server *s);
// Removes what only versions below every shard's older checkpoint need.
LH_MUST lh_err ps_checkpointer_trim(struct ps_server *s);
// A checkpoint that is being copied hears of the records that change arrays, after their fold; it
// may hold the item's payload, with its room, for longer.
void ps_checkpointer_folded(struct ps_item *i);
// disk_full.c: a full disk
// What a whole new segment has to leave: a checkpoint (ps_checkpointer_bytes), and records that
// make one due.
uint64_t ps_disk_full_reserve(const struct ps_server *s);
// Not even a small segment found room, and the newest checkpoint is of the last version: the older
// one keeps the log, and only a record lets another be made that takes its place. One of our own
// does.
bool ps_disk_full_needs_record(const struct ps_shard *shard);
void ps_disk_full_before_commit(struct ps_server *s);
// Disk lane, after a commit that found no room for a whole segment: any room, where that is all
// that is left. LH_ERR_DISK_FULL: there is none, or a checkpoint may make more; as of
// ps_wal_commit().
LH_MUST lh_err ps_disk_full_commit(struct ps_server *s);
LH_MUST lh_err ps_disk_full_met(struct ps_server *s); // the group found no room: makes some
void ps_disk_full_committed(struct ps_server *s);     // the group did
// A checkpoint found no room: what is not promised gives way to the next full one.
LH_MUST lh_err ps_disk_full_unwritten(struct ps_shard *shard, bool weights);
// quarantine.c: the log moves to a folder where nobody reads it; all such folders and damaged
// checkpoints go, *room: were there any?
LH_MUST lh_err ps_quarantine_log(struct ps_server *s);
LH_MUST lh_err ps_quarantine_remove(struct ps_server *s, bool *room);
// rebuild.c
LH_MUST lh_err ps_rebuild_begin(struct ps_shard *shard);
bool ps_rebuild_fetched(const struct ps_rebuild *b); // the replica holds a follower's state
bool ps_rebuild_noted(const struct ps_rebuild *b); // a standby was in sync, as the coordinator said
void ps_rebuild_close(struct ps_rebuild *b);       // takes no timer any more; NULL is allowed
// "waits_for": "coordinator", "standby", "followers" or "" (nobody); "stable": version, "workers":
// how many are there, "answered": how many said what they hold.
json_t *ps_rebuild_status(const struct ps_rebuild *b); // gives it
void ps_rebuild_free(struct ps_rebuild *b);            // NULL is allowed
// restore.c
LH_MUST lh_err ps_offer_accept(struct ps_server *s, struct lh_call *call,
                               const struct lh_peer *peer, const struct lh_call_ops **ops,
                               void **self);
LH_MUST lh_err ps_restore_accept(struct ps_server *s, struct lh_call *call,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **self);
void ps_server_serve(struct ps_server *s);     // every shard's history is settled
LH_MUST lh_err ps_settle(struct ps_server *s); // serves, now or when it is
// report.c
void ps_report_start(struct ps_server *s);
void ps_report_now(struct ps_server *s);    // does not wait for its time
void ps_report_forget(struct ps_server *s); // the answers to what is under way
// move.c: a shard goes to a standby while both live
bool ps_move_due(const struct ps_server *s); // every shard's MOVE record is to be written now
void ps_move_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
uint64_t ps_moving(const struct ps_shard *s); // what its report says of it
// Its log gives it to this directory, in an epoch that was not refused or left behind here.
bool ps_move_reserved(const struct ps_shard *s);
bool ps_moved_here(const struct ps_server *s);    // all of them
LH_MUST lh_err ps_move_take(struct ps_server *s); // their epochs begin here; durable
void ps_move_found(struct ps_server *s); // at a start: what its log gives it is not begun again
void ps_move_received(struct ps_shard *s, const struct lh_record *r); // planted

#endif
