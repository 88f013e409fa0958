// Calls to etcd. See etcd.h.
#include "server/coordinator/store/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/net/rpc.h"
#include "etcd/etcd.pb-c.h"

enum {
    PAGE = 16, // values of one answer, of PS_ETCD_VALUE_BYTES each at most
    REQUEST_BYTES_MAX = PS_ETCD_VALUE_BYTES + (64 << 10),
    ANSWER_BYTES_MAX = (PAGE + 1) * REQUEST_BYTES_MAX,
    TOKEN_BYTES = 512,
};
static const int64_t PAUSE_NS = 50 * LH_MS; // after all members failed to answer

struct ps_etcd {
    struct lh_env *env;
    struct ps_etcd_wire wire;
    char login[PS_ETCD_LOGIN_BYTES], token[TOKEN_BYTES];
    int64_t timeout_ns, patience_ns;
    uint32_t member; // the one that answered last
    atomic_bool stopped;
    struct lh_buf request, answer;
};

lh_err ps_etcd_create(const struct ps_etcd_conf *conf, struct ps_etcd **out)
{
    struct ps_etcd *e = calloc(1, sizeof *e);
    if (!e) {
        conf->wire.close(conf->wire.self);
        return LH_ERR_NO_MEMORY;
    }
    e->env = conf->env;
    e->wire = conf->wire;
    e->timeout_ns = conf->timeout_ns;
    e->patience_ns = conf->patience_ns;
    snprintf(e->login, sizeof e->login, "%s", conf->login);
    e->request = lh_buf(REQUEST_BYTES_MAX);
    e->answer = lh_buf(ANSWER_BYTES_MAX);
    atomic_init(&e->stopped, false);
    *out = e;
    return LH_OK;
}

void ps_etcd_destroy(struct ps_etcd *e)
{
    if (!e) return;
    e->wire.close(e->wire.self);
    lh_buf_free(&e->request);
    lh_buf_free(&e->answer);
    explicit_bzero(e->login, sizeof e->login);
    explicit_bzero(e->token, sizeof e->token);
    free(e);
}

void ps_etcd_stop(struct ps_etcd *e)
{
    atomic_store(&e->stopped, true);
}

void ps_etcd_wait(struct ps_etcd *e, int64_t ns)
{
    e->wire.wait(e->wire.self, ns);
}

// ---------------------------------------------------------------- one call

static LH_MUST lh_err parse(struct ps_etcd *e, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **out)
{
    *out = protobuf_c_message_unpack(type, NULL, e->answer.len, e->answer.data);
    return *out ? LH_OK : lh_fail(LH_ERR_MALFORMED, "etcd: an answer that is no %s", type->name);
}

static LH_MUST lh_err attempt(struct ps_etcd *e, const char *path)
{
    lh_buf_clear(&e->answer);
    return e->wire.call(e->wire.self, e->member, path, e->token, lh_buf_span(&e->request),
                        e->timeout_ns, &e->answer);
}

// A token is good for some minutes: where etcd refuses one, or none, we ask for another.
static LH_MUST lh_err log_in(struct ps_etcd *e)
{
    Etcdserverpb__AuthenticateRequest rq = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
    char name[PS_ETCD_LOGIN_BYTES];
    ProtobufCMessage *m;
    struct lh_buf body = lh_buf(2 * PS_ETCD_LOGIN_BYTES);
    snprintf(name, sizeof name, "%s", e->login);
    char *colon = strchr(name, ':');
    if (colon) *colon = 0;
    rq.name = name;
    rq.password = colon ? colon + 1 : name + strlen(name);
    lh_err err = lh_rpc_pack(&rq.base, &body);
    lh_buf_clear(&e->answer);
    if (!err)
        err = e->wire.call(e->wire.self, e->member, "/etcdserverpb.Auth/Authenticate", "",
                           lh_buf_span(&body), e->timeout_ns, &e->answer);
    explicit_bzero(name, sizeof name);
    if (body.data) explicit_bzero(body.data, body.len);
    lh_buf_free(&body);
    if (err) return err;
    LH_TRY(parse(e, &etcdserverpb__authenticate_response__descriptor, &m));
    snprintf(e->token, sizeof e->token, "%s", ((Etcdserverpb__AuthenticateResponse *)m)->token);
    protobuf_c_message_free_unpacked(m, NULL);
    return LH_OK;
}

