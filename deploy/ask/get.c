// The parts of a coordinator's status, as tables and as JSON. See get.h.
//
// Workers and shards are the coordinator's own arrays; regions are sums over its workers; leases
// are its counts of units, and one row per unit.
#include "deploy/ask/get.h"

#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "common/privacy/account.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

static const struct dp_column workers[] = {
    {"NAME", "name", -20},
    {"REGION", "region", -12},
    {"STATE", "member_state", -9},
    {"LIVE", "live", -5},
    {"DONE", "done", -5},
    {"DRAINED", "drained", -8},
    {"TOKENS", "tokens", 12},
    {"TOKENS/S", "tokens_per_s", 10},
    {"BATCH MS", "batch_ms", 8},
    {"BUSY", "utilisation", 5},
    {"H", "h", 5},
    {"SILENT S", "silent_s", 9},
    {"BOUND S", "bound_s", 8},
    {"WHY", "why", -20},
    {NULL, NULL, 0},
};
// One row per path from a worker to a server. +- is the mean deviation of the column before it.
static const struct dp_column links[] = {
    {"WORKER", "worker", -16},       {"REGION", "region", -12},
    {"SERVER", "server", -16},       {"SERVER'S", "server_region", -12},
    {"RTT MS", "rtt_ms", 8},         {"+-", "rtt_spread_ms", 7},
    {"PUSH MS", "push_ms", 8},       {"+-", "push_spread_ms", 7},
    {"UP MBIT", "up_mbit_s", 9},     {"+-", "up_spread", 7},
    {"DOWN MBIT", "down_mbit_s", 9}, {NULL, NULL, 0},
};
// A member counts as present while SILENT S is at most BOUND S; on a long path its reported round
// trip, TRIP MS, extends the bound.
static const struct dp_column members[] = {
    {"NAME", "name", -20},       {"REGION", "region", -12},
    {"ROLE", "role", -8},        {"STATE", "state", -8},
    {"SILENT S", "silent_s", 9}, {"BOUND S", "bound_s", 8},
    {"TRIP MS", "trip_ms", 8},   {NULL, NULL, 0},
};
static const struct dp_column machines[] = {
    {"NAME", "name", -20},        {"REGION", "region", -12},       {"STATE", "state", -8},
    {"VERSION", "version", -10},  {"SYSTEM", "system", -32},       {"CPUS", "processors", 5},
    {"MEM GIB", "memory_gib", 8}, {"CODEC", "codec", -14},         {"CIPHER", "cipher", -10},
    {"GPU", "gpu", -20},          {"PROCESSOR", "processor", -20}, {NULL, NULL, 0},
};
static const struct dp_column shards[] = {
    {"SHARD", "shard", 5},   {"ADDRESS", "address", -24},
    {"EPOCH", "epoch", 6},   {"VERSION", "version", 9},
    {"STABLE", "stable", 9}, {"PLAN", "plan", 5},
    {"PHASE", "phase", -10}, {NULL, NULL, 0},
};
static const struct dp_column regions[] = {
    {"REGION", "region", -12}, {"WORKERS", "workers", 8},        {"LIVE", "live", 5},
    {"TOKENS", "tokens", 12},  {"TOKENS/S", "tokens_per_s", 10}, {NULL, NULL, 0},
};
// EPSILON: the region's charge to its privacy budget by the logs, at DELTA; MOST: the plan's limit.
// For a region with several workers, the largest.
static const struct dp_column budgets[] = {
    {"REGION", "region", -12},    {"WORKERS", "workers", 8},
    {"LIVE", "live", 5},          {"TOKENS", "tokens", 12},
    {"CHARGED", "charged", 9},    {"EPSILON", "epsilon", 9},
    {"MOST", "epsilon_max", 7},   {"DELTA", "delta", 9},
    {"SPENT", "budget_spent", 5}, {NULL, NULL, 0},
};
// ENDS S: when the region would end under the balancer's policy; TRAINS: tokens that it would train
// until then; HELD: the begun part of them.
static const struct dp_column plan[] = {
    {"REGION", "region", -12},
    {"LIVE", "live", 5},
    {"STALLED", "stalled", 7},
    {"TOKENS/S", "tokens_per_s", 10},
    {"OWN LEFT", "own_tokens", 12},
    {"HELD", "held_tokens", 10},
    {"TRAINS", "trains_tokens", 12},
    {"ENDS S", "ends_s", 9},
    {NULL, NULL, 0},
};
// HERE S: when the worker would end the unit; COST S: its language, in seconds; THERE S: when its
// holders, or its home, would end all their remaining units.
static const struct dp_column decisions[] = {
    {"REASON", "reason", -8},  {"UNIT", "unit", 8},     {"UNITS", "units", 6},
    {"HOME", "home", -12},     {"FROM", "from", -16},   {"TO", "worker", -16},
    {"REGION", "region", -12}, {"HERE S", "here_s", 8}, {"COST S", "cost_s", 8},
    {"THERE S", "there_s", 8}, {NULL, NULL, 0},
};
// Links with traveled units or with a cap. COMING: bytes of units leased over the link and not
// begun.
static const struct dp_column terms[] = {
    {"HOME", "from", -12},          {"TO", "to", -12},
    {"CAP BYTES", "cap_bytes", 14}, {"CROSSED", "crossed_bytes", 12},
    {"COMING", "coming_bytes", 12}, {"LEFT", "left_bytes", 14},
    {"STATE", "state", -6},         {NULL, NULL, 0},
};
static const struct dp_column totals[] = {
    {"UNITS", "units", 9},
    {"FREE", "free", 9},
    {"LEASED", "leased", 9},
    {"BEGUN", "begun", 9},
    {"RECALLED", "recalled", 9},
    {"CREDITED", "credited", 9},
    {"TOKENS", "credited_tokens", 14},
    {"BUDGET", "budget_tokens", 14},
    {NULL, NULL, 0},
};

