// Reading a topology. See topology.h.
//
// 1. Every map in the file is read by a table (topology_rows.c): the top, each server, region and
// link, and `server:`
//    and `worker:` by the tables of the programs. So a mistyped key fails here, with its line.
// 2. In a dp_topology every name is valid and unique, every region named exists, the shards are
//    0..shards-1 with one owner each, and every pair of regions has one link.
#include "deploy/up/topology.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "deploy/ask/up_status.h"
#include "deploy/tool/files.h"
#include "deploy/up/topology_rows.h"
#include "server/coordinator/schedule.h"
#include "worker/ranks/reduce.h"

enum { CONFIGS_MAX = 4 + DP_REGIONS_MAX + DP_SERVERS_MAX + DP_LINKS_MAX };

// Memory of a topology: its tree, split into the maps that tables read, and their configs.
struct dp_topology_parts {
    char name[DP_PATH_BYTES];
    struct lh_yaml *top, *servers, *regions, *link, *links, *server, *worker;
    struct lh_config *config[CONFIGS_MAX];
    unsigned configs;
    struct dp_words *command[1 + DP_REGIONS_MAX];
    unsigned commands;
    const struct dp_words *every; // command of regions without their own; NULL: none
};

// ---------------------------------------------------------------- parts

// Unlinks a child of the top map; NULL: none.
static struct lh_yaml *take(struct lh_yaml *top, const char *key)
{
    for (struct lh_yaml **at = &top->child; *at; at = &(*at)->next)
        if (!strcmp((*at)->key, key)) {
            struct lh_yaml *node = *at;
            *at = node->next;
            node->next = NULL;
            return node;
        }
    return NULL;
}

static unsigned line_of(const struct lh_yaml *top, const char *key)
{
    const struct lh_yaml *at = top->child;
    while (at && strcmp(at->key, key) != 0) at = at->next;
    return at ? at->line : top->line;
}

// A new config of this table, owned by the topology, filled from a map (NULL or empty: the
// defaults); finished if `whole`.
static LH_MUST lh_err read_table(struct dp_topology_parts *p, const struct lh_config_table *table,
                                 const struct lh_yaml *map, bool whole, const void **settings)
{
    struct lh_config *c;
    LH_TRY(lh_config_create(table, &c));
    p->config[p->configs++] = c;
    bool empty = !map || (map->kind == LH_YAML_SCALAR && !map->text[0]);
    if (!empty) LH_TRY(lh_config_tree(c, p->name, map));
    if (whole && lh_config_finish(c) != LH_OK)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: %s", p->name, map ? map->line : 1,
                       lh_err_text(LH_ERR_CONFIG));
    *settings = lh_config_settings(c);
    return LH_OK;
}

static LH_MUST lh_err spelling_check(const struct dp_topology *t, unsigned line, const char *name)
{
    size_t len = strlen(name);
    if (len && len <= 40 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == len)
        return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "%s:%u: \"%.60s\" is not a valid name, expected 1 to 40 of a-z 0-9 . _ -",
                   t->parts->name, line, name);
}

static LH_MUST lh_err name_check(const struct dp_topology *t, unsigned line, const char *name)
{
    const char *in = t->parts->name;
    LH_TRY(spelling_check(t, line, name));
    for (unsigned i = 0; i < t->regions; i++)
        if (!strcmp(t->region[i].name, name))
            return lh_fail(LH_ERR_CONFIG, "%s:%u: the name %s is taken by a region", in, line,
                           name);
    for (unsigned i = 0; i < t->servers; i++)
        if (!strcmp(t->server[i].name, name))
            return lh_fail(LH_ERR_CONFIG, "%s:%u: the name %s is taken by a server", in, line,
                           name);
    return LH_OK;
}

static LH_MUST lh_err find_region(const struct dp_topology *t, unsigned line, const char *name,
                                  unsigned *out)
{
    struct lh_nearest nearest = lh_nearest(name);
    for (unsigned i = 0; i < t->regions; i++) {
        lh_nearest_try(&nearest, t->region[i].name);
        if (!strcmp(t->region[i].name, name)) {
            *out = i;
            return LH_OK;
        }
    }
    return lh_fail(LH_ERR_CONFIG, "%s:%u: no region %.60s%s%s%s", t->parts->name, line, name,
                   nearest.best ? "; did you mean " : "", nearest.best ? nearest.best : "",
                   nearest.best ? "?" : "");
}

