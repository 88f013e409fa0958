// An etcd in memory: the few requests that server/coordinator/store/etcd.c makes, with faults. The
// simulator runs it behind its own network (tests/sim/pair_store.c).
#ifndef TESTS_UNIT_FAKE_ETCD_H
#define TESTS_UNIT_FAKE_ETCD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/net/rpc.h"
#include "etcd/etcd.pb-c.h"
#include "server/coordinator/store/etcd.h"
#include "tests/world/env_fake.h"

enum { FAKE_LEASES = 4096 };

enum fake_fault {
    FAKE_NONE,
    FAKE_BEFORE, // the request is lost
    FAKE_AFTER,  // the answer is lost
    FAKE_FULL,   // the request finds no space
    FAKE_BUSY,   // the request is refused for now
};

struct fake_key {
    char key[PS_ETCD_KEY_BYTES];
    uint8_t *value;
    size_t bytes;
    int64_t created, lease;
};

struct fake_etcd {
    struct lh_env *env;
    struct fake_key *at; // sorted
    size_t count, cap;
    int64_t revision, leases;
    int64_t lease_end_ns[FAKE_LEASES]; // the end of lease i + 1; 0: revoked
    int64_t lease_ttl_s[FAKE_LEASES];
    uint64_t requests; // all so far
    // Faults hit `fault_count` requests from number `fault_at` on, or every `every`-th one.
    uint64_t fault_at, fault_count, every;
    enum fake_fault fault;
    bool away, full;
    const char *password; // NULL: no password is needed
    unsigned logins;
    size_t bytes_max; // size of the largest request so far
};

static inline size_t fake_find(const struct fake_etcd *f, const char *key, size_t n)
{
    size_t i = 0;
    while (i < f->count) {
        size_t len = strlen(f->at[i].key);
        int order = memcmp(f->at[i].key, key, len < n ? len : n);
        if (order > 0 || (order == 0 && len >= n)) break;
        i++;
    }
    return i;
}

static inline bool fake_is(const struct fake_etcd *f, size_t i, ProtobufCBinaryData key)
{
    return i < f->count && strlen(f->at[i].key) == key.len &&
           memcmp(f->at[i].key, key.data, key.len) == 0;
}

static inline void fake_remove(struct fake_etcd *f, size_t i)
{
    free(f->at[i].value);
    memmove(&f->at[i], &f->at[i + 1], (--f->count - i) * sizeof *f->at);
}

static inline void fake_put(struct fake_etcd *f, const Etcdserverpb__PutRequest *put)
{
    size_t i = fake_find(f, (const char *)put->key.data, put->key.len);
    if (!fake_is(f, i, put->key)) {
        if (f->count == f->cap) {
            f->cap = 2 * f->cap + 16;
            f->at = realloc(f->at, f->cap * sizeof *f->at);
            LH_ASSERT(f->at);
        }
        memmove(&f->at[i + 1], &f->at[i], (f->count++ - i) * sizeof *f->at);
        f->at[i] = (struct fake_key){.created = f->revision};
        memcpy(f->at[i].key, put->key.data, put->key.len);
    }
    free(f->at[i].value);
    f->at[i].value = malloc(put->value.len + 1);
    LH_ASSERT(f->at[i].value);
    memcpy(f->at[i].value, put->value.data, put->value.len);
    f->at[i].bytes = put->value.len;
    f->at[i].lease = put->lease;
}

static inline void fake_expire(struct fake_etcd *f)
{
    int64_t now = lh_now(f->env);
    for (size_t i = 0; i < f->count;) {
        int64_t lease = f->at[i].lease;
        if (lease && f->lease_end_ns[lease - 1] <= now)
            fake_remove(f, i);
        else
            i++;
    }
}

static inline void fake_range(struct fake_etcd *f, struct lh_span request, struct lh_buf *answer)
{
    Etcdserverpb__RangeRequest *rq =
        etcdserverpb__range_request__unpack(NULL, request.len, request.data);
    Etcdserverpb__RangeResponse out = ETCDSERVERPB__RANGE_RESPONSE__INIT;
    Etcdserverpb__KeyValue kv[64], *kvs[64];
    LH_ASSERT(rq);
    LH_ASSERT(rq->limit <= 64);
    size_t i = fake_find(f, (const char *)rq->key.data, rq->key.len);
    size_t end = rq->range_end.len
                     ? fake_find(f, (const char *)rq->range_end.data, rq->range_end.len)
                     : i + fake_is(f, i, rq->key);
    for (; i < end && out.n_kvs < (size_t)(rq->limit ? rq->limit : 64); i++) {
        Etcdserverpb__KeyValue *to = kvs[out.n_kvs] = &kv[out.n_kvs];
        etcdserverpb__key_value__init(to);
        to->key = (ProtobufCBinaryData){strlen(f->at[i].key), (uint8_t *)f->at[i].key};
        to->value = (ProtobufCBinaryData){f->at[i].bytes, f->at[i].value};
        to->create_revision = f->at[i].created;
        out.n_kvs++;
    }
    out.kvs = kvs;
    out.more = i < end;
    LH_ASSERT(lh_rpc_pack(&out.base, answer) == LH_OK);
    etcdserverpb__range_request__free_unpacked(rq, NULL);
}

