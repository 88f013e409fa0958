// The states of all shards on the device that trains, or on several of its host: whether they fit
// and are right, before a worker starts on them; what they do meanwhile.
#ifndef WK_STATES_H
#define WK_STATES_H

#include <jansson.h>

#include "worker/state/state.h"
#include "worker/train/device.h"

enum wk_states_place {
    WK_STATES_DEVICE, // The arrays are the device's.
    WK_STATES_SPREAD, // Each shard's are one device's of several, which this process opens.
    WK_STATES_PINNED, // They are pinned memory of the host: for devices whose memory is full.
};
const char *wk_states_place_name(enum wk_states_place place); // "device", "spread", "pinned"

enum { WK_STATES_DEVICES_MAX = 16 };

struct wk_states_conf {
    enum wk_states_place place;
    // For WK_STATES_SPREAD: different devices of this host; the trainer's may be among them.
    int device[WK_STATES_DEVICES_MAX];
    uint32_t devices;
    // Another process trains on that one, or may: it has to have left what the trainer's own has
    // in use, and a context of this process beside it. Not looked at for the trainer's own.
    bool shared[WK_STATES_DEVICES_MAX];
    struct wk_device_lent trainer;                         // its parameters
    void (*failed)(void *arg, const char *other, int err); // state_device.h; may be NULL
    void *arg;
    const struct lh_manifest *manifest; // borrows
    struct lk_codec codec;              // what the own pushes have
    uint64_t beside;    // bytes that a region's communicator takes of the device, now or later
    uint64_t host_left; // The host's memory that is available; 0: not known. For WK_STATES_PINNED.
};

// In bytes: the arrays' of `place`, all else of the device, or of all devices.
struct wk_states_budget {
    enum wk_states_place place;
    // WK_STATES_SPREAD: how many devices have states; the number of the one that will have least
    // left, the bytes that it gives. `left` is what it had.
    uint32_t devices;
    int fullest;
    uint64_t most;
    uint64_t values;  // parameters
    uint64_t arrays;  // replica, residual and its spare, base and cut
    uint64_t scratch; // payloads, and what encoding and folding need beside them
    uint64_t beside;  // struct wk_states_conf has it
    // Bytes that were free before any of it was taken; of a device that is `shared` no more than
    // whoever trains there will leave.
    uint64_t left;
    uint64_t host;      // what the worker takes of the host besides: replica, residual, its spare
    uint64_t host_left; // struct wk_states_conf has it
};
// "24.5 bytes a parameter (replica, residual and its spare, base and cut 20.0, payloads and scratch
// 4.5), 2 MiB of 5 free"; ", and 50 MiB for gradients between ranks" where there are any. Pinned:
// "4.5 bytes a parameter (payloads and scratch), 1 MiB of 5 free, and 32.0 of the host (replica,
// residual and its spare, base and cut 20.0, as without it 12.0), 2 MiB of 64 available"
void wk_states_budget_text(const struct wk_states_budget *b, char *out, size_t size);

enum { WK_STATES_TEXT = 320 }; // Enough for any of these.

struct wk_states;
// Reckons the budget, has the device do what the host's state does to made-up values, and takes all
// memory, of the place that the conf names. LH_ERR_UNSUPPORTED: one line says why it can't;
// LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_states_open(const struct wk_states_conf *conf, struct wk_states **out);
// wk_conf.state_open: gives the state of the conf's shard, once. The shard's destroys it.
LH_MUST lh_err wk_states_give(void *states, const struct wk_shard_state_conf *conf,
                              struct wk_shard_state **out);
// Frees what was not given. After the worker's stop, before the device is closed. NULL is allowed.
void wk_states_close(struct wk_states *s);
struct wk_states_budget wk_states_budget(const struct wk_states *s);
// {"where": "device", "spread", "pinned" or "host", "why": why not the device, "encoded": pushes,
// "folded": records, "filled": arrays that came from the host, "compared", "differed": digest
// records}, and of "spread" "devices": [{"device": its number, "name", "shards", "bytes": it gives
// for them, "left": it had before, "direct": parameters come to it straight, or are there}]. NULL:
// the state is on the host. `why`: "" where nothing else was asked for.
json_t *wk_states_status(const struct wk_states *s, const char *why);

#endif
