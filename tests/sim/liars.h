// Shared by the files of the lying partners. See liars.c.
#ifndef SIM_LIARS_H
#define SIM_LIARS_H

#include "common/net/rpc.h"
#include "tests/sim/judge.h"
#include "tests/world/pb.h"

// ---- for the judge
bool sim_is_liar(const struct sim *s,
                 uint64_t worker); // true: it is a liar's id
// True: the coordinator has granted the unit to this liar, so it may claim it.
bool sim_liar_has(const struct sim *s, uint64_t worker, uint64_t unit);

// ---- between the liars' files
struct sim_liar_shard { // a shard, as its server last described it
    uint64_t process, epoch, version, step;
    bool greeted;
    struct lh_blob *frame; // the newest push, to be repeated
    struct lh_digest digest;
};

struct sim_liar {
    struct sim *sim;
    enum sim_fault fault;
    struct lh_peer self;
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_link *link[SIM_NODES_MAX];
    uint64_t id, incarnation, random;
    bool joined, drains; // drains: at the end, with an invented state
    struct sim_liar_shard shard[SIM_SHARDS_MAX];
    bool granted[SIM_UNITS];
    struct lh_grant grant[SIM_UNITS];
    uint64_t held[SIM_UNITS]; // units that are leased to it
    uint32_t holds, phase, calls;
    float allowance;
    uint64_t tag[SIM_SHARDS_MAX];
    uint8_t challenge[SIM_SHARDS_MAX][LH_HASH_BYTES]; // the last challenge about a copy
    int lie; // enum lie of liars_worker.c, for the push being made
};

static inline uint64_t sim_liar_draw(struct sim_liar *l, uint64_t n)
{
    return sim_draw(l->sim, l->fault, n);
}
static inline bool sim_liar_one_in(struct sim_liar *l, uint64_t n)
{
    return sim_liar_draw(l, n) == 0;
}
// Returns a number that arithmetic mistakes are sensitive to.
uint64_t sim_liar_number(struct sim_liar *l, uint64_t near);

// A link to a node's address, dialled once; and to the shard's server. NULL: none.
struct lh_link *sim_liar_link(struct sim_liar *l, const struct sim_node *n);
struct lh_link *sim_liar_to_shard(struct sim_liar *l, uint32_t shard);
// A call with one request and one answer.
void sim_liar_ask(struct sim_liar *l, struct lh_link *link, enum lh_rpc rpc, uint32_t shard,
                  const ProtobufCMessage *m, const ProtobufCMessageDescriptor *answer);
// A streaming call. It reads one answer; of a push, all answers. NULL: too many calls.
struct lh_call *sim_liar_open(struct sim_liar *l, struct lh_link *link, enum lh_rpc rpc,
                              uint32_t shard);

void sim_lie_as_worker(struct sim_liar *l);
void sim_flood(struct sim_liar *l);
void sim_lie_as_server(struct sim_liar *l);

#endif