// etcd says "user name is empty" to a call without a token, as an invalid argument.
static bool wants_login(const struct ps_etcd *e, lh_err err)
{
    return e->login[0] &&
           (err == LH_ERR_UNAUTHENTICATED || (err == LH_ERR_INVALID && !e->token[0]));
}

static LH_MUST lh_err ask_member(struct ps_etcd *e, const char *path)
{
    lh_err err = e->login[0] && !e->token[0] ? log_in(e) : LH_OK;
    if (!err) err = attempt(e, path);
    if (!wants_login(e, err)) return err;
    e->token[0] = 0;
    LH_TRY(log_in(e));
    return attempt(e, path);
}

static bool is_away(lh_err err)
{
    return err == LH_ERR_UNAVAILABLE || err == LH_ERR_DEADLINE || err == LH_ERR_BUSY;
}

// *unsure: an earlier attempt was not answered, and may have been carried out.
static LH_MUST lh_err ask(struct ps_etcd *e, const char *path, const ProtobufCMessage *m,
                          bool *unsure)
{
    int64_t end = lh_now(e->env) + e->patience_ns;
    lh_buf_clear(&e->request);
    *unsure = false;
    LH_TRY(lh_rpc_pack(m, &e->request));
    for (uint32_t tries = 1;; tries++) {
        if (atomic_load(&e->stopped)) return lh_fail(LH_ERR_CANCELLED, "etcd: no longer asked");
        lh_err err = ask_member(e, path);
        if (!is_away(err)) return err;
        *unsure = true;
        e->member = (e->member + 1) % e->wire.members;
        if (lh_now(e->env) >= end)
            return lh_fail(LH_ERR_UNAVAILABLE, "etcd does not answer; last: %s", lh_err_text(err));
        if (tries % e->wire.members == 0) e->wire.wait(e->wire.self, PAUSE_NS);
    }
}

static LH_MUST lh_err call(struct ps_etcd *e, const char *path, const ProtobufCMessage *m,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **out)
{
    bool unsure;
    lh_err err = ask(e, path, m, &unsure);
    // An attempt before this one may have found space: only a reader knows.
    if (err == LH_ERR_DISK_FULL && unsure)
        return lh_fail(LH_ERR_UNAVAILABLE, "%s", lh_err_text(err));
    return err ? err : parse(e, type, out);
}

// ---------------------------------------------------------------- keys

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)data, .len = len};
}

static ProtobufCBinaryData text_of(const char *text)
{
    return bytes_of(text, strlen(text));
}

// The first key after all that begin with `prefix`, which is ASCII.
static void end_of(const char *prefix, char out[PS_ETCD_KEY_BYTES])
{
    snprintf(out, PS_ETCD_KEY_BYTES, "%s", prefix);
    size_t n = strlen(out);
    LH_ASSERT(n);
    out[n - 1]++;
}

struct reading {
    ps_etcd_each each;
    void *arg;
    const char *prefix;
    char from[PS_ETCD_KEY_BYTES + 1]; // the next page's first key
    size_t from_bytes;
};

// A key that is not above the last one would be asked for without an end.
static bool is_next(const struct reading *r, const ProtobufCBinaryData *key)
{
    size_t prefix = strlen(r->prefix), common = key->len;
    if (key->len < prefix || key->len >= PS_ETCD_KEY_BYTES || !key->len) return false;
    if (memchr(key->data, 0, key->len) || memcmp(key->data, r->prefix, prefix) != 0) return false;
    if (common > r->from_bytes) common = r->from_bytes;
    int order = memcmp(key->data, r->from, common);
    return order ? order > 0 : key->len >= r->from_bytes;
}

static LH_MUST lh_err take_page(struct reading *r, const Etcdserverpb__RangeResponse *page)
{
    for (size_t i = 0; i < page->n_kvs; i++) {
        const Etcdserverpb__KeyValue *kv = page->kvs[i];
        if (!is_next(r, &kv->key))
            return lh_fail(LH_ERR_CORRUPT, "etcd: a key of %zu bytes that was not asked for",
                           kv->key.len);
        memcpy(r->from, kv->key.data, kv->key.len);
        r->from[kv->key.len] = 0;
        r->from_bytes = kv->key.len + 1; // the zero: the first key after this one
        LH_TRY(r->each(r->arg, r->from, lh_span(kv->value.data, kv->value.len)));
    }
    return LH_OK;
}

