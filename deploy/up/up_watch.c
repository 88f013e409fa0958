// Collects the nodes' statuses over all their processes. See up_watch.h.
//
// DIR/totals.json stores an interrupted `up`'s counts, so that the final figures cover the whole
// run: {"seconds", "trained", "nodes": {NAME: {"pid", "past": [...], "last": [...]}}}, counts in
// the order of `fields`, then `stall_s`. DIR/curves.csv stores the losses: "node,seconds,loss".
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/env/env.h"
#include "common/format/json.h"
#include "deploy/up/up.h"
#include "deploy/up/up_watch.h"

enum { KEPT_BYTES_MAX = 64 << 20 };

static const size_t fields[] = {
    offsetof(struct dp_counts, steps),        offsetof(struct dp_counts, tokens),
    offsetof(struct dp_counts, rounds),       offsetof(struct dp_counts, payload_up),
    offsetof(struct dp_counts, payload_down), offsetof(struct dp_counts, wire_up),
    offsetof(struct dp_counts, wire_down),    offsetof(struct dp_counts, accepted),
    offsetof(struct dp_counts, damped),       offsetof(struct dp_counts, returned),
    offsetof(struct dp_counts, lost_units),   offsetof(struct dp_counts, plain_up),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static uint64_t *field_of(struct dp_counts *c, size_t i)
{
    return (uint64_t *)(void *)((char *)c + fields[i]);
}

// ---------------------------------------------------------------- polling

static void add_point(struct dp_node *node, double x, double y)
{
    if (node->points == node->point_cap) {
        size_t cap = node->point_cap ? node->point_cap * 2 : 256;
        struct dp_point *point = realloc(node->point, cap * sizeof *point);
        if (!point) return; // fewer points in a picture must not stop a run
        node->point = point;
        node->point_cap = cap;
    }
    node->point[node->points++] = (struct dp_point){x, y};
}

bool dp_watch_own(const struct dp_node *node)
{
    return node->proc &&
           (node->proc->state == DP_PROC_ENDED || node->proc->pid == node->status.pid);
}

bool dp_watch_full(const struct dp_node *node)
{
    enum { STATUS_BYTES = 1 << 16 }; // a status needs as much at most
    struct statvfs fs;
    bool has_disk = node->kind != DP_RANK && node->kind != DP_TRAINER;
    if (!has_disk || !node->proc || node->proc->state != DP_PROC_RUNNING) return false;
    if (node->status.disk_full && dp_watch_own(node)) return true;
    return !statvfs(node->dir, &fs) && (double)fs.f_bavail * (double)fs.f_frsize < STATUS_BYTES;
}

const char *dp_watch_hangs(const struct dp_node *node, int64_t now_s)
{
    enum { HANGS_S = 15 }; // a status is written every second
    bool has_disk = node->kind != DP_RANK && node->kind != DP_TRAINER;
    if (!has_disk || !dp_watch_own(node) || node->proc->state != DP_PROC_RUNNING) return NULL;
    if (node->status.commit_age_s > HANGS_S) return "DISK HANGS";
    bool silent = node->status.time_s && now_s - node->status.time_s > HANGS_S;
    return silent ? "DISK OR PROCESS HANGS" : NULL;
}

static bool listed(const char (*list)[64], unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

const struct dp_node *dp_worker_of(const struct dp_up *up, const struct dp_node *node)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *at = &up->node[i];
        if (at->kind == DP_WORKER && at->region == node->region && at->index == node->index)
            return at;
    }
    return NULL;
}

// Processes that the run refuses: of an expelled worker, and of the command beside it.
static void hold(struct dp_up *up, const struct dp_status *c)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        if ((node->kind != DP_WORKER && node->kind != DP_TRAINER) || !node->proc) continue;
        const struct dp_node *worker = dp_worker_of(up, node);
        node->proc->held = worker && listed(c->expelled, c->expelleds, worker->name);
    }
}

