// Implements cluster.h: one run, from its seed to the judge. Nodes and their lives are in lives.c.
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t RUN_LIMIT = 900 * LH_SECOND; // a longer run is stuck
static const uint64_t EVENTS_MAX = 4000000;

void sim_fail(struct sim *s, const char *format, ...)
{
    if (s->bad[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(s->bad, sizeof s->bad, format, args);
    va_end(args);
    sim_trace(s, "VIOLATION %s", s->bad);
}

void sim_trace(const struct sim *s, const char *format, ...)
{
    if (!s->conf.trace) return;
    va_list args;
    va_start(args, format);
    printf("%9.3f ", (double)lh_fake_now(s->world) / 1e9);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

// ---------------------------------------------------------------- one run

// Chooses how many shards the servers have. A server's standby has the same ones.
static void choose_shape(struct sim *s)
{
    static const uint32_t shapes[][SIM_SERVERS] = {{1, 1}, {2, 0}, {2, 2}, {1, 2}};
    uint64_t drawn = s->conf.faults.shards ? sim_draw(s, SIM_FAULT_shards, LH_COUNT(shapes)) : 0;
    memcpy(s->shape, shapes[drawn], sizeof s->shape);
    for (uint32_t i = 0; i < SIM_SERVERS; i++) s->shards += s->shape[i];
    if (drawn) sim_happened(s, shards);
}

// Chooses how far the coordinator leases ahead. Without faults a run lasts some seconds.
static void choose_ride_out(struct sim *s)
{
    static const int64_t seconds[] = {0, 1, 0, 300};
    uint64_t drawn = s->conf.faults.ahead ? sim_draw(s, SIM_FAULT_ahead, LH_COUNT(seconds)) : 0;
    s->ride_out_ns = seconds[drawn] * LH_SECOND;
    if (s->ride_out_ns) sim_happened(s, ahead);
}

static void create(struct sim *s, const struct sim_conf *conf)
{
    static const uint64_t shapes[5][5] = {{40, 20}, {300}, {9, 9}, {70}, {8, 30}};
    static const char *const names[5] = {"a.weight", "b.weight", "c.weight", "d.weight",
                                         "e.weight"};
    s->conf = *conf;
    s->world = lh_fake_world_create(conf->seed);
    sim_streams(s);
    choose_shape(s);
    choose_ride_out(s);
    sim_choose_charges(s);
    sim_choose_epochs(s);
    s->fabric = lh_fabric_create();
    sim_choose_pair(s);
    lh_err err =
        lh_manifest_build(&s->manifest, s->shards < 3 ? 3 : 5, names, shapes, s->shards, NULL);
    LH_ASSERT(!err);
    s->keys = setup_keys();
    // exact values are never over-sent, so a loss can't hide mass that is there twice
    s->codec =
        (struct lk_codec){LK_INDEX_RICE, conf->seed % 2 ? LK_VALUE_SIGN : LK_VALUE_FP32, 0.1f};
    if (conf->tight_disks) s->codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 0.5f};
    if (conf->exact && conf->seed % 2) s->codec.value = LK_VALUE_FP16; // multiples as well
    static const double gates[] = {0, 1.5, 2, 4, 10};                  // low enough to clip
    s->norm_gate = gates[conf->seed % LH_COUNT(gates)];
    s->initial = calloc(s->manifest.values, sizeof *s->initial);
    LH_ASSERT(s->initial);
    // Parameters of the size of some pushes, because the norm gate measures the first pushes by
    // them.
    for (uint64_t i = 0; i < s->manifest.values; i++) s->initial[i] = conf->exact ? SIM_BASE : 32;
    setup_units(&s->units, SIM_UNITS / s->epochs, SIM_UNIT_TOKENS, SIM_WORKERS);
    sim_choose_balance(s);
    sim_choose_travel(s);
    sim_choose_links(s);
    sim_choose_budget(s);
    lh_fabric_fates(s->fabric, sim_watched_fate, s);
    lh_fabric_tap(s->fabric, sim_saw_message, s);
    for (uint32_t w = 0; w < SIM_WORKERS; w++)
        for (uint32_t k = 0; k < s->shards; k++) {
            s->history[w][k].raw = calloc(s->manifest.values, sizeof(double));
            s->history[w][k].gone = calloc(s->manifest.values, sizeof(double));
            s->history[w][k].last = calloc(s->manifest.values, sizeof(double));
            s->history[w][k].undone = calloc(s->manifest.values, sizeof(double));
            LH_ASSERT(s->history[w][k].raw && s->history[w][k].gone && s->history[w][k].last &&
                      s->history[w][k].undone);
        }
    uint32_t at = 0;
    sim_make_node(s, at++, SIM_COORDINATOR, 0);
    for (uint32_t i = 0; i < SIM_SERVERS; i++) sim_make_node(s, at++, SIM_SERVER, i);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) sim_make_node(s, at++, SIM_WORKER, i);
    for (uint32_t i = 0; i < SIM_STANDBYS && sim_standbys(s); i++)
        sim_make_node(s, at++, SIM_STANDBY, i);
    s->nodes = at;
    sim_pair_nodes(s);
    sim_place_far(s);
    sim_judging_begin(s);
    sim_loop_start(s);
    for (uint32_t i = 0; i < s->nodes; i++)
        if (!sim_absent(&s->node[i])) sim_node_start(&s->node[i]);
    bool rebuilds =
        conf->faults.disk_loss || conf->faults.damage || conf->faults.rollback || conf->faults.tail;
    if (conf->faults.move || conf->faults.standby || rebuilds) sim_operator_start(s);
    sim_balance_start(s);
    sim_liars_start(s);
}

static void teardown(struct sim *s)
{
    sim_zombie_end(s);
    sim_liars_end(s);
    s->ending = true;
    for (uint32_t i = 0; i < s->nodes; i++) {
        if (lh_fake_alive(s->node[i].env)) lh_fake_kill(s->node[i].env, false);
        sim_node_bury(&s->node[i], false);
        lh_log_close(s->node[i].log);
        sim_travel_free(&s->node[i]);
    }
    sim_loop_end(s);
    sim_copies_free(s);
    sim_judging_end(s);
    sim_pair_free(s);
    lh_fake_world_destroy(s->world);
    lh_fabric_destroy(s->fabric);
    lh_manifest_free(&s->manifest);
    lh_units_free(&s->units);
    lh_keyring_destroy(s->keys);
    free(s->initial);
    for (uint32_t k = 0; k < s->shards; k++)
        for (uint32_t v = 0; v < SIM_VERSIONS_MAX; v++) lh_blob_release(s->kept[k][v]);
    for (uint32_t w = 0; w < SIM_WORKERS; w++)
        for (uint32_t k = 0; k < s->shards; k++) {
            free(s->history[w][k].raw);
            free(s->history[w][k].gone);
            free(s->history[w][k].last);
            free(s->history[w][k].undone);
        }
}

static void tell_outbox(const struct sim_node *n, uint32_t shard)
{
    const struct wk_shard *ws = &n->worker->shard[shard];
    for (const struct wk_entry *e = ws->outbox.first; e; e = e->next)
        sim_trace(n->sim, "%s outbox shard %u: %llx/%llu %s version %llu, %u claims, first %llu",
                  n->name, shard, (unsigned long long)e->head.incarnation.number,
                  (unsigned long long)e->head.step, e->status ? "admitted" : "undecided",
                  (unsigned long long)e->version, e->head.claims,
                  (unsigned long long)e->head.claim[0]);
    for (uint32_t i = 0; i < ws->slot.committed->claim_count; i++)
        sim_trace(n->sim, "%s returned claim %llu", n->name,
                  (unsigned long long)ws->slot.committed->claim[i].unit);
    for (uint32_t i = 0; i < ws->finished.count; i++)
        sim_trace(n->sim, "%s fresh claim %llu", n->name, (unsigned long long)ws->finished.unit[i]);
}

static void tell_file(void *arg, const char *path, uint64_t bytes)
{
    const struct sim_node *n = arg;
    sim_trace(n->sim, "%s has %s, %llu bytes", n->name, path, (unsigned long long)bytes);
}

static void tell_all(struct sim *s)
{
    for (uint32_t i = 0; s->conf.trace && i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        struct lh_buf b = lh_buf(1 << 20);
        lh_err err = n->coordinator ? ps_coordinator_status(n->coordinator, &b)
                     : n->server    ? ps_server_status(n->server, &b)
                     : n->worker    ? wk_worker_status(n->worker, &b)
                                    : LH_ERR_NOT_FOUND;
        sim_trace(s, "%s: %.*s", n->name, err ? 0 : (int)b.len, (const char *)b.data);
        lh_buf_free(&b);
        if (n->disk_bytes) lh_fake_disk_each(n->env, tell_file, n);
        for (uint32_t k = 0; n->worker && k < s->shards; k++) tell_outbox(n, k);
    }
}

// Returns whether the worker is done and the coordinator has heard it, as worker/node.c requires at
// a program's end. A worker that starts from a copy of an earlier end is done until the coordinator
// says that the run went on.
static bool is_at_its_end(const struct sim_node *n)
{
    return n->worker && wk_worker_state(n->worker) == WK_DONE && n->worker->told_done;
}

// Heals the path of the worker that is cut from a server for good, once the run has ended for all
// others without it. It is then judged like the rest: its unsent progress is in no log, and it
// learns that.
static void look_at_struck(struct sim *s)
{
    struct sim_node *n = s->struck;
    const struct ps_coordinator *c = sim_coordinator(s);
    if (!n || !n->cut_from || !c || c->plan.phase != LH_PHASE_END) return;
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
        if (&s->node[w] != n && !is_at_its_end(&s->node[w])) return;
    sim_trace(s, "%s reaches %s again: the run has ended", n->name, n->cut_from->name);
    n->cut_from = NULL;
}

static bool finished(struct sim *s)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        if (!n->transport && !sim_absent(n)) return false;
        if (n->worker && !is_at_its_end(n)) return false;
    }
    // a shard that was taken over is judged by its new owner
    for (uint32_t k = 0; sim_standbys(s) && k < s->shards; k++) {
        struct ps_server *owner = sim_owner(s, k)->server;
        if (owner->phase != PS_SERVING ||
            ps_server_shard(owner, k)->replica.ledger.plan.phase != LH_PHASE_END)
            return false;
    }
    const struct ps_coordinator *c = sim_coordinator(s);
    return c && c->plan.phase == LH_PHASE_END;
}

