// summary.json: a run's results for programs (tests/contracts/summary.schema.json).
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/up/up_report.h"
#include "deploy/up/up_summary.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_watch.h"

static json_int_t integer(uint64_t n)
{
    return (json_int_t)n;
}

static json_t *model_json(const struct dp_up *up)
{
    struct lh_buf shape = lh_buf(4096);
    json_t *o = !up->shaped || wk_shape_write(&up->shape, &shape)
                    ? NULL
                    : json_loadb((const char *)shape.data, shape.len, 0, NULL);
    lh_buf_free(&shape);
    return json_pack("{s:I, s:o}", "parameters", integer(up->manifest.values), "shape",
                     o ? o : json_object());
}

static json_t *heldout_json(const struct dp_up *up)
{
    json_t *o = json_object();
    for (uint32_t i = 0; !up->unjudged && i < up->units.heldout_count; i++) {
        const struct dp_heldout *h = &up->heldout[i];
        json_object_set_new(o, h->after.language,
                            json_pack("{s:f, s:f, s:f, s:I}", "before", h->before.nats, "after",
                                      h->after.nats, "bigram", h->after.bigram, "bytes",
                                      integer(h->after.bytes)));
    }
    return o;
}

static json_t *regions_json(const struct dp_up *up, const struct dp_wan_bytes *link, unsigned links)
{
    json_t *o = json_object();
    for (unsigned r = 0; r < up->t->regions; r++) {
        struct dp_counts c = dp_watch_region(up, r);
        const char *name = up->t->region[r].name;
        json_t *region =
            json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "tokens",
                      integer(c.tokens), "steps", integer(c.steps), "rounds", integer(c.rounds),
                      "tokens_per_s", up->trained_s > 0 ? (double)c.tokens / up->trained_s : 0,
                      "payload_up_bytes", integer(c.payload_up), "payload_down_bytes",
                      integer(c.payload_down), "wire_up_bytes", integer(c.wire_up),
                      "wire_down_bytes", integer(c.wire_down), "accepted", integer(c.accepted),
                      "damped", integer(c.damped), "returned", integer(c.returned), "lost_units",
                      integer(c.lost_units), "stall_s", c.stall_s);
        for (unsigned i = 0; i < links; i++)
            if (!strcmp(link[i].region, name)) {
                json_object_set_new(region, "link_up_bytes", json_integer(integer(link[i].up)));
                json_object_set_new(region, "link_down_bytes", json_integer(integer(link[i].down)));
            }
        json_object_set_new(o, name, region);
    }
    return o;
}

static json_t *shards_json(const struct dp_up *up)
{
    json_t *list = json_array();
    for (uint32_t shard = 0; shard < up->t->shards; shard++) {
        const struct dp_node *server = NULL;
        const struct dp_holding *h = dp_watch_shard(up, shard, &server);
        if (!h) continue;
        json_array_append_new(list,
                              json_pack("{s:I, s:s, s:I, s:I, s:s, s:I, s:I, s:I}", "shard",
                                        integer(shard), "server", server->name, "version",
                                        integer(h->version), "epoch", integer(h->epoch), "digest",
                                        h->digest, "parameters", integer(h->parameters), "admitted",
                                        integer(h->admitted), "refused", integer(h->refused)));
    }
    return list;
}

static json_t *staleness_json(const struct dp_up *up)
{
    double p50 = 0, p99 = 0, max = 0, bound = 0;
    for (uint32_t shard = 0; shard < up->t->shards; shard++) {
        const struct dp_holding *h = dp_watch_shard(up, shard, NULL);
        if (!h) continue;
        p50 = fmax(p50, h->staleness_p50);
        p99 = fmax(p99, h->staleness_p99);
        max = fmax(max, h->staleness_max);
        bound = fmax(bound, h->staleness_bound);
    }
    return json_pack("{s:f, s:f, s:f, s:f}", "p50", p50, "p99", p99, "max", max, "bound", bound);
}

static json_t *faults_json(const struct dp_up *up)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < up->faults; i++) {
        const struct dp_fault *f = &up->fault[i];
        json_array_append_new(
            list,
            json_pack("{s:f, s:s, s:s, s:o}", "t_s", f->t_s, "what", f->what, "target", f->target,
                      "recovered_s", f->recovered_s < 0 ? json_null() : json_real(f->recovered_s)));
    }
    return list;
}

