// Differences of two topologies. See up_change.h.
//
// Accepts each change unless a table below gives a reason against it: its old value is already in
// the folder, the logs or the certificates.
#include "deploy/up/up_change.h"

#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/files.h"
#include "deploy/up/topology_rows.h"

enum { LINES_BYTES_MAX = 1 << 20, VALUE_BYTES = 200 };

struct rule {
    const char *key; // a trailing '*' matches any end
    const char *why;
};

static const char MADE[] =
    "the run's parameters exist already: for another model use another --dir";
static const char NAMED[] =
    "the certificates and logs contain it: for another one use another --dir";
static const char IN_LOG[] =
    "the logs contain it from their beginning: for another one use another --dir";
static const char LEAVES[] = "a worker may have pushes and units that exist nowhere else: keep it, "
                             "and drain it (`longhaul drain region NAME`)";
static const char MOVED[] = "shards stay with the server that has their log: `longhaul move` moves "
                            "one while the run goes on";

static const struct rule run_rules[] = {
    {"run", NAMED},
    {"seed", MADE},
    {"coordinator.region", "the coordinator's certificate names its region"},
    {"model.*", MADE},
};
static const char TERMS[] =
    "the terms of privacy apply to the whole run: for others use another --dir";
static const struct rule region_rules[] = {
    {"privacy.level", TERMS},
    {"privacy.budget", "that file records what the run has charged"},
};
static const char STORED[] =
    "the coordinators' state is there, and would be left behind: keep it (moving it: "
    "`longhaul state to-file`)";
static const struct rule server_rules[] = {
    {"coordinator.store", STORED},
    {"update.mode", IN_LOG},
    {"update.weighting", IN_LOG},
    {"privacy.*", TERMS},
    {"coordinator.data", "a run leases units from its beginning, or never"},
};
static const struct rule no_rules[] = {{NULL, NULL}};

// ---------------------------------------------------------------- lines

static void taken(struct dp_changes *c, const char *where, const char *key, const char *was,
                  const char *is)
{
    dp_put(&c->taken, "%s%s: %s -> %s\n", where, key, was, is);
}

static void refused(struct dp_changes *c, const char *where, const char *key, const char *was,
                    const char *is, const char *why)
{
    c->refusals++;
    dp_put(&c->refused, "%s%s: %s -> %s: %s\n", where, key, was, is, why);
}

// The value as text; the same text for equal meanings.
static void text_of(const struct lh_config *config, const char *key, char out[VALUE_BYTES])
{
    char source[DP_PATH_BYTES];
    const char *value = config ? lh_config_value(config, key, source, sizeof source) : NULL;
    snprintf(out, VALUE_BYTES, "%s", !value ? "-" : value[0] ? value : "\"\"");
}

static const char *why_not(const struct rule *rules, size_t count, const char *key)
{
    for (size_t i = 0; i < count && rules[i].key; i++) {
        size_t n = strlen(rules[i].key);
        bool prefix = rules[i].key[n - 1] == '*';
        if (prefix ? !strncmp(rules[i].key, key, n - 1) : !strcmp(rules[i].key, key))
            return rules[i].why;
    }
    return NULL;
}

// Compares a row's values as parsed: 3e5 equals 300_000.
static bool equal(const struct lh_config_row *row, const struct lh_config *was,
                  const struct lh_config *is)
{
    const void *a = (const char *)lh_config_settings(was) + row->offset;
    const void *b = (const char *)lh_config_settings(is) + row->offset;
    switch (row->type) {
    case LH_CONFIG_STRING: return !strcmp(*(const char *const *)a, *(const char *const *)b);
    case LH_CONFIG_BOOL: return *(const bool *)a == *(const bool *)b;
    case LH_CONFIG_FLOAT: return *(const double *)a == *(const double *)b;
    case LH_CONFIG_ENUM: return *(const int *)a == *(const int *)b;
    case LH_CONFIG_INTS: {
        const struct lh_ints *x = a, *y = b;
        return x->count == y->count && !memcmp(x->value, y->value, x->count * sizeof *x->value);
    }
    default: return *(const int64_t *)a == *(const int64_t *)b;
    }
}