// A transaction without comparisons always holds.
static inline bool fake_holds(const struct fake_etcd *f, const Etcdserverpb__TxnRequest *rq)
{
    for (size_t k = 0; k < rq->n_compare; k++) {
        const Etcdserverpb__Compare *c = rq->compare[k];
        size_t i = fake_find(f, (const char *)c->key.data, c->key.len);
        bool is = fake_is(f, i, c->key);
        bool value = c->target == ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE;
        bool same = value ? is && f->at[i].bytes == c->value.len &&
                                memcmp(f->at[i].value, c->value.data, c->value.len) == 0
                          : (is ? f->at[i].created : 0) == c->create_revision;
        if (!same) return false;
    }
    return true;
}

static inline LH_MUST lh_err fake_txn(struct fake_etcd *f, struct lh_span request,
                                      struct lh_buf *answer)
{
    Etcdserverpb__TxnRequest *rq =
        etcdserverpb__txn_request__unpack(NULL, request.len, request.data);
    Etcdserverpb__TxnResponse out = ETCDSERVERPB__TXN_RESPONSE__INIT;
    bool puts = false;
    LH_ASSERT(rq);
    out.succeeded = fake_holds(f, rq);
    for (size_t k = 0; k < rq->n_success; k++) {
        bool put = rq->success[k]->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
        int64_t lease = put ? rq->success[k]->request_put->lease : 0;
        puts |= put;
        if (!out.succeeded || !lease || f->lease_end_ns[lease - 1] > lh_now(f->env)) continue;
        etcdserverpb__txn_request__free_unpacked(rq, NULL);
        return lh_fail(LH_ERR_NOT_FOUND, "etcdserver: requested lease not found");
    }
    if (puts && f->full) {
        etcdserverpb__txn_request__free_unpacked(rq, NULL);
        return lh_fail(LH_ERR_DISK_FULL, "etcdserver: mvcc: database space exceeded");
    }
    if (out.succeeded) f->revision++;
    for (size_t k = 0; out.succeeded && k < rq->n_success; k++) {
        const Etcdserverpb__RequestOp *op = rq->success[k];
        if (op->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT) {
            fake_put(f, op->request_put);
            continue;
        }
        const Etcdserverpb__DeleteRangeRequest *d = op->request_delete_range;
        size_t from = fake_find(f, (const char *)d->key.data, d->key.len);
        size_t end = fake_find(f, (const char *)d->range_end.data, d->range_end.len);
        while (end-- > from) fake_remove(f, from);
    }
    LH_ASSERT(lh_rpc_pack(&out.base, answer) == LH_OK);
    etcdserverpb__txn_request__free_unpacked(rq, NULL);
    return LH_OK;
}

static inline void fake_lease(struct fake_etcd *f, const char *path, struct lh_span request,
                              struct lh_buf *answer)
{
    if (strstr(path, "Grant")) {
        Etcdserverpb__LeaseGrantRequest *rq =
            etcdserverpb__lease_grant_request__unpack(NULL, request.len, request.data);
        Etcdserverpb__LeaseGrantResponse out = ETCDSERVERPB__LEASE_GRANT_RESPONSE__INIT;
        LH_ASSERT(f->leases < FAKE_LEASES);
        out.id = ++f->leases;
        out.ttl = f->lease_ttl_s[out.id - 1] = rq->ttl;
        f->lease_end_ns[out.id - 1] = lh_now(f->env) + rq->ttl * LH_SECOND;
        LH_ASSERT(lh_rpc_pack(&out.base, answer) == LH_OK);
        etcdserverpb__lease_grant_request__free_unpacked(rq, NULL);
        return;
    }
    // Both kinds of request have the lease as their first field.
    Etcdserverpb__LeaseKeepAliveRequest *rq =
        etcdserverpb__lease_keep_alive_request__unpack(NULL, request.len, request.data);
    Etcdserverpb__LeaseKeepAliveResponse out = ETCDSERVERPB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    int64_t *end = &f->lease_end_ns[rq->id - 1];
    bool lives = *end > lh_now(f->env);
    out.ttl = lives ? f->lease_ttl_s[rq->id - 1] : 0;
    *end = lives && strstr(path, "Keep") ? lh_now(f->env) + out.ttl * LH_SECOND : 0;
    if (strstr(path, "Keep")) LH_ASSERT(lh_rpc_pack(&out.base, answer) == LH_OK);
    etcdserverpb__lease_keep_alive_request__free_unpacked(rq, NULL);
}

