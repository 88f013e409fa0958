// The tables of a topology's maps, and their text for `longhaul config explain`. See
// topology_rows.h.
#include "deploy/up/topology_rows.h"

#include "common/base/check.h"
#include "worker/ranks/reduce.h"

// clang-format off
#define T struct dp_run_settings
static const struct lh_config_row run_rows[] = {
    LH_CONFIG_ROW_STRING(T, user, "run", run, NULL, "Name of the run; part of every certificate"),
    LH_CONFIG_ROW_INT(T, rare, "seed", seed, "1", 0, 4294967295.0, NULL, NULL,
        "Seed of the initial parameters, and of the order of units in later epochs"),
    LH_CONFIG_ROW_INT(T, user, "budget_tokens", budget_tokens, NULL, 1, 1e15, "tokens", NULL,
        "Credited tokens at which the run ends"),
    LH_CONFIG_ROW_INT(T, rare, "epochs", epochs, "1", 1, LH_UNITS_MAX, NULL, NULL,
        "Number of passes over the data; the run ends with the last one, or at budget_tokens"),
    LH_CONFIG_ROW_FLOAT(T, rare, "tokens_per_s", tokens_per_s, "off", 0, 1e12, "tokens/s", "off=0",
        "Throttle of all regions together, shared by their speeds"),
    LH_CONFIG_ROW_STRING(T, user, "coordinator.region", coordinator_region, NULL,
        "Region of the coordinator"),
    LH_CONFIG_ROW_STRING(T, user, "command", command, "",
        "Training program beside each worker: a line of words, or a list; {worker}, {region}, "
        "{dir}, {data} are replaced"),
    LH_CONFIG_ROW_STRING(T, user, "model.import", model.import, "",
        "Folder of `longhaul model import`, or of an ended run, for its final parameters; of the "
        "other model rows only context counts"),
    LH_CONFIG_ROW_INT(T, rare, "model.vocabulary", model.vocabulary, "256", 2, 1e6, "ids", NULL,
        "Token ids; 256: bytes"),
    LH_CONFIG_ROW_INT(T, rare, "model.dim", model.dim, "96", 2, 65536, NULL, NULL,
        "Width of the model"),
    LH_CONFIG_ROW_INT(T, rare, "model.layers", model.layers, "4", 1, 512, NULL, NULL, "Layers"),
    LH_CONFIG_ROW_INT(T, rare, "model.heads", model.heads, "4", 1, 512, NULL, NULL,
        "Attention heads"),
    LH_CONFIG_ROW_INT(T, rare, "model.kv_heads", model.kv_heads, "4", 1, 512, NULL, NULL,
        "Heads of keys and values; fewer than heads: grouped"),
    LH_CONFIG_ROW_INT(T, rare, "model.ffn", model.ffn, "256", 1, 1e6, NULL, NULL,
        "Width of the feed-forward part"),
    LH_CONFIG_ROW_INT(T, rare, "model.context", model.context, "128", 1, 1e6, "tokens", NULL,
        "Length of a sequence"),
};
#undef T
#define T struct dp_region
static const struct lh_config_row region_rows[] = {
    LH_CONFIG_ROW_FLOAT(T, user, "speed", speed, "1", 1e-6, 1e6, NULL, NULL,
        "Speed relative to the other regions"),
    LH_CONFIG_ROW_INT(T, user, "workers", workers, "1", 1, DP_WORKERS_MAX, NULL, NULL,
        "Workers in this region"),
    LH_CONFIG_ROW_INT(T, user, "ranks", ranks, "1", 1, WK_RANKS_MAX, "processes", NULL,
        "Processes that share each worker's steps, including the worker (worker.ranks.reduce); "
        "with a command: the command's own processes"),
    LH_CONFIG_ROW_INT(T, user, "gpus", gpus, "0", 0, WK_RANKS_MAX, NULL, NULL,
        "GPUs of each worker: one rank per GPU, and NCCL sums their gradients. With "
        "worker.trainer.backend cuda or auto they also train. No GPU has run it yet"),
    LH_CONFIG_ROW_INT(T, rare, "hosts", hosts, "1", 1, WK_RANKS_MAX, NULL, NULL,
        "Hosts over which each worker's ranks are spread, next to each other in order. Here each "
        "is an address of this machine, and ranks connect over TCP like on separate hosts, under "
        "mutual TLS"),
    LH_CONFIG_ROW_STRING(T, rare, "data", data, "",
        "Folder of this region's own token files, if it lacks those of other regions: their units "
        "travel to it. Empty: it has all files of --data. Private at record level: folder of its "
        "records, with its own units.json (`longhaul data prepare --documents`)"),
    LH_CONFIG_ROW_STRING(T, user, "command", command_text, "",
        "Training program beside each worker here, instead of the top's; \"\": the built-in one"),
    LH_CONFIG_ROW_ENUM(T, rare, "privacy.level", privacy.level, "none",
        "none|record|region|reported",
        "Differential privacy of this region's data, under the terms of server.privacy: record, by "
        "the built-in trainer; region, by the worker of a command; reported, by a command that "
        "reports it. All private regions have one level"),
    LH_CONFIG_ROW_STRING(T, rare, "privacy.budget", privacy.budget, "",
        "File of the privacy budget, beside this region's records, for all runs on them. Empty: "
        "NAME-0.budget in the run's folder"),
};
#undef T
#define T struct dp_server
static const struct lh_config_row server_rows[] = {
    LH_CONFIG_ROW_STRING(T, user, "name", name, NULL, "Name of the server"),
    LH_CONFIG_ROW_STRING(T, user, "region", region_name, NULL, "Region of the server"),
    LH_CONFIG_ROW_INTS(T, user, "shards", shards, "", 0, 4095, NULL, "Shards it owns"),
};
#undef T
#define T struct dp_link
static const struct lh_config_row link_rows[] = {
    LH_CONFIG_ROW_STRING(T, rare, "from", from, "", "One end, a region; not in `link`"),
    LH_CONFIG_ROW_STRING(T, rare, "to", to, "", "The other end; not in `link`"),
    LH_CONFIG_ROW_FLOAT(T, rare, "rtt_ms", shape.rtt_ms, "150", 0, 10000, "ms", NULL,
        "Round-trip time"),
    LH_CONFIG_ROW_FLOAT(T, rare, "mbit", shape.mbit, "100", 0, 1e6, "Mbit/s", "unlimited=0",
        "Rate"),
    LH_CONFIG_ROW_FLOAT(T, rare, "loss_percent", shape.loss_percent, "0", 0, 50, "%", NULL,
        "Loss of packets"),
};
#undef T
// clang-format on