static void add_to(struct sim_tally *all, const struct sim_tally *one)
{
    all->events += one->events;
    all->admitted += one->admitted;
    all->refused += one->refused;
    all->clipped += one->clipped;
    all->outer_steps += one->outer_steps;
    all->disks += one->disks;
    all->damaged += one->damaged;
    all->rebuilt += one->rebuilt;
    all->taken_over += one->taken_over;
    all->moved += one->moved;
    all->equal += one->equal;
    all->compared += one->compared;
    all->full += one->full;
    all->struck += one->struck;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) all->happened[i] += one->happened[i];
    all->acknowledged += one->acknowledged;
    for (int i = 0; i < SIM_LOSSES; i++) all->exempt[i] += one->exempt[i];
    all->balanced += one->balanced;
    all->mass_losses += one->mass_losses;
    all->answers += one->answers;
    all->recalls += one->recalls;
    all->returns += one->returns;
    all->planned += one->planned;
    all->stolen += one->stolen;
    all->run_twice += one->run_twice;
    all->silences += one->silences;
    all->given_up += one->given_up;
    all->travelled += one->travelled;
    all->refused_units += one->refused_units;
    all->begun_back += one->begun_back;
    all->crossed += one->crossed;
    all->full_links += one->full_links;
    all->pairs += one->pairs;
    all->leaders += one->leaders;
    all->refused_changes += one->refused_changes;
    all->leaderless_steps += one->leaderless_steps;
    all->short_runs += one->short_runs;
    all->lied += one->lied;
    all->lies_admitted += one->lies_admitted;
    all->lies_credited += one->lies_credited;
    if (one->silence_ns > all->silence_ns) all->silence_ns = one->silence_ns;
}

