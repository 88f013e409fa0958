// Grants: compares a push's claims, steps and tokens with the coordinator's grants
// (server/docs/0004-authority.md#grants, server/docs/0000-protocol.md#rule-19, #rule-25).
//
// The shard's key comes with the answer to a report and is stored in DIR/grant-<shard 4 hex>
// (common/env/numbers.h), readable by its owner only. So grants can be checked while the
// coordinator is down. The check is no part of the fold: the log has its outcome.
#include "server/push/grants.h"

#include <string.h>

#include "common/env/numbers.h"
#include "common/net/wire_member.h"
#include "server/core.h"

enum { NUMBERS = LH_GRANT_KEY_BYTES / 8 };
LH_STATIC_ASSERT((int)NUMBERS <= (int)LH_NUMBERS_MAX, "a key fits a file of numbers");

static const struct lh_numbers KEY = {.magic = 0x4b47484c, // "LHGK"
                                      .version = 1,
                                      .count = NUMBERS,
                                      .remedy = "remove it: the coordinator sends the key again",
                                      .secret = true};

static lh_err key_path(const struct ps_shard *s, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, s->server->conf.dir, "grant-%04x", s->id);
}

lh_err ps_grants_load(struct ps_shard *s)
{
    char path[LH_PATH_BYTES];
    uint64_t number[NUMBERS];
    LH_TRY(key_path(s, path));
    lh_err err = lh_numbers_load(s->server->conf.env, &KEY, path, number);
    if (err == LH_ERR_CORRUPT)
        lh_logf(s->server->conf.log, LH_WARN, "grant.damaged", "%s", lh_err_text(err));
    if (err == LH_ERR_NOT_FOUND || err == LH_ERR_CORRUPT) return LH_OK;
    if (err) return err;
    struct lh_buf b = lh_buf_over(s->grants.key.b, LH_GRANT_KEY_BYTES);
    for (int i = 0; i < NUMBERS; i++) lh_put_u64(&b, number[i]);
    s->grants.keyed = s->grants.stored = true;
    return LH_OK;
}

// A key is used even if the disk is full; a later answer stores it.
static lh_err store(struct ps_shard *s)
{
    char path[LH_PATH_BYTES];
    uint64_t number[NUMBERS];
    struct lh_cursor c = lh_cursor(lh_span(s->grants.key.b, LH_GRANT_KEY_BYTES));
    for (int i = 0; i < NUMBERS; i++) number[i] = lh_get_u64(&c);
    LH_TRY(key_path(s, path));
    lh_err err = lh_numbers_store(s->server->conf.env, &KEY, path, number);
    s->grants.stored = !err;
    return err == LH_ERR_DISK_FULL ? LH_OK : err;
}

void ps_grants_told(struct ps_server *s, const struct lh_report_reply *m)
{
    for (size_t i = 0; i < m->n_keys; i++) {
        const struct lh_shard_key *k = &m->keys[i];
        struct ps_shard *shard = ps_server_shard(s, k->shard);
        if (!shard) continue;
        struct ps_grants *g = &shard->grants;
        bool same = g->keyed && !memcmp(g->key.b, k->key, LH_GRANT_KEY_BYTES);
        if (same && g->stored) continue;
        memcpy(g->key.b, k->key, LH_GRANT_KEY_BYTES);
        g->keyed = true;
        lh_err err = store(shard);
        if (err) {
            ps_fatal(s, err);
            return;
        }
    }
}

// ---------------------------------------------------------------- a frame

bool ps_grants_wait(const struct ps_grants *g, const struct lh_frame *f)
{
    return !g->keyed && (f->claims || f->allowance > 0);
}

static bool is_repeated(const struct lh_frame *f, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (f->claim[k] == f->claim[i]) return true;
    return false;
}

static lh_err check_claims(const struct ps_grants *g, const struct lh_ledger *l,
                           const struct lh_frame *f)
{
    if (f->claims && lh_plan_data(&l->plan, f->worker) != LH_DATA_LEASED)
        return lh_fail(LH_ERR_GRANT, "it claims units, but its worker trains its own data");
    for (uint32_t i = 0; i < f->claims; i++) {
        unsigned long long unit = f->claim[i];
        if (f->claim[i] % l->shards != l->shard)
            return lh_fail(LH_ERR_GRANT, "it claims unit %llu, which belongs to another shard",
                           unit);
        if (is_repeated(f, i)) return lh_fail(LH_ERR_GRANT, "it claims unit %llu twice", unit);
        if (!LH_BUG("claim_any") &&
            !lh_grant_valid(&g->key, f->job, f->claim[i], f->worker, &f->grant[i]))
            return lh_fail(LH_ERR_GRANT, "it claims unit %llu, which was not granted to it", unit);
    }
    return LH_OK;
}

// The most tokens that the worker's pushes to this shard may count. Every worker may push once
// without an allowance.
static double allowed(const struct ps_grants *g, const struct lh_ledger *l,
                      const struct lh_frame *f)
{
    double floor = (double)lh_plan_tokens_max(&l->plan);
    bool told = f->allowance > 0 &&
                lh_allowance_tag(&g->key, f->job, f->worker, f->allowance) == f->allowance_tag;
    return told && (double)f->allowance > floor ? (double)f->allowance : floor;
}

static lh_err check_bounds(const struct ps_grants *g, const struct lh_ledger *l,
                           const struct lh_frame *f)
{
    const struct lh_plan *plan = &l->plan;
    if (!plan->steps_max) return LH_OK;
    if (f->steps > plan->steps_max)
        return lh_fail(LH_ERR_BOUND, "it claims %u steps; a push may have at most %u", f->steps,
                       plan->steps_max);
    uint64_t most = lh_plan_tokens_max(plan);
    if (f->tokens > most)
        return lh_fail(LH_ERR_BOUND, "it claims %llu tokens; a push may have at most %llu",
                       (unsigned long long)f->tokens, (unsigned long long)most);
    if (lh_plan_data(plan, f->worker) != LH_DATA_LEASED || !f->tokens) return LH_OK;
    const struct lh_row *row = lh_ledger_row(l, f->worker);
    double all = (double)(row ? row->tokens : 0) + (double)f->tokens, may = allowed(g, l, f);
    if (all > may)
        return lh_fail(LH_ERR_BOUND,
                       "with it the worker's pushes claim %.0f tokens; the worker's leases "
                       "allow %.0f",
                       all, may);
    return LH_OK;
}

lh_err ps_grants_check(const struct ps_grants *g, const struct lh_ledger *l,
                       const struct lh_frame *f)
{
    LH_TRY(check_claims(g, l, f));
    return check_bounds(g, l, f);
}