#define TABLE(kind_, rows_, type)                                                                  \
    {                                                                                              \
        .kind = kind_, .part_of = "topology", .row = rows_,                                        \
        .rows = sizeof(rows_) / sizeof((rows_)[0]), .settings_bytes = sizeof(type)                 \
    }
static const char *const sections[] = {"servers", "regions", "link", "links",
                                       "server",  "worker",  NULL};
const struct lh_config_table dp_run_table = {.kind = "topology",
                                             .beside = sections,
                                             .row = run_rows,
                                             .rows = LH_COUNT(run_rows),
                                             .settings_bytes = sizeof(struct dp_run_settings)};
const struct lh_config_table dp_region_table = TABLE("region", region_rows, struct dp_region);
const struct lh_config_table dp_server_table = TABLE("server", server_rows, struct dp_server);
const struct lh_config_table dp_link_table = TABLE("link", link_rows, struct dp_link);

// ---------------------------------------------------------------- explain

static LH_MUST lh_err explain(const struct lh_config_table *table, const char *title,
                              const char *key, bool all, FILE *out)
{
    struct lh_config *c;
    struct lh_buf text = lh_buf(1 << 20);
    LH_TRY(lh_config_create(table, &c));
    lh_err err = lh_config_explain(c, key, all, &text);
    if (!err) {
        if (title) fprintf(out, "\n== %s\n\n", title);
        fwrite(text.data, 1, text.len, out);
    }
    lh_buf_free(&text);
    lh_config_destroy(c);
    return err;
}

lh_err dp_topology_explain(const char *key, bool all, FILE *out)
{
    if (key) return explain(&dp_run_table, NULL, key, all, out);
    LH_TRY(explain(&dp_run_table, NULL, NULL, all, out));
    LH_TRY(explain(&dp_region_table, "regions.NAME", NULL, all, out));
    LH_TRY(explain(&dp_server_table, "servers: a list of maps", NULL, all, out));
    LH_TRY(explain(&dp_link_table, "links: a list of maps; link: a map", NULL, all, out));
    fprintf(out,
            "\nserver: and worker: take the settings of those files (--kind server, worker).\n");
    return LH_OK;
}
