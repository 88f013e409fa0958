// A fold state in transfer. See incoming.h.
#include "kernels/state/incoming.h"

#include <stdlib.h>
#include <string.h>

static size_t theta_bytes(const struct lk_replica *r)
{
    return r->layout->values * sizeof *r->theta;
}

lh_err lk_incoming_begin(struct lk_incoming *n, const struct lk_replica *r, uint64_t total)
{
    size_t most = lk_replica_bytes_max(r->layout);
    if (total > most)
        return lh_fail(LH_ERR_TOO_LARGE, "a fold state of %llu bytes", (unsigned long long)total);
    n->rest = lh_buf(most - theta_bytes(r));
    n->total = total;
    return LH_OK;
}

// The parameters' place is known: allocates memory for the bytes behind them.
static lh_err make_places(struct lk_incoming *n, const struct lk_replica *r, size_t before)
{
    size_t theta = theta_bytes(r);
    if (n->total - before < theta) return lh_fail(LH_ERR_MALFORMED, "fold state cut short");
    n->before = n->rest.len = before;
    size_t behind = (size_t)n->total - before - theta;
    if (behind && !lh_buf_grow(&n->rest, behind)) return lh_buf_err(&n->rest);
    n->theta = n->reserved ? n->reserved : lh_zeros(r->layout->values, sizeof *n->theta);
    n->reserved = NULL;
    return n->theta ? LH_OK : LH_ERR_NO_MEMORY;
}

// The parameters follow the ledger and their count. Both are short, so the ledger is parsed again
// with every piece until it is complete.
static lh_err find_theta(struct lk_incoming *n, const struct lk_replica *r)
{
    struct lh_ledger ledger = {.shard = r->ledger.shard, .shards = r->ledger.shards};
    struct lh_cursor c = lh_cursor(lh_buf_span(&n->rest));
    lh_err err = lh_ledger_read(&ledger, &c);
    uint64_t values = lh_get_u64(&c);
    if (err || c.failed) {
        lh_ledger_free(&ledger);
        return err == LH_ERR_NO_MEMORY ? err : LH_OK;
    }
    if (values == r->layout->values)
        err = make_places(n, r, n->rest.len - lh_left(&c));
    else
        err = lh_fail(LH_ERR_MALFORMED, "fold state of %llu values for a shard of %llu",
                      (unsigned long long)values, (unsigned long long)r->layout->values);
    if (err)
        lh_ledger_free(&ledger);
    else
        n->ledger = ledger;
    return err;
}

// Stores the bytes before the parameters, and possibly some parameters: *used bytes.
static lh_err put_first(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                        struct lh_span bytes, size_t *used)
{
    size_t begun = n->rest.len, left = n->rest.max - begun;
    size_t k = bytes.len < left ? bytes.len : left;
    if (at != begun) return lh_fail(LH_ERR_MALFORMED, "a fold state that does not begin at 0");
    lh_put(&n->rest, bytes.data, k);
    LH_TRY(lh_buf_err(&n->rest));
    LH_TRY(find_theta(n, r));
    if (!n->theta && k < bytes.len)
        return lh_fail(LH_ERR_MALFORMED, "not a fold state that this build can read");
    *used = n->theta ? n->before - begun : k; // the rest are parameters
    return LH_OK;
}

lh_err lk_incoming_put(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                       struct lh_span bytes)
{
    size_t total = theta_bytes(r), used = 0;
    if (at > n->total || bytes.len > n->total - at)
        return lh_fail(LH_ERR_MALFORMED, "a fold state longer than announced");
    if (!n->theta) LH_TRY(put_first(n, r, at, bytes, &used));
    n->have += bytes.len;
    bytes = lh_span(bytes.data + used, bytes.len - used);
    if (!bytes.len) return LH_OK;
    size_t where = (size_t)(at + used) - n->before; // offset within the parameters
    if (where < total) {
        size_t k = bytes.len < total - where ? bytes.len : total - where;
        memcpy((uint8_t *)n->theta + where, bytes.data, k);
        where += k;
        bytes = lh_span(bytes.data + k, bytes.len - k);
    }
    if (bytes.len) memcpy(n->rest.data + n->before + (where - total), bytes.data, bytes.len);
    return LH_OK;
}

uint8_t *lk_incoming_place(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                           size_t bytes)
{
    size_t total = theta_bytes(r);
    bool inside = n->theta && at >= n->before && at - n->before <= total &&
                  bytes <= total - (size_t)(at - n->before);
    return inside ? (uint8_t *)n->theta + (at - n->before) : NULL;
}

void lk_incoming_placed(struct lk_incoming *n, size_t bytes)
{
    n->have += bytes;
}

lh_err lk_incoming_take(struct lk_incoming *n, struct lk_replica *r)
{
    if (!n->theta || n->have < n->total) return lh_fail(LH_ERR_MALFORMED, "fold state cut short");
    LH_TRY(lk_replica_load_head(r, lh_buf_span(&n->rest)));
    free(r->theta);
    r->theta = n->theta;
    n->theta = NULL;
    return LH_OK;
}

void lk_incoming_free(struct lk_incoming *n)
{
    lh_ledger_free(&n->ledger);
    lh_buf_free(&n->rest);
    free(n->theta);
    free(n->reserved);
    *n = (struct lk_incoming){0};
}
