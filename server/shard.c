// A shard's state: index, sessions, size. See shard.h.
#include "server/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/bugs.h"
#include "server/core.h"

lh_err ps_shard_create(struct ps_server *server, uint32_t id, struct ps_shard **out)
{
    struct ps_shard *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->id = id;
    s->server = server;
    s->insync.waiting_end = &s->insync.waiting;
    s->meanwhile_ns = INT64_MAX; // not known yet
    const struct ps_conf *conf = &server->conf;
    lh_err err;
    LH_TRY_TO(fail, err, lk_replica_create(&s->replica, conf->job, conf->manifest, id, conf->keys));
    *out = s;
    return LH_OK;
fail:
    ps_shard_destroy(s);
    return err;
}

void ps_shard_destroy(struct ps_shard *s)
{
    if (!s) return;
    lh_blob_release(s->newest.frame);
    ps_pace_free(s);
    lk_replica_free(&s->replica);
    free(s->index);
    free(s->plan);
    free(s);
}

lh_err ps_shard_indexed(struct ps_shard *s, uint64_t version, struct ps_place place)
{
    if (s->index_count == s->index_cap) {
        size_t cap = s->index_cap ? 2 * s->index_cap : 64;
        struct ps_index *index = realloc(s->index, cap * sizeof *index);
        if (!index) return LH_ERR_NO_MEMORY;
        s->index = index;
        s->index_cap = cap;
    }
    LH_ASSERT(!s->index_count || s->index[s->index_count - 1].version + 1 == version);
    s->index[s->index_count++] = (struct ps_index){version, place};
    return LH_OK;
}

// A shard that begins with zeros (an adapter, a bias) counts as if its values were 0.01.
void ps_shard_size(struct ps_shard *s)
{
    if (s->size.known) return;
    double sum = 0, least = 0.01 * sqrt((double)s->replica.layout->values), reach = 0;
    for (uint64_t i = 0; i < s->replica.layout->values; i++) {
        double v = fabs((double)s->replica.theta[i]);
        sum += v * v;
        if (v > reach) reach = v;
    }
    s->size.norm = sqrt(sum) > least ? sqrt(sum) : least;
    s->size.reach = reach;
    s->size.known = true;
}

const struct ps_place *ps_shard_place(const struct ps_shard *s, uint64_t version)
{
    if (!s->index_count || version < s->index[0].version) return NULL;
    size_t i = (size_t)(version - s->index[0].version);
    return i < s->index_count ? &s->index[i].place : NULL;
}

const struct ps_place *ps_shard_place_from(const struct ps_shard *s, uint64_t version)
{
    bool below = s->index_count && version < s->index[0].version;
    return ps_shard_place(s, below ? s->index[0].version : version);
}

lh_err ps_shard_chain(const struct ps_shard *s, uint64_t version, struct lh_hash *out)
{
    const struct lh_ledger *l = &s->replica.ledger;
    const struct ps_place *place = ps_shard_place(s, version);
    struct lh_blob *bytes;
    struct lh_record r;
    uint32_t body;
    if (version == l->version) {
        *out = l->chain;
        return LH_OK;
    }
    if (!place)
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu is not in the log",
                       (unsigned long long)version);
    LH_TRY(ps_wal_read(s->server->wal, *place, 0, LH_RECORD_HEADER_BYTES, &bytes));
    lh_err err = lh_record_parse_header(lh_blob_span(bytes), &r, &body);
    lh_blob_release(bytes);
    if (!err) *out = r.chain;
    return err;
}

void ps_shard_forget_before(struct ps_shard *s, uint64_t segment)
{
    size_t n = 0;
    while (n < s->index_count && s->index[n].place.segment < segment) n++;
    if (!n) return; // without an index there is nothing to move
    memmove(s->index, s->index + n, (s->index_count - n) * sizeof *s->index);
    s->index_count -= n;
}

bool ps_shard_session(const struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    for (uint32_t k = 0; k < s->session_count; k++)
        if (s->session[k].worker == worker)
            return lh_incarnation_equal(s->session[k].incarnation, i);
    return false;
}

lh_err ps_shard_open_session(struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    uint32_t k = 0;
    while (k < s->session_count && s->session[k].worker != worker) k++;
    for (uint32_t n = 0; k == LH_WORKERS_MAX && n < s->session_count; n++)
        if (!lh_ledger_row(&s->replica.ledger, s->session[n].worker)) k = n; // It was retired.
    if (k == LH_WORKERS_MAX)
        return lh_fail(LH_ERR_BUSY, "shard %u has %d workers already", s->id, LH_WORKERS_MAX);
    if (k == s->session_count) s->session_count++;
    s->session[k] = (struct ps_session){worker, i};
    return LH_OK;
}

bool ps_shard_may_raise(struct ps_shard *s, uint64_t worker)
{
    const int64_t each = LH_FENCE_MS * LH_MS;
    int64_t now = lh_now(s->server->conf.env), full = now - LH_FENCES_MAX * each;
    uint32_t k = 0;
    while (k < s->raised_count && s->raised[k].worker != worker) k++;
    for (uint32_t i = 0; k == LH_WORKERS_MAX && i < s->raised_count; i++)
        if (!lh_ledger_row(&s->replica.ledger, s->raised[i].worker)) k = i;
    if (k == LH_WORKERS_MAX) return true; // its row would be refused anyway
    if (k == s->raised_count) s->raised_count++;
    if (s->raised[k].worker != worker) s->raised[k] = (struct ps_raised){worker, full};
    int64_t *since = &s->raised[k].since_ns;
    if (*since < full) *since = full;
    if (*since + each > now) return false;
    *since += each;
    return true;
}

uint64_t ps_shard_visible(const struct ps_shard *s)
{
    uint64_t version = s->replica.ledger.version;
    if (s->insync.state == PS_ALONE) return version;
    return s->insync.confirmed < version ? s->insync.confirmed : version;
}

// ---------------------------------------------------------------- a move

bool ps_shard_frozen(const struct ps_shard *s)
{
    return LH_BUG("freeze_mem") ? ps_bug_frozen(s) : s->head->move.epoch != 0;
}

bool ps_shard_over(const struct ps_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (l->plan.phase != LH_PHASE_END) return false;
    return !s->end_told || (s->end && l->version >= s->end);
}

bool ps_shard_moved_here(const struct ps_shard *s)
{
    const struct ps_server *server = s->server;
    const struct lh_move *m = &s->replica.ledger.move;
    return m->epoch && lh_same_directory(m->target, server->standby.identity) &&
           !server->log.damaged;
}

bool ps_shard_reserved(const struct ps_shard *s)
{
    uint64_t epoch = s->replica.ledger.move.epoch;
    return ps_shard_moved_here(s) && s->begun <= epoch && s->least_epoch <= epoch;
}

uint64_t ps_shard_moving(const struct ps_shard *s)
{
    if (LH_BUG("move_unsynced") && ps_bug_claimed(s)) return ps_bug_claimed(s);
    // a record not yet on a full disk does not count (server/docs/0000-protocol.md#rule-22)
    bool written = !s->server->standby.unwritten || LH_BUG("move_unwritten");
    bool durable = ps_shard_moved_here(s) && written;
    bool ours = s->server->phase != PS_STANDBY || durable;
    return ours ? s->replica.ledger.move.epoch : 0;
}
