// A store over a file, an etcd in memory, or a real etcd, for tests of all three.
#ifndef TESTS_UNIT_STORE_RIG_H
#define TESTS_UNIT_STORE_RIG_H

#include <stdio.h>

#include "server/coordinator/store.h"
#include "server/coordinator/store/etcd_log.h"
#include "server/coordinator/store/etcd_wire.h"
#include "server/coordinator/store/number.h"
#include "tests/test.h"
#include "tests/unit/server/coordinator/store/fake_etcd.h"

enum kind { ON_FILE, ON_FAKE, ON_REAL };
static const char *real_address, *real_secrets; // NULL: no real etcd
static const char BASE[] = "/p/run", LEADER[] = "/p/run/leader";

struct rig {
    enum kind kind;
    struct lh_fake_world *world;
    struct lh_env *env;
    struct fake_etcd fake;
    struct ps_etcd_place place;
    int64_t created;
    int64_t patience_ns;
    struct ps_store *store;
};

static inline struct ps_etcd *client(struct rig *r)
{
    struct ps_etcd *e;
    if (r->kind == ON_FAKE) return fake_client(&r->fake, "", r->patience_ns);
    char login[PS_ETCD_LOGIN_BYTES];
    struct ps_etcd_conf conf = {
        .env = r->env, .login = login, .timeout_ns = 5 * LH_SECOND, .patience_ns = 20 * LH_SECOND};
    assert_int_equal(ps_etcd_login(real_secrets, login), LH_OK);
    assert_int_equal(ps_etcd_wire_open(&r->place, real_secrets, &conf.wire), LH_OK);
    assert_int_equal(ps_etcd_create(&conf, &e), LH_OK);
    return e;
}

static inline int64_t lead(struct rig *r, const char *who)
{
    struct ps_etcd *e = client(r);
    struct lh_buf value = lh_buf(100);
    const struct ps_etcd_fence none = {LEADER, 0};
    assert_int_equal(ps_etcd_change(e, &none, LEADER, lh_span_str(who), 0, NULL), LH_OK);
    assert_int_equal(ps_etcd_get(e, LEADER, &value, &r->created), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&value), lh_span_str(who)));
    lh_buf_free(&value);
    ps_etcd_destroy(e);
    return r->created;
}

static inline void forget_all(struct rig *r)
{
    struct ps_etcd *e = client(r);
    const struct ps_etcd_fence any = {"/p/none", 0};
    assert_int_equal(ps_etcd_change(e, &any, NULL, lh_span(NULL, 0), 0, BASE), LH_OK);
    ps_etcd_destroy(e);
}

LH_MUST static inline lh_err try_to_open(struct rig *r)
{
    ps_store_close(r->store);
    r->store = NULL;
    if (r->kind == ON_FILE) return ps_store_open(r->env, "state", &r->store);
    const struct ps_etcd_log_conf conf = {.etcd = client(r), .base = BASE, .created = r->created};
    return ps_store_open_etcd(&conf, &r->store);
}

static inline void open_store(struct rig *r)
{
    assert_int_equal(try_to_open(r), LH_OK);
}

static inline struct rig *start(enum kind kind)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->kind = kind;
    r->patience_ns = LH_SECOND;
    r->world = lh_fake_world_create(1);
    r->env = lh_fake_node(r->world, NULL, NULL);
    r->fake.env = r->env;
    lh_fake_boot(r->env);
    if (kind == ON_REAL) assert_int_equal(ps_etcd_parse(real_address, &r->place), LH_OK);
    if (kind != ON_FILE) {
        forget_all(r);
        (void)lead(r, "me");
    }
    open_store(r);
    return r;
}

static inline void finish(struct rig *r)
{
    ps_store_close(r->store);
    if (r->kind != ON_FILE) forget_all(r);
    fake_free(&r->fake);
    lh_fake_world_destroy(r->world);
    free(r);
}

static inline void put(struct rig *r, const char *key, const char *value)
{
    assert_int_equal(ps_store_put(r->store, key, lh_span_str(value)), LH_OK);
}

LH_MUST static inline lh_err try_to_commit(struct rig *r)
{
    bool begun;
    LH_TRY(ps_store_begin(r->store, &begun));
    if (!begun) return LH_OK;
    lh_err err = ps_store_write(r->store);
    ps_store_end(r->store, err);
    return err;
}

static inline void commit(struct rig *r)
{
    assert_int_equal(try_to_commit(r), LH_OK);
}

// `value` NULL: the key is absent.
static inline bool holds(const struct rig *r, const char *key, const char *value)
{
    struct lh_span got;
    if (!ps_store_get(r->store, key, &got)) return !value;
    return value && lh_span_equal(got, lh_span_str(value));
}

static inline uint64_t number_of(struct rig *r)
{
    uint64_t number;
    assert_int_equal(ps_store_number(r->env, r->store, &number), LH_OK);
    return number;
}

#endif
