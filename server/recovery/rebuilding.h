// Rebuilding: a shard whose history is being settled. Shared by rebuild.c, choose.c, restore.c and
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

struct ps_offer *ps_rebuild_offer(struct ps_rebuild *b, uint64_t worker); // NULL: none
// Runs the next step with the present information.
void ps_rebuild_decide(struct ps_rebuild *b);
// Logs the known acknowledged versions that the chosen state lacks. `worker` 0: the state is this
// directory's own.
void ps_rebuild_name_lost(struct ps_rebuild *b, const struct lh_point *best, uint64_t worker);
// The replica holds the state to serve. `standby` 0: it did not come from a standby.
void ps_rebuild_took(struct ps_rebuild *b, uint64_t standby);

#endif
