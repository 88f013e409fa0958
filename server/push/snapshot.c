// Snapshot: sends a shard's fold state to workers and standbys that join
// (server/docs/0000-protocol.md#rule-16, kernels/state/replica.h).
//
// Followers that join at about the same time get the state of one version and follow the log from
// there. Its parameters are sent without a copy. When a record is about to change them while a
// follower or the transport may still read them, the replica switches to a copy, whose memory was
// reserved when sending began. The outer optimizer's state is copied a message at a time, and as a
// whole when it is about to change; if there is no memory for that copy, the waiting followers must
// ask again later. Each range of a state is sent on its own call.
#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"
#include "server/core.h"
#include "server/push/snapshot.h"

// Lets the parameters be sent without a copy. If there is no memory, they are copied, a message at
// a time.
static void lend(struct ps_shard *s)
{
    struct ps_lent *l = &s->lent;
    if (l->theta) return; // some of them are still being sent
    size_t bytes = s->replica.layout->values * sizeof *s->replica.theta;
    l->spare = malloc(bytes);
    l->theta = l->spare ? lh_blob_over(s->replica.theta, bytes) : NULL;
    if (l->theta) return;
    free(l->spare);
    l->spare = NULL;
}

static lh_err take(struct ps_shard *s, struct ps_snapshot *n)
{
    const struct lh_ledger *l = &s->replica.ledger;
    LH_ASSERT(!n->users && !n->copy && !n->theta);
    *n = (struct ps_snapshot){.epoch = l->epoch, .version = l->version, .chain = l->chain};
    n->heads = lh_buf(lk_replica_bytes_max(s->replica.layout));
    lh_err err = lk_replica_parts(&s->replica, &n->heads, n->part);
    if (err) lh_buf_free(&n->heads);
    LH_TRY(err);
    for (size_t i = 0; i < LH_COUNT(n->part); i++) n->bytes += n->part[i].len;
    if (s->replica.outer.kind != LH_OPT_SGD) return LH_OK;
    lend(s);
    n->theta = lh_blob_share(s->lent.theta);
    return LH_OK;
}

// Can a follower continue from this snapshot's version?
static bool goes_on(const struct ps_shard *s, const struct ps_snapshot *n)
{
    return n->users && !n->lost &&
           (n->version == s->replica.ledger.version || ps_shard_place(s, n->version + 1) != NULL);
}

static lh_err join(struct ps_giving *g, struct ps_shard *s)
{
    struct ps_snapshot *found = NULL, *unused = NULL;
    for (size_t i = 0; i < LH_COUNT(s->snapshot); i++) {
        struct ps_snapshot *n = &s->snapshot[i];
        if (goes_on(s, n)) found = n;
        if (!n->users) unused = n;
    }
    if (!found && !unused)
        return lh_fail(LH_ERR_BUSY, "shard %u: older snapshots are still being sent; try again",
                       s->id);
    if (!found) LH_TRY(take(s, unused));
    g->of = found ? found : unused;
    g->of->users++;
    return LH_OK;
}

void ps_snapshot_end(struct ps_giving *g)
{
    struct ps_snapshot *n = g->of;
    g->of = NULL;
    if (!n || --n->users) return;
    lh_blob_release(n->theta);
    lh_blob_release(n->copy);
    lh_buf_free(&n->heads);
    *n = (struct ps_snapshot){0};
}

// Chooses the requested share of the state, in whole pieces if sealed, else in bytes: the `range`th
// of `ranges` shares. The first share is never empty.
static lh_err choose_range(struct ps_giving *g, const struct lh_snapshot_request *m)
{
    uint64_t bytes = g->of->bytes, each = m->challenge.len ? LH_STATE_PIECE_BYTES : 1;
    uint64_t ranges = m->ranges ? m->ranges : 1, count = (bytes + each - 1) / each;
    if (ranges > LH_SNAPSHOT_RANGES || m->range >= ranges)
        return lh_fail(LH_ERR_MALFORMED, "range %u of %u of a snapshot", m->range, m->ranges);
    g->range = ranges > 1;
    g->from = (count * m->range + ranges - 1) / ranges * each;
    g->until = (count * (m->range + 1) + ranges - 1) / ranges * each;
    if (g->from > bytes) g->from = bytes;
    if (g->until > bytes) g->until = bytes;
    g->at = g->from;
    return LH_OK;
}

