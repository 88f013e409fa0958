// A run in one object. See look.h.
#include "deploy/ask/look.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "common/security/identity.h"
#include "deploy/ask/get.h"
#include "deploy/ask/up_status.h"

// A field with different names in two objects.
struct field {
    const char *to, *from;
};

static void copy(json_t *to, const json_t *from, const struct field *field, size_t fields)
{
    for (size_t i = 0; i < fields; i++) {
        json_t *value = json_object_get(from, field[i].from);
        if (value) json_object_set(to, field[i].to, value);
    }
}

// ---------------------------------------------------------------- workers, regions

// Writes it as `log dump` does: the coordinator's grant, with the worker's own count below it.
static void name_incarnation(json_t *worker)
{
    const json_t *value = json_object_get(worker, "incarnation");
    json_int_t number = json_integer_value(value);
    if (!value) return;
    json_object_set_new(
        worker, "incarnation",
        json_sprintf("%lld.%lld", (long long)(number >> 32), (long long)(number & 0xffffffff)));
}

// Keeps the larger value: a round waits for the slowest of a worker's paths to the servers.
static void raise(json_t *to, const char *key, const json_t *value)
{
    if (!json_is_number(value)) return;
    const json_t *has = json_object_get(to, key);
    if (json_is_number(has) && json_number_value(has) >= json_number_value(value)) return;
    json_object_set_new(to, key, json_real(json_number_value(value)));
}

// By "region/name" of a worker: {"rtt_ms", "push_ms"} of its slowest paths.
static json_t *slowest_ways(const json_t *status)
{
    json_t *out = json_object(), *link;
    size_t i;
    json_array_foreach(json_object_get(status, "links"), i, link)
    {
        char key[2 * LH_NAME_BYTES];
        snprintf(key, sizeof key, "%s/%s", lh_json_word(link, "region"),
                 lh_json_word(link, "worker"));
        json_t *row = json_object_get(out, key);
        if (!row) json_object_set_new(out, key, row = json_object());
        raise(row, "rtt_ms", json_object_get(link, "rtt_ms"));
        raise(row, "push_ms", json_object_get(link, "push_ms"));
    }
    return out;
}

static void add_ways(json_t *worker, const json_t *ways)
{
    char key[2 * LH_NAME_BYTES];
    snprintf(key, sizeof key, "%s/%s", lh_json_word(worker, "region"),
             lh_json_word(worker, "name"));
    const json_t *row = json_object_get(ways, key);
    raise(worker, "rtt_ms", json_object_get(row, "rtt_ms"));
    raise(worker, "push_ms", json_object_get(row, "push_ms"));
}

static json_t *all_workers(const json_t *status, const json_t *files)
{
    static const struct field fields[] = {
        {"state", "state"},       {"step", "step"},
        {"loss", "loss"},         {"rounds", "rounds"},
        {"accepted", "accepted"}, {"returned", "returned"},
        {"stall_s", "stall_s"},   {"sent_bytes", "payload_up_bytes"},
        {"pid", "pid"},           {"received_bytes", "payload_down_bytes"},
    };
    json_t *rows = json_array(), *ways = slowest_ways(status), *w;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, w)
    {
        json_t *row = json_copy(w);
        name_incarnation(row);
        add_ways(row, ways);
        copy(row, json_object_get(files, lh_json_word(w, "name")), fields, LH_COUNT(fields));
        json_array_append_new(rows, row);
    }
    json_decref(ways);
    return rows;
}

// Adds to a region the fields that are no sums; a field that one worker lacks is left out.
static void add_details(json_t *region, const json_t *workers)
{
    double loss = 0, sent = 0, received = 0, h = 0, silent = 0, busy = 0;
    unsigned n = 0, told = 0, told_loss = 0, left = 0, told_busy = 0;
    json_t *w;
    size_t i;
    json_array_foreach(workers, i, w)
    {
        if (strcmp(lh_json_word(w, "region"), lh_json_word(region, "region")) != 0) continue;
        n++;
        told += json_is_number(json_object_get(w, "sent_bytes"));
        told_loss += json_is_number(json_object_get(w, "loss"));
        left += lh_json_yes(w, "draining") && lh_json_yes(w, "drained");
        loss += lh_json_number(w, "loss");
        if (lh_json_yes(w, "live") && json_is_number(json_object_get(w, "utilisation"))) {
            told_busy++;
            busy += lh_json_number(w, "utilisation");
        }
        if (lh_json_yes(w, "live")) raise(region, "rtt_ms", json_object_get(w, "rtt_ms"));
        if (lh_json_yes(w, "live")) raise(region, "push_ms", json_object_get(w, "push_ms"));
        sent += lh_json_number(w, "sent_bytes");
        received += lh_json_number(w, "received_bytes");
        if (lh_json_number(w, "h") > h) h = lh_json_number(w, "h");
        if (lh_json_number(w, "silent_s") > silent) silent = lh_json_number(w, "silent_s");
    }
    json_object_set_new(region, "drained", json_integer(left));
    json_object_set_new(region, "h", json_integer((json_int_t)h));
    json_object_set_new(region, "silent_s", json_real(silent));
    if (told_busy) json_object_set_new(region, "utilisation", json_real(busy / told_busy));
    if (!n || told < n) return;
    if (told_loss == n) json_object_set_new(region, "loss", json_real(loss / n));
    json_object_set_new(region, "sent_bytes", json_integer((json_int_t)sent));
    json_object_set_new(region, "received_bytes", json_integer((json_int_t)received));
}

// ---------------------------------------------------------------- shards

static const json_t *shard_of(const json_t *server, json_int_t shard)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(server, "shards"), i, row)
    {
        if (json_integer_value(json_object_get(row, "shard")) == shard) return row;
    }
    return NULL;
}

