// kernels/storage/stored.c: checkpoints in a store: listing, restoring and pruning.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/address.h"
#include "kernels/storage/checkpoint_read.h"
#include "kernels/storage/stored.h"
#include "tests/history/rig.h"
#include "tests/test.h"

// A history with its checkpoint folder on the real disk, and a store.
struct rig {
    struct history_rig h;
    struct lh_env *env;
    struct lh_objects *store;
    char address[128], dir[128], keys[2048];
};

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    history_rig_start(&r->h);
    history_rig_files(&r->h);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    snprintf(r->address, sizeof r->address, "file://%s/store", r->h.root);
    snprintf(r->dir, sizeof r->dir, "%s/server/checkpoints", r->h.root);
    const struct lh_objects_conf conf = {
        .env = r->env, .address = r->address, .variable = no_variable};
    assert_int_equal(lh_objects_open(&conf, &r->store), LH_OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_objects_close(r->store);
    lh_env_real_destroy(r->env);
    history_rig_finish(&r->h);
    free(r);
    return 0;
}

static struct lk_checkpoint_name newest(struct rig *r, uint32_t shard)
{
    const struct lk_checkpoint_conf conf = {.env = r->env, .dir = r->dir};
    uint64_t *version;
    size_t count;
    assert_int_equal(lk_checkpoint_versions(&conf, shard, false, &version, &count), LH_OK);
    assert_true(count > 0);
    struct lk_checkpoint_name name = {shard, version[count - 1], false};
    free(version);
    return name;
}

static lh_err note(void *arg, const char *key, uint64_t bytes)
{
    struct rig *r = arg;
    size_t n = strlen(r->keys);
    (void)bytes;
    snprintf(r->keys + n, sizeof r->keys - n, "%s\n", key);
    return LH_OK;
}

static unsigned count_keys(struct rig *r)
{
    unsigned n = 0;
    r->keys[0] = 0;
    assert_int_equal(r->store->ops->list(r->store, "", note, r), LH_OK);
    for (const char *at = r->keys; (at = strchr(at, '\n')); at++) n++;
    return n;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(a_stored_checkpoint_reads_back, struct rig *r)
{
    struct lk_checkpoint_name name = newest(r, 0);
    struct lk_stored_list list;
    uint64_t bytes = 0;
    char was[LH_PATH_BYTES], is[LH_PATH_BYTES], a[LH_OBJECT_HASH_BYTES], b[LH_OBJECT_HASH_BYTES];
    assert_int_equal(lk_stored_put(r->store, r->env, r->dir, &name, &bytes), LH_OK);
    assert_true(bytes > 0);
    assert_int_equal(count_keys(r), 2);
    assert_int_equal(lk_stored_put(r->store, r->env, r->dir, &name, &bytes), LH_OK);
    assert_int_equal(bytes, 0); // it was already stored
    assert_int_equal(lk_stored_list(r->store, LK_STORED_ALL, &list), LH_OK);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.at[0].name.version, name.version);
    assert_int_equal(lh_path(is, sizeof is, r->h.root, "back"), LH_OK);
    assert_int_equal(lk_checkpoint_path(r->dir, &name, was), LH_OK);
    assert_int_equal(lk_stored_get(r->store, r->env, &list.at[0], is), LH_OK);
    assert_int_equal(lh_object_hash(r->env, was, a, &bytes), LH_OK);
    assert_int_equal(lh_object_hash(r->env, is, b, &bytes), LH_OK);
    assert_string_equal(a, b);
    lk_stored_list_free(&list);
    assert_int_equal(lk_stored_list(r->store, 1, &list), LH_OK);
    assert_int_equal(list.count, 0);
    lk_stored_list_free(&list);
    name.version += 1000;
    assert_int_equal(lk_stored_put(r->store, r->env, r->dir, &name, &bytes), LH_ERR_NOT_FOUND);
}

