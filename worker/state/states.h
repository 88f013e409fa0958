// The states of all shards on the device that trains: whether they fit and are right, before a
// worker starts on them; what they do meanwhile.
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
    struct lk_codec codec;              // what the own pushes have
    uint64_t beside; // bytes that a region's communicator takes of the device, now or later
};

struct wk_states_budget { // bytes of the device
    uint64_t values;      // parameters
    uint64_t arrays;      // replica, residual and its spare, base and cut
    uint64_t scratch;     // payloads, and what encoding and folding need beside them
    uint64_t beside;      // struct wk_states_conf has it
    uint64_t left;        // free before any of it was taken
};
// "24.5 bytes a parameter (replica, residual and its spare, base and cut 20.0, payloads and scratch
// 4.5), 2 MiB of 5 free"; ", and 50 MiB for gradients between ranks" where there are any.
void wk_states_budget_text(const struct wk_states_budget *b, char *out, size_t size);

enum { WK_STATES_TEXT = 320 }; // Enough for any of these.

struct wk_states;
// Reckons the budget, has the device do what the host's state does to made-up values, and takes all
// memory. LH_ERR_UNSUPPORTED: one line says why it can't; LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_states_open(const struct wk_states_conf *conf, struct wk_states **out);
// wk_conf.state_open: gives the state of the conf's shard, once. The shard's destroys it.
LH_MUST lh_err wk_states_give(void *states, const struct wk_shard_state_conf *conf,
                              struct wk_shard_state **out);
// Frees what was not given. After the worker's stop, before the device is closed. NULL is allowed.
void wk_states_close(struct wk_states *s);
struct wk_states_budget wk_states_budget(const struct wk_states *s);
// {"where": "device" or "host", "why": why not the device, "encoded": pushes, "folded": records,
// "filled": arrays that came from the host, "compared", "differed": digest records}. NULL: the
// state is on the host. `why`: "" where nothing else was asked for.
json_t *wk_states_status(const struct wk_states *s, const char *why);

#endif
