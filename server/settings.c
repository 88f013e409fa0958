// The table of server.yaml, and checks that involve several of its rows. See settings.h.
#include "server/settings.h"

#include <stdlib.h>
#include <string.h>

#include "common/format/plan.h"
#include "common/objects/address.h"
#include "common/security/identity.h"
#include "server/command.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/schedule.h"
#include "server/coordinator/store/etcd_wire.h"
#include "server/coordinator/watch/hook_call.h"
#include "server/coordinator/watch/rules_text.h"
#include "server/privacy.h"

#define GIB 1073741824.0

static const struct lh_config_row rows[] = {
#define LH_SETTING(type, who, path, field, ...)                                                    \
    LH_CONFIG_ROW_##type(struct ps_settings, who, #path, node.path, __VA_ARGS__),
#define LH_SETTINGS_GROUP(name)
#define LH_SETTINGS_END(name)
#include "common/app/node.def"
#define LH_SETTING(type, who, path, field, ...)                                                    \
    LH_CONFIG_ROW_##type(struct ps_settings, who, #path, path, __VA_ARGS__),
#define LH_SETTINGS_GROUP(name)
#define LH_SETTINGS_END(name)
#include "server/settings.def"
};

// ---------------------------------------------------------------- values by region

// One entry of a list such as "8,asia=4": a value and its region; "": all other regions.
struct entry {
    char region[LH_NAME_BYTES], value[16];
};

// Takes the next entry of the list. Gives false at the end of the list. For a malformed entry,
// gives false and does not move *at.
static bool next_entry(const char **at, struct entry *e)
{
    const char *from = *at + strspn(*at, " ");
    size_t len = strcspn(from, ","), name = strcspn(from, "=,");
    size_t skip = name < len ? name + 1 : 0;
    *e = (struct entry){.region = ""};
    if (!len || (skip && !name) || name >= sizeof e->region || len - skip >= sizeof e->value)
        return false;
    if (skip) memcpy(e->region, from, name);
    memcpy(e->value, from + skip, len - skip);
    *at = from + len + (from[len] == ',');
    return true;
}

// Reads a value; -1: malformed.
static int64_t steps_of(const char *value)
{
    char *end;
    long h = strtol(value, &end, 10);
    return end > value && !*end && h >= 1 && h <= 300 ? h : -1;
}

static int64_t data_of(const char *value)
{
    static const char *const names[] = {"leased", "own", "private"}; // as enum lh_data
    for (size_t i = 0; i < LH_COUNT(names); i++)
        if (!strcmp(value, names[i])) return (int64_t)i;
    return -1;
}

// Gives the list's value for a region, or for all others (""); -1: the list names none.
static int64_t value_of(const char *list, const char *region, int64_t (*read)(const char *))
{
    struct entry e;
    for (const char *at = list; next_entry(&at, &e);)
        if (!strcmp(e.region, region)) return read(e.value);
    return -1;
}

static LH_MUST lh_err check_list(const char *key, const char *list, int64_t (*read)(const char *),
                                 const char *expected)
{
    struct entry e;
    const char *at = list;
    bool fine = true;
    while (fine && next_entry(&at, &e)) fine = read(e.value) >= 0;
    if (fine && !*at) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s: \"%.100s\" is not valid, expected %s", key, list, expected);
}

uint32_t ps_settings_h_base(const struct ps_settings *s)
{
    int64_t h = value_of(s->coordinator.h_base, "", steps_of);
    return h < 0 ? PS_H_BASE : (uint32_t)h;
}

uint32_t ps_settings_h(const struct ps_settings *s, const char *region)
{
    int64_t h = value_of(s->coordinator.h_base, region, steps_of);
    return h < 0 ? 0 : (uint32_t)h;
}

enum lh_data ps_settings_data(const struct ps_settings *s, const char *region)
{
    int64_t data = value_of(s->coordinator.data, region, data_of);
    if (data < 0) data = value_of(s->coordinator.data, "", data_of);
    return data < 0 ? LH_DATA_LEASED : (enum lh_data)data;
}

bool ps_settings_has_data(const struct ps_settings *s, enum lh_data data)
{
    struct entry e;
    for (const char *at = s->coordinator.data; next_entry(&at, &e);)
        if (data_of(e.value) == (int64_t)data) return true;
    return false;
}

// ---------------------------------------------------------------- checks

static LH_MUST lh_err check_shards(const struct lh_ints *shards)
{
    if (!shards->count)
        return lh_fail(LH_ERR_CONFIG,
                       "shards is empty: a server of role shard, both or standby needs some");
    for (uint32_t i = 0; i < shards->count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (shards->value[i] == shards->value[j])
                return lh_fail(LH_ERR_CONFIG, "shards: %lld is given twice",
                               (long long)shards->value[i]);
    return LH_OK;
}

static LH_MUST lh_err check_optimizer(const struct ps_settings *s)
{
    if (ps_momentum(s) > 0 && s->update.eta > PS_EFFECTIVE_STEP_MAX)
        return lh_fail(LH_ERR_CONFIG,
                       "update.eta (%g) is above %g, the bound of the effective step, which no "
                       "momentum can keep: lower it",
                       s->update.eta, PS_EFFECTIVE_STEP_MAX);
    return LH_OK;
}

double ps_momentum(const struct ps_settings *s)
{
    return s->update.optimizer == LH_OPT_DELAYED_NESTEROV ? 0.6 : 0;
}

static LH_MUST lh_err check_scale(const struct ps_settings *s)
{
    struct ps_schedule schedule;
    struct ps_command command;
    LH_TRY(ps_schedule_parse(s->coordinator.scale, &schedule));
    lh_err err = ps_command_parse(s->coordinator.scale_command, &command);
    if (err) return lh_fail(err, "coordinator.scale_command: %s", lh_err_text(err));
    if (!command.words || schedule.entries) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "coordinator.scale_command needs coordinator.scale, which says "
                                  "how many workers are wanted");
}