static json_t *all_shards(const json_t *status, const json_t *servers)
{
    static const struct field fields[] = {{"admitted", "admitted"},
                                          {"refused", "refused"},
                                          {"followers", "followers"},
                                          {"parameters", "parameters"},
                                          {"optimizer", "optimizer"}};
    static const struct field staleness[] = {{"staleness_p50", "p50"},
                                             {"staleness_p99", "p99"},
                                             {"staleness_max", "max"},
                                             {"staleness_bound", "bound"}};
    json_t *rows = json_array(), *s;
    size_t i;
    json_array_foreach(json_object_get(status, "shards"), i, s)
    {
        json_t *row = json_copy(s);
        const json_t *server = json_object_get(servers, lh_json_word(s, "address"));
        const json_t *said = shard_of(server, json_integer_value(json_object_get(s, "shard")));
        json_object_set_new(row, "answers", json_boolean(said != NULL));
        copy(row, said, fields, LH_COUNT(fields));
        copy(row, json_object_get(said, "staleness"), staleness, LH_COUNT(staleness));
        copy(row, server, &(struct field){"server", "name"}, 1);
        copy(row, server, &(struct field){"region", "region"}, 1);
        json_array_append_new(rows, row);
    }
    return rows;
}

// ---------------------------------------------------------------- the run

static json_t *whole_run(const json_t *status, const json_t *regions)
{
    static const struct field fields[] = {
        {"phase", "phase"},
        {"draining", "draining"},
        {"ending", "ending"},
        {"paused", "paused"},
        {"alarms", "alarms"},
        {"drained_regions", "drained_regions"},
        {"plan", "plan"},
        {"credited_tokens", "credited_tokens"},
        {"budget_tokens", "budget_tokens"},
        {"units", "units"},
        {"data_epoch", "data_epoch"},
        {"data_epochs", "data_epochs"},
        {"credited", "credited"},
        {"leased", "leased"},
    };
    json_t *run = json_object(), *r;
    double speed = 0, workers = 0, live = 0;
    size_t i;
    copy(run, status, fields, LH_COUNT(fields));
    json_array_foreach(regions, i, r)
    {
        speed += lh_json_number(r, "tokens_per_s");
        workers += lh_json_number(r, "workers");
        live += lh_json_number(r, "live");
    }
    json_int_t unheard = 0;
    json_array_foreach(json_object_get(status, "shards"), i, r) unheard +=
        !lh_json_word(r, "address")[0];
    if (unheard) json_object_set_new(run, "unheard_shards", json_integer(unheard));
    if (lh_json_yes(json_object_get(status, "balancer"), "frozen"))
        json_object_set_new(run, "frozen", json_true());
    json_object_set_new(run, "workers", json_integer((json_int_t)workers));
    json_object_set_new(run, "live", json_integer((json_int_t)live));
    json_object_set_new(run, "tokens_per_s", json_real(speed));
    double budget = lh_json_number(status, "budget_tokens"),
           done = lh_json_number(status, "credited_tokens");
    if (budget <= 0) return run;
    json_object_set_new(run, "percent", json_real(done < budget ? 100 * done / budget : 100));
    bool still = lh_json_yes(status, "draining") || json_object_get(status, "paused");
    bool going = !strcmp(lh_json_word(status, "phase"), "running") && !still;
    if (going && speed > 0 && done < budget)
        json_object_set_new(run, "eta_s", json_real((budget - done) / speed));
    return run;
}

static json_int_t count_stalled(const json_t *workers)
{
    json_int_t n = 0;
    json_t *w;
    size_t i;
    json_array_foreach(workers, i, w) n += json_object_get(w, "stalled") != NULL;
    return n;
}

json_t *dp_look_merge(const json_t *status, const json_t *servers, const json_t *files)
{
    json_t *workers = all_workers(status, files), *regions = dp_get_regions(status), *r;
    size_t i;
    json_array_foreach(regions, i, r) add_details(r, workers);
    json_t *run = whole_run(status, regions);
    json_object_set_new(run, "stalled", json_integer(count_stalled(workers)));
    return json_pack("{s:o s:o s:o s:o}", "run", run, "regions", regions, "shards",
                     all_shards(status, servers), "workers", workers);
}

// ---------------------------------------------------------------- ask

json_t *dp_look_servers(struct dp_admin *a, const json_t *status)
{
    json_t *servers = json_object(), *shard;
    size_t i;
    json_array_foreach(json_object_get(status, "shards"), i, shard)
    {
        const char *address = lh_json_word(shard, "address");
        if (address[0]) json_object_set_new(servers, address, json_null());
    }
    dp_admin_servers(a, servers);
    return servers;
}

json_t *dp_look_files(const struct dp_admin *a, const json_t *status)
{
    json_t *files = json_object(), *w;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, w)
    {
        char path[DP_PATH_BYTES];
        const char *name = lh_json_word(w, "name");
        struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
        if (a->dir && !dp_path(path, "%s/%s/status.json", a->dir, name) &&
            !dp_file_read(path, &bytes))
            json_object_set_new(files, name,
                                json_loadb((const char *)bytes.data, bytes.len, 0, NULL));
        lh_buf_free(&bytes);
    }
    return files;
}

lh_err dp_look(struct dp_admin *a, json_t **out)
{
    json_t *status;
    *out = NULL;
    LH_TRY(dp_admin_status(a, &status));
    json_t *servers = dp_look_servers(a, status), *files = dp_look_files(a, status);
    *out = dp_look_merge(status, servers, files);
    json_decref(servers);
    json_decref(files);
    json_decref(status);
    return *out ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the run's state");
}
