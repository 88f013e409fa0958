// Status: the state of a server as JSON (status.json, `longhaul get`, LH_RPC_SHARD_STATUS).
#include "common/format/json.h"
#include "server/core.h"
#include "server/push/insync.h"
#include "server/recovery/owner_stream.h"
#include "server/recovery/rebuild.h"
#include "server/state/digest.h"

static uint64_t quantile(const struct ps_shard *s, double q)
{
    uint64_t all = 0, sum = 0;
    for (size_t i = 0; i < LH_COUNT(s->staleness_seen); i++) all += s->staleness_seen[i];
    for (size_t i = 0; i < LH_COUNT(s->staleness_seen); i++) {
        sum += s->staleness_seen[i];
        if (all && (double)sum >= q * (double)all) return i;
    }
    return 0;
}

// Computing a digest reads the whole replica, so only the run's last version has one here. Before
// that, followers check the DIGEST records of the log.
static void final_digest(struct ps_shard *s, char hex[2 * LH_HASH_BYTES + 1])
{
    const struct lh_ledger *l = &s->replica.ledger;
    hex[0] = 0;
    if (l->plan.phase != LH_PHASE_END) return;
    if (s->server->ending || ps_digest_ready(s, false)) {
        struct lh_hash digest = ps_digest_now(s);
        lh_hash_hex(&digest, hex);
    }
}

static json_t *optimizer_status(const struct lk_outer *o)
{
    json_t *out = json_pack("{s:s}", "name", lk_outer_name(o->kind));
    if (!out || o->kind == LH_OPT_SGD) return out;
    json_object_update_new(out, json_pack("{s:I s:I s:f s:f}", "steps", (json_int_t)o->steps,
                                          "pending", (json_int_t)o->pending, "rho", o->rho,
                                          "momentum", (double)o->momentum));
    return out;
}

// Gives a histogram with bins of one version. Its sum counts the last bin at its lower end.
static json_t *staleness_status(const struct ps_shard *s)
{
    struct lh_histogram h = {0};
    for (size_t i = 0; i < LH_COUNT(s->staleness_seen); i++)
        lh_histogram_add_many(&h, &lh_scale_versions, (double)i, s->staleness_seen[i]);
    return lh_histogram_status(&h, &lh_scale_versions);
}

static json_t *shard_status(struct ps_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    char digest[2 * LH_HASH_BYTES + 1], chain[2 * LH_HASH_BYTES + 1];
    lh_hash_hex(&l->chain, chain);
    final_digest(s, digest);
    uint32_t live = l->plan.live ? l->plan.live : 1;
    json_t *out = json_pack(
        "{s:i s:I s:I s:s s:s s:I s:I s:I s:I s:I s:s s:i s:i s:o s:{s:I s:I s:I s:I}}", "shard",
        (int)s->id, "version", (json_int_t)l->version, "epoch", (json_int_t)l->epoch, "digest",
        digest, "chain", chain, "parameters", (json_int_t)s->replica.layout->values, "admitted",
        (json_int_t)l->admitted, "refused", (json_int_t)l->refused, "tokens", (json_int_t)l->tokens,
        "credited", (json_int_t)l->credited, "phase", lh_phase_name(l->plan.phase), "followers",
        (int)s->follower_count, "live", (int)live, "optimizer", optimizer_status(&s->replica.outer),
        "staleness", "p50", (json_int_t)quantile(s, 0.5), "p99", (json_int_t)quantile(s, 0.99),
        "max", (json_int_t)quantile(s, 1), "bound",
        (json_int_t)((uint64_t)l->plan.staleness_per_live * live));
    if (out) json_object_set_new(out, "staleness_versions", staleness_status(s));
    if (out && s->server->conf.replicated) json_object_set_new(out, "in_sync", ps_insync_status(s));
    if (out && s->server->phase == PS_STANDBY)
        json_object_set_new(out, "standby", ps_owner_stream_status(s));
    if (out && s->rebuild) json_object_set_new(out, "rebuilding", ps_rebuild_status(s->rebuild));
    if (out && s->lost.from) // the last rebuild lost versions; lost.to 0: no later version is known
        json_object_set_new(out, "rebuilt",
                            json_pack("{s:I s:I}", "from", (json_int_t)s->lost.from - 1, "lost_to",
                                      (json_int_t)s->lost.to));
    return out;
}

static json_t *span_status(const struct ps_server *s)
{
    static const char *const name[] = {"decide", "fold", "sync", "checkpoint"};
    _Static_assert(LH_COUNT(name) == PS_SPAN_COUNT, "each has its name");
    json_t *out = json_object();
    for (int i = 0; i < PS_SPAN_COUNT; i++)
        json_object_set_new(out, name[i], lh_histogram_status(&s->span[i], &lh_scale_seconds));
    return out;
}

static json_t *longest_status(const struct ps_server *s)
{
    static const char *const name[] = {"decide_ms", "fold_ms", "checkpoint_ms", "snapshot_ms",
                                       "digest_ms"};
    _Static_assert(LH_COUNT(name) == PS_LOOP_COUNT, "each has its name");
    json_t *out = json_object();
    for (int i = 0; i < PS_LOOP_COUNT; i++)
        json_object_set_new(out, name[i], json_real((double)s->longest_ns[i] / 1e6));
    return out;
}

bool ps_server_over(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        bool ended = shard->replica.ledger.plan.phase == LH_PHASE_END;
        if (!ended || !ps_digest_ready(shard, false)) return false;
    }
    return s->conf.shard_count > 0;
}

lh_err ps_server_status(struct ps_server *s, struct lh_buf *out)
{
    json_t *shards = json_array();
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        json_array_append_new(shards, shard_status(s->shard[i]));
    json_t *root = json_pack(
        "{s:s s:s s:s s:s s:o s:o s:{s:I s:I s:I s:I s:I s:I s:I} s:b s:f s:b s:o}", "role",
        "server", "name", s->conf.self.name, "region", s->conf.self.region, "address", s->address,
        "shards", shards, "loop_longest", longest_status(s), "counters", "admitted",
        (json_int_t)s->count.admitted, "refused", (json_int_t)s->count.refused, "repeated",
        (json_int_t)s->count.repeated, "not_final", (json_int_t)s->count.not_final, "bytes_in",
        (json_int_t)s->count.bytes_in, "bytes_out", (json_int_t)s->count.bytes_out, "groups",
        (json_int_t)s->count.groups, "disk_full", s->disk_full.now, "commit_age_s",
        lh_slow_age_s(&s->slow, lh_now(s->conf.env)), "ready",
        s->phase == PS_SERVING || s->phase == PS_STANDBY, "seconds", span_status(s));
    if (root && s->conf.tell) s->conf.tell(s->conf.tell_arg, root);
    json_object_set_new(root, "gives", ps_give_status(s)); // NULL: left out
    return lh_json_give(root, out);
}
