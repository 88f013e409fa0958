// The settings file of each node of a run, from its topology. See up_dir.h.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/objects/address.h"
#include "deploy/up/topology_private.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_watch.h"
#include "worker/backend.h"
#include "worker/ranks/reduce_shm.h"

// Sets a setting that only `up` may set: one in the `server:` or `worker:` map is refused.
static LH_MUST lh_err own(struct lh_config *c, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static LH_MUST lh_err own(struct lh_config *c, const char *key, const char *format, ...)
{
    char set[DP_PATH_BYTES + 128], source[DP_PATH_BYTES];
    const char *value = lh_config_value(c, key, source, sizeof source);
    if (value && strcmp(source, "default") != 0)
        return lh_fail(LH_ERR_CONFIG, "%s: %s can't be set here: `up` sets it", source, key);
    int n = snprintf(set, sizeof set, "%s=", key);
    va_list args;
    va_start(args, format);
    vsnprintf(set + n, sizeof set - (size_t)n, format, args);
    va_end(args);
    return lh_config_set(c, set);
}

// Sets a setting that the topology's maps may also set.
static LH_MUST lh_err set(struct lh_config *c, const char *key, const char *value)
{
    char text[LH_CONFIG_TEXT_MAX + 128];
    snprintf(text, sizeof text, "%s=%s", key, value);
    return lh_config_set(c, text);
}

// The coordinators' addresses, as the other nodes need them.
static LH_MUST lh_err coordinators(const struct dp_up *up, struct lh_config *c)
{
    char all[sizeof up->places.coordinators] = "";
    size_t n = 0;
    if (up->places.coordinators[0]) return own(c, "coordinator", "%s", up->places.coordinators);
    for (unsigned i = 0; i < up->nodes && n < sizeof all; i++)
        if (up->node[i].kind == DP_COORDINATOR)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? "," : "",
                                  up->node[i].address);
    return own(c, "coordinator", "%s", all);
}

static LH_MUST lh_err common_settings(struct dp_up *up, const struct dp_node *node,
                                      struct lh_config *c)
{
    const char *name = (node->kind == DP_RANK ? dp_worker_of(up, node) : node)->name;
    const struct dp_places *at = &up->places;
    LH_TRY(own(c, "tls.ca", "%s/ca.pem", at->secrets));
    LH_TRY(own(c, "tls.cert", "%s/%s.pem", at->secrets, name));
    LH_TRY(own(c, "tls.key", "%s/%s.key", at->secrets, name));
    if (node->kind != DP_COORDINATOR || !at->elsewhere)
        LH_TRY(own(c, "seal.keys", "%s/job.keys", at->secrets));
    if (node->kind != DP_RANK && at->http[0]) LH_TRY(own(c, "http.listen", "%s", at->http));
    LH_TRY(own(c, "model.manifest", "%s/model.json", at->files));
    if (node->kind != DP_COORDINATOR) LH_TRY(coordinators(up, c));
    return own(c, "dir", "%s", node->dir);
}

// Names the shards' servers, so that no other can be the first to claim one. Names beyond a
// setting's length are left out.
static LH_MUST lh_err name_servers(const struct dp_up *up, struct lh_config *c)
{
    char text[LH_CONFIG_TEXT_MAX] = "";
    size_t used = 0;
    for (unsigned i = 0; i < up->t->servers; i++) {
        const struct lh_ints *shards = &up->t->server[i].shards;
        for (uint32_t k = 0, end; k < shards->count; k = end) {
            for (end = k + 1; end < shards->count; end++)
                if (shards->value[end] != shards->value[end - 1] + 1) break;
            if (used < sizeof text)
                used += (size_t)snprintf(
                    text + used, sizeof text - used, "%s%lld-%lld=%s/%s", used ? "," : "",
                    (long long)shards->value[k], (long long)shards->value[end - 1],
                    up->t->region[up->t->server[i].region].name, up->t->server[i].name);
        }
    }
    return used && used < sizeof text ? own(c, "coordinator.servers", "%s", text) : LH_OK;
}

// The top settings shared by the coordinator and the workers.
static LH_MUST lh_err run_settings(const struct dp_up *up, struct lh_config *c)
{
    LH_TRY(own(c, "run.budget_tokens", "%lld", (long long)up->t->run->budget_tokens));
    LH_TRY(own(c, "run.epochs", "%lld", (long long)up->t->run->epochs));
    return own(c, "run.seed", "%lld", (long long)up->t->run->seed);
}

