// Offer: offers this worker's states of a shard to a server that lost it
// (server/docs/0000-protocol.md#rule-13, #rule-15, #rule-17).
//
// A follower has the whole fold state: in memory up to its last record, and as durable copies.
// While the server rebuilds the shard (LH_ERR_REBUILDING), the worker offers each of them as a
// point of a history and sends the requested one whole. The server decides which points belong to
// the shard's history.
#include "worker/replica/offer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "kernels/storage/checkpoint_read.h"
#include "worker/replica/durable_copy.h"

enum { POINTS_MAX = 16 };

struct points { // the points held, the state in memory first
    const struct wk_shard *shard;
    struct lh_shard_point have[POINTS_MAX];
    struct lh_hash digest[POINTS_MAX];
    struct lh_span digests[POINTS_MAX]; // spans of `digest`
    size_t n;
};

static void add_point(struct points *p, uint64_t epoch, uint64_t version,
                      const struct lh_hash *chain, const struct lh_hash *digest)
{
    if (p->n == POINTS_MAX) return;
    p->digest[p->n] = *digest;
    p->digests[p->n] = lh_span(p->digest[p->n].b, LH_HASH_BYTES);
    p->have[p->n] = lh_shard_point(p->shard->id, epoch, version, chain);
    p->n++;
}

static void add_copy(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    struct points *p = arg;
    (void)path;
    if (info->version == p->shard->restore.unreadable) return;
    add_point(p, info->epoch, info->version, &info->chain, &info->digest);
}

// The digest of the state in memory takes half a second for 1 GB. Nothing is folded while the
// server rebuilds, so it is computed once.
static lh_err list_points(struct wk_shard *s, struct points *p)
{
    const struct lh_ledger *l = &s->replica.ledger;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(s->worker);
    struct wk_restore *r = &s->restore;
    p->shard = s;
    p->n = 0;
    if (s->ready && !lh_hash_equal(&r->digest_of, &l->chain)) {
        LH_TRY(lk_replica_digest_try(&s->replica, &r->digest));
        r->digest_of = l->chain;
    }
    if (s->ready) add_point(p, l->epoch, l->version, &l->chain, &r->digest);
    return lk_checkpoint_list(&conf, &s->replica, add_copy, p);
}

// ---------------------------------------------------------------- the state that is wanted

struct finding {
    const struct wk_restore *want;
    char path[LH_PATH_BYTES];
};

static void find_copy(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    struct finding *f = arg;
    if (info->epoch == f->want->point.epoch && info->version == f->want->point.version &&
        lh_hash_equal(&info->chain, &f->want->point.chain))
        memcpy(f->path, path, strlen(path) + 1);
}

static lh_err blob_of(const struct lk_replica *r, struct lh_blob **out)
{
    struct lh_buf bytes = lh_buf(lk_replica_bytes_max(r->layout));
    lh_err err = lk_replica_save(r, &bytes);
    *out = err ? NULL : lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    return err || *out ? err : LH_ERR_NO_MEMORY;
}

// Reads and checks a durable copy, separate from the replica in use.
static lh_err copy_blob(struct wk_shard *s, struct lh_blob **out)
{
    struct wk_worker *w = s->worker;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(w);
    struct finding f = {.want = &s->restore};
    struct lk_replica scratch;
    LH_TRY(lk_checkpoint_list(&conf, &s->replica, find_copy, &f));
    if (!f.path[0]) return lh_fail(LH_ERR_NOT_FOUND, "this copy does not exist any more");
    lh_err err = lk_replica_create(&scratch, w->conf.job, w->conf.manifest, s->id, w->conf.keys);
    if (!err) err = lk_checkpoint_read(&conf, f.path, &scratch);
    if (!err) err = blob_of(&scratch, out);
    lk_replica_free(&scratch);
    if (err) s->restore.unreadable = s->restore.point.version;
    return err;
}

static lh_err state_blob(struct wk_shard *s, struct lh_blob **out)
{
    const struct lh_ledger *l = &s->replica.ledger;
    const struct wk_restore *r = &s->restore;
    bool here = s->ready && l->epoch == r->point.epoch && l->version == r->point.version &&
                lh_hash_equal(&l->chain, &r->point.chain);
    return here ? blob_of(&s->replica, out) : copy_blob(s, out);
}

// ---------------------------------------------------------------- bringing it

// Begins the transfer, sealed if the server asked for that. An unsealed state is sent only if the
// conf allows it, as in tests: any holder of a server's certificate could read it.
static lh_err begin(struct wk_shard *s, struct lh_span challenge)
{
    const struct wk_conf *conf = &s->worker->conf;
    struct wk_restore *r = &s->restore;
    r->sealed = challenge.len > 0;
    if (!r->sealed && conf->unsealed_states) return LH_OK;
    if (!r->sealed)
        return lh_fail(LH_ERR_DENIED,
                       "the server at %s asks for an unsealed state, but this worker sends sealed "
                       "ones only: give the server the job key",
                       s->session.address);
    LH_TRY(lh_state_seal_init(&r->seal, LH_SEAL_RESTORE, conf->keys, conf->job,
                              &conf->manifest->hash, s->id, challenge));
    lh_state_seal_begin(&r->seal, conf->env, conf->cipher, conf->key_id, r->point.epoch,
                        r->point.version, &r->point.chain, r->bytes->len);
    return LH_OK;
}

