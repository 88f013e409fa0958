// The states of all shards on the device that trains: checks that they fit and are correct before a
// worker starts, and counts their work.
#ifndef WK_STATES_H
#define WK_STATES_H

#include <jansson.h>

#include "worker/state/state.h"
#include "worker/train/device.h"

struct wk_states_conf {
    struct wk_device_lent trainer;      // its parameters
    void (*failed)(void *arg, int err); // state_device.h; may be NULL
    void *arg;
    const struct lh_manifest *manifest; // borrows
    struct lk_codec codec;              // codec of the own pushes
    uint64_t beside; // device bytes that a region's communicator takes, now or later
};

struct wk_states_budget { // bytes of device memory
    uint64_t values;      // parameters
    uint64_t arrays;      // replica, residual and its spare, base and cut
    uint64_t scratch;     // payloads, and scratch for encoding and folding
    uint64_t beside;      // copy of wk_states_conf.beside
    uint64_t left;        // free before any was taken
};
// "24.5 bytes a parameter (replica, residual and its spare, base and cut 20.0, payloads and scratch
// 4.5), 2 MiB of 5 free"; ", and 50 MiB for gradients between ranks" if there are any.
void wk_states_budget_text(const struct wk_states_budget *b, char *out, size_t size);

enum { WK_STATES_TEXT = 320 }; // enough for any of these texts

struct wk_states;
// Computes the budget, compares the device's state with the host's on made-up values, and takes all
// memory. LH_ERR_UNSUPPORTED: one line says why it can't; LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_states_open(const struct wk_states_conf *conf, struct wk_states **out);
// wk_conf.state_open: gives the state of the conf's shard, once. The shard destroys it.
LH_MUST lh_err wk_states_give(void *states, const struct wk_shard_state_conf *conf,
                              struct wk_shard_state **out);
// Frees the states not given. After the worker's stop, before the device is closed. NULL is
// allowed.
void wk_states_close(struct wk_states *s);
struct wk_states_budget wk_states_budget(const struct wk_states *s);
// {"where": "device" or "host", "why": why not the device, "encoded": pushes, "folded": records,
// "filled": arrays copied from the host, "compared", "differed": digest records}. NULL: the state
// is on the host. `why`: "" if no device was asked for.
json_t *wk_states_status(const struct wk_states *s, const char *why);

#endif