static LH_MUST lh_err coordinator_settings(const struct dp_up *up, const struct dp_node *node,
                                           struct lh_config *c)
{
    LH_TRY(own(c, "role", "coordinator"));
    LH_TRY(own(c, "coordinator.workers", "%u", up->t->workers));
    LH_TRY(own(c, "data.units", "%s/units.json", up->data));
    LH_TRY(run_settings(up, c));
    LH_TRY(name_servers(up, c));
    LH_TRY(dp_private_coordinator(up->t, c));
    if (node->page) LH_TRY(own(c, "http.listen", "fd:%d", node->page));
    if (up->places.etcd[0] && up->t->server_base->coordinator.store_secrets[0])
        LH_TRY(set(c, "coordinator.store_secrets", up->places.etcd));
    return LH_OK;
}

// Lets a server send its region's units to regions that lack their files.
static LH_MUST lh_err giver_settings(const struct dp_up *up, const struct dp_node *node,
                                     struct lh_config *c)
{
    char data[DP_PATH_BYTES];
    if (!dp_topology_travels(up->t) || up->t->server_base->node.data.dir[0]) return LH_OK;
    if (dp_region_has_records(&up->t->region[node->region])) return LH_OK; // they stay
    LH_TRY(dp_dir_data(up, node->region, data));
    LH_TRY(own(c, "data.dir", "%s", data));
    return own(c, "data.units", "%s/units.json", up->data);
}

// `up` has one owner. If its run has a single region, no other region can confirm a state, even
// after workers of other regions join (server/docs/0000-protocol.md#rule-17).
static LH_MUST lh_err voices_settings(const struct dp_up *up, struct lh_config *c)
{
    char source[DP_PATH_BYTES];
    const char *value = lh_config_value(c, "rebuild.voices", source, sizeof source);
    bool given = value && strcmp(source, "default") != 0;
    return up->t->regions > 1 || given ? LH_OK : lh_config_set(c, "rebuild.voices=1");
}

static LH_MUST lh_err server_settings(struct dp_up *up, const struct dp_node *node,
                                      struct lh_config *c)
{
    LH_TRY(own(c, "listen", "%s", node->listen[0] ? node->listen : node->address));
    LH_TRY(own(c, "advertise", "%s", node->address));
    char eta[32];
    snprintf(eta, sizeof eta, "%g", up->plan.eta);
    if (up->t->server_base->update.eta == 0) // servers don't know the density before a push comes
        LH_TRY(set(c, "update.eta", eta));
    if (node->kind == DP_COORDINATOR) return coordinator_settings(up, node, c);
    LH_TRY(set(c, "coordinator.store", "")); // `server:` gives it to the coordinators
    LH_TRY(set(c, "coordinator.store_secrets", ""));
    const struct lh_ints *shards = &up->t->server[node->index].shards;
    char list[LH_CONFIG_INTS_MAX * 8] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < shards->count; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%lld", i ? "," : "",
                                 (long long)shards->value[i]);
    LH_TRY(own(c, "checkpoint.signers", "%s/signers", up->places.secrets));
    LH_TRY(own(c, "checkpoint.sign_key", "%s/%s.sign", up->places.secrets, node->name));
    LH_TRY(giver_settings(up, node, c));
    LH_TRY(voices_settings(up, c));
    LH_TRY(own(c, "role", "shard"));
    LH_TRY(own(c, "shards", "%s", list));
    return own(c, "model.weights", "%s/weights.bin", up->places.files);
}

// Ranks on several hosts: the address of rank 0, and of each other with TCP.
static LH_MUST lh_err hosts_settings(const struct dp_up *up, const struct dp_node *node,
                                     struct lh_config *c)
{
    bool tcp = up->t->region[node->region].reduce == WK_REDUCE_TCP;
    LH_TRY(own(c, "ranks.leader", "%s", dp_worker_of(up, node)->address));
    return tcp ? own(c, "ranks.address", "%s", node->host) : LH_OK;
}

