// Point. See point.h.
#include "server/point.h"

#include "server/shard.h"

enum ps_stand ps_point_stand(const struct lh_point *p, const struct ps_log_answer *log)
{
    if (p->epoch != log->epoch) return p->epoch < log->epoch ? PS_POINT_EARLIER : PS_POINT_LATER;
    if (p->version > log->version) return PS_POINT_AHEAD;
    if (!lh_point_named(&p->chain)) return PS_POINT_OURS;
    if (!log->chain) return PS_POINT_CUT;
    return lh_hash_equal(&p->chain, log->chain) ? PS_POINT_OURS : PS_POINT_OTHER;
}

void ps_chains_add(struct ps_chains *c, uint64_t version, const struct lh_hash *chain)
{
    if (!c->last || version != c->last + 1) c->first = version;
    c->last = version;
    if (c->last - c->first >= PS_CHAINS) c->first = c->last - PS_CHAINS + 1;
    c->at[version % PS_CHAINS] = *chain;
}

const struct lh_hash *ps_chains_at(const struct ps_chains *c, uint64_t version)
{
    if (!c->last || version < c->first || version > c->last) return NULL;
    return &c->at[version % PS_CHAINS];
}

lh_err ps_shard_stand(const struct ps_shard *s, const struct lh_point *p, enum ps_stand *out)
{
    const struct lh_ledger *l = &s->replica.ledger;
    struct ps_log_answer log = {l->epoch, l->version, NULL};
    struct lh_hash chain;
    if (p->epoch == l->epoch && p->version <= l->version) {
        lh_err err = ps_shard_chain(s, p->version, &chain);
        if (err && err != LH_ERR_NOT_FOUND) return err;
        if (!err) log.chain = &chain;
    }
    *out = ps_point_stand(p, &log);
    return LH_OK;
}

lh_err ps_shard_goes_on(const struct ps_shard *s, const struct lh_point *from)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (from->version > l->version)
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu is ahead of this log; take a snapshot",
                       (unsigned long long)from->version);
    if (from->version < l->version && !ps_shard_place(s, from->version + 1))
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu was trimmed away; take a snapshot",
                       (unsigned long long)from->version);
    struct lh_hash chain = l->chain; // version 0: the first record checks the genesis chain
    lh_err err = from->version ? ps_shard_chain(s, from->version, &chain) : LH_OK;
    if (err == LH_ERR_NOT_FOUND) return LH_OK; // its successor is in the log and carries its chain
    LH_TRY(err);
    if (from->version && !lh_hash_equal(&from->chain, &chain) && !LH_BUG("no_chain"))
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu belongs to another history; take a snapshot",
                       (unsigned long long)from->version);
    return LH_OK;
}
