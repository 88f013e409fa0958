// Links: how long a message takes from a region to a server or the coordinator, and back.
//
// A region's link has a round trip, and a rate each way for all its calls together: messages queue
// behind earlier ones. A server's port is such a queue, too. A message that loses a packet arrives
// a round trip later; congestion control is not modelled. A push's payload counts `stands_for`
// times, so that a small model takes a large one's time; heads count once.
#ifndef BENCH_SIM_LINKS_H
#define BENCH_SIM_LINKS_H

#include "bench/sim/scene.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem.h"

struct link_way { // one direction
    double bytes;
    int64_t free_ns;      // when the last message is through
    int64_t half;         // half second of the last message
    double in_half, peak; // bytes in it, and in the busiest one
};

struct links {
    const struct scene *scene;
    struct lh_fake_world *world;
    uint64_t chance;
    struct link_way up[LH_WORKERS_MAX], down[LH_WORKERS_MAX];
    struct link_way in[SCENE_SHARDS_MAX], out[SCENE_SHARDS_MAX]; // ports of servers
    double snapshots;                                            // bytes of states
    bool late;                                                   // no peak is noted any more
    uint64_t messages, lost;
};

void links_begin(struct links *l, const struct scene *scene, struct lh_fake_world *world,
                 struct lh_fabric *fabric); // before its nodes, named workerN, serverN

#endif
