// Rebuilding: what rebuild.c, choose.c, restore.c and held.c share, a shard whose history is being
// settled. Nobody else includes it.
#ifndef PS_REBUILDING_H
#define PS_REBUILDING_H

#include "server/recovery/rebuild.h"

struct Longhaul__V1__Point;

enum { PS_OFFER_POINTS_MAX = 16, PS_WORD_BYTES_MIN = 8 };

struct ps_state { // a state of a shard, as its holder says
    struct lh_point at;
    struct lh_hash digest; // lk_replica_digest()
};

struct ps_offer {
    uint64_t worker;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    int64_t heard_ns;
    struct ps_state have[PS_OFFER_POINTS_MAX];
    uint32_t have_count;
    bool lied;        // brought a whole state that was not the one it had offered: not asked again
    int64_t asked_ns; // when it was told to bring its state, or the last full part came; 0: not yet
    uint32_t broken;  // transfers that it began in this turn and did not end
    uint32_t turns;   // turns that it had and let pass: those who had fewer are asked first
};

struct ps_rebuild {
    struct ps_shard *shard;
    bool unreliable;  // the directory's own state can't be believed
    bool anew;        // an epoch is to be opened, whatever the replica holds by then
    uint32_t unheard; // requests in a row that the coordinator did not answer
    bool ready, told, stuck;
    uint64_t told_of; // the standby that the log says is waited for; 0: none
    bool named;       // the log says already what the own state lacks
    // as the coordinator says
    bool asked;
    uint64_t epoch, token; // the last one
    uint64_t reserved;     // the last epoch of a move
    uint64_t standby;      // the standby in sync with the owner, as far as is known; else 0
    // The address where it gives its state, since it can't take over; else "".
    char held_at[LH_ADDRESS_BYTES];
    struct lh_point *begun;
    size_t begun_count;
    struct lh_point stable, head;
    struct lh_hash stable_digest; // the stable state's, as several regions proved; or zeros
    uint32_t regions;             // regions of the run's workers
    uint8_t word[LH_HASH_BYTES];  // first bytes of the digest of the state that an operator chose
    size_t word_bytes;            // 0: none was chosen
    bool head_known;              // now: a coordinator that was restarted does not know it
    uint64_t process;             // the process that reported the head
    uint64_t *live;
    size_t live_count;
    // from followers
    struct ps_offer offer[LH_WORKERS_MAX];
    uint32_t offer_count;
    bool undecided;         // no state is confirmed: an operator is waited for
    uint32_t told_claims;   // number of claims that the log says
    struct ps_state wanted; // version and epoch 0: nothing
    struct ps_state taken;  // the last one that a follower brought
    uint64_t wanted_of;
    uint8_t challenge[LH_STATE_RANDOM_BYTES]; // the last answer's that named `wanted`: its bytes
                                              // are bound to it
    bool chosen; // the replica holds what is to be served; fetched: from a follower
    bool fetched;
    struct ps_restore *restore;
    uint64_t from;        // the standby that had the state in the replica; 0: none
    struct ps_held *held; // the transfer of that state; NULL: none
    bool opening;         // the request under way wants an epoch opened
    uint64_t ticket;      // what the next request that opens an epoch names
    bool pending;         // an epoch was asked for, and no answer says what became of it
    int64_t since_ns;     // the time of the coordinator's first answer
    struct lh_unary *ask;
    uint64_t timer;
};

// ---- rebuild.c
struct ps_offer *ps_rebuild_offer(struct ps_rebuild *b, uint64_t worker); // NULL: none
// ---- choose.c
struct lh_point ps_rebuild_own(const struct ps_rebuild *b); // the state that the replica holds
// Does what the coordinator says rule the point out? It is above what any log can have reached, or
// another history than the one that was reported there.
bool ps_rebuild_impossible(const struct ps_rebuild *b, const struct lh_point *p);
// Is it of the shard's history, as far as that is known above the stable point?
bool ps_rebuild_counts(const struct ps_rebuild *b, const struct lh_point *p);
bool ps_rebuild_enough(const struct ps_rebuild *b, const struct lh_point *p); // stable, or given up
bool ps_state_same(const struct ps_state *a, const struct ps_state *b);
// The best state there is; *worker 0: our own. False: none that is enough and confirmed. A worker
// that let its turn pass is asked again when all others have had as many
// (server/docs/0000-protocol.md#rule-29).
bool ps_rebuild_choose(const struct ps_rebuild *b, struct ps_state *best, uint64_t *worker);
// Workers hold states that would do, if they were confirmed.
bool ps_rebuild_undecided(const struct ps_rebuild *b);
void ps_rebuild_tell_undecided(struct ps_rebuild *b);  // says what they claim, when that changes
json_t *ps_rebuild_claims(const struct ps_rebuild *b); // gives it
// ---- rebuild.c
// Goes on with what is known by now.
void ps_rebuild_decide(struct ps_rebuild *b);
// Says what is known to have been acknowledged and is not in the state that was chosen. `worker` 0:
// this directory's own.
void ps_rebuild_name_lost(struct ps_rebuild *b, const struct lh_point *best, uint64_t worker);
// The replica holds what is to be served. `standby` 0: a follower's state, or nobody's.
void ps_rebuild_took(struct ps_rebuild *b, uint64_t standby);
// ---- held.c
// Fetches the whole state of the standby in sync, or goes on with that; ps_rebuild_took() says when
// it is here. A standby that brings nothing for the grace time is asked anew.
void ps_held_fetch(struct ps_rebuild *b);
void ps_held_end(struct ps_rebuild *b); // gives up what is being fetched
// Says, once a standby, that the shard waits for it. A take-over needs a moment only; after that
// the standby's server has to come, or an operator.
void ps_held_tell(struct ps_rebuild *b);
// ---- restore.c
// A state is being received. One whose follower fell silent (its host is gone, and nothing says so)
// is given up.
bool ps_restore_coming(struct ps_rebuild *b);
// Offers of workers that fell silent don't count: they could not bring what they offered.
void ps_restore_drop_silent(struct ps_rebuild *b);
// Those who were told to bring their state and do not have had their turn.
void ps_restore_pass_over(struct ps_rebuild *b);
void ps_restore_forget(struct ps_rebuild *b); // the state on its way is wanted no more

#endif