// Seals and sends the next piece under its head.
static lh_err send_sealed(struct wk_restore *r, struct lh_restore_head *head)
{
    size_t n = lh_state_seal_next(&r->seal);
    struct lh_span plain = lh_span(r->bytes->data + r->at, n);
    struct lh_blob *piece = lh_blob_new(n + LH_SEAL_TAG_BYTES);
    if (!piece) return LH_ERR_NO_MEMORY;
    head->has_seal = !r->at;
    head->seal = lh_state_seal_head(&r->seal);
    lh_err err = lh_state_seal_piece(&r->seal, &plain, 1, piece->data);
    if (!err) err = lh_send_bulk(r->call, LH_MESSAGE(restore_head, head), piece, 0, piece->len);
    lh_blob_release(piece);
    r->at += n;
    return err;
}

static lh_err send_plain(struct wk_restore *r, const struct lh_restore_head *head)
{
    size_t n = r->bytes->len - r->at;
    if (n > LH_PART_BYTES) n = LH_PART_BYTES;
    LH_TRY(lh_send_bulk(r->call, LH_MESSAGE(restore_head, head), r->bytes, r->at, n));
    r->at += n;
    return LH_OK;
}

static lh_err send_parts(struct wk_shard *s)
{
    struct wk_restore *r = &s->restore;
    while (r->sending < LH_CALL_SENDS_MAX && r->at < r->bytes->len) {
        struct lh_restore_head head = {.has_of = true,
                                       .of = {s->id, true, r->point},
                                       .worker = s->worker->id,
                                       .process = r->process,
                                       .total = r->bytes->len};
        LH_TRY(r->sealed ? send_sealed(r, &head) : send_plain(r, &head));
        r->sending++;
    }
    if (!r->finished && r->at == r->bytes->len) {
        r->finished = true;
        lh_call_finish(r->call, LH_OK, NULL);
    }
    return LH_OK;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)self;
    (void)msg;
    lh_call_read(call); // the state was accepted; the status follows
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_sent(void *self, struct lh_call *call)
{
    struct wk_shard *s = self;
    if (s->restore.call != call) return;
    s->restore.sending--;
    s->restore.moved_ns = lh_now(s->worker->conf.env);
    if (send_parts(s)) lh_call_cancel(call);
}

static void drop(struct wk_shard *s)
{
    lh_blob_release(s->restore.bytes);
    s->restore.bytes = NULL;
    s->restore.call = NULL;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct wk_shard *s = self;
    if (s->restore.call != call) return;
    lh_logf(s->worker->conf.log, status ? LH_WARN : LH_INFO,
            status ? "restore.broken" : "restore.brought",
            "shard %u: version %" PRIu64 " of epoch %" PRIu64 " to %s%s%s", s->id,
            s->restore.point.version, s->restore.point.epoch, s->session.address,
            status ? ": " : "", status ? text : "");
    drop(s);
}

static const struct lh_call_ops restore_ops = {on_message, on_half_close, on_sent, on_close};

static void bring(struct wk_shard *s, const struct lh_offer_reply *m)
{
    struct wk_restore *r = &s->restore;
    struct wk_worker *w = s->worker;
    r->point = m->want.at;
    r->process = m->process;
    r->at = 0;
    r->sending = 0;
    r->finished = false;
    r->moved_ns = lh_now(w->conf.env);
    lh_err err = state_blob(s, &r->bytes);
    if (!err) err = begin(s, m->challenge);
    if (!err) err = lh_call_open(s->session.link, LH_RPC_RESTORE, 0, &restore_ops, s, &r->call);
    if (!err) {
        lh_call_read(r->call);
        if (send_parts(s)) lh_call_cancel(r->call);
        return;
    }
    lh_logf(w->conf.log, LH_WARN, "restore.failed", "shard %u: %s", s->id, lh_err_text(err));
    drop(s);
    if (err == LH_ERR_NO_MEMORY) wk_fatal(w, err);
}

static void on_offered(void *self, lh_err err, const void *answer)
{
    struct wk_shard *s = self;
    s->restore.offer = NULL;
    if (s->worker->stopped || err) return; // the next refusal offers again
    const struct lh_offer_reply *m = answer;
    if (m->has_want && m->want.chained && !s->restore.call && s->session.link) bring(s, m);
}

void wk_offer(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct points p;
    // a server that died silently accepts nothing more
    bool stuck = lh_now(w->conf.env) - s->restore.moved_ns > 2 * wk_deadline(w, s->session.link);
    if (s->restore.call && stuck) lh_call_cancel(s->restore.call);
    if (s->restore.offer || s->restore.call || !s->session.link) return;
    lh_err err = list_points(s, &p);
    if (!err) {
        struct lh_offer_request m = {.run = lh_run_of(w->conf.job, &w->conf.manifest->hash),
                                     .shard = s->id,
                                     .worker = w->id,
                                     .n_have = p.n,
                                     .n_digests = p.n,
                                     .have = p.have,
                                     .digests = p.digests};
        err = lh_ask(s->session.link, LH_RPC_OFFER, wk_deadline(w, s->session.link),
                     LH_MESSAGE(offer_request, &m), on_offered, s, &s->restore.offer);
    }
    if (err && lh_err_class(err) == LH_CLASS_STOP) wk_fatal(w, err);
}

void wk_offer_free(struct wk_shard *s)
{
    drop(s);
}