lh_err ps_etcd_read(struct ps_etcd *e, const char *prefix, ps_etcd_each each, void *arg)
{
    struct reading r = {.each = each, .arg = arg, .prefix = prefix, .from_bytes = strlen(prefix)};
    char end[PS_ETCD_KEY_BYTES];
    LH_ASSERT(r.from_bytes < PS_ETCD_KEY_BYTES);
    memcpy(r.from, prefix, r.from_bytes);
    end_of(prefix, end);
    for (bool more = true; more;) {
        Etcdserverpb__RangeRequest rq = ETCDSERVERPB__RANGE_REQUEST__INIT;
        ProtobufCMessage *m;
        rq.key = bytes_of(r.from, r.from_bytes);
        rq.range_end = text_of(end);
        rq.limit = PAGE;
        LH_TRY(call(e, "/etcdserverpb.KV/Range", &rq.base,
                    &etcdserverpb__range_response__descriptor, &m));
        const Etcdserverpb__RangeResponse *page = (const Etcdserverpb__RangeResponse *)m;
        more = page->more && page->n_kvs;
        lh_err err = take_page(&r, page);
        protobuf_c_message_free_unpacked(m, NULL);
        if (err) return err;
    }
    return LH_OK;
}

lh_err ps_etcd_get(struct ps_etcd *e, const char *key, struct lh_buf *value, int64_t *created)
{
    Etcdserverpb__RangeRequest rq = ETCDSERVERPB__RANGE_REQUEST__INIT;
    ProtobufCMessage *m;
    rq.key = text_of(key);
    LH_TRY(
        call(e, "/etcdserverpb.KV/Range", &rq.base, &etcdserverpb__range_response__descriptor, &m));
    const Etcdserverpb__RangeResponse *page = (const Etcdserverpb__RangeResponse *)m;
    lh_err err = page->n_kvs ? LH_OK : LH_ERR_NOT_FOUND;
    if (!err) {
        lh_buf_clear(value);
        lh_put(value, page->kvs[0]->value.data, page->kvs[0]->value.len);
        *created = page->kvs[0]->create_revision;
        err = lh_buf_err(value);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return err;
}

// A transaction in the making: at most two conditions and two operations.
struct txn {
    Etcdserverpb__TxnRequest rq;
    Etcdserverpb__Compare compare[2], *compares[2];
    Etcdserverpb__RequestOp op[2], *ops[2];
    Etcdserverpb__PutRequest put;
    Etcdserverpb__DeleteRangeRequest remove;
};

static Etcdserverpb__Compare *add_compare(struct txn *t, const char *key)
{
    Etcdserverpb__Compare *c = t->compares[t->rq.n_compare] = &t->compare[t->rq.n_compare];
    etcdserverpb__compare__init(c);
    c->key = text_of(key);
    t->rq.n_compare++;
    return c;
}

static void if_created(struct txn *t, const char *key, int64_t revision)
{
    Etcdserverpb__Compare *c = add_compare(t, key);
    c->target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE;
    c->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
    c->create_revision = revision;
}

static void if_value(struct txn *t, const char *key, struct lh_span value)
{
    Etcdserverpb__Compare *c = add_compare(t, key);
    c->target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE;
    c->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
    c->value = bytes_of(value.data, value.len);
}

static Etcdserverpb__RequestOp *add_op(struct txn *t)
{
    Etcdserverpb__RequestOp *op = t->ops[t->rq.n_success] = &t->op[t->rq.n_success];
    etcdserverpb__request_op__init(op);
    t->rq.n_success++;
    return op;
}

static void then_put(struct txn *t, const char *key, struct lh_span value, int64_t lease)
{
    Etcdserverpb__RequestOp *op = add_op(t);
    etcdserverpb__put_request__init(&t->put);
    t->put.key = text_of(key);
    t->put.value = bytes_of(value.data, value.len);
    t->put.lease = lease;
    op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
    op->request_put = &t->put;
}

static void then_remove(struct txn *t, const char *from, const char *to)
{
    Etcdserverpb__RequestOp *op = add_op(t);
    etcdserverpb__delete_range_request__init(&t->remove);
    t->remove.key = text_of(from);
    t->remove.range_end = text_of(to);
    op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    op->request_delete_range = &t->remove;
}

static void begin_txn(struct txn *t, const struct ps_etcd_fence *fence)
{
    etcdserverpb__txn_request__init(&t->rq);
    t->rq.compare = t->compares;
    t->rq.success = t->ops;
    if (fence->created && LH_BUG("no_fence")) return; // planted: whoever leads
    if_created(t, fence->key, fence->created);
}

static LH_MUST lh_err carry_out(struct ps_etcd *e, const struct txn *t, const char *fence)
{
    ProtobufCMessage *m;
    LH_TRY(
        call(e, "/etcdserverpb.KV/Txn", &t->rq.base, &etcdserverpb__txn_response__descriptor, &m));
    bool held = ((const Etcdserverpb__TxnResponse *)m)->succeeded;
    protobuf_c_message_free_unpacked(m, NULL);
    return held ? LH_OK
                : lh_fail(LH_ERR_CONFLICT, "etcd: %s belongs to another coordinator, or is gone",
                          fence);
}

lh_err ps_etcd_change(struct ps_etcd *e, const struct ps_etcd_fence *fence, const char *key,
                      struct lh_span value, int64_t lease, const char *drop)
{
    struct txn t;
    char end[PS_ETCD_KEY_BYTES];
    begin_txn(&t, fence);
    if (key) then_put(&t, key, value, lease);
    if (drop) {
        end_of(drop, end);
        then_remove(&t, drop, end);
    }
    return carry_out(e, &t, fence->key);
}

// Has the key this value, so that an attempt without an answer made the change?
static bool has_value(struct ps_etcd *e, const char *key, struct lh_span value)
{
    struct lh_buf is = lh_buf(ANSWER_BYTES_MAX);
    int64_t created;
    bool has = !ps_etcd_get(e, key, &is, &created) && lh_span_equal(lh_buf_span(&is), value);
    lh_buf_free(&is);
    return has;
}

lh_err ps_etcd_replace(struct ps_etcd *e, const struct ps_etcd_fence *fence, const char *key,
                       struct lh_span was, struct lh_span value, const char *from, const char *to)
{
    struct txn t;
    struct lh_err_said said;
    begin_txn(&t, fence);
    if (was.len)
        if_value(&t, key, was);
    else
        if_created(&t, key, 0);
    then_put(&t, key, value, 0);
    if (from) then_remove(&t, from, to);
    lh_err err = carry_out(e, &t, fence->key);
    if (err != LH_ERR_CONFLICT) return err;
    lh_err_take(&said);
    if (has_value(e, key, value)) return LH_OK;
    lh_err_give(&said);
    return err;
}

// ---------------------------------------------------------------- leases

lh_err ps_etcd_grant(struct ps_etcd *e, int64_t ttl_s, int64_t *lease)
{
    Etcdserverpb__LeaseGrantRequest rq = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
    ProtobufCMessage *m;
    rq.ttl = ttl_s;
    LH_TRY(call(e, "/etcdserverpb.Lease/LeaseGrant", &rq.base,
                &etcdserverpb__lease_grant_response__descriptor, &m));
    const Etcdserverpb__LeaseGrantResponse *granted = (const Etcdserverpb__LeaseGrantResponse *)m;
    *lease = granted->id;
    lh_err err = granted->error[0]
                     ? lh_fail(LH_ERR_UNAVAILABLE, "etcd: no lease: %s", granted->error)
                     : LH_OK;
    protobuf_c_message_free_unpacked(m, NULL);
    return err;
}

// A stream of one message: etcd answers each keep-alive with the time that is left.
lh_err ps_etcd_keep_alive(struct ps_etcd *e, int64_t lease)
{
    Etcdserverpb__LeaseKeepAliveRequest rq = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    ProtobufCMessage *m;
    rq.id = lease;
    LH_TRY(call(e, "/etcdserverpb.Lease/LeaseKeepAlive", &rq.base,
                &etcdserverpb__lease_keep_alive_response__descriptor, &m));
    int64_t left = ((const Etcdserverpb__LeaseKeepAliveResponse *)m)->ttl;
    protobuf_c_message_free_unpacked(m, NULL);
    return left > 0 ? LH_OK : lh_fail(LH_ERR_NOT_FOUND, "etcd: the lease is over");
}

lh_err ps_etcd_revoke(struct ps_etcd *e, int64_t lease)
{
    Etcdserverpb__LeaseRevokeRequest rq = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
    ProtobufCMessage *m;
    rq.id = lease;
    LH_TRY(call(e, "/etcdserverpb.Lease/LeaseRevoke", &rq.base,
                &etcdserverpb__lease_revoke_response__descriptor, &m));
    protobuf_c_message_free_unpacked(m, NULL);
    return LH_OK;
}
