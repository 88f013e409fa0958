// Shared by all test clusters in one process: the simulator's and the one on real threads.
//
// The functions return a core's settings for each role; a test then changes those that matter to
// it, above all the times, because the clusters run on different clocks. Everything is borrowed,
// except that setup_stop() takes its arguments.
#ifndef SIM_SETUP_H
#define SIM_SETUP_H

#include "server/coordinator/coordinator.h"
#include "server/server.h"
#include "worker/worker.h"

enum { SETUP_REGIONS = 4 };
extern const char *const setup_region[SETUP_REGIONS];

// Common settings of one node.
struct setup {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log; // NULL: no log
    const struct lh_peer *self;
    const char *dir, *listen, *coordinator; // addresses; only the coordinator's own is not `listen`
    const char *job;                        // LH_JOB_BYTES bytes
    const struct lh_manifest *manifest;
    const struct lh_units *units;
    struct lh_keyring *keys;
    const float *initial; // the model's parameters
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *arg;
};

struct ps_co_conf setup_coordinator(const struct setup *s, uint32_t workers);
// A server of one shard, with small segments and frequent checkpoints, so that a short run has
// many.
struct ps_conf setup_server(const struct setup *s, const uint32_t *shard);
struct wk_conf setup_worker(const struct setup *s, struct wk_trainer *trainer);

// A peer named by kind and index (worker2), in region index % SETUP_REGIONS.
struct lh_peer setup_peer(enum lh_role role, uint32_t index, const char *domain);

// Creates `count` units of `tokens` that may leave home; homes are the first `regions` in turn.
void setup_units(struct lh_units *u, uint32_t count, uint64_t tokens, uint32_t regions);
struct lh_keyring *setup_keys(void);

// Stops those that are not NULL, and sets all to NULL.
void setup_stop(struct ps_coordinator **c, struct ps_server **s, struct wk_worker **w,
                struct wk_trainer **t);

#endif
