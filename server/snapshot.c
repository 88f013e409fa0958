// Snapshot: a shard's fold state for those who join, as bytes (PROTOCOL 16, kernels/replica.h).
//
// All who join at about the same time are sent the state of the same version, and follow from
// there. It is sent from where it lies, a message at a time. Only when a record is about to change
// it while somebody still waits for a part, it is copied as a whole, once for all of them. When
// there is no memory for that, they are told to come again.
#include <string.h>

#include "server/server.h"

static lh_err take(struct ps_shard *s)
{
    struct ps_snapshot *n = &s->snapshot;
    lh_blob_release(n->copy);
    lh_buf_free(&n->heads);
    uint32_t users = n->users;
    const struct lh_ledger *l = &s->replica.ledger;
    *n = (struct ps_snapshot){
        .users = users, .epoch = l->epoch, .version = l->version, .chain = l->chain};
    n->heads = lh_buf(lk_replica_bytes_max(s->replica.layout));
    LH_TRY(lk_replica_parts(&s->replica, &n->heads, n->part));
    for (size_t i = 0; i < LH_COUNT(n->part); i++) n->bytes += n->part[i].len;
    return LH_OK;
}

lh_err ps_snapshot_join(struct ps_shard *s)
{
    struct ps_snapshot *n = &s->snapshot;
    bool goes_on =
        n->version == s->replica.ledger.version || ps_shard_place(s, n->version + 1) != NULL;
    if (!n->users)
        LH_TRY(take(s));
    else if (!goes_on || n->lost)
        return lh_fail(LH_ERR_BUSY, "an older snapshot is still being sent; try again");
    n->users++;
    return LH_OK;
}

void ps_snapshot_leave(struct ps_shard *s)
{
    struct ps_snapshot *n = &s->snapshot;
    if (--n->users) return;
    lh_blob_release(n->copy);
    lh_buf_free(&n->heads);
    *n = (struct ps_snapshot){0};
}

// Where n bytes of the state from `at` on lie; how many places these are.
static size_t find(const struct ps_snapshot *s, uint64_t at, size_t n,
                   struct lh_span out[LK_REPLICA_PARTS])
{
    size_t count = 0;
    if (s->copy) {
        out[0] = lh_span(s->copy->data + at, n);
        return 1;
    }
    for (size_t i = 0; i < LH_COUNT(s->part) && n; i++) {
        struct lh_span p = s->part[i];
        uint64_t skip = at < p.len ? at : p.len;
        size_t k = p.len - (size_t)skip < n ? p.len - (size_t)skip : n;
        if (k) out[count++] = lh_span(p.data + skip, k);
        at -= skip;
        n -= k;
    }
    LH_ASSERT(!n);
    return count;
}

static void gather(const struct ps_snapshot *s, uint64_t at, size_t n, uint8_t *out)
{
    struct lh_span part[LK_REPLICA_PARTS];
    size_t count = find(s, at, n, part);
    for (size_t i = 0; i < count; out += part[i++].len) memcpy(out, part[i].data, part[i].len);
}

static lh_err seal_next(const struct ps_snapshot *s, uint64_t at, size_t n,
                        struct lh_state_seal *seal, uint8_t *out)
{
    struct lh_span part[LK_REPLICA_PARTS];
    size_t count = find(s, at, n, part);
    return lh_state_seal_piece(seal, part, count, out);
}

lh_err ps_snapshot_read(struct ps_shard *s, uint64_t at, size_t n, struct lh_state_seal *seal,
                        struct lh_blob **out)
{
    const struct ps_snapshot *from = &s->snapshot;
    if (from->lost) return lh_fail(LH_ERR_BUSY, "no memory for this snapshot any more; try again");
    struct lh_blob *b = lh_pool_blob(s->server->room.pool, seal ? n + LH_SEAL_TAG_BYTES : n);
    if (!b) return lh_fail(LH_ERR_BUSY, "no memory for a part of this snapshot now");
    lh_err err = LH_OK;
    if (seal)
        err = seal_next(from, at, n, seal, b->data);
    else
        gather(from, at, n, b->data);
    *out = err ? NULL : b;
    if (err) lh_blob_release(b);
    return err;
}

void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r)
{
    struct ps_snapshot *n = &s->snapshot;
    bool changes = // the arrays; the rest was copied
        r->kind == LH_ADMIT || (r->kind == LH_PLAN && s->replica.outer.kind != LH_OPT_SGD);
    if (!n->users || n->copy || n->lost || !changes) return;
    n->copy = lh_blob_new((size_t)n->bytes);
    n->lost = n->copy == NULL;
    if (n->copy) gather(n, 0, (size_t)n->bytes, n->copy->data);
}

// ---------------------------------------------------------------- a state that comes here

lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed, const char *who)
{
    if (sealed || server->conf.unsealed_states) return LH_OK;
    return lh_fail(LH_ERR_UNSEAL,
                   "shard %u: %s sends its state without the job key's seal, and this server takes "
                   "sealed ones only: upgrade the sender, or set seal.snapshots: false at both",
                   shard, who);
}

lh_err ps_state_open(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                     struct lh_buf *out)
{
    size_t n = lh_state_seal_next(seal);
    uint8_t *to = lh_buf_grow(out, n);
    if (!to && n) return lh_buf_err(out);
    return lh_state_open_piece(seal, msg, at, to);
}
