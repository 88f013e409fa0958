// longhaul config check|explain: shows the settings tables, and checks a file against them.
#include "deploy/tool/config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/nearest.h"
#include "common/env/environment.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/up/topology_rows.h"
#include "server/settings.h"
#include "worker/settings.h"

static const struct dp_kind {
    const char *name;
    const struct lh_config_table *table; // NULL: a topology, which has several tables
} kinds[] = {
    {"server", &ps_settings_table},
    {"worker", &wk_settings_table},
    {"topology", NULL},
};

static LH_MUST lh_err kind_of(const char *name, const struct dp_kind **out)
{
    if (!name) return lh_fail(LH_ERR_INVALID, "--kind is missing: server, worker or topology");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strcmp(kinds[i].name, name)) {
            *out = &kinds[i];
            return LH_OK;
        }
    struct lh_nearest nearest = lh_nearest(name);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        lh_nearest_try(&nearest, kinds[i].name);
    return lh_fail(LH_ERR_INVALID, "unknown kind %.60s: use server, worker or topology%s%s", name,
                   nearest.best ? "; did you mean " : "", nearest.best ? nearest.best : "");
}

lh_err dp_config_apply(struct lh_config *c, const char *file, const struct dp_texts *set)
{
    if (file) {
        struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
        lh_err err = dp_file_read(file, &text);
        if (!err) err = lh_config_text(c, file, lh_buf_span(&text));
        lh_buf_free(&text);
        LH_TRY(err);
    }
    for (unsigned i = 0; i < set->count; i++) LH_TRY(lh_config_set(c, set->at[i]));
    return lh_config_environment(c, lh_environment);
}

static LH_MUST lh_err check_file(const struct dp_kind *kind, const char *file,
                                 const struct dp_texts *set)
{
    if (!kind->table) {
        struct dp_topology *t;
        if (set->count) return lh_fail(LH_ERR_INVALID, "--set can't be used with a topology");
        LH_TRY(dp_topology_load(file, &t));
        dp_topology_free(t);
        return LH_OK;
    }
    struct lh_config *c;
    LH_TRY(lh_config_create(kind->table, &c));
    lh_err err = dp_config_apply(c, file, set);
    if (!err) err = lh_config_finish(c);
    lh_config_destroy(c);
    return err;
}

static LH_MUST lh_err explain(const struct dp_kind *kind, const char *key, bool all,
                              const char *file, const struct dp_texts *set)
{
    if (!kind->table) {
        if (file || set->count)
            return lh_fail(LH_ERR_INVALID, "--file and --set can't be used with a topology");
        return dp_topology_explain(key, all, stdout);
    }
    struct lh_config *c;
    struct lh_buf text = lh_buf(1 << 20);
    LH_TRY(lh_config_create(kind->table, &c));
    lh_err err = dp_config_apply(c, file, set);
    if (!err) err = lh_config_explain(c, key, all, &text);
    err = dp_print(&text, err);
    lh_config_destroy(c);
    return err;
}

// The settings that most runs need, or all of them, one line each.
static LH_MUST lh_err overview(bool all)
{
    const struct {
        const char *title;
        const struct lh_config_table *table, *beside;
    } part[] = {{"a topology (--kind topology)", &dp_run_table, NULL},
                {"each of its regions", &dp_region_table, NULL},
                {"each of its servers", &dp_server_table, NULL},
                {"each of its links", &dp_link_table, NULL},
                {"a server (--kind server)", &ps_settings_table, NULL},
                {"a worker (--kind worker), beside those that a server has too", &wk_settings_table,
                 &ps_settings_table}};
    struct lh_buf text = lh_buf(1 << 20);
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        if (!all && part[i].table == &dp_link_table) continue; // none of these is needed by most
        lh_put(&text, "\n", i > 0);
        lh_put(&text, part[i].title, strlen(part[i].title));
        lh_put(&text, ":\n", 2);
        lh_config_help(part[i].table, part[i].beside, all, &text);
    }
    lh_err err = dp_print(&text, LH_OK);
    if (!err && all) printf("\n--kind KIND --all explains each of them.\n");
    if (!err && !all) printf("\n--kind KIND explains each of them; --all lists the others, too.\n");
    return err;
}

lh_err dp_cmd_config(int argc, char **argv)
{
    const char *kind_name = NULL, *file = NULL;
    bool all = false;
    struct dp_texts set = {.count = 0}, rest;
    const struct dp_flag flags[] = {
        {"--kind", DP_TEXT, &kind_name, "server|worker|topology", "kind of the file"},
        {"--all", DP_SWITCH, &all, NULL, "explain: also the settings that few runs need"},
        {"--file", DP_TEXT, &file, "FILE", "explain: show this file's values and their lines"},
        {"--set", DP_EACH, &set, "KEY=VALUE",
         "override a setting, as for the programs; may repeat"},
    };
    const struct dp_usage usage = {
        "longhaul config check FILE --kind KIND | explain [KEY|SECTION] [--kind KIND] [--all]",
        "check says whether a file would be accepted, without starting anything. explain prints\n"
        "type, range, default, help and current value of settings; without --kind it lists the\n"
        "settings that most runs need, or --all, one per line.",
        flags, sizeof flags / sizeof flags[0]};
    bool help;
    const struct dp_kind *kind = NULL;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    const char *verb = rest.count ? rest.at[0] : "";
    bool check = !strcmp(verb, "check"), explains = !strcmp(verb, "explain");
    if (!check && !explains) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    if (explains && !kind_name && rest.count == 1) return overview(all);
    LH_TRY(kind_of(kind_name, &kind));
    if (check && rest.count == 2) {
        LH_TRY(check_file(kind, rest.at[1], &set));
        printf("%s: a good %s\n", rest.at[1], kind->name);
        return LH_OK;
    }
    if (explains && rest.count <= 2)
        return explain(kind, rest.count == 2 ? rest.at[1] : NULL, all, file, &set);
    return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
}