static void compare(struct dp_changes *c, const char *where, const struct lh_config_table *table,
                    const struct rule *rules, size_t count, const struct lh_config *was,
                    const struct lh_config *is)
{
    for (size_t i = 0; i < table->rows; i++) {
        const struct lh_config_row *row = &table->row[i];
        char a[VALUE_BYTES], b[VALUE_BYTES];
        if (!strcmp(row->key, "command") || equal(row, was, is)) continue;
        text_of(was, row->key, a);
        text_of(is, row->key, b);
        bool file_to_etcd = !strcmp(row->key, "coordinator.store") && !strcmp(a, "\"\"");
        const char *why = file_to_etcd ? NULL : why_not(rules, count, row->key);
        if (why)
            refused(c, where, row->key, a, b, why);
        else
            taken(c, where, row->key, a, b);
    }
}

// ---------------------------------------------------------------- commands

static void words_text(const struct dp_words *words, char out[VALUE_BYTES])
{
    size_t used = 0;
    if (!words) snprintf(out, VALUE_BYTES, "the built-in trainer");
    for (size_t i = 0; words && i < words->count && used < VALUE_BYTES; i++)
        used +=
            (size_t)snprintf(out + used, VALUE_BYTES - used, "%s%s", i ? " " : "", words->at[i]);
}

static bool same_words(const struct dp_words *a, const struct dp_words *b)
{
    if (!a || !b) return a == b;
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) same = !strcmp(a->at[i], b->at[i]);
    return same;
}

// ---------------------------------------------------------------- regions, servers, links

static const struct dp_region *region_of(const struct dp_topology *t, const char *name)
{
    for (unsigned i = 0; i < t->regions; i++)
        if (!strcmp(t->region[i].name, name)) return &t->region[i];
    return NULL;
}

static void compare_region(struct dp_changes *c, const struct dp_region *was,
                           const struct dp_region *is)
{
    char where[80], a[VALUE_BYTES], b[VALUE_BYTES];
    snprintf(where, sizeof where, "regions.%s.", is->name);
    if (is->workers < was->workers) {
        snprintf(a, sizeof a, "%lld", (long long)was->workers);
        snprintf(b, sizeof b, "%lld", (long long)is->workers);
        refused(c, where, "workers", a, b, LEAVES);
        return;
    }
    compare(c, where, &dp_region_table, region_rules, LH_COUNT(region_rules), was->config,
            is->config);
    if (same_words(was->command, is->command)) return;
    words_text(was->command, a);
    words_text(is->command, b);
    taken(c, where, "command", a, b);
}

static void compare_regions(struct dp_changes *c, const struct dp_topology *was,
                            const struct dp_topology *is)
{
    for (unsigned i = 0; i < was->regions; i++) {
        const struct dp_region *now = region_of(is, was->region[i].name);
        if (now)
            compare_region(c, &was->region[i], now);
        else
            refused(c, "regions.", was->region[i].name, "there", "left out", LEAVES);
    }
    for (unsigned i = 0; i < is->regions; i++) {
        char workers[40];
        if (region_of(was, is->region[i].name)) continue;
        snprintf(workers, sizeof workers, "%lld workers", (long long)is->region[i].workers);
        taken(c, "regions.", is->region[i].name, "none", workers);
    }
}

static void shards_text(const struct dp_topology *t, const char *name, char out[VALUE_BYTES])
{
    size_t used = (size_t)snprintf(out, VALUE_BYTES, "none");
    for (unsigned i = 0; i < t->servers; i++) {
        const struct dp_server *s = &t->server[i];
        if (strcmp(s->name, name) != 0) continue;
        used = (size_t)snprintf(out, VALUE_BYTES, "shards");
        for (uint32_t k = 0; k < s->shards.count && used < VALUE_BYTES; k++)
            used += (size_t)snprintf(out + used, VALUE_BYTES - used, " %lld",
                                     (long long)s->shards.value[k]);
        if (used < VALUE_BYTES) snprintf(out + used, VALUE_BYTES - used, " in %s", s->region_name);
    }
}