static inline LH_MUST lh_err fake_log_in(struct fake_etcd *f, struct lh_span request,
                                         struct lh_buf *answer)
{
    Etcdserverpb__AuthenticateRequest *rq =
        etcdserverpb__authenticate_request__unpack(NULL, request.len, request.data);
    Etcdserverpb__AuthenticateResponse out = ETCDSERVERPB__AUTHENTICATE_RESPONSE__INIT;
    char token[32];
    bool fits = strcmp(rq->password, f->password) == 0;
    snprintf(token, sizeof token, "token %u", ++f->logins);
    out.token = token;
    LH_ASSERT(lh_rpc_pack(&out.base, answer) == LH_OK);
    etcdserverpb__authenticate_request__free_unpacked(rq, NULL);
    return fits ? LH_OK : lh_fail(LH_ERR_INVALID, "etcdserver: authentication failed");
}

static inline LH_MUST lh_err fake_carry_out(struct fake_etcd *f, const char *path,
                                            const char *token, struct lh_span request,
                                            struct lh_buf *answer)
{
    char right[32];
    snprintf(right, sizeof right, "token %u", f->logins);
    fake_expire(f);
    if (strstr(path, "Authenticate")) return fake_log_in(f, request, answer);
    if (f->password && !token[0]) return lh_fail(LH_ERR_INVALID, "etcdserver: user name is empty");
    if (f->password && strcmp(token, right) != 0)
        return lh_fail(LH_ERR_UNAUTHENTICATED, "etcdserver: invalid auth token");
    if (strstr(path, "Range")) {
        fake_range(f, request, answer);
        return LH_OK;
    }
    if (strstr(path, "Txn")) return fake_txn(f, request, answer);
    fake_lease(f, path, request, answer);
    return LH_OK;
}

static inline LH_MUST lh_err fake_call(void *self, uint32_t member, const char *path,
                                       const char *token, struct lh_span request,
                                       int64_t timeout_ns, struct lh_buf *answer)
{
    struct fake_etcd *f = self;
    uint64_t n = ++f->requests;
    bool bad =
        (n >= f->fault_at && n - f->fault_at < f->fault_count) || (f->every && n % f->every == 0);
    (void)member;
    (void)timeout_ns;
    if (request.len > f->bytes_max) f->bytes_max = request.len;
    if (f->away || (bad && f->fault == FAKE_BEFORE))
        return lh_fail(LH_ERR_UNAVAILABLE, "the fake etcd is away");
    if (bad && f->fault == FAKE_BUSY) return lh_fail(LH_ERR_BUSY, "the fake etcd is busy");
    size_t had = answer->len;
    bool full = f->full;
    f->full = full || (bad && f->fault == FAKE_FULL);
    lh_err err = fake_carry_out(f, path, token, request, answer);
    f->full = full;
    if (!bad || f->fault != FAKE_AFTER) return err;
    answer->len = had;
    return lh_fail(LH_ERR_DEADLINE, "the fake etcd's answer is lost");
}

static inline void fake_wait(void *self, int64_t ns)
{
    (void)self;
    (void)ns;
}

static inline void fake_close(void *self)
{
    (void)self; // the test owns the fake
}

static inline struct ps_etcd *fake_client(struct fake_etcd *f, const char *login,
                                          int64_t patience_ns)
{
    struct ps_etcd *e;
    const struct ps_etcd_conf conf = {.env = f->env,
                                      .wire = {f, 3, fake_call, fake_wait, fake_close},
                                      .login = login,
                                      .timeout_ns = LH_SECOND,
                                      .patience_ns = patience_ns};
    LH_ASSERT(ps_etcd_create(&conf, &e) == LH_OK);
    return e;
}

static inline void fake_free(struct fake_etcd *f)
{
    while (f->count) fake_remove(f, f->count - 1);
    free(f->at);
}

#endif