// A coordinator that does not lead says nothing of the run: what it said last stays.
static lh_err read_status(struct dp_node *node)
{
    struct dp_status *was = malloc(sizeof *was);
    if (!was) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a status");
    *was = node->status;
    lh_err err = dp_status_read(node->dir, &node->status);
    bool same = was->pid == node->status.pid && was->time_s == node->status.time_s;
    if (!same || !node->told_ns) node->told_ns = dp_now_ns();
    if (!err && node->kind == DP_COORDINATOR && !strcmp(node->status.state, "standby")) {
        was->pid = node->status.pid;
        node->status = *was;
    }
    free(was);
    return err;
}

// The other one's status does not count: it has none of the run's counts.
static void find_leader(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes && up->node[i].kind == DP_COORDINATOR; i++) {
        const struct dp_node *node = &up->node[i];
        const struct dp_status *s = &node->status;
        bool newer = s->leads > dp_up_leader(up)->status.leads;
        if (dp_watch_own(node) && s->leads && newer) up->leader = i;
    }
}

void dp_watch_poll(struct dp_up *up)
{
    double now_s = dp_up_seconds(up);
    bool training = false;
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        uint64_t steps = node->total.steps;
        uint64_t credited = node->status.credited, tokens = node->status.credited_tokens;
        // A missing or incomplete file: keeps the last status.
        if (read_status(node)) continue;
        if (node->status.hears) { // it knows fewer than it told before
            if (credited > node->status.credited) node->status.credited = credited;
            if (tokens > node->status.credited_tokens) node->status.credited_tokens = tokens;
        }
        if (node->kind != DP_WORKER) continue;
        dp_lives_see(&node->lives, &node->status, &node->total);
        bool alive = node->proc && node->proc->pid == node->status.pid;
        if (alive && node->total.steps > steps && node->status.loss > 0)
            add_point(node, now_s, node->status.loss);
        training |= alive && !strcmp(node->status.state, "training");
    }
    find_leader(up);
    if (training && up->polled_s > 0) up->trained_s += now_s - up->polled_s;
    up->polled_s = now_s;
    const struct dp_node *c = dp_up_leader(up);
    if (dp_watch_own(c)) hold(up, &c->status);
    up->went_on |= dp_watch_own(c) && strcmp(c->status.state, "ended") != 0;
}

// A worker that somebody else ended has exited in order, but before it was done.
static bool was_ended(const struct dp_node *worker)
{
    const struct dp_proc *proc = worker->proc;
    return proc && proc->state == DP_PROC_ENDED && !proc->stopping &&
           strcmp(worker->status.state, "done") != 0;
}

static bool has_ended(const struct dp_up *up)
{
    const struct dp_node *c = dp_up_leader(up);
    return dp_watch_own(c) && !strcmp(c->status.state, "ended");
}

// The run has all pushes of a worker that drained in time. It may hang before it has the last state
// and its final.weights. A disk without space is waited for.
static bool hangs_at_the_end(const struct dp_up *up, const struct dp_node *worker)
{
    const struct dp_status *s = &worker->status;
    return has_ended(up) && dp_watch_own(worker) && worker->proc->state == DP_PROC_RUNNING &&
           s->time_s && strcmp(s->state, "done") != 0 && !dp_watch_full(worker) &&
           dp_now_ns() - worker->told_ns > DP_END_S * LH_SECOND;
}

const char *dp_watch_left(const struct dp_up *up, const struct dp_node *worker)
{
    const struct dp_status *c = &dp_up_leader(up)->status;
    if (listed(c->expelled, c->expelleds, worker->name)) return "an operator had expelled";
    if (listed(c->left_out, c->left_outs, worker->name))
        return "had not drained in time: see its log";
    if (was_ended(worker)) return "somebody else had ended";
    if (hangs_at_the_end(up, worker))
        return "had drained, but hangs before it has the last state: its process or its disk";
    return NULL;
}

