// The states of a worker's shards (worker/state) get their places by the settings gpu.state and
// gpu.spread.
#ifndef WK_PLACE_H
#define WK_PLACE_H

#include "common/env/env.h"
#include "common/env/log.h"
#include "worker/settings.h"
#include "worker/state/states.h"

// Lists the GPUs that states may be spread over, of the `there` that this process sees, to
// out[WK_STATE_GPUS_MAX]: those of gpu.spread; else those that the ranks of this host train on.
// LH_ERR_UNSUPPORTED: there is none of them, or nobody knows which they are; one line says what to
// set. LH_ERR_CONFIG: wk_settings_spread().
LH_MUST lh_err wk_place_gpus(const struct wk_settings *settings, int there, int *out,
                             uint32_t *count);

// Does another rank train on that GPU, or may it?
bool wk_place_shares(const struct wk_settings *settings, int there, int gpu);

struct wk_place_conf {
    const struct wk_settings *settings; // borrows, like all of these
    struct lh_env *env;
    struct lh_log *log;
    const struct lh_manifest *manifest;
    struct lk_codec codec;    // what the own pushes have
    struct wk_device *device; // NULL: the CPU trains, and `no_device` says why, or is ""
    const char *no_device;
};

// Opens the states in the first place that gpu.state allows and that has room for them, and logs
// it; NULL: on the host. `why` gets, in one line, why they are not in those before it; "" where
// there is none. LH_ERR_CONFIG: the only place that gpu.state allows can't have them;
// LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_place_open(const struct wk_place_conf *c, struct wk_states **out, char *why,
                             size_t size);

#endif
