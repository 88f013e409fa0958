// Places for the states are tried in their order. See place.h.
#include "worker/place.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/machine.h"
#include "worker/join.h"
#include "worker/train/device.h"

LH_STATIC_ASSERT((int)WK_STATE_GPUS_MAX == (int)WK_STATES_DEVICES_MAX, "gpu.spread fits");

static void state_failed(void *arg, const char *other, int err)
{
    wk_device_failed(arg, other, err);
}

// Ranks that are all on this host, and that gpu.device gives none, train on the GPUs of their
// numbers, modulo those there are. Otherwise nobody here knows which ones they train on.
static int trained_on(const struct wk_settings *s, int there)
{
    bool known = s->gpu.device < 0 && !wk_ranks_leader(s)[0];
    return known && s->ranks.count < there ? (int)s->ranks.count : there;
}

bool wk_place_shares(const struct wk_settings *s, int there, int gpu)
{
    return s->ranks.count > 1 && gpu < trained_on(s, there);
}

static const char *no_list(const struct wk_settings *s, int there)
{
    if (there < 2) return "this process sees one GPU";
    if (s->gpu.device >= 0)
        return "gpu.device is set, so gpu.spread has to say which others there are";
    if (wk_ranks_leader(s)[0])
        return "the ranks are on several hosts, so gpu.spread has to say which GPUs of this one "
               "there are";
    return s->ranks.count < 2 ? "one GPU trains here; gpu.spread may name others" : NULL;
}

lh_err wk_place_gpus(const struct wk_settings *s, int there, int *out, uint32_t *count)
{
    LH_TRY(wk_settings_spread(s, out, count));
    for (uint32_t i = 0; i < *count; i++)
        if (out[i] >= there)
            return lh_fail(LH_ERR_UNSUPPORTED,
                           "gpu.spread is \"%s\", but there is no GPU %d: this process sees %d, "
                           "from 0 on",
                           s->gpu.spread, out[i], there);
    if (*count) return LH_OK;
    const char *why = no_list(s, there);
    if (why) return lh_fail(LH_ERR_UNSUPPORTED, "%s", why);
    for (int i = 0; i < trained_on(s, there) && i < WK_STATE_GPUS_MAX; i++) out[(*count)++] = i;
    return LH_OK;
}

static LH_MUST lh_err list_devices(const struct wk_place_conf *c, struct wk_states_conf *conf)
{
    int there = 0, failed = conf->trainer.gpu->devices(&there);
    if (failed) return lh_fail(LH_ERR_UNSUPPORTED, "%s", conf->trainer.gpu->error_text(failed));
    LH_TRY(wk_place_gpus(c->settings, there, conf->device, &conf->devices));
    for (uint32_t i = 0; i < conf->devices; i++)
        conf->shared[i] = wk_place_shares(c->settings, there, conf->device[i]);
    return LH_OK;
}

static LH_MUST lh_err try_place(const struct wk_place_conf *c, enum wk_states_place place,
                                struct wk_states **out)
{
    if (!c->device)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s",
                       c->no_device[0] ? c->no_device : "nothing trains on a GPU here");
    struct wk_states_conf conf = {.place = place,
                                  .trainer = wk_device_lend(c->device),
                                  .failed = state_failed,
                                  .arg = c->device,
                                  .manifest = c->manifest,
                                  .codec = c->codec,
                                  .beside = wk_join_device_bytes(c->settings),
                                  .host_left = lh_machine_available(c->env)};
    if (place == WK_STATES_SPREAD) LH_TRY(list_devices(c, &conf));
    return wk_states_open(&conf, out);
}

static void say(const struct wk_place_conf *c, const struct wk_states *states, const char *why)
{
    static const char *const event[] = {"state.device", "state.spread", "state.pinned"};
    static const char *const how[] = {"on", "spread beside", "pinned for"};
    struct wk_states_budget budget = wk_states_budget(states);
    char text[WK_STATES_TEXT];
    wk_states_budget_text(&budget, text, sizeof text);
    lh_logf(c->log, LH_INFO, event[budget.place], "base, residual and replica %s %s; %s%s%s",
            how[budget.place], wk_device_name(c->device), text, why[0] ? "; " : "", why);
}

static void add_why(enum wk_states_place place, char *why, size_t size)
{
    size_t len = strlen(why);
    if (len)
        snprintf(why + len, size - len, "; %s: %s", wk_states_place_name(place),
                 lh_err_text(LH_ERR_UNSUPPORTED));
    else
        snprintf(why, size, "%s", lh_err_text(LH_ERR_UNSUPPORTED));
}

lh_err wk_place_open(const struct wk_place_conf *c, struct wk_states **out, char *why, size_t size)
{
    // By enum wk_state_kind; auto goes on to the last one.
    static const enum wk_states_place place_of[] = {
        WK_STATES_DEVICE, WK_STATES_DEVICE, WK_STATES_DEVICE, WK_STATES_SPREAD, WK_STATES_PINNED};
    enum wk_state_kind kind = (enum wk_state_kind)c->settings->gpu.state;
    enum wk_states_place first = place_of[kind];
    bool only = kind != WK_STATE_AUTO || !c->device;
    *out = NULL;
    why[0] = '\0';
    if (kind == WK_STATE_HOST) return LH_OK;
    for (int i = (int)first; i <= (int)(only ? first : WK_STATES_PINNED); i++) {
        lh_err err = try_place(c, (enum wk_states_place)i, out);
        if (!err) {
            say(c, *out, why);
            return LH_OK;
        }
        if (err != LH_ERR_UNSUPPORTED) return err;
        add_why((enum wk_states_place)i, why, size);
    }
    if (kind != WK_STATE_AUTO)
        return lh_fail(LH_ERR_CONFIG, "gpu.state is %s, but: %s", wk_states_place_name(first), why);
    lh_logf(c->log, LH_INFO, "state.host", "%s; the host holds the state", why);
    return LH_OK;
}
