// common/objects/folder.c and objects.c: objects in a folder; malformed addresses and keys.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "common/objects/address.h"
#include "common/objects/objects.h"
#include "tests/test.h"

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

struct rig {
    struct lh_env *env;
    struct lh_objects *store;
    char dir[64], file[96], address[96];
    char listed[512];
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "/tmp/longhaul-folder-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->file, sizeof r->file, "%s/file", r->dir);
    snprintf(r->address, sizeof r->address, "file://%s/store/deep", r->dir);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    const struct lh_objects_conf conf = {
        .env = r->env, .address = r->address, .variable = no_variable};
    assert_int_equal(lh_objects_open(&conf, &r->store), LH_OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    char command[128];
    lh_objects_close(r->store);
    lh_env_real_destroy(r->env);
    snprintf(command, sizeof command, "rm -rf %s", r->dir);
    assert_int_equal(system(command), 0);
    free(r);
    return 0;
}

static lh_err note(void *arg, const char *key, uint64_t bytes)
{
    struct rig *r = arg;
    size_t n = strlen(r->listed);
    snprintf(r->listed + n, sizeof r->listed - n, "%s=%llu;", key, (unsigned long long)bytes);
    return LH_OK;
}

static const char *list(struct rig *r, const char *prefix)
{
    r->listed[0] = 0;
    assert_int_equal(r->store->ops->list(r->store, prefix, note, r), LH_OK);
    return r->listed;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(objects_come_back, struct rig *r)
{
    struct lh_buf got = lh_buf(100);
    char hash[LH_OBJECT_HASH_BYTES];
    uint64_t bytes;
    const struct lh_objects_ops *ops = r->store->ops;
    assert_string_equal(list(r, ""), ""); // the folder does not exist yet
    assert_int_equal(lh_file_replace(r->env, r->file, lh_span_str("whole")), LH_OK);
    assert_int_equal(ops->put(r->store, "a-1", r->file), LH_OK);
    assert_int_equal(ops->put(r->store, "a-1", r->file), LH_OK); // replaces the object with itself
    assert_int_equal(ops->put_new(r->store, "b-1", lh_span_str("first")), LH_OK);
    assert_int_equal(ops->put_new(r->store, "b-1", lh_span_str("second")), LH_ERR_EXISTS);
    assert_int_equal(ops->get(r->store, "b-1", &got), LH_OK);
    assert_memory_equal(got.data, "first", 5);
    assert_string_equal(list(r, ""), "a-1=5;b-1=5;");
    assert_string_equal(list(r, "b"), "b-1=5;");
    assert_int_equal(ops->get_file(r->store, "a-1", 5, r->file), LH_OK);
    assert_int_equal(ops->get_file(r->store, "a-1", 6, r->file), LH_ERR_CORRUPT);
    assert_int_equal(lh_object_hash(r->env, r->file, hash, &bytes), LH_OK);
    assert_int_equal(bytes, 5);
    assert_string_equal(hash, "5d5766cf2d78701614200418ee1450690d9af12c84d52545e4802f001ad53099");
    char part[8];
    size_t n;
    assert_int_equal(ops->get_range(r->store, "a-1", 1, part, 3, &n), LH_OK);
    assert_true(n == 3 && !memcmp(part, "hol", 3));
    assert_int_equal(ops->get_range(r->store, "a-1", 3, part, 8, &n), LH_OK);
    assert_true(n == 2 && !memcmp(part, "le", 2));
    assert_int_equal(ops->get_range(r->store, "a-1", 7, part, 8, &n), LH_OK);
    assert_int_equal(n, 0);
    assert_int_equal(ops->get_range(r->store, "c-1", 0, part, 1, &n), LH_ERR_NOT_FOUND);
    assert_int_equal(ops->tidy(r->store, ""), LH_OK);
    assert_int_equal(ops->remove(r->store, "a-1"), LH_OK);
    assert_int_equal(ops->remove(r->store, "a-1"), LH_OK);
    assert_int_equal(ops->get(r->store, "a-1", &got), LH_ERR_NOT_FOUND);
    assert_int_equal(ops->put(r->store, "../x", r->file), LH_ERR_INVALID);
    assert_int_equal(ops->put(r->store, "c", "/nonexistent/file"), LH_ERR_NOT_FOUND);
    assert_string_equal(list(r, ""), "b-1=5;");
    lh_buf_free(&got);
}

// Only files that put() or put_new() completed are objects.
IN_RIG(other_files_are_no_objects, struct rig *r)
{
    static const char *const others[] = {"a-1.tmp", ".tmp", ".hidden", "a b", "a~"};
    char path[200];
    assert_int_equal(r->store->ops->put_new(r->store, "a-1", lh_span_str("1")), LH_OK);
    assert_int_equal(r->store->ops->put_new(r->store, "tmp", lh_span_str("22")), LH_OK);
    for (size_t i = 0; i < LH_COUNT(others); i++) {
        snprintf(path, sizeof path, "%s/store/deep/%s", r->dir, others[i]);
        assert_int_equal(lh_file_replace(r->env, path, lh_span_str("333")), LH_OK);
    }
    assert_string_equal(list(r, ""), "a-1=1;tmp=2;");
    assert_string_equal(list(r, "a-12"), "");
    snprintf(path, sizeof path, "%s/store/deep/a-1.new.tmp", r->dir);
    assert_int_equal(access(path, F_OK), -1); // removed
}

static lh_err refuse(void *arg, const char *key, uint64_t bytes)
{
    (void)key, (void)bytes;
    ++*(int *)arg;
    return LH_ERR_TOO_LARGE;
}

IN_RIG(the_callers_error_ends_a_listing, struct rig *r)
{
    int calls = 0;
    assert_int_equal(r->store->ops->put_new(r->store, "a", lh_span_str("1")), LH_OK);
    assert_int_equal(r->store->ops->put_new(r->store, "b", lh_span_str("2")), LH_OK);
    assert_int_equal(r->store->ops->list(r->store, "", refuse, &calls), LH_ERR_TOO_LARGE);
    assert_int_equal(calls, 1);
}

// More than one block of a copy, and of a hash; a stop ends the copy.
IN_RIG(large_files_are_copied_whole, struct rig *r)
{
    enum { LARGE = (2 << 20) + 5 };
    struct lh_objects *stopped;
    char from[LH_OBJECT_HASH_BYTES], to[LH_OBJECT_HASH_BYTES], back[128];
    uint64_t bytes;
    uint8_t *data = malloc(LARGE);
    assert_non_null(data);
    for (size_t i = 0; i < LARGE; i++) data[i] = (uint8_t)(i * 7 + i / 251 + i / 65521);
    assert_int_equal(lh_file_replace(r->env, r->file, lh_span(data, LARGE)), LH_OK);
    free(data);
    snprintf(back, sizeof back, "%s/back", r->dir);
    assert_int_equal(r->store->ops->put(r->store, "a", r->file), LH_OK);
    assert_int_equal(r->store->ops->get_file(r->store, "a", LARGE, back), LH_OK);
    assert_int_equal(lh_object_hash(r->env, r->file, from, &bytes), LH_OK);
    assert_int_equal(lh_object_hash(r->env, back, to, &bytes), LH_OK);
    assert_int_equal(bytes, LARGE);
    assert_string_equal(from, to);
    assert_int_equal(lh_object_hash(r->env, "/nonexistent/file", to, &bytes), LH_ERR_NOT_FOUND);
    atomic_bool stop = false;
    const struct lh_objects_conf conf = {
        .env = r->env, .address = r->address, .variable = no_variable, .stop = &stop};
    assert_int_equal(lh_objects_open(&conf, &stopped), LH_OK);
    assert_int_equal(stopped->ops->put(stopped, "b", r->file), LH_OK);
    atomic_store(&stop, true);
    assert_int_equal(stopped->ops->put(stopped, "c", r->file), LH_ERR_CANCELLED);
    lh_objects_close(stopped);
    snprintf(from, sizeof from, "a=%d;b=%d;", LARGE, LARGE);
    assert_string_equal(list(r, ""), from);
}

TEST(addresses_and_keys)
{
    static const char *const good[] = {"s3://bucket", "s3://bucket/runs/a_1.b-c", "s3://b/.../.a",
                                       "file:///mnt/store"};
    static const char *const bad[] = {
        "s3://",      "s3:///x",       "s3://b/",    "s3://b//c",   "s3://b/../c",
        "s3://b/a b", "https://b/x",   "s3://b/./c", "s3://b/x?y=", "s3://b/%2e",
        "/mnt/store", "file://host/x", "",
    };
    static const char *const keys[] = {"",    ".",   ".hidden", "a/b", "a b", "a\n", "\xc3\xa4",
                                       "a`a", "a{a", "a@a",     "a[a", "a:a", "a,a", "a^a"};
    char key[LH_OBJECT_KEY_BYTES + 1] = "", address[LH_PATH_BYTES + 1] = "file:///";
    for (size_t i = 0; i < LH_COUNT(good); i++) assert_int_equal(lh_objects_check(good[i]), LH_OK);
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        assert_int_equal(lh_objects_check(bad[i]), LH_ERR_CONFIG);
    for (size_t i = 0; i < LH_COUNT(keys); i++) assert_false(lh_object_key_fits(keys[i]));
    assert_true(lh_object_key_fits("0001-0a.ckpt") && lh_object_key_fits("azAZ09-_."));
    memset(key, 'k', LH_OBJECT_KEY_BYTES - 1);
    assert_true(lh_object_key_fits(key));
    key[LH_OBJECT_KEY_BYTES - 1] = 'k';
    assert_false(lh_object_key_fits(key));
    memset(address + 8, 'd', LH_PATH_BYTES - 1 - 8);
    assert_int_equal(lh_objects_check(address), LH_OK);
    address[LH_PATH_BYTES - 1] = 'd';
    assert_int_equal(lh_objects_check(address), LH_ERR_CONFIG);
}
