// The registry of metrics. See metrics.h.
//
// Names follow https://prometheus.io/docs/practices/naming/: base units, one unit a name, _total
// for counters. The values of a label are names of the run's processes, regions, shards or states,
// so their number is bounded by the run.
#include "common/app/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LABELS_BYTES = 1024, PART_BYTES = 64, DEPTH_MAX = 6 };

#define P LH_METRIC_PUBLIC
#define D LH_METRIC_DATA
const struct lh_metric lh_metrics[] = {
    // every process
    {"longhaul_info", LH_STATE, P, "swc", "", "role=role,version=version", 1,
     "The process; its version is a label"},
    {"longhaul_up_seconds", LH_GAUGE, P, "swc", "up_s", "", 1, "Age of the process"},
    {"longhaul_status_timestamp_seconds", LH_GAUGE, P, "swc", "time_s", "", 1,
     "Time of the last status of the program's loop, in seconds since 1970"},
    {"longhaul_ready", LH_GAUGE, P, "swc", "ready", "", 1,
     "1 once recovery is over and the process does its work"},
    {"longhaul_last_exit", LH_STATE, P, "swc", "", "reason=last_exit", 1,
     "How the process before this one ended: signal (asked to end), ended (the run was "
     "over), "
     "killed (a crash, kill -9 or a power cut), the name of an error, or none"},
    {"longhaul_cpu_seconds_total", LH_COUNTER, P, "swc", "cpu_s", "", 1, "Processor time"},
    {"longhaul_memory_peak_bytes", LH_GAUGE, P, "swc", "peak_bytes", "", 1,
     "Peak of resident memory"},
    {"longhaul_disk_free_bytes", LH_GAUGE, P, "swc", "disk_free_bytes", "", 1,
     "Free bytes on the disk of the state directory"},
    {"longhaul_disk_full", LH_GAUGE, P, "swc", "disk_full", "", 1, "1 while the disk is full"},
    {"longhaul_certificate_expires_seconds", LH_GAUGE, P, "swc", "certificate_expires_s", "", 1,
     "Time until the process's certificate expires; negative afterwards"},
    {"longhaul_wire_sent_bytes_total", LH_COUNTER, P, "swc", "wire_up_bytes", "", 1,
     "Bytes sent on the process's sockets, TLS included"},
    {"longhaul_wire_received_bytes_total", LH_COUNTER, P, "swc", "wire_down_bytes", "", 1,
     "Bytes received on the process's sockets, TLS included"},
    {"longhaul_loop_longest_seconds", LH_GAUGE, P, "swc", "loop_longest_ms", "", 1e-3,
     "Longest time that one function blocked the loop in the last second"},
    {"longhaul_commit_age_seconds", LH_GAUGE, P, "sc", "commit_age_s", "", 1,
     "Age of the oldest write that the disk has not confirmed; 0: none waits"},
    // server
    {"longhaul_shard_version", LH_GAUGE, P, "s", "shards[].version", "shard=shard", 1,
     "Version of the shard: records in its log"},
    {"longhaul_shard_epoch", LH_GAUGE, P, "s", "shards[].epoch", "shard=shard", 1,
     "Epoch of the shard: it rises with a new owner, a lost history, and a start together with the "
     "coordinator's"},
    {"longhaul_shard_phase", LH_STATE, P, "s", "shards[]", "shard=shard,phase=phase", 1,
     "Phase of the run in the shard's log"},
    {"longhaul_shard_pushes_admitted_total", LH_COUNTER, P, "s", "shards[].admitted", "shard=shard",
     1, "Pushes that the log admitted"},
    {"longhaul_shard_pushes_refused_total", LH_COUNTER, P, "s", "shards[].refused", "shard=shard",
     1, "Pushes that the log refused"},
    {"longhaul_shard_tokens_total", LH_COUNTER, P, "s", "shards[].tokens", "shard=shard", 1,
     "Tokens of admitted pushes"},
    {"longhaul_shard_followers", LH_GAUGE, P, "s", "shards[].followers", "shard=shard", 1,
     "Open streams of the log"},
    {"longhaul_shard_staleness_versions", LH_HISTOGRAM, P, "s", "shards[].staleness_versions",
     "shard=shard", 1, "Versions between an admitted push's base and its own"},
    {"longhaul_fold_seconds", LH_HISTOGRAM, P, "s", "seconds.fold", "", 1,
     "Time that one fold blocked the loop"},
    {"longhaul_decide_seconds", LH_HISTOGRAM, P, "s", "seconds.decide", "", 1,
     "Time that one decision about a push blocked the loop"},
    {"longhaul_sync_seconds", LH_HISTOGRAM, P, "s", "seconds.sync", "", 1,
     "Time until the disk confirmed one group of log records"},
    {"longhaul_checkpoint_seconds", LH_HISTOGRAM, P, "s", "seconds.checkpoint", "", 1,
     "Time from a checkpoint's start until it is durable"},
    {"longhaul_store_age_seconds", LH_GAUGE, P, "s", "store.age_s", "", 1,
     "Time that the oldest missing checkpoint has waited for the object store; 0: none is missing"},
    {"longhaul_store_away", LH_GAUGE, P, "s", "store.away", "", 1,
     "1 while checkpoints can't be stored"},
    {"longhaul_store_uploads_total", LH_COUNTER, P, "s", "store.uploads", "", 1,
     "Checkpoints that were stored"},
    {"longhaul_store_uploaded_bytes_total", LH_COUNTER, P, "s", "store.bytes", "", 1,
     "Bytes of stored checkpoints"},
    {"longhaul_store_failures_total", LH_COUNTER, P, "s", "store.failures", "", 1,
     "Uploads that failed"},
    {"longhaul_pushes_repeated_total", LH_COUNTER, P, "s", "counters.repeated", "", 1,
     "Pushes that were sent again after their decision"},
    // worker
    {"longhaul_worker_state", LH_STATE, P, "w", "", "state=state", 1, "State of the worker"},
    {"longhaul_steps_total", LH_COUNTER, D, "w", "step", "", 1,
     "Local steps, over all lives of the worker"},
    {"longhaul_tokens_total", LH_COUNTER, D, "w", "tokens", "", 1,
     "Tokens trained on, over all lives of the worker"},
    {"longhaul_tokens_per_second", LH_GAUGE, D, "w", "tokens_per_s", "", 1,
     "Speed of training; it falls while no step ends"},
    {"longhaul_last_step_timestamp_seconds", LH_GAUGE, D, "w", "last_step_s", "", 1,
     "When the last step ended, in seconds since 1970: alert on its age"},
    {"longhaul_loss", LH_GAUGE, D, "w", "loss", "", 1, "Training loss, nats a token"},
    {"longhaul_loop_metric", LH_GAUGE, D, "w", "trainer.metrics", "", 1,
     "Figures that the loop reported with run.report(), by name"},
    {"longhaul_loop_last_exit", LH_STATE, P, "w", "trainer", "reason=last_exit", 1,
     "How the last life of the training loop beside the worker ended: left (in order), lost, or "
     "none"},
    {"longhaul_learning_rate", LH_GAUGE, P, "w", "learning_rate", "", 1,
     "Learning rate of the run's schedule"},
    {"longhaul_local_steps", LH_GAUGE, P, "w", "h", "", 1, "H: local steps between two pushes"},
    {"longhaul_rounds_total", LH_COUNTER, P, "w", "rounds", "", 1,
     "Rounds: each pushes to every shard"},
    {"longhaul_pushes_accepted_total", LH_COUNTER, P, "w", "accepted", "", 1,
     "Pushes of this worker that are in the logs"},
    {"longhaul_pushes_returned_total", LH_COUNTER, P, "w", "returned", "", 1,
     "Pushes that were refused; their values went back to the residual"},
    {"longhaul_pushes_resent_total", LH_COUNTER, P, "w", "resent", "", 1,
     "Pushes that were sent again"},
    {"longhaul_pushes_lost_total", LH_COUNTER, P, "w", "lost", "", 1, "Pushes that are lost"},
    {"longhaul_push_seconds", LH_HISTOGRAM, P, "w", "push_seconds", "", 1,
     "Time from the start of a push's sending until its answer"},
    {"longhaul_payload_sent_bytes_total", LH_COUNTER, P, "w", "payload_up_bytes", "", 1,
     "Bytes of pushes"},
    {"longhaul_payload_received_bytes_total", LH_COUNTER, P, "w", "payload_down_bytes", "", 1,
     "Bytes of records that the worker fetched"},
    {"longhaul_stall_seconds_total", LH_COUNTER, P, "w", "stall_s", "", 1,
     "Time that training waited for the network"},
    {"longhaul_outbox_pushes", LH_GAUGE, P, "w", "shards[].outbox", "shard=shard", 1,
     "Pushes that wait for their answer"},
    {"longhaul_outbox_bytes", LH_GAUGE, P, "w", "shards[].outbox_bytes", "shard=shard", 1,
     "Bytes of the pushes that wait for their answer"},
    {"longhaul_replica_version", LH_GAUGE, P, "w", "shards[].version", "shard=shard", 1,
     "Version of the shard's replica in this region"},
    {"longhaul_privacy_epsilon", LH_GAUGE, P, "w", "privacy.epsilon", "", 1,
     "Epsilon of all that the run has charged to this region's budget"},
    {"longhaul_privacy_charged_steps", LH_GAUGE, P, "w", "privacy.charged", "", 1,
     "Steps that the run has charged to this region's budget"},
    {"longhaul_units_store_age_seconds", LH_GAUGE, P, "w", "loader.away_s", "", 1,
     "Time for which the worker could not read units from their store (data.dir); 0: it can, or "
     "they are in a folder"},
    // coordinator
    {"longhaul_run_phase", LH_STATE, P, "c", "", "phase=phase", 1, "Phase of the run"},
    {"longhaul_leads", LH_GAUGE, P, "c", "leads", "", 1,
     "1 at the leading coordinator, 0 at a standby (coordinator.store)"},
    {"longhaul_leader_number", LH_GAUGE, P, "c", "leader.number", "", 1,
     "Number of the leader that this coordinator knows; each new leader has a higher one"},
    {"longhaul_coordinator_store_away", LH_GAUGE, P, "c", "store_away", "", 1,
     "1 while the etcd of coordinator.store does not answer"},
    {"longhaul_run_paused_timestamp_seconds", LH_GAUGE, P, "c", "paused.since_s", "", 1,
     "Time at which the run was paused, in seconds since 1970; absent while it is not paused"},
    {"longhaul_alarm_active", LH_GAUGE, P, "c", "alarms[].active", "rule=rule", 1,
     "1 while the alarm of this rule (coordinator.rules) is active"},
    {"longhaul_run_tokens_total", LH_COUNTER, P, "c", "credited_tokens", "", 1,
     "Tokens of credited units"},
    {"longhaul_run_budget_tokens", LH_GAUGE, P, "c", "budget_tokens", "", 1,
     "Token budget of the run"},
    {"longhaul_units", LH_GAUGE, P, "c", "units", "", 1, "Units of the run, over all data epochs"},
    {"longhaul_units_credited", LH_GAUGE, P, "c", "credited", "", 1,
     "Units whose training is in the logs"},
    {"longhaul_units_leased", LH_GAUGE, P, "c", "leased", "", 1, "Units that a worker holds"},
    {"longhaul_units_begun", LH_GAUGE, P, "c", "begun", "", 1,
     "Units that a worker has begun or claimed"},
    {"longhaul_member_state", LH_STATE, P, "c", "workers[]",
     "region=region,worker=name,state=member_state", 1,
     "A worker's state as the coordinator sees it"},
    {"longhaul_member_silent_seconds", LH_GAUGE, P, "c", "workers[].silent_s",
     "region=region,worker=name", 1, "Time since the worker's last report"},
    {"longhaul_member_tokens_per_second", LH_GAUGE, P, "c", "workers[].tokens_per_s",
     "region=region,worker=name", 1, "Speed that the worker reports"},
    {"longhaul_member_tokens_total", LH_COUNTER, P, "c", "workers[].tokens",
     "region=region,worker=name", 1, "Tokens that the worker reports"},
    {"longhaul_member_local_steps", LH_GAUGE, P, "c", "workers[].h", "region=region,worker=name", 1,
     "H that the coordinator gives the worker"},
    {"longhaul_member_utilisation_ratio", LH_GAUGE, P, "c", "workers[].utilisation",
     "region=region,worker=name", 1, "Share of time in which the worker computes"},
    {"longhaul_member_loss", LH_GAUGE, D, "c", "workers[].loss", "region=region,worker=name", 1,
     "Training loss that the worker reports, nats per token"},
    {"longhaul_member_epsilon", LH_GAUGE, P, "c", "workers[].epsilon_at_most",
     "region=region,worker=name", 1,
     "Upper bound of the epsilon of a private worker's admitted pushes; if records are drawn, by "
     "RDP, which is above the figure of `longhaul get regions`"},
    {"longhaul_member_charged_steps", LH_GAUGE, P, "c", "workers[].charged",
     "region=region,worker=name", 1, "Steps that a private worker's admitted pushes have charged"},
    {"longhaul_link_rtt_seconds", LH_GAUGE, P, "c", "links[].rtt_ms", "worker=worker,shard=shard",
     1e-3, "Round trip from a worker to a shard's server"},
    {"longhaul_link_push_seconds", LH_GAUGE, P, "c", "links[].push_ms", "worker=worker,shard=shard",
     1e-3, "Mean time of a push on that link"},
    {"longhaul_server_state", LH_STATE, P, "c", "servers[]",
     "region=region,server=name,role=role,state=state", 1,
     "A server's state as the coordinator sees it"},
    {"longhaul_server_silent_seconds", LH_GAUGE, P, "c", "servers[].silent_s",
     "region=region,server=name,role=role", 1, "Time since the server's last report"},
    {"longhaul_stable_lag_versions", LH_GAUGE, P, "c", "shards[].stable_lag", "shard=shard", 1,
     "Versions between the shard's head and its stable point"},
};
#undef P
#undef D
const unsigned lh_metrics_count = sizeof lh_metrics / sizeof *lh_metrics;