static const struct dp_column leases[] = {
    {"UNIT", "unit", 9},    {"PASS", "data_epoch", 5},     {"LANGUAGE", "language", -8},
    {"HOME", "home", -12},  {"TOKENS", "tokens", 9},       {"STATE", "state", -8},
    {"LEASE", "lease", -8}, {"HOLDER", "holder", -16},     {"TOKEN", "token", 5},
    {"AGE S", "age_s", 7},  {"EXPIRES S", "expires_s", 9}, {"CREDITED", "credited_tokens", 9},
    {NULL, NULL, 0},
};

static json_t *integer(const json_t *o, const char *key)
{
    return json_integer(json_integer_value(json_object_get(o, key)));
}

static json_t *all_totals(const json_t *status)
{
    static const char *const keys[] = {"units",    "leased",          "begun",        "recalled",
                                       "credited", "credited_tokens", "budget_tokens"};
    json_t *row = json_object();
    for (size_t i = 0; i < LH_COUNT(keys); i++)
        json_object_set_new(row, keys[i], integer(status, keys[i]));
    json_object_set_new(row, "free",
                        json_integer(json_integer_value(json_object_get(row, "units")) -
                                     json_integer_value(json_object_get(row, "leased")) -
                                     json_integer_value(json_object_get(row, "credited"))));
    return row;
}

static void add(json_t *row, const char *key, json_int_t more)
{
    json_object_set_new(row, key,
                        json_integer(json_integer_value(json_object_get(row, key)) + more));
}

// A region's row, created for its first worker. Borrowed from `rows`; NULL: no memory.
static json_t *region_row(json_t *rows, const char *region)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (!strcmp(json_string_value(json_object_get(row, "region")), region)) return row;
    }
    json_t *row = json_pack("{s:s s:f}", "region", region, "tokens_per_s", 0.0);
    return json_array_append_new(rows, row) ? NULL : row;
}

