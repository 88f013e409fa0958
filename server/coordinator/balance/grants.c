// Grants: numbers and tags that prove a lease to the shards' servers
// (server/docs/0004-authority.md#grants).
//
// Store: grant/key = 32 random bytes, drawn once per run. A unit's grant number is in its lease's
// row. Invariants: 1. Two grants of a unit have different numbers. 2. A worker's allowance never
// falls, because the tokens of its leases are a sum over the run. It is twice that sum (retraining
// after a crash) plus one push's bound.
#include "server/coordinator/balance/grants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/commit.h"

static const char KEY[] = "grant/key";

lh_err ps_co_load_grants(struct ps_coordinator *c)
{
    struct lh_span row;
    if (ps_store_get(c->store, KEY, &row)) {
        if (row.len != LH_GRANT_KEY_BYTES) return ps_co_bad_row(c, KEY, "is of the wrong length");
        memcpy(c->grant_key.b, row.data, LH_GRANT_KEY_BYTES);
        return LH_OK;
    }
    static const struct lh_grant_key none;
    bool drawn = memcmp(c->grant_key.b, none.b, LH_GRANT_KEY_BYTES) != 0;
    if (!drawn) lh_random(c->conf.env, c->grant_key.b, LH_GRANT_KEY_BYTES);
    return LH_OK;
}

lh_err ps_co_grants_keep(struct ps_coordinator *c)
{
    struct lh_span row;
    if (ps_store_get(c->store, KEY, &row)) return LH_OK;
    return ps_co_put(c, KEY, lh_span(c->grant_key.b, LH_GRANT_KEY_BYTES));
}

struct lh_grant_key ps_co_shard_key(const struct ps_coordinator *c, uint32_t shard)
{
    return lh_grant_shard_key(&c->grant_key, c->conf.job, shard);
}

lh_err ps_co_grants_tell(const struct ps_coordinator *c, uint32_t worker,
                         const struct lh_lease_request *m, const uint64_t *unit, size_t units,
                         struct lh_buf *out)
{
    uint64_t *holds = malloc((m->n_holding + 1) * sizeof *holds);
    if (!holds) return lh_fail(LH_ERR_BUSY, "no memory for grants now");
    if (m->n_holding) memcpy(holds, m->holding, m->n_holding * sizeof *holds);
    ps_co_sort(holds, m->n_holding);
    for (size_t i = 0; i < units; i++) {
        uint32_t number = ps_co_lease_number(c, unit[i], worker);
        if (!number || ps_co_sorted_has(holds, m->n_holding, unit[i])) continue;
        struct lh_grant_key key =
            ps_co_shard_key(c, (uint32_t)(unit[i] % c->conf.manifest->shards));
        struct lh_grant grant =
            lh_grant_make(&key, c->conf.job, unit[i], c->worker[worker].id, number);
        lh_claim_write(unit[i], &grant, out);
    }
    free(holds);
    return lh_buf_err(out);
}

float ps_co_allowance(const struct ps_coordinator *c, const struct ps_co_worker *w, uint64_t *tag)
{
    // A store restored from an older copy lacks some leases, but the logs have their pushes.
    double admitted = (double)ps_co_admitted_tokens(c, w), leased = 2 * (double)w->lease_tokens;
    double all = fmax(leased, admitted) + (double)lh_plan_tokens_max(&c->plan);
    float allowance = nextafterf((float)all, INFINITY);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        struct lh_grant_key key = ps_co_shard_key(c, i);
        tag[i] = lh_allowance_tag(&key, c->conf.job, w->id, allowance);
    }
    return allowance;
}