// ---------------------------------------------------------------- fields of a status

struct labels {
    char text[LABELS_BYTES];
    size_t len;
};

static void put_label(struct labels *l, const char *name, const char *value)
{
    size_t start = l->len;
    char *at = l->text + l->len, *end = l->text + sizeof l->text - 3;
    at += snprintf(at, (size_t)(end - at), "%s%s=\"", l->len ? "," : "", name);
    for (; *value && at < end; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n') *at++ = '\\';
        *at++ = *value == '\n' ? 'n' : *value;
    }
    if (at >= end) { // drops a label that does not fit, rather than cut it
        l->text[start] = 0;
        return;
    }
    *at++ = '"', *at = 0;
    l->len = (size_t)(at - l->text);
}

// Copies the part before `end` and moves *text behind it; false: no part is left.
static bool next_part(const char **text, char end, char part[PART_BYTES])
{
    if (!**text) return false;
    size_t n = strcspn(*text, (char[]){end, 0});
    snprintf(part, PART_BYTES, "%.*s", (int)n, *text);
    *text += n + ((*text)[n] == end);
    return true;
}

static void label_from(struct labels *l, const struct lh_metric *m, const json_t *row)
{
    const char *rest = m->labels;
    char pair[PART_BYTES], number[32];
    while (next_part(&rest, ',', pair)) {
        char *field = strchr(pair, '=');
        *field++ = 0;
        const json_t *value = json_object_get(row, field);
        if (json_is_string(value)) put_label(l, pair, json_string_value(value));
        if (!json_is_integer(value)) continue;
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        put_label(l, pair, number);
    }
}