// The coordinator names the terms alone where records are drawn: epsilon takes long to compute.
static void add_epsilon(json_t *worker)
{
    if (json_object_get(worker, "epsilon") || !json_object_get(worker, "rate")) return;
    double epsilon =
        lh_account_spent(lh_json_number(worker, "sigma"), lh_json_number(worker, "rate"),
                         lh_json_number(worker, "charged"), lh_json_number(worker, "delta"));
    json_object_set_new(worker, "epsilon", json_real(epsilon));
}

// A region shows the values of its worker with the largest epsilon.
static void take_privacy(json_t *row, json_t *worker)
{
    static const char *const keys[] = {"charged", "epsilon", "epsilon_max", "delta",
                                       "budget_spent"};
    add_epsilon(worker);
    const json_t *epsilon = json_object_get(worker, "epsilon");
    const json_t *had = json_object_get(row, "epsilon");
    if (!epsilon || (had && json_number_value(had) >= json_number_value(epsilon))) return;
    for (size_t i = 0; i < LH_COUNT(keys); i++)
        json_object_set(row, keys[i], json_object_get(worker, keys[i]));
}

json_t *dp_get_regions(const json_t *status)
{
    json_t *rows = json_array(), *worker;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        const char *region = json_string_value(json_object_get(worker, "region"));
        json_t *row = region ? region_row(rows, region) : NULL;
        bool live = lh_json_yes(worker, "live");
        if (!row) continue;
        add(row, "workers", 1);
        add(row, "live", live);
        add(row, "tokens", json_integer_value(json_object_get(worker, "tokens")));
        double speed = lh_json_number(row, "tokens_per_s");
        if (live) speed += lh_json_number(worker, "tokens_per_s");
        json_object_set_new(row, "tokens_per_s", json_real(speed));
        take_privacy(row, worker);
    }
    return rows;
}

static json_t *copy_of(const json_t *row)
{
    static const char *const keys[] = {"name",     "region",  "role",       "state",
                                       "silent_s", "bound_s", "trip_ms",    "spread_ms",
                                       "version",  "system",  "gpu",        "processor",
                                       "codec",    "cipher",  "processors", "memory_gib"};
    json_t *out = json_object();
    for (size_t i = 0; i < LH_COUNT(keys); i++) {
        json_t *value = json_object_get(row, keys[i]);
        if (value) json_object_set(out, keys[i], value);
    }
    return out;
}

json_t *dp_get_members(const json_t *status)
{
    json_t *rows = json_array(), *member;
    size_t i;
    json_array_foreach(json_object_get(status, "servers"), i, member)
        json_array_append_new(rows, copy_of(member));
    json_array_foreach(json_object_get(status, "workers"), i, member)
    {
        json_t *row = copy_of(member);
        json_object_set_new(row, "role", json_string("worker"));
        json_object_set(row, "state", json_object_get(member, "member_state"));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *own_array(const json_t *status, const char *key)
{
    json_t *rows = json_object_get(status, key);
    return json_is_array(rows) ? json_incref(rows) : json_array();
}

void dp_put_paused(const json_t *status, struct lh_buf *out)
{
    const json_t *p = json_object_get(status, "paused");
    const char *by = json_string_value(json_object_get(p, "by"));
    const char *why = json_string_value(json_object_get(p, "why"));
    if (by) dp_put(out, "paused by %.63s%s%.255s\n", by, why && why[0] ? ": " : "", why ? why : "");
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(status, "alarms"), i, a)
    {
        const char *rule = json_string_value(json_object_get(a, "rule"));
        const char *region = json_string_value(json_object_get(a, "region"));
        const char *text = json_string_value(json_object_get(a, "text"));
        if (!lh_json_yes(a, "active") || !rule || !region || !text) continue;
        dp_put(out, "alarm %.31s%s%.63s: %.199s\n", rule, region[0] ? " of " : "", region, text);
    }
}

// One line for each worker without progress, with refused pushes, or left out at the run's end.
static void put_absent(const json_t *status, struct lh_buf *out)
{
    const json_t *w;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, w)
    {
        const char *name = json_string_value(json_object_get(w, "name"));
        const char *region = json_string_value(json_object_get(w, "region"));
        const char *why = json_string_value(json_object_get(w, "why"));
        const char *state =
            lh_json_yes(w, "set_aside") ? lh_json_word(w, "member_state") : "stalled";
        if (!strcmp(state, "set_aside")) state = "set aside";
        bool left_out = json_object_get(w, "left_out") != NULL;
        if (!name || !region || !(why || left_out)) continue;
        dp_put(out, "%.63s of %.63s is %.40s%s%.100s\n", name, region,
               left_out ? "left out: the run ended without it" : state, why ? ": " : "",
               why ? why : "");
    }
}