const char *dp_watch_stalls(const struct dp_up *up, const struct dp_node *worker)
{
    const struct dp_status *c = &dp_up_leader(up)->status;
    for (unsigned i = 0; i < c->stalleds; i++)
        if (!strcmp(c->stalled[i].name, worker->name)) return c->stalled[i].why;
    return NULL;
}

const char *dp_watch_lacks(const struct dp_up *up, const struct dp_node *worker)
{
    const struct dp_node *trainer = NULL;
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_TRAINER && dp_worker_of(up, &up->node[i]) == worker)
            trainer = &up->node[i];
    if (!trainer || strcmp(worker->status.state, "training") != 0) return NULL;
    if (worker->status.trainer_over) return "loop over";
    bool runs = trainer->proc && trainer->proc->state == DP_PROC_RUNNING;
    return trainer->trainer.came && runs ? NULL : "no loop";
}

// By the coordinator too: a worker that starts in a run that has ended is done until it hears that
// the run goes on. With --continue the coordinator's own first status may still be of the end.
bool dp_watch_done(const struct dp_up *up)
{
    if (!has_ended(up)) return false;
    if (up->flags.go_on && !up->went_on) return false;
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        if (node->kind != DP_WORKER || dp_watch_left(up, node)) continue;
        if (!dp_watch_own(node) || strcmp(node->status.state, "done") != 0) return false;
    }
    return up->nodes > 0;
}

double dp_watch_tokens(const struct dp_up *up)
{
    double trained = 0;
    if (!dp_topology_own_data(up->t)) return (double)dp_up_leader(up)->status.credited_tokens;
    for (unsigned r = 0; r < up->t->regions; r++) trained += (double)dp_watch_region(up, r).tokens;
    return trained;
}

double dp_watch_progress(const struct dp_up *up)
{
    return fmin(1, dp_watch_tokens(up) / (double)up->t->run->budget_tokens);
}

const struct dp_holding *dp_watch_shard(const struct dp_up *up, uint32_t shard,
                                        const struct dp_node **server)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        for (unsigned h = 0; node->kind == DP_SERVER && h < node->status.shards; h++)
            if (node->status.shard[h].shard == shard) {
                if (server) *server = node;
                return &node->status.shard[h];
            }
    }
    return NULL;
}

uint64_t dp_watch_behind(const struct dp_up *up, const struct dp_node *worker)
{
    uint64_t most = 0;
    const struct dp_status *s = &worker->status;
    for (unsigned i = 0; i < s->behind_count; i++) most = s->behind[i] > most ? s->behind[i] : most;
    for (unsigned i = 0; i < s->shards; i++) {
        const struct dp_holding *head = dp_watch_shard(up, s->shard[i].shard, NULL);
        uint64_t behind =
            head && head->version > s->shard[i].version ? head->version - s->shard[i].version : 0;
        most = behind > most ? behind : most;
    }
    return most;
}

struct dp_counts dp_watch_region(const struct dp_up *up, unsigned region)
{
    struct dp_counts sum = {0};
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node node = up->node[i];
        if (node.kind != DP_WORKER || node.region != region) continue;
        for (size_t f = 0; f < FIELDS; f++) *field_of(&sum, f) += *field_of(&node.total, f);
        sum.stall_s += node.total.stall_s;
    }
    return sum;
}

void dp_watch_free(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++) free(up->node[i].point);
}

// ---------------------------------------------------------------- keeping

static json_t *counts_json(struct dp_counts *c)
{
    json_t *list = json_array();
    for (size_t f = 0; f < FIELDS; f++)
        json_array_append_new(list, json_integer((json_int_t)*field_of(c, f)));
    json_array_append_new(list, json_real(c->stall_s));
    return list;
}

static void counts_read(const json_t *list, struct dp_counts *out)
{
    for (size_t f = 0; f < FIELDS; f++)
        *field_of(out, f) = (uint64_t)json_integer_value(json_array_get(list, f));
    out->stall_s = json_number_value(json_array_get(list, FIELDS));
}

