// The training part of a worker's process, by the settings `data.*`, `trainer.*`, `eval.*`,
// `ranks.*`: units and their loader, the trainer or the socket of one beside the worker, its
// device, its ranks, and how rate and density follow the run's tokens.
#ifndef WK_TRAINING_H
#define WK_TRAINING_H

#include <jansson.h>

#include "common/app/program.h"
#include "worker/join.h"
#include "worker/push/beside.h"
#include "worker/settings.h"
#include "worker/train/device.h"
#include "worker/train/schedule.h"
#include "worker/worker.h"

// Zeros before it is opened. All but `program` and `settings` is its own.
struct wk_training {
    struct lh_program *program;
    const struct wk_settings *settings;
    struct wk_joined *rank; // this process is a rank that only computes; then only `device` beside
    struct wk_loader *loader;
    struct wk_trainer *trainer; // NULL: it is beside the worker
    struct wk_beside_conf beside;
    struct wk_travel_conf travel;
    char socket[LH_PATH_BYTES];
    struct wk_reduce *reduce;
    struct wk_evaluation *evaluation;
    struct wk_device *device; // NULL: the CPU trains
    char no_device[512];      // why it does, where a device was asked for
    struct lh_units units;
    struct wk_schedule schedule;
    double density;  // Density of pushes, where it follows the run's rounds
    uint32_t window; // units that a batch is mixed from
};

// A worker's or, with `ranks.rank` above 0, another rank's. After an error wk_training_leave() and
// wk_training_free() are still due.
LH_MUST lh_err wk_training_open(struct wk_training *t, struct lh_program *p);

// Fills the training part of the core's conf; conf->codec is set already. The core borrows it until
// wk_training_free().
void wk_training_give(struct wk_training *t, struct wk_conf *conf);

uint32_t wk_training_queue(const struct wk_training *t); // units that should be leased, now
void wk_training_tell(const struct wk_training *t, json_t *status); // its part of status.json

void wk_training_hush(struct wk_training *t); // no step follows: waits for data end

// The communicator ends, all lanes at rest. `done`: the run is over. False: a thread that does not
// end still has the trainer's arrays, and nothing may be freed (worker/ranks/reduce.h).
bool wk_training_leave(struct wk_training *t, bool done);
void wk_training_free(struct wk_training *t); // after all borrowers of its device

#endif