static void compare_servers(struct dp_changes *c, const struct dp_topology *was,
                            const struct dp_topology *is)
{
    const struct dp_topology *const both[] = {was, is};
    for (int k = 0; k < 2; k++)
        for (unsigned i = 0; i < both[k]->servers; i++) {
            const char *name = both[k]->server[i].name;
            char a[VALUE_BYTES], b[VALUE_BYTES];
            shards_text(was, name, a);
            shards_text(is, name, b);
            if (strcmp(a, b) != 0 && (k == 0 || !strcmp(a, "none")))
                refused(c, "servers: ", name, a, b, MOVED);
        }
}

static const struct dp_link *link_of(const struct dp_topology *t, const char *a, const char *b)
{
    for (unsigned i = 0; i < t->links; i++) {
        const char *x = t->region[t->link[i].a].name, *y = t->region[t->link[i].b].name;
        if ((!strcmp(x, a) && !strcmp(y, b)) || (!strcmp(x, b) && !strcmp(y, a)))
            return &t->link[i];
    }
    return NULL;
}

static void link_text(const struct dp_link_shape *s, char out[VALUE_BYTES])
{
    snprintf(out, VALUE_BYTES, "%g ms, %g Mbit/s, %g %% lost", s->rtt_ms, s->mbit, s->loss_percent);
}

static void compare_links(struct dp_changes *c, const struct dp_topology *was,
                          const struct dp_topology *is)
{
    for (unsigned i = 0; i < is->links; i++) {
        const char *a = is->region[is->link[i].a].name, *b = is->region[is->link[i].b].name;
        const struct dp_link *before = link_of(was, a, b);
        char where[120], x[VALUE_BYTES], y[VALUE_BYTES];
        if (!before) continue; // a region was added
        link_text(&before->shape, x);
        link_text(&is->link[i].shape, y);
        snprintf(where, sizeof where, "link %s - %s", a, b);
        if (strcmp(x, y) != 0) taken(c, where, "", x, y);
    }
}

// ---------------------------------------------------------------- the whole

// Compares both `server:` or `worker:` maps.
static LH_MUST lh_err compare_base(struct dp_changes *c, const struct dp_topology *was,
                                   const struct dp_topology *is, bool worker)
{
    struct lh_config *a = NULL, *b = NULL;
    LH_TRY(worker ? dp_topology_worker(was, &a) : dp_topology_server(was, &a));
    lh_err err = worker ? dp_topology_worker(is, &b) : dp_topology_server(is, &b);
    if (!err && worker)
        compare(c, "worker: ", &wk_settings_table, no_rules, 0, a, b);
    else if (!err)
        compare(c, "server: ", &ps_settings_table, server_rules, LH_COUNT(server_rules), a, b);
    lh_config_destroy(a);
    if (!err) lh_config_destroy(b);
    return err;
}

static void compare_run(struct dp_changes *c, const struct dp_topology *was,
                        const struct dp_topology *is)
{
    char a[40], b[40];
    if (is->run->epochs < was->run->epochs) {
        snprintf(a, sizeof a, "%lld", (long long)was->run->epochs);
        snprintf(b, sizeof b, "%lld", (long long)is->run->epochs);
        refused(c, "", "epochs", a, b, "units of later epochs may be trained already");
        return;
    }
    compare(c, "", &dp_run_table, run_rules, LH_COUNT(run_rules), was->run_config, is->run_config);
    if (was->run->budget_tokens != is->run->budget_tokens) c->old_budget = was->run->budget_tokens;
}

lh_err dp_changes_find(const struct dp_topology *was, const struct dp_topology *is,
                       struct dp_changes *out)
{
    *out =
        (struct dp_changes){.taken = lh_buf(LINES_BYTES_MAX), .refused = lh_buf(LINES_BYTES_MAX)};
    compare_run(out, was, is);
    compare_regions(out, was, is);
    compare_servers(out, was, is);
    compare_links(out, was, is);
    lh_err err = compare_base(out, was, is, false);
    if (!err) err = compare_base(out, was, is, true);
    if (!err) err = lh_buf_err(&out->taken);
    if (!err) err = lh_buf_err(&out->refused);
    return err;
}

void dp_changes_free(struct dp_changes *c)
{
    lh_buf_free(&c->taken);
    lh_buf_free(&c->refused);
}
