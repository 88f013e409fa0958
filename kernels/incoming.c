// A fold state that arrives. See incoming.h.
#include "kernels/incoming.h"

#include <stdlib.h>
#include <string.h>

static size_t theta_bytes(const struct lk_replica *r)
{
    return r->layout->values * sizeof *r->theta;
}

// The parameters follow the ledger and their count. Both are short beside them, so the ledger is
// read anew with every piece until it is there.
static lh_err find_theta(struct lk_incoming *n, const struct lk_replica *r, size_t *after)
{
    struct lh_ledger ledger = {.shard = r->ledger.shard, .shards = r->ledger.shards};
    struct lh_cursor c = lh_cursor(lh_buf_span(&n->rest));
    lh_err err = lh_ledger_read(&ledger, &c);
    uint64_t values = lh_get_u64(&c);
    if (err || c.failed) {
        lh_ledger_free(&ledger);
        return err == LH_ERR_NO_MEMORY ? err : LH_OK;
    }
    if (values != r->layout->values) {
        lh_ledger_free(&ledger);
        return lh_fail(LH_ERR_MALFORMED, "fold state of %llu values for a shard of %llu",
                       (unsigned long long)values, (unsigned long long)r->layout->values);
    }
    n->ledger = ledger;
    *after = lh_left(&c);
    n->theta = n->room ? n->room : lh_zeros(r->layout->values, sizeof *n->theta);
    n->room = NULL;
    return n->theta ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err lk_incoming_put(struct lk_incoming *n, const struct lk_replica *r, struct lh_span bytes)
{
    size_t total = theta_bytes(r), most = lk_replica_bytes_max(r->layout) - total;
    if (!n->rest.max) n->rest = lh_buf(most);
    if (!n->theta) {
        size_t k = bytes.len < most - n->rest.len ? bytes.len : most - n->rest.len, after = 0;
        if (bytes.len && !k) return lh_fail(LH_ERR_MALFORMED, "no fold state this build can read");
        lh_put(&n->rest, bytes.data, k);
        LH_TRY(lh_buf_err(&n->rest));
        LH_TRY(find_theta(n, r, &after));
        if (!n->theta && k == bytes.len) return LH_OK;
        if (!n->theta) return lh_fail(LH_ERR_MALFORMED, "no fold state this build can read");
        n->rest.len -= after; // parameters already
        bytes = lh_span(bytes.data + (k - after), bytes.len - (k - after));
    }
    size_t k = bytes.len < total - n->have ? bytes.len : total - n->have;
    if (k) memcpy((uint8_t *)n->theta + n->have, bytes.data, k);
    n->have += k;
    if (k < bytes.len) lh_put(&n->rest, bytes.data + k, bytes.len - k);
    return lh_buf_err(&n->rest);
}

uint8_t *lk_incoming_place(struct lk_incoming *n, const struct lk_replica *r, size_t bytes)
{
    bool inside = n->theta && bytes <= theta_bytes(r) - n->have;
    return inside ? (uint8_t *)n->theta + n->have : NULL;
}

void lk_incoming_placed(struct lk_incoming *n, size_t bytes)
{
    n->have += bytes;
}

lh_err lk_incoming_take(struct lk_incoming *n, struct lk_replica *r)
{
    if (!n->theta || n->have < theta_bytes(r))
        return lh_fail(LH_ERR_MALFORMED, "fold state cut short");
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
    free(n->room);
    *n = (struct lk_incoming){0};
}