struct walk {
    const struct lh_metric *m;
    lh_metric_fn *fn;
    void *arg;
    unsigned given;
};

static void give(struct walk *w, const json_t *row, const json_t *value)
{
    struct labels l = {"", 0};
    label_from(&l, w->m, row);
    bool fits = w->m->type == LH_STATE       ? json_is_object(value)
                : w->m->type == LH_HISTOGRAM ? json_is_object(value)
                                             : json_is_number(value) || json_is_boolean(value);
    w->given += fits;
    if (fits) w->fn(w->arg, w->m, l.text, value);
    const char *key;
    json_t *each;
    if (fits || !json_is_object(value)) return;
    json_object_foreach((json_t *)value, key, each)
    { // numbers by name
        struct labels named = l;
        put_label(&named, "metric", key);
        if (!json_is_number(each)) continue;
        w->given++;
        w->fn(w->arg, w->m, named.text, each);
    }
}

static void walk(struct walk *w, const json_t *row, const json_t *at, const char *path)
{
    char part[PART_BYTES];
    if (!next_part(&path, '.', part)) {
        give(w, row, at);
        return;
    }
    size_t n = strlen(part);
    bool each = n > 2 && !strcmp(part + n - 2, "[]");
    if (each) part[n - 2] = 0;
    const json_t *value = json_object_get(at, part);
    if (!each) {
        if (value) walk(w, row, value, path);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *element = json_array_get(value, i);
        walk(w, element, element, path);
    }
}

