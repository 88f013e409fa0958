// Chooses where the states of a worker's shards (worker/state) are stored, by the setting
// gpu.state.
#ifndef WK_PLACE_H
#define WK_PLACE_H

#include "common/env/env.h"
#include "common/env/log.h"
#include "worker/settings.h"
#include "worker/state/states.h"

struct wk_place_conf {
    const struct wk_settings *settings; // borrows, like all of these
    struct lh_log *log;
    const struct lh_manifest *manifest;
    struct lk_codec codec;    // codec of the own pushes
    struct wk_device *device; // NULL: the CPU trains, and `no_device` is the reason, or ""
    const char *no_device;
};

// Opens the states on the device that trains if gpu.state allows it and they fit, and logs it;
// NULL: they are on the host. `why` gets, in one line, why they are not on the device; "" if that
// was not asked for. LH_ERR_CONFIG: gpu.state is device, and it can't hold them; LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_place_open(const struct wk_place_conf *c, struct wk_states **out, char *why,
                             size_t size);

#endif