// Checks a required section: its kind, and at most `max` entries.
static LH_MUST lh_err need(const struct dp_topology *t, const struct lh_yaml *node, const char *key,
                           enum lh_yaml_kind kind, unsigned max)
{
    const char *in = t->parts->name;
    if (!node) return lh_fail(LH_ERR_CONFIG, "%s: %s is missing", in, key);
    if (node->kind != kind || !node->child)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: %s: expected a %s", in, node->line, key,
                       kind == LH_YAML_LIST ? "list of maps" : "map by name");
    unsigned n = 0;
    for (const struct lh_yaml *at = node->child; at; at = at->next) n++;
    if (n <= max) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s:%u: %s: more than %u", in, node->line, key, max);
}

// ---------------------------------------------------------------- commands

static LH_MUST lh_err words_of(const struct lh_yaml *list, const char *text, struct dp_words *out)
{
    static const struct dp_placeholder known[] = DP_COMMAND_PLACEHOLDERS(NULL, NULL, NULL, NULL);
    if (!list) LH_TRY(dp_words_split(text, out));
    for (const struct lh_yaml *at = list ? list->child : NULL; at; at = at->next) {
        if (at->kind != LH_YAML_SCALAR)
            return lh_fail(LH_ERR_CONFIG, "expected a list of words, or one line of them");
        LH_TRY(dp_words_add(out, at->text));
    }
    if (!out->count || !out->at[0][0]) return lh_fail(LH_ERR_CONFIG, "no program is given");
    struct dp_words *scratch = malloc(sizeof *scratch);
    if (!scratch) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a command");
    lh_err err = dp_words_fill(out, known, scratch);
    free(scratch);
    return err;
}

// Reads a command from `list`, else from `text`. The topology owns it.
static LH_MUST lh_err read_command(struct dp_topology_parts *p, unsigned line,
                                   const struct lh_yaml *list, const char *text,
                                   const struct dp_words **out)
{
    struct dp_words *words = calloc(1, sizeof *words);
    if (!words) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a command");
    p->command[p->commands++] = words;
    *out = words;
    lh_err err = words_of(list, text, words);
    return err == LH_ERR_CONFIG
               ? lh_fail(err, "%s:%u: command: %s", p->name, line, lh_err_text(err))
               : err;
}

// Unlinks the map's command if it is a list, which no table reads; NULL: it is not.
static struct lh_yaml *take_list(struct lh_yaml *map)
{
    const struct lh_yaml *command = map->kind == LH_YAML_MAP ? lh_yaml_find(map, "command") : NULL;
    return command && command->kind == LH_YAML_LIST ? take(map, "command") : NULL;
}

// The settings of a region, and its command.
static LH_MUST lh_err read_region(struct dp_topology *t, struct lh_yaml *at, struct dp_region *out)
{
    const void *read;
    const struct lh_yaml *own = at->kind == LH_YAML_MAP ? lh_yaml_find(at, "command") : NULL;
    unsigned line = own ? own->line : at->line;
    bool named = own != NULL;
    struct lh_yaml *list = take_list(at);
    lh_err err = read_table(t->parts, &dp_region_table, at, true, &read);
    if (!err) {
        *out = *(const struct dp_region *)read;
        out->config = t->parts->config[t->parts->configs - 1];
        out->name = at->key;
        out->command = named ? NULL : t->parts->every;
        if (list || out->command_text[0])
            err = read_command(t->parts, line, list, out->command_text, &out->command);
    }
    lh_yaml_free(list);
    return err;
}

