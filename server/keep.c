// Keep: checkpoints of the fold state, and the log cut below the older one (DESIGN 8).
//
// The state is copied on the loop and written on the compute lane, so groups go on meanwhile.
#include <stdlib.h>

#include "server/server.h"

struct ps_keep {
    struct ps_shard *shard;
    struct lk_checkpoint checkpoint;
    lh_err result;
};

static int64_t write_job(void *arg)
{
    struct ps_keep *k = arg;
    k->result = lk_checkpoint_write(&k->checkpoint);
    return 0;
}

// Removes what only versions below every shard's older checkpoint need.
static lh_err trim(struct ps_server *s)
{
    uint64_t needed = UINT64_MAX;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
        uint64_t oldest;
        LH_TRY(lk_checkpoint_prune(&conf, shard->id, s->conf.checkpoint_keep, &oldest));
        const struct ps_place *place = ps_shard_place(shard, oldest + 1);
        uint64_t segment = place ? place->segment : oldest ? UINT64_MAX : 0;
        if (segment < needed) needed = segment;
    }
    if (needed > ps_wal_segment(s->wal)) needed = ps_wal_segment(s->wal);
    LH_TRY(ps_wal_trim(s->wal, needed));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_shard_forget_before(s->shard[i], needed);
    return LH_OK;
}

static void write_done(void *arg)
{
    struct ps_keep *k = arg;
    struct ps_shard *shard = k->shard;
    struct ps_server *s = shard->server;
    shard->keep = NULL;
    lh_err err = k->result;
    if (!err && !s->stopped) {
        lh_logf(s->conf.log, LH_INFO, "checkpoint.written", "shard %u version %llu", shard->id,
                (unsigned long long)k->checkpoint.version);
        err = trim(s);
    }
    if (err == LH_ERR_DISK_FULL)
        lh_logf(s->conf.log, LH_ERROR, "checkpoint.disk_full",
                "shard %u: no room in %s; the log "
                "can't be cut until there is",
                shard->id, s->conf.dir);
    else if (err && !s->stopped)
        ps_fatal(s, err);
    ps_keep_free(k);
}

void ps_keep_free(struct ps_keep *k)
{
    if (!k) return;
    lk_checkpoint_free(&k->checkpoint);
    free(k);
}

bool ps_keep_due(const struct ps_shard *shard)
{
    const struct ps_conf *conf = &shard->server->conf;
    const struct lh_ledger *l = &shard->replica.ledger;
    if (l->version <= shard->checkpointed) return false;
    if (l->plan.phase == LH_PHASE_END) return true;
    if (conf->replay_ns && shard->replay_ns >= conf->replay_ns) return true;
    return conf->checkpoint_every && l->version >= shard->checkpointed + conf->checkpoint_every;
}

void ps_keep(struct ps_shard *shard)
{
    struct ps_server *s = shard->server;
    if (shard->keep || s->stopped || !ps_keep_due(shard)) return;
    struct ps_keep *k = calloc(1, sizeof *k);
    if (!k) return;
    k->shard = shard;
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    if (lk_checkpoint_take(&conf, &shard->replica, &k->checkpoint)) {
        free(k);
        return;
    }
    shard->checkpointed = shard->replica.ledger.version;
    shard->replay_ns = 0;
    shard->keep = k;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COMPUTE, write_job, write_done, k);
}
