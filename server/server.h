// The server: owner of some shards. Receives, decides, appends, acknowledges, folds, publishes.
//
// A state machine on one loop thread; group commits run on its disk lane, checkpoints on its
// copy lane, pushes are unsealed on its compute lane. README.md walks a push through the files.
//
// This header is for the rest of the tree: it starts, ends and asks the server. The server's
// files have headers of their own and share its memory, core.h and shard.h.
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "common/base/buf.h"
#include "common/env/log.h"
#include "common/format/record.h"
#include "common/net/rpc.h"

struct lh_keyring;
struct lh_manifest;
struct lh_signer;
struct lh_trusted;
struct lh_units;
struct ps_server;
struct json_t;

struct ps_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_log *audit; // audit.h; NULL: none
    struct lh_peer self;
    const char *dir, *listen, *advertise; // advertise "": the bound address
    const char *coordinator;              // its address; "": none (tests)
    const struct lh_manifest *manifest;
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
    // States are given and taken without the job key's seal too (tests).
    bool unsealed_states;
    uint8_t job[LH_JOB_BYTES];
    const uint32_t *shards;
    uint32_t shard_count;
    // Initial parameters: `n` values from `first` of the model's flat order into `out`.
    lh_err (*initial)(void *arg, uint64_t first, uint64_t n, float *out);
    void *initial_arg;
    uint64_t push_bytes_max; // bytes that the pushes under way may take; 0: LH_PUSH_BYTES
    // Frames of so many bytes are written ahead (unseal.c); 0: LH_AHEAD_BYTES.
    uint64_t ahead_bytes_min;
    uint64_t segment_bytes, checkpoint_every, digest_every;
    uint64_t weights_every; // versions between two checkpoints of weights only; 0: there are none
    // Bytes of a state that are copied at a time; 0: the default of checkpointer.c.
    uint64_t checkpoint_slice_bytes;
    // The digest of a state of up to so many bytes is made on the loop; 0: the default of digest.c.
    uint64_t digest_now_bytes;
    unsigned checkpoint_keep, weights_keep;
    int64_t replay_ns; // a checkpoint is due when replay would take this long; 0: not for that
    const struct lh_signer *signer; // signs checkpoints; NULL: they are not signed
    // Signers of checkpoints that it starts from; NULL: any checkpoint, also an unsigned one.
    const struct lh_trusted *trusted;
    int64_t report_ns, mark_ns;
    // How long a call with one answer may take on a short path (0: 10 s), and the most that a long
    // path makes of it (0: no more). ps_deadline() tells.
    int64_t deadline_ns, deadline_max_ns;
    double norm_gate;
    // A log that is damaged below its durable position is set aside, and the shards are rebuilt
    // from their followers; else the start is refused.
    bool rebuild_damaged;
    // A shard may start again below its stable point; the records between are lost.
    bool below_stable;
    // Time that a rebuild waits for connected followers to report their copies.
    int64_t grace_ns;
    uint32_t voices; // regions that must confirm a state (recovery/choose.c); 0: one
    // While a standby is in sync, acknowledges only records that it has, too.
    bool replicated;
    // A standby that confirms nothing for so long is no longer waited for.
    int64_t wait_ns;
    // A long path makes at most this of wait_ns; 0: no more.
    int64_t wait_max_ns;
    // Stands by for the shards' owner, unless they were taken over before.
    bool standby;
    // The data's manifest and the folder of this region's units, which workers without their files
    // get from here; NULL: it gives none. Borrows.
    const struct lh_units *units;
    const char *units_dir;
    // Adds the process's facts and the store of checkpoints (state/uploader.h) to the status. May
    // be NULL.
    void (*tell)(void *arg, struct json_t *status);
    void *tell_arg;
    // Tests look on: every durable record as it is folded, also at a start. NULL: nobody does.
    void (*folded)(void *arg, uint32_t shard, const struct lh_record *r);
    void *folded_arg;
    // The process can't go on (its disk failed, its state is damaged): stop it, loudly. May be
    // called on the loop only; the server does nothing any more afterwards.
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
    // The directory has an order that a start carries out (recovery/refold.h): end this server as
    // fatal() would, then start one on the same directory. Gets fatal_arg. NULL: fatal() is called.
    void (*again)(void *arg);
};

LH_MUST lh_err ps_server_start(const struct ps_conf *conf, struct ps_server **out);
// Accepts and makes no more calls, and ignores results of its lanes. After it, destroy the
// transport and then call stop().
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