bool sim_run(const struct sim_conf *conf, char why[512], struct sim_tally *tally)
{
    struct sim *s = calloc(1, sizeof *s);
    LH_ASSERT(s);
    create(s, conf);
    sim_faults_start(s);
    int64_t now = 0;
    while (!s->bad[0] && !(finished(s) && !s->faulty)) {
        now += 100 * LH_MS;
        lh_fake_run(s->world, now);
        sim_note_durable(s);
        sim_look_often(s);
        sim_look_at_pair(s);
        sim_look_at_budget(s);
        look_at_struck(s);
        if (conf->tight_disks) sim_tighten(s);
        if (now % (500 * LH_MS) == 0) sim_look(s);
        if (now > RUN_LIMIT || lh_fake_events(s->world) > EVENTS_MAX) {
            // report the cause, if it is a violation of its own
            for (uint32_t k = 0; k < s->shards; k++) sim_judge_acknowledged(s, k);
            sim_fail(s, "stuck: the run has not ended after %.0f s", (double)now / 1e9);
            break;
        }
    }
    for (int i = 0; i < SIM_NODES_MAX; i++) { // after a failed start it is dead
        const struct sim_node *n = &s->node[i];
        LH_ASSERT(!n->transport || n->coordinator || n->server || n->worker || s->pair);
    }
    if (!s->bad[0]) sim_judge(s);
    sim_links_count(s);
    const struct ps_coordinator *c = sim_coordinator(s);
    for (uint32_t k = 0; k < s->shards && c; k++) s->met.taken_over += c->shard[k].owner != 0;
    if (s->bad[0]) tell_all(s);
    memcpy(why, s->bad, sizeof s->bad);
    s->met.events = lh_fake_events(s->world);
    bool ok = !s->bad[0];
    teardown(s);
    if (tally) add_to(tally, &s->met);
    free(s);
    return ok;
}