void lh_metrics_each(const json_t *status, const struct lh_metric *m, lh_metric_fn *fn, void *arg)
{
    const char *role = json_string_value(json_object_get(status, "role"));
    struct walk w = {m, fn, arg, 0};
    if (!role) return;
    if (strcmp(role, "both") != 0) {
        if (strchr(m->roles, role[0])) walk(&w, status, status, m->path);
        return;
    }
    // In a server that is also the coordinator, the fields of the process stand above its two
    // roles'.
    const json_t *server = json_object_get(status, "server");
    const json_t *coordinator = json_object_get(status, "coordinator");
    if (strlen(m->roles) > 1) walk(&w, status, status, m->path);
    if (!w.given && strchr(m->roles, 's')) walk(&w, server, server, m->path);
    if (!w.given && strchr(m->roles, 'c')) walk(&w, coordinator, coordinator, m->path);
}

// ---------------------------------------------------------------- Prometheus' text

struct text {
    struct lh_buf *out;
    bool begun; // HELP and TYPE of this metric are written
};

__attribute__((format(printf, 2, 3))) static void put(struct lh_buf *out, const char *format, ...)
{
    char line[2 * LABELS_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof line) lh_put(out, line, (size_t)n);
}

static void put_sample(struct lh_buf *out, const char *name, const char *suffix, const char *labels,
                       double value)
{
    const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    if (isfinite(value))
        put(out, "%s%s%s%s%s %.17g\n", name, suffix, open, labels, close, value);
    else
        put(out, "%s%s%s%s%s %s\n", name, suffix, open, labels, close,
            isnan(value) ? "NaN"
            : value > 0  ? "+Inf"
                         : "-Inf");
}