static json_t *commands_json(const struct dp_up *up)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        char how[64];
        if (node->kind != DP_TRAINER) continue;
        dp_trainer_ending(node, how, sizeof how);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:s}", "name", node->name, "ended", how,
                                        "restarts", integer(node->proc ? node->proc->restarts : 0),
                                        "log", node->proc ? node->proc->log : ""));
    }
    return list;
}

static json_t *left_out_json(const struct dp_up *up)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_WORKER && dp_watch_left(up, &up->node[i]))
            json_array_append_new(list, json_string(up->node[i].name));
    return list;
}

struct dp_learning dp_learning_of(const struct dp_up *up)
{
    struct dp_learning l = {0};
    uint64_t rounds = 0, bytes = 0, plain = 0;
    for (unsigned r = 0; r < up->t->regions; r++) {
        struct dp_counts c = dp_watch_region(up, r);
        rounds += c.rounds;
        bytes += c.payload_up;
        plain += c.plain_up;
    }
    l.rounds = up->t->workers ? (double)rounds / up->t->workers : 0;
    l.density_rounds = up->plan.density * l.rounds;
    l.gap = dp_plan_gap(up->t, &up->plan, l.rounds);
    double values = (double)rounds * (double)up->manifest.values;
    if (rounds) l.frame_bits = (double)bytes * 8 / values;
    if (rounds) l.payload_bits = (double)plain * 8 / values;
    return l;
}

lh_err dp_summary_write(const struct dp_up *up, const struct dp_verdict *v, const char *checkpoint,
                        const char *path)
{
    struct dp_wan_bytes link[DP_WAN_REGIONS_MAX];
    struct dp_learning l = dp_learning_of(up);
    unsigned links = 0;
    if (up->emulated && dp_wan_stats(&up->wan, link, &links)) links = 0; // extra figures only
    json_t *o = json_pack(
        "{s:s, s:b, s:s, s:f, s:f, s:o, s:o, s:o, s:o, s:{s:s, s:f, s:f}, s:o, s:{s:f, s:f, s:o, "
        "s:o}, "
        "s:{s:b, s:I}, s:{s:I, s:I, s:b, s:I, s:I}, s:o, s:b, s:s}",
        "schema", "longhaul.summary/1", "ok", dp_verdict_ok(v), "run", up->t->run->run, "elapsed_s",
        dp_up_seconds(up), "trained_s", up->trained_s, "model", model_json(up), "heldout",
        heldout_json(up), "regions", regions_json(up, link, links), "shards", shards_json(up),
        "payload", "codec", wk_codec_name(up->t->worker_base), "density", up->plan.density,
        "bits_per_parameter_round", l.frame_bits, "staleness", staleness_json(up), "learning",
        "rounds", l.rounds, "density_rounds", l.density_rounds, "expected_gap_nat",
        l.gap ? json_real(l.gap->mean_nat) : json_null(), "expected_gap_percent",
        l.gap ? json_pack("[f, f]", l.gap->low_percent, l.gap->high_percent) : json_null(),
        "replicas", "equal", v->replicas_equal, "compared", integer(v->compared), "data", "units",
        integer(up->units.count), "credited", integer(dp_up_leader(up)->status.credited),
        "credited_once", v->credited_once, "epoch", integer(dp_up_leader(up)->status.data_epoch),
        "epochs", integer((uint64_t)up->t->run->epochs), "faults", faults_json(up),
        "emulated_links", up->emulated, "checkpoint", checkpoint);
    if (l.payload_bits >= 0)
        json_object_set_new(json_object_get(o, "payload"), "payload_bits_per_parameter_round",
                            json_real(l.payload_bits));
    if (up->t->trainers) json_object_set_new(o, "commands", commands_json(up));
    json_object_set_new(o, "left_out", left_out_json(up));
    if (up->unjudged) json_object_set_new(o, "unjudged", json_string(up->unjudged));
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the summary");
    lh_err err = dp_file_write(path, lh_span_str(text), 0640);
    free(text);
    return err;
}
