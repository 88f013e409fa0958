// Rebuilding: a shard whose history is being settled; shared by rebuild.c, choose.c, restore.c and
// held.c only.
#ifndef PS_REBUILDING_H
#define PS_REBUILDING_H

#include "server/recovery/rebuild.h"

enum { PS_OFFER_POINTS_MAX = 16, PS_WORD_BYTES_MIN = 8 };

struct ps_state { // a state of a shard, as its holder reports it
    struct lh_point at;
    struct lh_hash digest; // lk_replica_digest()
};

struct ps_offer {
    uint64_t worker;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    int64_t heard_ns;
    struct ps_state have[PS_OFFER_POINTS_MAX];
    uint32_t have_count;
    bool lied;        // sent a state other than its offer: not asked again
    int64_t asked_ns; // when it was asked for its state, or its last full part came; 0: not asked
    uint32_t broken;  // transfers that it began in this turn and did not finish
    uint32_t turns;   // turns that it missed: workers with fewer are asked first
};

struct ps_rebuild {
    struct ps_shard *shard;
    bool unreliable;  // the directory's own state is not trusted
    bool anew;        // open an epoch regardless of the replica's version
    uint32_t unheard; // requests in a row without the coordinator's answer
    bool ready, told, stuck;
    uint64_t told_of; // the standby last logged as awaited; 0: none
    bool named;       // the log already names the lost versions
    // from the coordinator
    bool asked;
    uint64_t epoch, token; // the newest epoch
    uint64_t reserved;     // the newest epoch of a move
    uint64_t standby;      // the known standby in sync with the owner; else 0
    // Address where it sends its state because it can't take over; else "".
    char held_at[LH_ADDRESS_BYTES];
    struct lh_point *begun;
    size_t begun_count;
    struct lh_point stable, head;
    struct lh_hash stable_digest; // digest of the stable state, proved by several regions; or zeros
    uint32_t regions;             // regions of the run's workers
    uint8_t word[LH_HASH_BYTES];  // first bytes of the operator's chosen digest
    size_t word_bytes;            // 0: no choice
    bool head_known;              // false: a restarted coordinator does not know the head
    uint64_t process;             // the process that reported the head
    uint64_t *live;
    size_t live_count;
    // from followers
    struct ps_offer offer[LH_WORKERS_MAX];
    uint32_t offer_count;
    bool undecided;         // no state is confirmed: waits for an operator
    uint32_t told_claims;   // number of claims last logged
    struct ps_state wanted; // epoch and version 0: none
    struct ps_state taken;  // the last state from a follower
    uint64_t wanted_of;
    uint8_t challenge[LH_STATE_RANDOM_BYTES]; // from the last answer that named `wanted`; its bytes
                                              // are bound to it
    bool chosen;                              // the replica holds the state to serve
    bool fetched;
    struct ps_restore *restore;
    uint64_t from;        // the standby that sent the replica's state; 0: none
    struct ps_held *held; // the transfer of that state; NULL: none
    bool opening;         // the request under way opens an epoch
    uint64_t ticket;      // the ticket for the next epoch request
    bool pending;         // an epoch was requested, and its outcome is unknown
    int64_t since_ns;     // time of the coordinator's first answer
    struct lh_unary *ask;
    uint64_t timer;
};

// ---- rebuild.c
struct ps_offer *ps_rebuild_offer(struct ps_rebuild *b, uint64_t worker); // NULL: none
// ---- choose.c
struct lh_point ps_rebuild_own(const struct ps_rebuild *b); // the replica's point
// Do the coordinator's points rule this one out? It is above any log's reach, or has another chain
// than the reported one.
bool ps_rebuild_impossible(const struct ps_rebuild *b, const struct lh_point *p);
// Is it part of the shard's history, as far as known above the stable point?
bool ps_rebuild_counts(const struct ps_rebuild *b, const struct lh_point *p);
bool ps_rebuild_enough(const struct ps_rebuild *b, const struct lh_point *p); // stable, or given up
bool ps_state_same(const struct ps_state *a, const struct ps_state *b);
// The best state; *worker 0: our own. False: none is high enough and confirmed. A worker that
// missed its turn is asked again once all others have missed as many
// (server/docs/0000-protocol.md#rule-29).
bool ps_rebuild_choose(const struct ps_rebuild *b, struct ps_state *best, uint64_t *worker);
// Workers hold states that would do if they were confirmed.
bool ps_rebuild_undecided(const struct ps_rebuild *b);
void ps_rebuild_tell_undecided(struct ps_rebuild *b);  // logs the claims when they change
json_t *ps_rebuild_claims(const struct ps_rebuild *b); // gives the object
// ---- rebuild.c
// Runs the next step with the present information.
void ps_rebuild_decide(struct ps_rebuild *b);
// Logs the known acknowledged versions that the chosen state lacks. `worker` 0: the state is this
// directory's own.
void ps_rebuild_name_lost(struct ps_rebuild *b, const struct lh_point *best, uint64_t worker);
// The replica holds the state to serve. `standby` 0: it did not come from a standby.
void ps_rebuild_took(struct ps_rebuild *b, uint64_t standby);
// ---- held.c
// Starts or continues fetching the whole state of the standby in sync; ends with ps_rebuild_took().
// A standby that sends nothing for the grace time is asked again.
void ps_held_fetch(struct ps_rebuild *b);
void ps_held_end(struct ps_rebuild *b); // drops the transfer
// Logs once per standby that the shard waits for it. A take-over takes only a moment; after that
// the standby's server must come back, or an operator must act.
void ps_held_tell(struct ps_rebuild *b);
// ---- restore.c
// A state is being received. Drops a transfer whose follower fell silent (its host may be gone
// without an error).
bool ps_restore_coming(struct ps_rebuild *b);
// Drops the offers of silent workers: they could not send their states.
void ps_restore_drop_silent(struct ps_rebuild *b);
// Ends the turn of workers that were asked for their state and did not send it.
void ps_restore_pass_over(struct ps_rebuild *b);
void ps_restore_forget(struct ps_rebuild *b); // drops the state being received

#endif