static LH_MUST lh_err keep_totals(struct dp_up *up, const char *path)
{
    json_t *nodes = json_object();
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_lives *lives = &up->node[i].lives;
        if (up->node[i].kind == DP_WORKER)
            json_object_set_new(nodes, up->node[i].name,
                                json_pack("{s:I, s:o, s:o}", "pid", (json_int_t)lives->pid, "past",
                                          counts_json(&lives->past), "last",
                                          counts_json(&lives->last)));
    }
    json_t *o = json_pack("{s:f, s:f, s:o}", "seconds", dp_up_seconds(up), "trained", up->trained_s,
                          "nodes", nodes);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    lh_err err = text ? dp_file_write(path, lh_span_str(text), 0640)
                      : lh_fail(LH_ERR_NO_MEMORY, "no memory for %s", path);
    free(text);
    json_decref(o);
    return err;
}

static LH_MUST lh_err keep_curves(const struct dp_up *up, const char *path)
{
    struct lh_buf text = lh_buf(KEPT_BYTES_MAX);
    dp_put(&text, "node,seconds,loss\n");
    for (unsigned i = 0; i < up->nodes; i++)
        for (size_t p = 0; p < up->node[i].points; p++)
            dp_put(&text, "%s,%.2f,%.5f\n", up->node[i].name, up->node[i].point[p].x,
                   up->node[i].point[p].y);
    lh_err err = lh_buf_err(&text);
    if (!err) err = dp_file_write(path, lh_buf_span(&text), 0640);
    lh_buf_free(&text);
    return err;
}

lh_err dp_watch_keep(struct dp_up *up)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/totals.json", up->dir));
    LH_TRY(keep_totals(up, path));
    LH_TRY(dp_path(path, "%s/curves.csv", up->dir));
    return keep_curves(up, path);
}

// ---------------------------------------------------------------- resuming

static struct dp_node *find_node(struct dp_up *up, const char *name, size_t len)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (strlen(up->node[i].name) == len && !memcmp(up->node[i].name, name, len))
            return &up->node[i];
    return NULL;
}

static void resume_curves(struct dp_up *up, const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        size_t name = strcspn(line, ",\n");
        struct dp_node *node = line[name] == ',' ? find_node(up, line, name) : NULL;
        double x, y;
        if (node && sscanf(line + name, ",%lf,%lf", &x, &y) == 2) add_point(node, x, y);
    }
}

static void resume_totals(struct dp_up *up, const char *text)
{
    json_t *o = json_loads(text, 0, NULL), *nodes = json_object_get(o, "nodes"), *kept;
    const char *name;
    up->before_s = lh_json_number(o, "seconds");
    up->trained_s = lh_json_number(o, "trained");
    json_object_foreach(nodes, name, kept)
    {
        struct dp_node *node = find_node(up, name, strlen(name));
        if (!node) continue;
        node->lives.pid = json_integer_value(json_object_get(kept, "pid"));
        counts_read(json_object_get(kept, "past"), &node->lives.past);
        counts_read(json_object_get(kept, "last"), &node->lives.last);
    }
    json_decref(o);
}

lh_err dp_watch_resume(struct dp_up *up)
{
    static const struct {
        const char *name;
        void (*resume)(struct dp_up *, const char *);
    } kept[] = {{"totals.json", resume_totals}, {"curves.csv", resume_curves}};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        char path[DP_PATH_BYTES];
        struct lh_buf text = lh_buf(KEPT_BYTES_MAX);
        LH_TRY(dp_path(path, "%s/%s", up->dir, kept[i].name));
        lh_err err = dp_file_exists(path) ? dp_file_read(path, &text) : LH_OK;
        lh_put_u8(&text, 0);
        if (!err) err = lh_buf_err(&text);
        if (!err && text.len > 1) kept[i].resume(up, (const char *)text.data);
        lh_buf_free(&text);
        LH_TRY(err);
    }
    dp_watch_poll(up); // status files may be newer than the earlier `up`'s last poll
    return LH_OK;
}