// Seals if the follower asks for it; sends unsealed only if the conf allows it, as in tests.
static lh_err choose_seal(struct ps_giving *g, struct lh_span challenge)
{
    const struct ps_conf *conf = &g->shard->server->conf;
    const struct ps_snapshot *n = g->of;
    g->sealed = challenge.len > 0;
    if (!g->sealed && conf->unsealed_states) return LH_OK;
    if (!g->sealed)
        return lh_fail(LH_ERR_DENIED,
                       "shard %u: this server sends its state sealed only, but the follower asks "
                       "for an unsealed one: give the follower the job key",
                       g->shard->id);
    LH_TRY(lh_state_seal_init(&g->seal, LH_SEAL_SNAPSHOT, conf->keys, conf->job,
                              &conf->manifest->hash, g->shard->id, challenge));
    lh_state_seal_begin(&g->seal, conf->env, conf->cipher, conf->key_id, n->epoch, n->version,
                        &n->chain, n->bytes);
    return g->from < g->until ? lh_state_seal_from(&g->seal, g->from) : LH_OK;
}

lh_err ps_snapshot_begin(struct ps_giving *g, struct ps_shard *s,
                         const struct lh_snapshot_request *m)
{
    LH_TRY(join(g, s));
    g->shard = s;
    LH_TRY(choose_range(g, m));
    LH_TRY(choose_seal(g, m->challenge));
    lh_logf(s->server->conf.log, LH_DEBUG, "snapshot.begun",
            "shard %u version %llu, bytes %llu to %llu of %llu", s->id,
            (unsigned long long)g->of->version, (unsigned long long)g->from,
            (unsigned long long)g->until, (unsigned long long)g->of->bytes);
    return LH_OK;
}

void ps_snapshot_tell(struct ps_giving *g, struct lh_part_head *head)
{
    const struct ps_snapshot *n = g->of;
    if (g->told) return;
    g->told = true;
    head->total = n->bytes;
    head->has_seal = g->sealed;
    if (g->sealed) head->seal = lh_state_seal_head(&g->seal);
    if (!g->range) return;
    head->from = g->from;
    head->bytes = g->until - g->from;
    if (g->sealed) return;
    head->has_of = true;
    head->of = lh_shard_point(g->shard->id, n->epoch, n->version, &n->chain);
}

// Finds the spans in which n bytes of the state from `at` on lie, and gives their count.
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

// Runs on the loop: 0.4 ms of a core per piece of 1 MiB (either cipher), a few pieces before other
// work gets its turn (follow.c). A lane would read the state while records are folded into it.
static lh_err seal_next(const struct ps_snapshot *s, uint64_t at, size_t n,
                        struct lh_state_seal *seal, uint8_t *out)
{
    struct lh_span part[LK_REPLICA_PARTS];
    size_t count = find(s, at, n, part);
    return lh_state_seal_piece(seal, part, count, out);
}

// Lends the next bytes if they are parameters that go out unsealed.
static bool next_lent(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end)
{
    const struct ps_snapshot *from = g->of;
    uint64_t before = from->part[0].len, behind = before + from->part[1].len;
    if (g->sealed || !from->theta || g->at < before || g->at >= behind) return false;
    uint64_t until = g->until < behind ? g->until : behind;
    size_t n = until - g->at < LH_PART_BYTES ? (size_t)(until - g->at) : LH_PART_BYTES;
    *out = lh_blob_share(from->theta);
    *at = (size_t)(g->at - before);
    *end = *at + n;
    g->at += n;
    return true;
}

lh_err ps_snapshot_next(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end)
{
    const struct ps_snapshot *from = g->of;
    uint64_t left = g->until - g->at;
    size_t most = g->sealed ? LH_STATE_PIECE_BYTES : LH_PART_BYTES,
           n = left < most ? (size_t)left : most;
    *out = NULL;
    if (!n || next_lent(g, out, at, end)) return LH_OK;
    if (from->lost) return lh_fail(LH_ERR_BUSY, "no memory for this snapshot any more; try again");
    struct lh_pool *pool = g->shard->server->push_memory.pool;
    struct lh_blob *b = lh_pool_blob(pool, g->sealed ? n + LH_SEAL_TAG_BYTES : n);
    if (!b) return lh_fail(LH_ERR_BUSY, "no memory for a part of this snapshot now");
    lh_err err = LH_OK;
    if (g->sealed)
        err = seal_next(from, g->at, n, &g->seal, b->data);
    else
        gather(from, g->at, n, b->data);
    if (err) {
        lh_blob_release(b);
        return err;
    }
    g->at += n;
    *at = 0;
    *end = b->len;
    *out = b;
    return LH_OK;
}

// The replica keeps parameters that have no reader. Otherwise the readers keep them, and the
// replica continues with a copy.
static void part_lent(struct ps_shard *s, bool gone)
{
    struct ps_lent *l = &s->lent;
    if (!l->theta) return;
    if (!lh_blob_alone(l->theta) && (gone || !LH_BUG("fold_lent"))) {
        lh_blob_give(l->theta);
        if (!gone) lh_parallel_copy(l->spare, s->replica.theta, l->theta->len);
        s->replica.theta = gone ? NULL : l->spare;
        if (!gone) l->spare = NULL;
    }
    lh_blob_release(l->theta);
    free(l->spare);
    *l = (struct ps_lent){0};
}

