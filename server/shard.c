// A shard's state: index, sessions, fold. See shard.h.
#include "server/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

lh_err ps_shard_create(struct ps_server *server, uint32_t id, struct ps_shard **out)
{
    struct ps_shard *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->id = id;
    s->server = server;
    s->insync.waiting_end = &s->insync.waiting;
    s->meanwhile_ns = INT64_MAX; // nobody knows yet
    const struct ps_conf *conf = &server->conf;
    lh_err err;
    LH_TRY_TO(fail, err, lk_replica_create(&s->replica, conf->job, conf->manifest, id, conf->keys));
    LH_TRY_TO(fail, err, ps_head_create(s));
    *out = s;
    return LH_OK;
fail:
    ps_shard_destroy(s);
    return err;
}

lh_err ps_shard_anew(struct ps_shard *s)
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
    return LH_OK;
}

void ps_shard_destroy(struct ps_shard *s)
{
    if (!s) return;
    ps_checkpointer_free(s->keep);
    ps_rebuild_free(s->rebuild);
    ps_owner_stream_free(s->copy);
    ps_vouch_free(s);
    ps_digest_free(s);
    lh_blob_release(s->newest.frame);
    lh_blob_release(s->snapshot.theta);
    ps_snapshot_part(s, true);
    lh_blob_release(s->snapshot.copy);
    lh_buf_free(&s->snapshot.heads);
    lk_replica_free(&s->replica);
    ps_head_free(s);
    free(s->index);
    free(s->plan);
    free(s);
}

lh_err ps_shard_indexed(struct ps_shard *s, uint64_t version, struct ps_place place)
{
    if (s->indexed == s->index_cap) {
        size_t cap = s->index_cap ? 2 * s->index_cap : 64;
        struct ps_index *index = realloc(s->index, cap * sizeof *index);
        if (!index) return LH_ERR_NO_MEMORY;
        s->index = index;
        s->index_cap = cap;
    }
    LH_ASSERT(!s->indexed || s->index[s->indexed - 1].version + 1 == version);
    s->index[s->indexed++] = (struct ps_index){version, place};
    return LH_OK;
}

const struct ps_place *ps_shard_place(const struct ps_shard *s, uint64_t version)
{
    if (!s->indexed || version < s->index[0].version) return NULL;
    size_t i = (size_t)(version - s->index[0].version);
    return i < s->indexed ? &s->index[i].place : NULL;
}

const struct ps_place *ps_shard_place_from(const struct ps_shard *s, uint64_t version)
{
    bool below = s->indexed && version < s->index[0].version;
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
    LH_TRY(ps_wal_read(s->server->wal, *place, 0, LH_RECORD_HEADER, &bytes));
    lh_err err = lh_record_parse_header(lh_blob_span(bytes), &r, &body);
    lh_blob_release(bytes);
    if (!err) *out = r.chain;
    return err;
}

void ps_shard_forget_before(struct ps_shard *s, uint64_t segment)
{
    size_t n = 0;
    while (n < s->indexed && s->index[n].place.segment < segment) n++;
    if (!n) return; // without an index there is nothing to move, nor where to
    memmove(s->index, s->index + n, (s->indexed - n) * sizeof *s->index);
    s->indexed -= n;
}

bool ps_shard_session(const struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    for (uint32_t k = 0; k < s->sessions; k++)
        if (s->session[k].worker == worker)
            return lh_incarnation_equal(s->session[k].incarnation, i);
    return false;
}

lh_err ps_shard_open_session(struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    uint32_t k = 0;
    while (k < s->sessions && s->session[k].worker != worker) k++;
    if (k == LH_WORKERS_MAX)
        return lh_fail(LH_ERR_BUSY, "shard %u has %d workers already", s->id, LH_WORKERS_MAX);
    if (k == s->sessions) s->sessions++;
    s->session[k] = (struct ps_session){worker, i};
    return LH_OK;
}

bool ps_shard_may_raise(struct ps_shard *s, uint64_t worker)
{
    const int64_t each = LH_FENCE_MS * LH_MS;
    int64_t now = lh_now(s->server->conf.env), full = now - LH_FENCES_MAX * each;
    uint32_t k = 0;
    while (k < s->raiseds && s->raised[k].worker != worker) k++;
    if (k == LH_WORKERS_MAX) return true; // its row finds no room either
    if (k == s->raiseds) s->raised[s->raiseds++] = (struct ps_raised){worker, full};
    int64_t *since = &s->raised[k].since_ns;
    if (*since < full) *since = full;
    if (*since + each > now) return false;
    *since += each;
    return true;
}

static void note_norm(struct ps_shard *s, double norm)
{
    s->norm[s->norms++ % LH_NORM_WINDOW] = norm;
}

lh_err ps_shard_fold(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                     double norm, struct ps_place place)
{
    int64_t start = lh_now(s->server->conf.env);
    ps_snapshot_keep(s, r);
    ps_took(s->server, PS_LOOP_SNAPSHOT, start);
    int64_t fold = lh_now(s->server->conf.env);
    if (r->kind == LH_ADMIT && plain.data) {
        LH_TRY(lk_replica_apply_plain(&s->replica, r, plain));
    } else if (r->kind == LH_ADMIT) { // at start: open it again
        struct lk_payload_info info;
        bool opened;
        LH_TRY(lk_replica_open(&s->replica, r->body, &plain, &opened, &info));
        LH_TRY(lk_replica_apply_plain(&s->replica, r, plain));
        norm = sqrt(info.sum_squares);
    } else {
        LH_TRY(r->kind == LH_DIGEST_RECORD ? ps_digest_fold(s, r)
                                           : lk_replica_apply(&s->replica, r));
    }
    if (r->kind == LH_ADMIT) note_norm(s, norm);
    ps_took(s->server, PS_LOOP_FOLD, fold);
    if (s->server->conf.folded) s->server->conf.folded(s->server->conf.folded_arg, s->id, r);
    if (r->kind == LH_DIGEST_RECORD) s->digested = r->version;
    s->replay_ns += lh_now(s->server->conf.env) - start;
    return ps_shard_indexed(s, r->version, place);
}