static LH_MUST lh_err check_hook(const struct ps_settings *s)
{
    struct ps_command command;
    lh_err err = ps_command_parse(s->coordinator.hook_command, &command);
    if (err) return lh_fail(err, "coordinator.hook_command: %s", lh_err_text(err));
    LH_TRY(ps_hook_check_url(s->coordinator.hook_url));
    bool told = command.words || s->coordinator.hook_url[0];
    if (told || !s->coordinator.hook_secret[0]) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "coordinator.hook_secret needs coordinator.hook_command or "
                                  "hook_url: it signs the calls of these");
}

static LH_MUST lh_err check_links(const struct ps_settings *s)
{
    struct ps_terms terms;
    LH_TRY(ps_terms_parse(s->coordinator.links, &terms));
    bool finish = s->coordinator.balance == PS_RULE_FINISH;
    if (terms.terms && s->coordinator.balance == PS_RULE_LEVEL)
        return lh_fail(
            LH_ERR_CONFIG,
            "coordinator.links needs coordinator.balance: finish or weighted; level ignores links");
    if (!finish && s->coordinator.affinity > 0)
        return lh_fail(LH_ERR_CONFIG, "coordinator.affinity needs coordinator.balance: finish");
    return LH_OK;
}

static LH_MUST lh_err check_coordinator_store(const struct ps_settings *s)
{
    struct ps_etcd_place place;
    if (!s->coordinator.store[0]) return LH_OK;
    lh_err err = ps_etcd_parse(s->coordinator.store, &place);
    if (err) return lh_fail(err, "coordinator.store: %s", lh_err_text(err));
    if (s->role == PS_ROLE_COORDINATOR) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "coordinator.store needs role: coordinator; otherwise the server of shards in "
                   "the same process would end together with the coordinator");
}

static LH_MUST lh_err check_coordinator(const struct ps_settings *s)
{
    LH_TRY(lh_setting_needed("data.units", s->node.data.units, "a coordinator"));
    if (!s->node.run.budget_tokens)
        return lh_fail(LH_ERR_CONFIG, "run.budget_tokens is missing: a coordinator needs "
                                      "it to know when the run ends");
    LH_TRY(check_scale(s));
    struct ps_rules rules;
    LH_TRY(ps_rules_parse(s->coordinator.rules, &rules));
    LH_TRY(check_hook(s));
    LH_TRY(check_coordinator_store(s));
    LH_TRY(check_links(s));
    LH_TRY(ps_rights_check(s->coordinator.servers));
    LH_TRY(check_list("coordinator.data", s->coordinator.data, data_of,
                      "leased, own or private, and region=leased, region=own or region=private, "
                      "separated by commas"));
    LH_TRY(check_list("coordinator.h_base", s->coordinator.h_base, steps_of,
                      "steps from 1 to 300, and region=steps, separated by commas"));
    return ps_privacy_check(s);
}

static LH_MUST lh_err check_store(const struct ps_settings *s)
{
    if (!s->checkpoint.store[0]) return LH_OK;
    lh_err err = lh_objects_check(s->checkpoint.store);
    if (err) return lh_fail(err, "checkpoint.store: %s", lh_err_text(err));
    if (!s->checkpoint.every_versions)
        return lh_fail(LH_ERR_CONFIG,
                       "checkpoint.store needs checkpoints: checkpoint.every_versions "
                       "is off");
    return LH_OK;
}

static lh_err check(const void *settings)
{
    const struct ps_settings *s = settings;
    LH_TRY(lh_node_check(&s->node));
    LH_TRY(lh_address_check("listen", s->listen, true));
    LH_TRY(check_optimizer(s));
    if (s->advertise[0]) LH_TRY(lh_address_check("advertise", s->advertise, false));
    if (ps_is_coordinator(s)) LH_TRY(check_coordinator(s));
    if (s->node.data.units[0] && !ps_is_coordinator(s))
        LH_TRY(lh_setting_needed("data.dir", s->node.data.dir, "data.units of a server of shards"));
    if (!ps_is_shard(s) && s->node.data.dir[0])
        return lh_fail(LH_ERR_CONFIG, "data.dir: a server of role coordinator gives no units; set "
                                      "it at one of role shard, standby or both");
    if (lh_objects_is(s->node.data.dir))
        return lh_fail(LH_ERR_CONFIG, "data.dir is a store, and a server gives units from a "
                                      "folder: workers read a store themselves (their data.dir)");
    if (!ps_is_shard(s)) return LH_OK;

    LH_TRY(check_shards(&s->shards));
    LH_TRY(check_store(s));
    LH_TRY(lh_setting_needed("seal.keys", s->node.seal.keys, "a server of shards"));
    LH_TRY(lh_setting_needed("model.weights", s->model.weights, "a server of shards"));
    if (!ps_is_coordinator(s))
        LH_TRY(
            lh_setting_needed("coordinator", s->node.coordinator,
                              s->role == PS_ROLE_STANDBY ? "a standby" : "a server of role shard"));
    return LH_OK;
}

const struct lh_config_table ps_settings_table = {
    .kind = "server",
    .row = rows,
    .rows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct ps_settings),
    .check = check,
};
