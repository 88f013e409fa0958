// A node with the coordinator's store on its disk.
#ifndef TESTS_UNIT_STORE_RIG_H
#define TESTS_UNIT_STORE_RIG_H

#include "server/coordinator/store.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static const char *const file_path = "state/store";

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_store *store;
};

static inline LH_MUST lh_err open_store(struct rig *r)
{
    ps_store_close(r->store);
    r->store = NULL;
    return ps_store_open(r->env, "state", &r->store);
}

static inline struct rig start(uint64_t seed)
{
    struct rig r = {.world = lh_fake_world_create(seed)};
    r.env = lh_fake_node(r.world, NULL, NULL);
    lh_fake_boot(r.env);
    assert_int_equal(open_store(&r), LH_OK);
    return r;
}

static inline void finish(struct rig *r)
{
    ps_store_close(r->store);
    lh_fake_world_destroy(r->world);
}

static inline void crash(struct rig *r, bool power)
{
    if (lh_fake_alive(r->env)) lh_fake_kill(r->env, power);
    ps_store_close(r->store);
    r->store = NULL;
    lh_fake_boot(r->env);
    assert_int_equal(open_store(r), LH_OK);
}

static inline void put(struct rig *r, const char *key, const char *value)
{
    assert_int_equal(ps_store_put(r->store, key, lh_span_str(value)), LH_OK);
}

static inline LH_MUST lh_err try_to_commit(struct ps_store *s)
{
    bool begun;
    LH_TRY(ps_store_begin(s, &begun));
    if (!begun) return LH_OK;
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    return err;
}

static inline void commit(struct rig *r)
{
    assert_int_equal(try_to_commit(r->store), LH_OK);
}

static inline void drop(struct rig *r, const char *key)
{
    assert_int_equal(ps_store_remove(r->store, key), LH_OK);
}

// `value` NULL: the key is absent.
static inline bool holds(const struct rig *r, const char *key, const char *value)
{
    struct lh_span got;
    if (!ps_store_get(r->store, key, &got)) return !value;
    return value && lh_span_equal(got, lh_span_str(value));
}

static inline size_t file_bytes(struct rig *r)
{
    struct lh_buf bytes = lh_buf(1 << 24);
    assert_int_equal(lh_file_load(r->env, file_path, &bytes), LH_OK);
    size_t n = bytes.len;
    lh_buf_free(&bytes);
    return n;
}

#endif