lh_err dp_get_show(const char *part, const json_t *status, bool json, struct lh_buf *out)
{
    static const struct {
        const char *name;
        const struct dp_column *columns;
    } parts[] = {{"members", members},   {"workers", workers}, {"shards", shards},
                 {"regions", regions},   {"plan", plan},       {"links", links},
                 {"machines", machines}, {"budgets", budgets}};
    size_t p = 0;
    while (p < LH_COUNT(parts) && strcmp(parts[p].name, part) != 0) p++;
    if (p == LH_COUNT(parts))
        return lh_fail(LH_ERR_INVALID,
                       "%.40s: expected members, workers, shards, regions, links, plan or leases",
                       part);
    const struct dp_column *columns = parts[p].columns;
    json_t *rows = columns == regions || columns == budgets    ? dp_get_regions(status)
                   : columns == members || columns == machines ? dp_get_members(status)
                   : columns == plan                           ? own_array(status, "forecast")
                                                               : own_array(status, part);
    lh_err err = LH_OK;
    if (json)
        err = dp_table_json(out, rows);
    else
        dp_table_put(out, columns, rows);
    if (!json && columns == plan) put_absent(status, out);
    if (!json && columns == plan) dp_put_paused(status, out);
    json_decref(rows);
    return err ? err : lh_buf_err(out);
}

// One line for the run, and one per region in the schedule of workers.
static void put_scale(const json_t *status, struct lh_buf *out)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(status, "scale"), i, row)
    {
        const char *region = json_string_value(json_object_get(row, "region"));
        const char *at = json_string_value(json_object_get(row, "at"));
        const char *says = json_string_value(json_object_get(row, "says"));
        if (!region || !at || !says) continue;
        dp_put(out, "%.63s%s%lld workers are wanted since %.5s, %lld are here%s%.400s\n", region,
               region[0] ? ": " : "", (long long)json_integer_value(json_object_get(row, "wanted")),
               at, (long long)json_integer_value(json_object_get(row, "present")),
               says[0] ? "; last call: " : "", says);
    }
}

void dp_get_decisions(const json_t *status, struct lh_buf *out)
{
    const json_t *b = json_object_get(status, "balancer");
    const char *rule = json_string_value(json_object_get(b, "rule"));
    if (!rule) return;
    dp_put(out, "\nrule %.20s%s, %lld units run twice now\n", rule,
           lh_json_yes(b, "frozen") ? ", frozen" : "",
           (long long)json_integer_value(json_object_get(b, "twice")));
    put_scale(status, out);
    dp_put(out, "\n");
    if (json_array_size(json_object_get(b, "links"))) {
        dp_table_put(out, terms, json_object_get(b, "links"));
        dp_put(out, "\n");
    }
    dp_table_put(out, decisions, json_object_get(b, "decisions"));
}

lh_err dp_get_leases(const json_t *status, const json_t *rows, bool json, struct lh_buf *out)
{
    json_t *sums = all_totals(status);
    lh_err err = LH_OK;
    if (json) {
        json_t *all = json_pack("{s:O s:O?}", "totals", sums, "leases", rows);
        err = dp_table_json(out, all);
        json_decref(all);
    } else {
        json_t *row = json_pack("[O]", sums);
        dp_table_put(out, totals, row);
        json_decref(row);
        if (rows) dp_put(out, "\n");
        if (rows) dp_table_put(out, leases, rows);
    }
    json_decref(sums);
    return err ? err : lh_buf_err(out);
}