IN_RIG(damage_is_seen, struct rig *r)
{
    struct lk_checkpoint_name name = newest(r, 0);
    struct lk_stored_list list;
    struct lk_stored_about about;
    char key[160], path[LH_PATH_BYTES], back[LH_PATH_BYTES];
    struct lh_buf text = lh_buf(16 << 20);
    uint64_t bytes;
    assert_int_equal(lk_stored_put(r->store, r->env, r->dir, &name, &bytes), LH_OK);
    assert_int_equal(lk_stored_list(r->store, 0, &list), LH_OK);
    assert_int_equal(lk_stored_about(r->store, &list.at[0], &about), LH_OK);
    assert_int_equal(about.bytes, bytes);
    lk_stored_name(&list.at[0], key);
    size_t n = strlen(key);
    snprintf(key + n, sizeof key - n, ".%.32s", about.sha256);
    assert_int_equal(lh_path(path, sizeof path, r->h.root, "store/%s", key), LH_OK);
    assert_int_equal(lh_path(back, sizeof back, r->h.root, "back"), LH_OK);
    assert_int_equal(lh_file_load(r->env, path, &text), LH_OK);
    text.data[text.len / 2] ^= 1;
    assert_int_equal(lh_file_replace(r->env, path, lh_buf_span(&text)), LH_OK);
    assert_int_equal(lk_stored_get(r->store, r->env, &list.at[0], back), LH_ERR_CORRUPT);
    // no partial file is left
    assert_int_equal(lh_file_load(r->env, back, &text), LH_ERR_NOT_FOUND);
    assert_int_equal(r->env->ops->files->remove(r->env, path), LH_OK);
    assert_int_equal(lk_stored_get(r->store, r->env, &list.at[0], back), LH_ERR_CORRUPT);
    lk_stored_name(&list.at[0], key);
    assert_int_equal(lh_path(path, sizeof path, r->h.root, "store/%s.json", key), LH_OK);
    static const char *const bad[] = {
        "",
        "{}",
        "{\"schema\": \"longhaul.stored/1\"}",
        "[1]",
        "{\"schema\": \"longhaul.stored/1\", \"bytes\": 1, \"sha256\": \"../../etc\"}",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        assert_int_equal(lh_file_replace(r->env, path, lh_span_str(bad[i])), LH_OK);
        assert_int_equal(lk_stored_get(r->store, r->env, &list.at[0], back), LH_ERR_CORRUPT);
    }
    lk_stored_list_free(&list);
    lh_buf_free(&text);
}

// Puts an object that looks like a part of shard 0's checkpoint.
static void plant(struct rig *r, unsigned epoch, unsigned version, const char *behind)
{
    char key[128];
    snprintf(key, sizeof key, "0000-%016x-%016x.%s", epoch, version, behind);
    assert_int_equal(r->store->ops->put_new(r->store, key, lh_span_str("x")), LH_OK);
}

static void removed(void *arg, const struct lk_stored *s)
{
    (void)s;
    ++*(unsigned *)arg;
}

#define HASH ".0123456789abcdef0123456789abcdef"
IN_RIG(the_newest_stay, struct rig *r)
{
    struct lk_stored_list list;
    unsigned gone = 0;
    for (unsigned v = 1; v <= 3; v++) {
        plant(r, 1, 100 * v, "ckpt" HASH);
        plant(r, 1, 100 * v, "ckpt.json");
    }
    plant(r, 2, 50, "ckpt" HASH); // a rewound history of a newer epoch
    plant(r, 2, 50, "ckpt.json");
    plant(r, 1, 150, "ckpt" HASH); // left by a process that died
    plant(r, 2, 60, "ckpt" HASH);  // an upload under way
    plant(r, 1, 100, "weights" HASH);
    plant(r, 1, 100, "weights.json");
    assert_int_equal(r->store->ops->put_new(r->store, "README", lh_span_str("x")), LH_OK);
    assert_int_equal(lk_stored_list(r->store, 0, &list), LH_OK);
    assert_int_equal(list.count, 5);
    assert_int_equal(list.at[3].name.version, 50);
    assert_true(list.at[4].name.weights);
    lk_stored_list_free(&list);
    assert_int_equal(lk_stored_prune(r->store, 0, false, 2, removed, &gone), LH_OK);
    assert_int_equal(gone, 2);
    assert_int_equal(count_keys(r), 8);
    assert_null(strstr(r->keys, "0000000000000096"));     // version 150
    assert_non_null(strstr(r->keys, "000000000000003c")); // version 60
    assert_non_null(strstr(r->keys, "README"));
    assert_int_equal(lk_stored_prune(r->store, 1, false, 2, removed, &gone), LH_OK);
    assert_int_equal(gone, 2);
}

// A store where another process stores the same checkpoint meanwhile and puts its mark first.
static const struct lh_objects_ops *alone;
static char mark[128];

static lh_err put_second(struct lh_objects *s, const char *key, const char *path)
{
    assert_int_equal(alone->put(s, key, path), LH_OK);
    snprintf(mark, sizeof mark, "%.*s.json", (int)(strrchr(key, '.') - key), key);
    static const char other[] = "{\"schema\": \"longhaul.stored/1\", \"bytes\": 1, \"sha256\": \""
                                "00000000000000000000000000000000"
                                "00000000000000000000000000000000\"}";
    assert_int_equal(alone->put_new(s, mark, lh_span_str(other)), LH_OK);
    return LH_OK;
}

IN_RIG(the_first_mark_counts, struct rig *r)
{
    struct lk_checkpoint_name name = newest(r, 0);
    struct lh_objects_ops racing = *r->store->ops;
    uint64_t bytes = 1;
    alone = r->store->ops;
    racing.put = put_second;
    r->store->ops = &racing;
    assert_int_equal(lk_stored_put(r->store, r->env, r->dir, &name, &bytes), LH_OK);
    r->store->ops = alone;
    assert_int_equal(bytes, 0);
    assert_int_equal(count_keys(r), 1); // its own file was removed again
    assert_non_null(strstr(r->keys, mark));
}
