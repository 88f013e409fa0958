// A topology file: a whole run on one machine, from which `longhaul up` writes all other files.
//
//   run: three-regions
//   budget_tokens: 3_000_000
//   epochs: 1                      # times that each unit of the data is trained
//   command: python train.py       # beside every worker of a region that does not say otherwise
//   tokens_per_s: 8000             # of all regions together; left out: as fast as they can
//   model: {dim: 96, layers: 4, ...} # or {import: FOLDER, context: 128}
//   coordinator: {region: europe} # two of them if `server:` has coordinator.store, an etcd
//   servers:                       # every shard from 0 on belongs to exactly one
//     - {name: s0, region: europe, shards: [0]}
//   regions:
//     asia: {speed: 4, workers: 1, ranks: 2} # 2 processes share each step's work
//     oceania: {gpus: 8}           # 8 ranks, a GPU each; gradients by NCCL
//     africa: {ranks: 4, hosts: 2} # 2 ranks on each of 2 hosts, which are addresses here
//     europe: {command: [python, train.py, --out, "{dir}/{worker}"]}
//     america: {command: ""}       # the built-in trainer
//     antarctica: {data: /data/here} # its own token files alone: others' units travel to it
//     zealandia: {data: /records, privacy: {level: record}} # terms: server.privacy
//   link: {rtt_ms: 150, mbit: 100} # of every pair that `links` does not name
//   links:
//     - {from: asia, to: europe, rtt_ms: 200, mbit: 100}
//   server: {...}                  # settings of every server.yaml
//   worker: {...}                  # settings of every worker.yaml
#ifndef DP_TOPOLOGY_H
#define DP_TOPOLOGY_H

#include <stdio.h>

#include "common/app/config.h"
#include "common/format/privacy.h"
#include "deploy/tool/words.h"
#include "server/settings.h"
#include "worker/settings.h"

enum {
    DP_REGIONS_MAX = 32,
    DP_SERVERS_MAX = 32,
    DP_WORKERS_MAX = 64,
    DP_RANKS_MAX = 64,
    DP_LINKS_MAX = 496
};

struct dp_link_shape {
    double rtt_ms, mbit, loss_percent; // mbit 0: unlimited
};

struct dp_run_settings { // settings outside the lists
    const char *run;
    int64_t seed, budget_tokens, epochs;
    double tokens_per_s; // 0: no throttle
    const char *coordinator_region;
    const char *command; // "" also if the file has a list
    struct {
        const char *import; // "": a new model of the shape below
        int64_t vocabulary, dim, layers, heads, kv_heads, ffn, context;
    } model;
};

struct dp_region {
    const char *name;
    const struct lh_config *config; // its rows
    double speed;                   // relative to the others
    int64_t workers, ranks;         // ranks: processes of each of its workers
    int64_t gpus;                   // ranks of each of its workers, one per GPU; 0: no GPUs
    int reduce;                     // enum wk_reduce_kind: how its ranks' gradients are reduced
    int64_t hosts;                  // hosts over which each worker's ranks are spread
    const char *data;               // folder of its token files; "": all those of --data
    struct {
        int level;          // enum lh_privacy_level
        const char *budget; // ""; or a file beside its records
    } privacy;
    const char *command_text;
    const struct dp_words *command; // runs beside each of its workers; NULL: the built-in trainer
};

static inline bool dp_region_is_private(const struct dp_region *r)
{
    return r->privacy.level != LH_PRIVACY_NONE;
}

// Does the region's built-in trainer draw records, which are units of its own folder?
static inline bool dp_region_has_records(const struct dp_region *r)
{
    return r->privacy.level == LH_PRIVACY_RECORD;
}

// The host of a rank, from 0; neighbouring ranks share one.
static inline unsigned dp_region_host(const struct dp_region *r, unsigned rank)
{
    return (unsigned)(rank * r->hosts / r->ranks);
}

// Rank processes that `up` starts beside each worker; a command starts its own.
static inline unsigned dp_region_helpers(const struct dp_region *r)
{
    return r->command ? 0 : (unsigned)r->ranks - 1;
}

// Placeholders in a command, as in "{dir}/{worker}.pt", with the values of a run.
#define DP_COMMAND_PLACEHOLDERS(worker_, region_, dir_, data_)                                     \
    {                                                                                              \
        {"worker", worker_}, {"region", region_}, {"dir", dir_}, {"data", data_},                  \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

struct dp_server {
    const char *name, *region_name;
    unsigned region;
    struct lh_ints shards;
};

struct dp_link {
    const char *from, *to;
    unsigned a, b; // regions, a < b
    struct dp_link_shape shape;
};

struct dp_topology {
    const struct dp_run_settings *run;
    const struct lh_config *run_config; // its rows
    unsigned coordinator;               // its region
    struct dp_region region[DP_REGIONS_MAX];
    unsigned regions;
    struct dp_server server[DP_SERVERS_MAX];
    unsigned servers;
    struct dp_link link[DP_LINKS_MAX]; // every pair of regions, once
    unsigned links;
    unsigned workers, shards;              // sums over all regions
    unsigned helpers;                      // ranks that are not workers, over all regions
    unsigned trainers;                     // workers with a command beside them
    const struct ps_settings *server_base; // defaults and `server:`; not finished
    const struct wk_settings *worker_base;
    struct dp_topology_parts *parts;
};

LH_MUST lh_err dp_topology_load(const char *path, struct dp_topology **out);
LH_MUST lh_err dp_topology_parse(const char *name, struct lh_span yaml, struct dp_topology **out);
void dp_topology_free(struct dp_topology *t); // NULL is allowed

// Does every region have data of its own, so that no unit is leased?
bool dp_topology_own_data(const struct dp_topology *t);

// Do two coordinators share their state in an etcd (server.coordinator.store)?
bool dp_topology_pair(const struct dp_topology *t);

// Does a region lack others' files? Then their units travel to it, from their regions' servers.
bool dp_topology_travels(const struct dp_topology *t);

// Applies the `server:` or `worker:` map to a fresh config of that table.
LH_MUST lh_err dp_topology_server(const struct dp_topology *t, struct lh_config **out);
LH_MUST lh_err dp_topology_worker(const struct dp_topology *t, struct lh_config **out);

// `longhaul config explain --kind topology [KEY]`: top rows, then those of servers, regions, links.
LH_MUST lh_err dp_topology_explain(const char *key, bool all, FILE *out);

#endif
