// The judge's memory of a run, shared by its files: history.c (records, losses, acknowledgements),
// mass.c, owners.c (silence and take-overs), answers.c and stored.c (the coordinator's answers
// against its disk), judge.c (the end). None of them draws a number or changes an event.
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "tests/sim/cluster.h"
#include "tests/sim/refold.h"
#include "tests/sim/stored.h"

// A push, known from a log or from a worker that heard its decision.
struct sim_push {
    uint32_t worker;
    uint64_t incarnation, random, step; // random 0: only heard of
    uint64_t version, epoch;            // its newest record's
    uint8_t digest[16];
    enum { SIM_UNSEEN, SIM_IN_LOG, SIM_CUT_OFF } where;
    bool admitted;              // its newest record is an ADMIT
    bool acknowledged;          // a server said so, or its worker heard it
    enum sim_loss_kind because; // the fault that last cut its record off
    // The fault that cut it off after it was acknowledged. The push may come back.
    enum sim_loss_kind excuse;
};

// A fault that took durable records, all above `floor`.
struct sim_loss {
    enum sim_loss_kind kind;
    const struct sim_node *node;
    uint64_t floor;
    bool standby; // one was in sync: no acknowledged push is excused
    bool spent;   // its epoch has begun: it explains nothing later
};

// How much of a shard a server has on its disk.
struct sim_copy {
    uint64_t epoch, version;
};

enum { SIM_LOSSES_MAX = 256 };

// A shard's log, as the judge knows it.
struct sim_log {
    struct sim_push *push;
    uint32_t pushes, room;
    struct sim_loss loss[SIM_LOSSES_MAX];
    uint32_t losses;
    double *applied[SIM_WORKERS]; // per value: the sum of the worker's pushes in the log
    uint64_t epoch;               // its newest record's
    uint64_t acknowledged;        // the highest version of an acknowledged push in the log
    struct sim_copy copy[SIM_NODES_MAX];
    bool credited[SIM_UNITS]; // credits, by the judge's fold of the whole log
    // owners.c
    const struct sim_node *owner; // the node that served last
    int64_t served_since;
    int64_t silent_since; // since when nobody serves though a standby in sync could; 0: not so
};

// The bound on a worker's silence (silences.c).
struct sim_bound {
    int64_t heard_ns; // when the coordinator last answered it
    int64_t bound_ns; // as printed at the last look
    bool live;
};

struct sim_judging {
    struct sim_log log[SIM_SHARDS_MAX];
    uint64_t id[SIM_WORKERS];
    struct sim_stored stored; // the durable part of the coordinator's store
    int64_t trouble[SIM_NODES_MAX];
    int64_t echo[SIM_NODES_MAX];        // when the last late copy of its reports arrives (owners.c)
    int64_t hangs_since[SIM_NODES_MAX]; // a group waits for a hanging disk; 0: none (owners.c)
    int64_t looked_ns, paused_ns, rest_ns; // the coordinator's pauses (owners.c)
    const struct sim_node *centre;         // leading coordinator at the last look (owners.c)
    struct sim_bound bound[SIM_WORKERS];
    uint64_t bound_life;              // deaths of the coordinator that printed the bounds
    bool lied[SIM_UNITS];             // credited by a liar's claim, under a grant
    uint64_t identity[SIM_NODES_MAX]; // the servers' directories, as they last ran
};

static inline struct sim_log *sim_log_of(const struct sim *s, uint32_t shard)
{
    return &s->judging->log[shard];
}
uint32_t sim_author(const struct sim *s, uint64_t worker); // SIM_WORKERS: an unknown id
struct sim_node *sim_node_named(struct sim *s, const char *name);
// The shard at this node's server. NULL: it has none, or does not run.
const struct ps_shard *sim_shard_at(const struct sim_node *n, uint32_t shard);
bool sim_serves(const struct sim_node *n, uint32_t shard);

// ---- history.c
// A server answers the push with this digest, which must be in the log of one of its shards.
void sim_saw_answer(struct sim_node *server, const uint8_t digest[16], bool admitted);
// A worker hears a push's decision.
void sim_saw_told(struct sim *s, uint32_t shard, uint32_t worker, struct lh_incarnation i,
                  uint64_t step, bool admitted);
const struct sim_node *sim_named(const struct sim *s, uint64_t identity); // NULL: none
// A standby comes in sync: it must have all acknowledged records.
void sim_saw_in_sync(struct sim *s, uint32_t shard, const struct sim_node *standby);
void sim_spend_losses(struct sim_log *l, const struct sim_node *n); // it serves the shard again
void sim_note_copies(struct sim_node *n); // the node is a server that runs, or ran until now
void sim_note_copy(struct sim *s, const struct sim_node *n, uint32_t shard, uint64_t epoch,
                   uint64_t version);
struct sim_push *sim_find_push(struct sim_log *l, uint32_t worker, uint64_t incarnation,
                               uint64_t step); // the newest; NULL: none
void sim_judge_acknowledged(struct sim *s, uint32_t shard);

// ---- mass.c
// Decodes a frame's payload into q, dense. False: it can't be unsealed.
bool sim_payload(const struct sim *s, uint32_t shard, struct lh_span frame, float *q);
void sim_mass_logged(struct sim *s, uint32_t shard, struct lh_span frame, double sign);
void sim_mass_start(struct sim_node *n); // a worker: it must hold its former mass
void sim_judge_mass(struct sim *s, uint32_t shard);

// ---- charges.c
void sim_charges_see(struct sim *s, uint32_t shard, const struct sim_record *r); // r is durable

// ---- owners.c
void sim_saw_taken(struct sim *s, uint32_t shard); // a standby just took it over
bool sim_watched_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate);

// ---- silences.c
void sim_saw_heard(struct sim_node *n); // the coordinator answers it
void sim_saw_printed(struct sim *s, uint32_t worker, bool live, int64_t bound_ns);
void sim_look_at_bounds(struct sim *s);

// ---- judge.c
// Compares a server's state with the judge's fold of its log, bit for bit. Returns NULL, or the
// name of the difference.
const char *sim_state_differs(const struct sim_fold *own, const struct lk_replica *server);

// ---- answers.c
void sim_read_store(struct sim *s); // the coordinator's, as it is durable now
void sim_saw_message(void *arg, const struct lh_transport *from, const char *to, enum lh_rpc rpc,
                     struct lh_span head);

#endif
