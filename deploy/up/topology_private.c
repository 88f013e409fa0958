// Private regions of a topology. See topology_private.h.
//
// The regions say who is private; `server.privacy` has the terms, which hold for all of them. So
// neither `server.coordinator.data` nor `server.privacy.level` repeats it.
#include "deploy/up/topology_private.h"

#include <string.h>

#include "server/privacy.h"

static int level_of(const struct dp_topology *t)
{
    for (unsigned i = 0; i < t->regions; i++)
        if (dp_region_is_private(&t->region[i])) return t->region[i].privacy.level;
    return LH_PRIVACY_NONE;
}

// ---------------------------------------------------------------- one region

static const char *problem_of(const struct dp_topology *t, const struct dp_region *r)
{
    bool loop = r->command || t->worker_base->trainer.kind == WK_TRAINER_EXTERNAL;
    bool record = r->privacy.level == LH_PRIVACY_RECORD;
    if (r->privacy.level != level_of(t))
        return "another private region has another level, but a run's terms apply to all of them: "
               "use one level, or two runs";
    if (record && loop)
        return "records are drawn and clipped by the built-in trainer: leave the command out, or "
               "set level: region";
    if (!record && !loop)
        return "this level needs a command: set level: record, or give the region a command";
    if (r->workers > 1)
        return "two workers on one set of records would charge their steps only once: set workers: "
               "1, or split the records into several regions";
    if (record && r->ranks > 1) return "records are drawn and clipped by one process: set ranks: 1";
    if (record && !r->data[0])
        return "its records need a folder of their own: set data to it (`longhaul data prepare "
               "--documents`)";
    return NULL;
}

// ---------------------------------------------------------------- the run

lh_err dp_private_coordinator(const struct dp_topology *t, struct lh_config *c)
{
    char set[LH_CONFIG_TEXT_MAX + 64] = "coordinator.data=";
    size_t used = strlen(set), all = 0;
    int level = level_of(t);
    if (!level) return LH_OK;
    for (unsigned i = 0; i < t->regions; i++) {
        if (!dp_region_is_private(&t->region[i])) continue;
        all++;
        if (used < sizeof set)
            used +=
                (size_t)snprintf(set + used, sizeof set - used, "%s=private,", t->region[i].name);
    }
    bool every = all == t->regions;
    if (every) used = (size_t)snprintf(set, sizeof set, "coordinator.data=private");
    if (!every && used < sizeof set)
        used +=
            (size_t)snprintf(set + used, sizeof set - used, "%s", t->server_base->coordinator.data);
    if (used >= sizeof set || used > LH_CONFIG_TEXT_MAX)
        return lh_fail(LH_ERR_CONFIG, "the names of the private regions are too long together");
    LH_TRY(lh_config_set(c, set));
    snprintf(set, sizeof set, "privacy.level=%s", lh_privacy_level_name((uint8_t)level));
    return lh_config_set(c, set);
}

static LH_MUST lh_err with_terms(const struct dp_topology *t,
                                 lh_err (*use)(const struct ps_settings *, void *), void *arg)
{
    struct lh_config *c;
    LH_TRY(dp_topology_server(t, &c));
    lh_err err = dp_private_coordinator(t, c);
    if (!err) err = use(lh_config_settings(c), arg);
    lh_config_destroy(c);
    return err;
}

static lh_err read_terms(const struct ps_settings *s, void *out)
{
    *(struct lh_privacy *)out = ps_privacy_terms(s);
    return LH_OK;
}

static lh_err check_terms(const struct ps_settings *s, void *arg)
{
    (void)arg;
    return ps_privacy_check(s);
}

lh_err dp_private_terms(const struct dp_topology *t, struct lh_privacy *out)
{
    return with_terms(t, read_terms, out);
}

lh_err dp_private_check(const struct dp_topology *t, const char *in)
{
    if (ps_settings_has_data(t->server_base, LH_DATA_PRIVATE) || t->server_base->privacy.level)
        return lh_fail(LH_ERR_CONFIG,
                       "%s: server.%s: `up` sets it: use regions.NAME.privacy.level instead", in,
                       t->server_base->privacy.level ? "privacy.level" : "coordinator.data");
    if (!level_of(t)) return LH_OK;
    for (unsigned i = 0; i < t->regions; i++) {
        const struct dp_region *r = &t->region[i];
        const char *problem = dp_region_is_private(r) ? problem_of(t, r) : NULL;
        if (problem)
            return lh_fail(LH_ERR_CONFIG, "%s: regions.%s.privacy.level is %s: %s", in, r->name,
                           lh_privacy_level_name((uint8_t)r->privacy.level), problem);
    }
    lh_err err = with_terms(t, check_terms, NULL);
    if (err) {
        char text[600];
        snprintf(text, sizeof text, "%s", lh_err_text(err));
        return lh_fail(err, "%s: server.%s", in, text);
    }
    return LH_OK;
}