// Settings of the data's owner. The budget lies outside the workers' folders, which may be lost.
static LH_MUST lh_err private_settings(const struct dp_up *up, const struct dp_node *node,
                                       struct lh_config *c)
{
    const struct dp_region *r = &up->t->region[node->region];
    if (!dp_region_is_private(r)) return LH_OK;
    if (r->privacy.budget[0])
        LH_TRY(own(c, "privacy.budget", "%s", r->privacy.budget));
    else
        LH_TRY(own(c, "privacy.budget", "%s/%s.budget", up->places.budgets, node->name));
    if (dp_region_has_records(r) && up->t->worker_base->trainer.backend == WK_BACKEND_AUTO)
        LH_TRY(set(c, "trainer.backend", "cpu")); // records are clipped there
    if (r->privacy.level == LH_PRIVACY_REPORTED) LH_TRY(own(c, "privacy.reported", "on"));
    LH_TRY(own(c, "privacy.epsilon", "%.9g", up->t->server_base->privacy.epsilon));
    return own(c, "privacy.delta", "%.9g", up->t->server_base->privacy.delta);
}

static LH_MUST lh_err worker_settings(const struct dp_up *up, const struct dp_node *node,
                                      struct lh_config *c)
{
    const struct wk_settings *base = up->t->worker_base;
    char data[DP_PATH_BYTES];
    LH_TRY(dp_dir_data(up, node->region, data));
    bool records = dp_region_has_records(&up->t->region[node->region]);
    LH_TRY(own(c, "data.units", "%s/units.json", records ? data : up->data));
    bool loop = up->t->region[node->region].command || base->trainer.kind == WK_TRAINER_EXTERNAL;
    if (!loop || !lh_objects_is(data)) LH_TRY(own(c, "data.dir", "%s", data));
    LH_TRY(run_settings(up, c));
    LH_TRY(private_settings(up, node, c));
    char density[32];
    snprintf(density, sizeof density, "%.9g", up->plan.density);
    if (base->codec.density == 0 && !wk_codec_is_dense(base))
        LH_TRY(set(c, "codec.density", density));
    const struct dp_region *region = &up->t->region[node->region];
    if (region->command && base->trainer.kind != WK_TRAINER_EXTERNAL)
        LH_TRY(own(c, "trainer.kind", "external"));
    if (region->ranks > 1) LH_TRY(own(c, "ranks.count", "%lld", (long long)region->ranks));
    if (!region->command && region->ranks > 1) {
        LH_TRY(own(c, "ranks.rank", "%u", node->rank));
        LH_TRY(set(c, "ranks.reduce", wk_reduce_word(region->reduce)));
        if (node->host[0]) LH_TRY(hosts_settings(up, node, c));
    }
    double speed = up->plan.region[node->region].tokens_per_s;
    return speed > 0 ? own(c, "trainer.tokens_per_s", "%.9g", speed) : LH_OK;
}

lh_err dp_node_settings(struct dp_up *up, const struct dp_node *node, struct lh_buf *out)
{
    struct lh_config *c;
    bool worker = node->kind >= DP_WORKER;
    LH_TRY(worker ? dp_topology_worker(up->t, &c) : dp_topology_server(up->t, &c));
    lh_err err = common_settings(up, node, c);
    if (!err) err = worker ? worker_settings(up, node, c) : server_settings(up, node, c);
    if (!err) err = lh_config_finish(c);
    if (!err) {
        dp_put(out, "# written by `longhaul %s` from %s\n", up->written_by, up->flags.topology);
        lh_config_write(c, out);
        err = lh_buf_err(out);
    }
    lh_config_destroy(c);
    return err;
}

static LH_MUST lh_err write_settings(struct dp_up *up, const struct dp_node *node)
{
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    lh_err err = dp_node_settings(up, node, &text);
    if (!err) err = dp_file_write(node->config, lh_buf_span(&text), 0640);
    lh_buf_free(&text);
    return err;
}

lh_err dp_dir_settings(struct dp_up *up)
{
    up->written_by = "up";
    LH_TRY(dp_path(up->places.secrets, "%s/secrets", up->dir));
    LH_TRY(dp_path(up->places.files, "%s", up->dir));
    LH_TRY(dp_path(up->places.budgets, "%s", up->dir));
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind != DP_TRAINER) LH_TRY(write_settings(up, &up->node[i]));
    return LH_OK;
}