static void part(struct ps_snapshot *n)
{
    if (!n->users || n->theta || n->copy || n->lost) return;
    n->copy = lh_blob_new((size_t)n->bytes);
    n->lost = n->copy == NULL;
    if (n->copy) gather(n, 0, (size_t)n->bytes, n->copy->data);
}

void ps_snapshot_part(struct ps_shard *s, bool gone)
{
    for (size_t i = 0; i < LH_COUNT(s->snapshot); i++) part(&s->snapshot[i]);
    part_lent(s, gone);
}

void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r)
{
    bool changes = // only the arrays can change; the rest was copied
        r->kind == LH_ADMIT || (r->kind == LH_PLAN && s->replica.outer.kind != LH_OPT_SGD);
    if (changes) ps_snapshot_part(s, false);
}

void ps_snapshot_free(struct ps_shard *s)
{
    for (size_t i = 0; i < LH_COUNT(s->snapshot); i++) lh_blob_release(s->snapshot[i].theta);
    ps_snapshot_part(s, true);
    for (size_t i = 0; i < LH_COUNT(s->snapshot); i++) {
        lh_blob_release(s->snapshot[i].copy);
        lh_buf_free(&s->snapshot[i].heads);
    }
}

// ---------------------------------------------------------------- a state that comes here

lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed, const char *who)
{
    if (sealed || server->conf.unsealed_states) return LH_OK;
    return lh_fail(LH_ERR_UNSEAL,
                   "shard %u: %s sends its state unsealed, but this server takes sealed ones only: "
                   "give it the job key",
                   shard, who);
}

lh_err ps_state_take(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                     struct lh_buf *out)
{
    size_t n = seal ? lh_state_seal_next(seal) : msg->len - at;
    uint8_t *to = lh_buf_grow(out, n);
    if (!to && n) return lh_buf_err(out);
    if (seal) return lh_state_unseal_piece(seal, msg, at, to);
    return !n || lh_msg_copy(msg, at, to, n) ? LH_OK : LH_ERR_INTERNAL;
}

lh_err ps_state_point(const struct ps_shard *s, struct lh_cursor *at, struct lh_point *of)
{
    struct lh_ledger l = {.shard = s->replica.ledger.shard, .shards = s->replica.ledger.shards};
    lh_err err = lh_ledger_read(&l, at);
    *of = (struct lh_point){l.epoch, l.version, l.chain};
    lh_ledger_free(&l);
    return err;
}

lh_err ps_taking_ask(struct ps_taking *t, const struct ps_shard *s, struct lh_span *challenge)
{
    const struct ps_conf *conf = &s->server->conf;
    t->begun = t->sealed = false;
    t->bytes = lh_buf(lk_replica_bytes_max(s->replica.layout));
    if (conf->unsealed_states) return LH_OK;
    lh_random(conf->env, t->challenge, sizeof t->challenge);
    *challenge = lh_span(t->challenge, sizeof t->challenge);
    return lh_state_seal_init(&t->seal, LH_SEAL_SNAPSHOT, conf->keys, conf->job,
                              &conf->manifest->hash, s->id, *challenge);
}

lh_err ps_taking_begin(struct ps_taking *t, const struct ps_shard *s,
                       const struct lh_part_head *head, const char *who)
{
    t->begun = true;
    t->sealed = head->has_seal;
    if (head->total > lk_replica_bytes_max(s->replica.layout))
        return lh_fail(LH_ERR_TOO_LARGE, "a state of %llu bytes", (unsigned long long)head->total);
    LH_TRY(ps_state_asked(s->server, s->id, t->sealed, who));
    if (t->sealed && s->server->conf.unsealed_states)
        return lh_fail(LH_ERR_MALFORMED, "a sealed state where none was asked for");
    if (t->sealed) LH_TRY(lh_state_unseal_begin(&t->seal, &head->seal, head->total));
    return head->total ? lh_buf_reserve(&t->bytes, (size_t)head->total) : LH_OK;
}

bool ps_taking_whole(const struct ps_taking *t)
{
    return t->begun && !(t->sealed && lh_state_seal_next(&t->seal));
}

lh_err ps_taking_point(const struct ps_taking *t, const struct ps_shard *s, struct lh_point *of)
{
    struct lh_cursor at = lh_cursor(lh_buf_span(&t->bytes));
    LH_TRY(ps_state_point(s, &at, of));
    const struct lh_point named = {t->seal.epoch, t->seal.version, t->seal.chain};
    if (!t->sealed || lh_point_equal(of, &named)) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "sealed is another state than named");
}
