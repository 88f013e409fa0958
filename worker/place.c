// The place of a worker's states. See place.h.
#include "worker/place.h"

#include <stdio.h>

#include "worker/join.h"
#include "worker/train/device.h"

static void state_failed(void *arg, int err)
{
    wk_device_failed(arg, err);
}

static LH_MUST lh_err open_states(const struct wk_place_conf *c, struct wk_states **out)
{
    if (!c->device)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s",
                       c->no_device[0] ? c->no_device : "nothing trains on a GPU here");
    const struct wk_states_conf conf = {.trainer = wk_device_lend(c->device),
                                        .failed = state_failed,
                                        .arg = c->device,
                                        .manifest = c->manifest,
                                        .codec = c->codec,
                                        .beside = wk_join_device_bytes(c->settings)};
    return wk_states_open(&conf, out);
}

static void say(const struct wk_place_conf *c, const struct wk_states *states)
{
    struct wk_states_budget budget = wk_states_budget(states);
    char text[WK_STATES_TEXT];
    wk_states_budget_text(&budget, text, sizeof text);
    lh_logf(c->log, LH_INFO, "state.device", "base, residual and replica on %s; %s",
            wk_device_name(c->device), text);
}

lh_err wk_place_open(const struct wk_place_conf *c, struct wk_states **out, char *why, size_t size)
{
    int kind = c->settings->gpu.state;
    *out = NULL;
    why[0] = '\0';
    if (kind == WK_STATE_HOST) return LH_OK;
    lh_err err = open_states(c, out);
    if (!err) say(c, *out);
    if (err != LH_ERR_UNSUPPORTED) return err;
    snprintf(why, size, "%s", lh_err_text(err));
    if (kind == WK_STATE_DEVICE) return lh_fail(LH_ERR_CONFIG, "gpu.state is device, but: %s", why);
    lh_logf(c->log, LH_INFO, "state.host", "%s; the host holds the state", why);
    return LH_OK;
}