static void put_histogram(struct lh_buf *out, const char *name, const char *labels, const json_t *h)
{
    const json_t *bounds = json_object_get(h, "le"), *counts = json_object_get(h, "count");
    double sum = json_number_value(json_object_get(h, "sum"));
    size_t n = json_array_size(bounds);
    json_int_t all = 0;
    for (size_t i = 0; i < n; i++) {
        all += json_integer_value(json_array_get(counts, i));
        put(out, "%s_bucket{%s%sle=\"%g\"} %lld\n", name, labels, *labels ? "," : "",
            json_number_value(json_array_get(bounds, i)), (long long)all);
    }
    all += json_integer_value(json_array_get(counts, n));
    put(out, "%s_bucket{%s%sle=\"+Inf\"} %lld\n", name, labels, *labels ? "," : "", (long long)all);
    put_sample(out, name, "_sum", labels, sum);
    put_sample(out, name, "_count", labels, (double)all);
}

static const char *type_name(enum lh_metric_type type)
{
    static const char *const name[] = {"counter", "gauge", "histogram", "gauge"};
    return name[type];
}

static void put_metric(void *arg, const struct lh_metric *m, const char *labels,
                       const json_t *value)
{
    struct text *t = arg;
    if (!t->begun)
        put(t->out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, type_name(m->type));
    t->begun = true;
    if (m->type == LH_HISTOGRAM)
        put_histogram(t->out, m->name, labels, value);
    else if (m->type == LH_STATE || json_is_boolean(value))
        put_sample(t->out, m->name, "", labels, m->type == LH_STATE || json_is_true(value));
    else
        put_sample(t->out, m->name, "", labels, json_number_value(value) * m->scale);
}

lh_err lh_metrics_prometheus(const json_t *status, struct lh_buf *out)
{
    if (!json_is_object(status)) return lh_fail(LH_ERR_INVALID, "the status is no JSON object");
    for (unsigned i = 0; i < lh_metrics_count; i++) {
        struct text t = {out, false};
        lh_metrics_each(status, &lh_metrics[i], put_metric, &t);
    }
    return lh_buf_err(out);
}