// Refuses settings that do not fit commands.
static LH_MUST lh_err check_commands(const struct dp_topology *t)
{
    const struct lh_yaml *top = t->parts->top;
    const char *in = t->parts->name;
    if (t->trainers && t->run->tokens_per_s > 0)
        return lh_fail(
            LH_ERR_CONFIG,
            "%s:%u: tokens_per_s throttles the built-in trainer only, not a command: leave it out",
            in, line_of(top, "tokens_per_s"));
    for (unsigned i = 0; i < t->regions; i++) {
        const struct dp_region *r = &t->region[i];
        bool builtin = !r->command && t->worker_base->trainer.kind != WK_TRAINER_EXTERNAL;
        if (builtin && !dp_region_is_private(r) &&
            ps_settings_data(t->server_base, r->name) == LH_DATA_OWN)
            return lh_fail(LH_ERR_CONFIG,
                           "%s: server.coordinator.data: region %s has no command, and the "
                           "built-in trainer needs units of --data",
                           in, r->name);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- sections

// Sets ranks from GPUs, and how their gradients are reduced.
static LH_MUST lh_err settle_ranks(const struct dp_topology *t, const struct lh_yaml *at,
                                   struct dp_region *r)
{
    if (r->gpus && r->ranks > 1 && r->ranks != r->gpus)
        return lh_fail(
            LH_ERR_CONFIG,
            "%s:%u: %s: %lld gpus and %lld ranks: each GPU has one rank; leave ranks out",
            t->parts->name, at->line, at->key, (long long)r->gpus, (long long)r->ranks);
    if (r->command && (r->gpus || r->hosts > 1))
        return lh_fail(
            LH_ERR_CONFIG,
            "%s:%u: %s: gpus and hosts are for the built-in trainer; with a command set ranks",
            t->parts->name, at->line, at->key);
    bool own = ps_settings_data(t->server_base, at->key) != LH_DATA_LEASED;
    if (r->data[0] && !dp_region_has_records(r) && (r->command || own))
        return lh_fail(LH_ERR_CONFIG,
                       "%s:%u: %s: data: units travel to the built-in trainer only; a command "
                       "reads its own data: leave this out",
                       t->parts->name, at->line, at->key);
    const struct wk_settings *worker = t->worker_base;
    if (r->data[0] && worker->trainer.kind == WK_TRAINER_EXTERNAL)
        return lh_fail(
            LH_ERR_CONFIG,
            "%s:%u: %s: data: no units travel with worker: trainer.kind: external; leave "
            "one of the two out",
            t->parts->name, at->line, at->key);
    if (r->gpus) r->ranks = r->gpus;
    bool apart = r->hosts > 1 && worker->ranks.reduce == WK_REDUCE_SHM;
    r->reduce = r->gpus ? WK_REDUCE_NCCL : apart ? WK_REDUCE_TCP : worker->ranks.reduce;
    if (r->hosts > r->ranks)
        return lh_fail(LH_ERR_CONFIG,
                       "%s:%u: %s: %lld ranks on %lld hosts: each host needs at least one; set "
                       "more ranks, or fewer hosts",
                       t->parts->name, at->line, at->key, (long long)r->ranks, (long long)r->hosts);
    return LH_OK;
}

static LH_MUST lh_err read_regions(struct dp_topology *t)
{
    LH_TRY(need(t, t->parts->regions, "regions", LH_YAML_MAP, DP_REGIONS_MAX));
    for (struct lh_yaml *at = t->parts->regions->child; at; at = at->next) {
        struct dp_region *read = &t->region[t->regions];
        LH_TRY(name_check(t, at->line, at->key));
        LH_TRY(read_region(t, at, read));
        t->regions++;
        LH_TRY(settle_ranks(t, at, read));
        t->workers += (unsigned)read->workers;
        t->trainers += read->command ? (unsigned)read->workers : 0;
        if (t->workers > DP_WORKERS_MAX)
            return lh_fail(LH_ERR_CONFIG, "%s:%u: more than %d workers in all", t->parts->name,
                           at->line, DP_WORKERS_MAX);
        t->helpers += (unsigned)read->workers * dp_region_helpers(read);
        if (t->helpers > DP_RANKS_MAX)
            return lh_fail(LH_ERR_CONFIG, "%s:%u: more than %d ranks beside the workers in all",
                           t->parts->name, at->line, DP_RANKS_MAX);
    }
    return LH_OK;
}

static LH_MUST lh_err check_shards(const struct dp_topology *t)
{
    uint8_t owned[DP_SERVERS_MAX * LH_CONFIG_INTS_MAX] = {0};
    const char *in = t->parts->name;
    for (unsigned i = 0; i < t->servers; i++)
        for (uint32_t j = 0; j < t->server[i].shards.count; j++) {
            int64_t shard = t->server[i].shards.value[j];
            if (shard >= t->shards)
                return lh_fail(LH_ERR_CONFIG,
                               "%s: server %s: shard %lld, but there are %u shards: "
                               "0 to %u, each with one owner",
                               in, t->server[i].name, (long long)shard, t->shards, t->shards - 1);
            if (owned[shard]++)
                return lh_fail(LH_ERR_CONFIG, "%s: server %s: shard %lld has an owner already", in,
                               t->server[i].name, (long long)shard);
        }
    return LH_OK;
}

static LH_MUST lh_err read_servers(struct dp_topology *t)
{
    LH_TRY(need(t, t->parts->servers, "servers", LH_YAML_LIST, DP_SERVERS_MAX));
    for (const struct lh_yaml *at = t->parts->servers->child; at; at = at->next) {
        const void *read;
        LH_TRY(read_table(t->parts, &dp_server_table, at, true, &read));
        struct dp_server server = *(const struct dp_server *)read;
        LH_TRY(name_check(t, at->line, server.name));
        if (!strcmp(server.name, "coordinator") || !strcmp(server.name, DP_STANDBY_NAME))
            return lh_fail(LH_ERR_CONFIG,
                           "%s:%u: a server can't be named %s: `up` starts the coordinators itself",
                           t->parts->name, at->line, server.name);
        LH_TRY(find_region(t, at->line, server.region_name, &server.region));
        if (!server.shards.count)
            return lh_fail(LH_ERR_CONFIG, "%s:%u: server %s owns no shards", t->parts->name,
                           at->line, server.name);
        t->shards += server.shards.count;
        t->server[t->servers++] = server;
    }
    return check_shards(t);
}

static struct dp_link *link_of(struct dp_topology *t, unsigned a, unsigned b)
{
    for (unsigned i = 0; i < t->links; i++)
        if (t->link[i].a == (a < b ? a : b) && t->link[i].b == (a < b ? b : a)) return &t->link[i];
    return NULL;
}

static LH_MUST lh_err read_link(struct dp_topology *t, const struct lh_yaml *at)
{
    const void *read;
    unsigned a, b;
    LH_TRY(read_table(t->parts, &dp_link_table, at, true, &read));
    struct dp_link link = *(const struct dp_link *)read;
    if (!link.from[0] || !link.to[0])
        return lh_fail(LH_ERR_CONFIG, "%s:%u: %s is missing: a link has two ends", t->parts->name,
                       at->line, link.from[0] ? "to" : "from");
    LH_TRY(find_region(t, at->line, link.from, &a));
    LH_TRY(find_region(t, at->line, link.to, &b));
    if (a == b)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: a link from %s to itself", t->parts->name, at->line,
                       link.from);
    if (link_of(t, a, b))
        return lh_fail(LH_ERR_CONFIG, "%s:%u: the link of %s and %s is given twice", t->parts->name,
                       at->line, link.from, link.to);
    link.a = a < b ? a : b;
    link.b = a < b ? b : a;
    t->link[t->links++] = link;
    return LH_OK;
}

static LH_MUST lh_err read_links(struct dp_topology *t)
{
    const void *read;
    const struct lh_yaml *rest = t->parts->link;
    LH_TRY(read_table(t->parts, &dp_link_table, rest, true, &read));
    const struct dp_link *other = read;
    if (other->from[0] || other->to[0])
        return lh_fail(LH_ERR_CONFIG,
                       "%s:%u: link: it applies to all pairs that are not in links: leave from and "
                       "to out, or put the pair into links",
                       t->parts->name, rest->line);
    if (t->parts->links) {
        LH_TRY(need(t, t->parts->links, "links", LH_YAML_LIST, DP_LINKS_MAX));
        for (const struct lh_yaml *at = t->parts->links->child; at; at = at->next)
            LH_TRY(read_link(t, at));
    }
    for (unsigned a = 0; a < t->regions; a++)
        for (unsigned b = a + 1; b < t->regions; b++)
            if (!link_of(t, a, b))
                t->link[t->links++] =
                    (struct dp_link){t->region[a].name, t->region[b].name, a, b, other->shape};
    return LH_OK;
}

// ---------------------------------------------------------------- the whole

// The settings outside the lists, and the command of all regions.
static LH_MUST lh_err read_top(struct dp_topology *t)
{
    struct dp_topology_parts *p = t->parts;
    const void *read;
    unsigned line = line_of(p->top, "command");
    struct lh_yaml *list = take_list(p->top);
    lh_err err = read_table(p, &dp_run_table, p->top, true, &read);
    if (!err) {
        t->run = read;
        t->run_config = p->config[p->configs - 1];
        if (list || t->run->command[0])
            err = read_command(p, line, list, t->run->command, &p->every);
    }
    lh_yaml_free(list);
    return err;
}

static LH_MUST lh_err read_all(struct dp_topology *t)
{
    struct dp_topology_parts *p = t->parts;
    const void *read;
    p->servers = take(p->top, "servers");
    p->regions = take(p->top, "regions");
    p->links = take(p->top, "links");
    p->link = take(p->top, "link");
    p->server = take(p->top, "server");
    p->worker = take(p->top, "worker");
    LH_TRY(read_top(t));
    LH_TRY(spelling_check(t, line_of(p->top, "run"), t->run->run));
    LH_TRY(read_table(p, &ps_settings_table, p->server, false, &read));
    t->server_base = read;
    LH_TRY(read_table(p, &wk_settings_table, p->worker, false, &read));
    t->worker_base = read;
    LH_TRY(read_regions(t));
    LH_TRY(check_commands(t));
    LH_TRY(read_servers(t));
    LH_TRY(read_links(t));
    return find_region(t, p->top->line, t->run->coordinator_region, &t->coordinator);
}

lh_err dp_topology_parse(const char *name, struct lh_span yaml, struct dp_topology **out)
{
    struct dp_topology *t = calloc(1, sizeof *t);
    if (t) t->parts = calloc(1, sizeof *t->parts);
    if (!t || !t->parts) {
        free(t);
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for a topology");
    }
    snprintf(t->parts->name, sizeof t->parts->name, "%s", name);
    lh_err err = lh_yaml_parse(name, yaml, &t->parts->top);
    if (!err) err = read_all(t);
    if (err) {
        dp_topology_free(t);
        return err;
    }
    *out = t;
    return LH_OK;
}

bool dp_topology_own_data(const struct dp_topology *t)
{
    for (unsigned i = 0; i < t->regions; i++)
        if (!dp_region_is_private(&t->region[i]) &&
            ps_settings_data(t->server_base, t->region[i].name) == LH_DATA_LEASED)
            return false;
    return true;
}

bool dp_topology_pair(const struct dp_topology *t)
{
    return t->server_base->coordinator.store[0] != 0;
}

bool dp_topology_travels(const struct dp_topology *t)
{
    for (unsigned i = 0; i < t->regions; i++)
        if (t->region[i].data[0] && !dp_region_has_records(&t->region[i])) return true;
    return false;
}

lh_err dp_topology_load(const char *path, struct dp_topology **out)
{
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    lh_err err = dp_file_read(path, &text);
    if (!err) err = dp_topology_parse(path, lh_buf_span(&text), out);
    lh_buf_free(&text);
    return err;
}

void dp_topology_free(struct dp_topology *t)
{
    if (!t) return;
    struct dp_topology_parts *p = t->parts;
    for (unsigned i = 0; i < p->configs; i++) lh_config_destroy(p->config[i]);
    for (unsigned i = 0; i < p->commands; i++) free(p->command[i]);
    struct lh_yaml *const trees[] = {p->top,   p->servers, p->regions, p->link,
                                     p->links, p->server,  p->worker};
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) lh_yaml_free(trees[i]);
    free(p);
    free(t);
}

static LH_MUST lh_err fresh(const struct dp_topology *t, const struct lh_config_table *table,
                            const struct lh_yaml *map, struct lh_config **out)
{
    LH_TRY(lh_config_create(table, out));
    lh_err err = map && map->child ? lh_config_tree(*out, t->parts->name, map) : LH_OK;
    if (err) lh_config_destroy(*out);
    return err;
}

lh_err dp_topology_server(const struct dp_topology *t, struct lh_config **out)
{
    return fresh(t, &ps_settings_table, t->parts->server, out);
}

lh_err dp_topology_worker(const struct dp_topology *t, struct lh_config **out)
{
    return fresh(t, &wk_settings_table, t->parts->worker, out);
}
