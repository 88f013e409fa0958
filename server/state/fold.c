// Fold: applies a record, or a whole state, to a shard's durable state. See fold.h.
//
// Current readers of the old state (snapshot.c) get a copy before it changes.
#include "server/state/fold.h"

#include "server/core.h"
#include "server/push/snapshot.h"
#include "server/state/digest.h"

// Unseals an ADMIT again if its payload is not in memory.
static LH_MUST lh_err admit(struct ps_shard *s, const struct lh_record *r, struct lh_span plain)
{
    struct lk_payload_info info;
    bool opened;
    if (!plain.data) LH_TRY(lk_replica_unseal(&s->replica, r->body, &plain, &opened, &info));
    return lk_replica_apply_plain(&s->replica, r, plain);
}

lh_err ps_fold_record(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                      struct ps_place place)
{
    const struct ps_conf *conf = &s->server->conf;
    int64_t start = lh_now(conf->env);
    ps_snapshot_keep(s, r);
    ps_took(s->server, PS_LOOP_SNAPSHOT, start);
    int64_t fold = lh_now(conf->env);
    if (r->kind == LH_ADMIT)
        LH_TRY(admit(s, r, plain));
    else
        LH_TRY(r->kind == LH_DIGEST_RECORD ? ps_digest_fold(s, r)
                                           : lk_replica_apply(&s->replica, r));
    ps_took(s->server, PS_LOOP_FOLD, fold);
    ps_pace_folded(s, r);
    if (conf->folded) conf->folded(conf->folded_arg, s->id, r);
    if (r->kind == LH_DIGEST_RECORD) s->digested = r->version;
    s->replay_ns += lh_now(conf->env) - start;
    ps_chains_add(&s->chains, r->version, &s->replica.ledger.chain);
    ps_vouch_folded(s);
    return ps_shard_indexed(s, r->version, place);
}

lh_err ps_fold_anew(struct ps_shard *s)
{
    const struct ps_conf *conf = &s->server->conf;
    struct lk_replica first;
    lh_err err = lk_replica_create(&first, conf->job, conf->manifest, s->id, conf->keys);
    if (!err)
        err = conf->initial(conf->initial_arg, first.layout->first, first.layout->values,
                            first.theta);
    if (err) {
        lk_replica_free(&first);
        return err;
    }
    ps_snapshot_part(s, true);
    lk_replica_free(&s->replica);
    s->replica = first;
    s->size.known = false;
    ps_pace_anew(s);
    s->chains.last = 0;
    return LH_OK;
}

lh_err ps_fold_load(struct ps_shard *s, struct lh_span state)
{
    ps_snapshot_part(s, false);
    ps_pace_anew(s);
    s->chains.last = 0;
    s->size.known = false;
    return lk_replica_load(&s->replica, state);
}
