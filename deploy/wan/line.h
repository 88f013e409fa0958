// The delay lines: what happens to a packet between one region's device and another's.
//
// Each directed pair has a wire of finite rate behind a drop-tail queue, then random loss,
// propagation delay and jitter.
#ifndef LH_DEPLOY_WAN_LINE_H
#define LH_DEPLOY_WAN_LINE_H

#include "deploy/wan/world.h"

int64_t dp_now(void); // CLOCK_MONOTONIC, ns

void dp_line_free(struct dp_world *world); // drops what is in flight

// Takes in a batch of packets from a region.
void dp_line_take_in(struct dp_world *world, int from);

// Delivers what has arrived by now.
void dp_line_deliver(struct dp_world *world);

// How long the daemon may sleep; INT64_MAX: nothing is in flight.
int64_t dp_line_patience(const struct dp_world *world);

// Records how long the daemon meant to sleep and did; `idle`: nothing woke it before the time.
void dp_line_slept(struct dp_world *world, int64_t limit, int64_t slept, bool idle);

#endif
