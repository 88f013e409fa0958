// kernels/storage/checkpoint_read.c: folders of checkpoints. The newest good one is loaded,
// whatever else is in the folder; the oldest are removed, and so are those of an abandoned history.
// Single files are tested in checkpoint.c.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/storage/checkpoint_read.h"
#include "tests/history/rig.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static void passed_over(void *arg, const char *file, lh_err err)
{
    (void)file, (void)err;
    ++*(unsigned *)arg;
}

static void offered(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    (void)path, (void)info;
    ++*(unsigned *)arg;
}

// Copies shard 0's file of version `from` to the name of another version.
static void put_copy(struct history_rig *r, uint64_t from, uint64_t to)
{
    char path[2][LH_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    for (int i = 0; i < 2; i++) {
        struct lk_checkpoint_name name = {0, i ? to : from, false};
        assert_int_equal(lk_checkpoint_path(r->h.checkpoints, &name, path[i]), LH_OK);
    }
    assert_int_equal(lh_file_load(r->env, path[0], &b), LH_OK);
    assert_int_equal(lh_file_replace(r->env, path[1], lh_buf_span(&b)), LH_OK);
    lh_buf_free(&b);
}

#define IN_HISTORY(name, parameter)                                                                \
    TEST_WITH(name, parameter, history_set_up_shards, history_tear_down)

IN_HISTORY(a_start_without_its_keys_stops_at_once, struct history_rig *r)
{
    struct lk_checkpoint_conf conf = r->h.conf;
    struct lk_replica got = history_scratch(&r->h, 0);
    unsigned skipped = 0;
    history_write(&r->h, 0, false);
    assert_int_equal(lh_keyring_create(&conf.keys), LH_OK);
    assert_int_equal(lk_checkpoint_load(&conf, &got, passed_over, &skipped), LH_ERR_KEY_MISSING);
    lh_keyring_destroy(conf.keys);
    assert_int_equal(skipped, 0);
    lk_replica_free(&got);
}

IN_HISTORY(the_newest_good_one_is_loaded, struct history_rig *r)
{
    char path[LH_PATH_BYTES];
    unsigned skipped = 0;
    struct lk_replica got = history_scratch(&r->h, 0);
    assert_int_equal(lk_checkpoint_load(&r->h.conf, &got, passed_over, &skipped), LH_ERR_NOT_FOUND);
    history_write(&r->h, 0, false);
    for (int i = 0; i < 2; i++) {
        history_add(&r->h, 0, LH_ADMIT);
        history_write(&r->h, 0, false);
    }
    history_write(&r->h, 0, true); // weights only: no server can start from it
    history_add(&r->h, 0, LH_ADMIT);
    history_write(&r->h, 0, true);
    struct lk_checkpoint_name name = {0, 4, false};
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, &name, path), LH_OK);
    assert_int_equal(lh_fake_flip(r->env, path, 300, 1), LH_OK);
    assert_int_equal(lk_checkpoint_load(&r->h.conf, &got, passed_over, &skipped), LH_OK);
    assert_int_equal(skipped, 1);
    assert_int_equal(got.ledger.version, 3);
    lk_replica_free(&got);

    got = history_scratch(&r->h, 0);
    name = (struct lk_checkpoint_name){0, 5, true};
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, &name, path), LH_OK);
    assert_int_equal(lk_checkpoint_read(&r->h.conf, path, &got), LH_OK);
    assert_memory_equal(got.theta, r->h.replica[0].theta, 80 * sizeof(float));
    got.job[0] ^= 1;
    assert_int_equal(lk_checkpoint_load(&r->h.conf, &got, passed_over, &skipped), LH_ERR_CONFIG);
    got.job[0] ^= 1;
    got.manifest.b[0] ^= 1;
    assert_int_equal(lk_checkpoint_load(&r->h.conf, &got, NULL, NULL), LH_ERR_MANIFEST);
    got.manifest.b[0] ^= 1;
    got.ledger.shards = 3;
    assert_int_equal(lk_checkpoint_read(&r->h.conf, path, &got), LH_ERR_CORRUPT);
    lk_replica_free(&got);
}

IN_HISTORY(all_of_many_are_seen_and_the_oldest_go, struct history_rig *r)
{
    uint64_t *version, oldest;
    size_t count;
    struct lk_checkpoint_name name = {0, 2, false};
    history_write(&r->h, 0, false);
    for (uint64_t v = 3; v <= 101; v++) put_copy(r, 2, v);
    history_write(&r->h, 1, false);
    assert_int_equal(lk_checkpoint_versions(&r->h.conf, 0, false, &version, &count), LH_OK);
    assert_int_equal(count, 100);
    assert_int_equal(version[99], 101);
    free(version);
    assert_int_equal(lk_checkpoint_prune(&r->h.conf, 0, false, 80, &oldest), LH_OK);
    assert_int_equal(oldest, 22);
    assert_int_equal(lk_checkpoint_prune(&r->h.conf, 0, true, 2, &oldest), LH_OK);
    assert_int_equal(oldest, 0); // there are no checkpoints
    assert_int_equal(lk_checkpoint_prune(&r->h.conf, 1, false, 2, &oldest), LH_OK);
    assert_int_equal(oldest, 0); // a single one does not allow the log to be trimmed
    assert_int_equal(lk_checkpoint_prune(&r->h.conf, 1, false, 1, &oldest), LH_OK);
    assert_int_equal(oldest, 2);
    assert_false(lk_checkpoint_name_parse("0000-0000000000000002.ckpt.tmp", &name));
    assert_false(lk_checkpoint_name_parse("000-0000000000000002.ckpt", &name));
    assert_false(lk_checkpoint_name_parse("nothing", &name));
}

// An env's list() that always reports one file.
static lh_err list_one(struct lh_env *env, const char *path,
                       void (*each)(void *arg, const char *name), void *arg)
{
    (void)env, (void)path;
    each(arg, "0000-0000000000000002.ckpt");
    return LH_OK;
}

static lh_err list_unfinished(struct lh_env *env, const char *path,
                              void (*each)(void *arg, const char *name), void *arg)
{
    (void)env, (void)path;
    each(arg, "0000-0000000000000002.ckpt.tmp");
    return LH_OK;
}

static lh_err list_fails(struct lh_env *env, const char *path,
                         void (*each)(void *arg, const char *name), void *arg)
{
    (void)env, (void)path, (void)each, (void)arg;
    return LH_ERR_IO;
}

// A folder whose own path is just short enough, as a server started elsewhere may have made it.
IN_HISTORY(files_with_too_long_a_path_are_reported, struct history_rig *r)
{
    struct lk_checkpoint_conf conf = r->h.conf;
    struct lh_files_ops files = *r->env->ops->files;
    struct lh_env_ops ops = {.files = &files};
    struct lh_env env = {&ops};
    char dir[LH_PATH_BYTES - 8];
    struct lk_replica got = history_scratch(&r->h, 0);
    unsigned seen = 0;
    uint64_t oldest;
    files.list = list_one;
    memset(dir, 'd', sizeof dir - 1);
    dir[sizeof dir - 1] = 0;
    conf.env = &env;
    conf.dir = dir;
    assert_int_equal(lk_checkpoint_load(&conf, &got, passed_over, &seen), LH_ERR_TOO_LARGE);
    assert_int_equal(lk_checkpoint_prune(&conf, 0, false, 0, &oldest), LH_ERR_TOO_LARGE);
    assert_int_equal(lk_checkpoint_list(&conf, &got, offered, &seen), LH_OK);
    assert_int_equal(seen, 0);
    files.list = list_fails; // an unreadable folder must not look empty
    unsigned left;
    assert_int_equal(lk_checkpoint_load(&conf, &got, passed_over, &seen), LH_ERR_IO);
    assert_int_equal(lk_checkpoint_list(&conf, &got, offered, &seen), LH_ERR_IO);
    assert_int_equal(lk_checkpoint_drop_above(&conf, 0, 0), LH_ERR_IO);
    assert_int_equal(lk_checkpoint_drop_below(&conf, 0, 9, &left), LH_ERR_IO);
    assert_int_equal(lk_checkpoint_prune(&conf, 0, false, 0, &oldest), LH_ERR_IO);
    assert_int_equal(lk_checkpoint_clean(&conf, 0), LH_ERR_IO);
    files.list = list_unfinished;
    assert_int_equal(lk_checkpoint_clean(&conf, 0), LH_ERR_TOO_LARGE);
    lk_replica_free(&got);
}

// The files that a follower offers to a server that lost its disk: only those of this run and
// shape.
IN_HISTORY(only_what_is_of_this_run_is_listed, struct history_rig *r)
{
    struct lk_replica got = history_scratch(&r->h, 0);
    unsigned seen = 0;
    assert_int_equal(lk_checkpoint_list(&r->h.conf, &got, offered, &seen), LH_OK);
    assert_int_equal(seen, 0);
    history_write(&r->h, 0, false);
    history_add(&r->h, 0, LH_ADMIT);
    history_write(&r->h, 0, false);
    history_write(&r->h, 1, false); // another shard's checkpoint
    assert_int_equal(lk_checkpoint_list(&r->h.conf, &got, offered, &seen), LH_OK);
    assert_int_equal(seen, 2);
    put_copy(r, 2, 7);
    char path[LH_PATH_BYTES];
    struct lk_checkpoint_name name = {0, 7, false};
    assert_int_equal(lk_checkpoint_path(r->h.checkpoints, &name, path), LH_OK);
    assert_int_equal(lh_fake_flip(r->env, path, 5, 1), LH_OK); // damages its header
    assert_int_equal(lk_checkpoint_list(&r->h.conf, &got, offered, &seen), LH_OK);
    assert_int_equal(seen, 4);
    assert_int_equal(lk_checkpoint_read(&r->h.conf, path, &got), LH_ERR_CORRUPT);
    got.ledger.shard = 1; // shard 1's files under shard 0's manifest
    got.job[0] ^= 1;
    assert_int_equal(lk_checkpoint_list(&r->h.conf, &got, offered, &seen), LH_OK);
    assert_int_equal(seen, 4);
    lk_replica_free(&got);
}

static size_t count(struct history_rig *r, bool weights, uint64_t *first, uint64_t *last)
{
    uint64_t *version;
    size_t n;
    assert_int_equal(lk_checkpoint_versions(&r->h.conf, 0, weights, &version, &n), LH_OK);
    *first = n ? version[0] : 0;
    *last = n ? version[n - 1] : 0;
    free(version);
    return n;
}

IN_HISTORY(files_above_or_below_a_version_are_removed, struct history_rig *r)
{
    uint64_t first, last;
    unsigned left;
    assert_int_equal(lk_checkpoint_drop_above(&r->h.conf, 0, 5),
                     LH_OK); // there are none
    assert_int_equal(lk_checkpoint_drop_below(&r->h.conf, 0, 5, &left), LH_OK);
    assert_int_equal(left, 0);
    history_write(&r->h, 0, false);
    for (uint64_t v = 3; v <= 9; v++) put_copy(r, 2, v);
    history_write(&r->h, 0, true);
    history_add(&r->h, 0, LH_ADMIT);
    history_write(&r->h, 0, true);
    assert_int_equal(lk_checkpoint_drop_above(&r->h.conf, 0, 2), LH_OK);
    assert_int_equal(count(r, true, &first, &last), 1);
    assert_int_equal(count(r, false, &first, &last), 1);
    assert_int_equal(last, 2);
    for (uint64_t v = 3; v <= 9; v += 2) put_copy(r, 2, v);
    assert_int_equal(lk_checkpoint_drop_above(&r->h.conf, 0, 9), LH_OK);
    assert_int_equal(count(r, false, &first, &last), 5);
    assert_int_equal(lk_checkpoint_drop_below(&r->h.conf, 0, 6, &left), LH_OK);
    assert_int_equal(left, 3); // 5, the newest at or below 6, stays
    assert_int_equal(count(r, false, &first, &last), 3);
    assert_int_equal(first, 5);
    assert_int_equal(lk_checkpoint_drop_below(&r->h.conf, 0, 100, &left), LH_OK);
    assert_int_equal(left, 1);
}

// The process dies at each file operation. Afterwards the files that should stay are there, and no
// caller mistakes the death for damage or for an empty folder.
IN_HISTORY(an_end_in_the_middle_is_no_answer, struct history_rig *r)
{
    struct lk_replica got = history_scratch(&r->h, 0);
    history_write(&r->h, 0, false);
    for (int what = 0; what < 4; what++) {
        lh_err err = LH_ERR_KILLED;
        for (int64_t when = 0; err; when++) {
            unsigned seen = 0, left;
            uint64_t first, last;
            for (uint64_t v = 3; v <= 5; v++) put_copy(r, 2, v);
            history_write(&r->h, 0, true);
            lh_fake_crash_at(r->env, when, false);
            if (what == 0) err = lk_checkpoint_load(&r->h.conf, &got, passed_over, &seen);
            if (what == 1) err = lk_checkpoint_list(&r->h.conf, &got, offered, &seen);
            if (what == 2) err = lk_checkpoint_drop_above(&r->h.conf, 0, 1);
            if (what == 3) err = lk_checkpoint_drop_below(&r->h.conf, 0, 4, &left);
            lh_fake_crash_at(r->env, -1, false);
            if (!lh_fake_alive(r->env)) lh_fake_boot(r->env);
            if (err) assert_int_equal(err, LH_ERR_KILLED);
            assert_true(when < 40);
            if (what == 3) assert_in_range(count(r, false, &first, &last), 2, 4);
            if (what == 3) assert_int_equal(last, 5);
            if (what == 0 && err) assert_int_equal(seen, 0); // no fallback to an older one
            if (what >= 2) history_write(&r->h, 0, false);
        }
    }
    lk_replica_free(&got);
}

IN_HISTORY(unfinished_files_of_a_crash_are_removed, struct history_rig *r)
{
    struct lk_checkpoint c;
    static const char *const others[] = {
        "x",
        "x.tmp",
        ".tmp",
        "a-longer-name-than-this-program-gives-to-any-file-of-its-own-files.tmp",
        "0000-0000000000000009.ckpt.tmp",
        "0001-0000000000000009.ckpt.tmp",
        "0000-0000000000000009.weights.tmp"};
    char path[LH_PATH_BYTES];
    struct lh_buf b = lh_buf(64);
    assert_int_equal(lk_checkpoint_clean(&r->h.conf, 0), LH_OK);
    history_write(&r->h, 0, false);
    history_add(&r->h, 0, LH_ADMIT);
    uint64_t whole = lh_fake_disk_used(r->env);
    assert_int_equal(lk_checkpoint_take(&r->h.conf, &r->h.replica[0], &c), LH_OK);
    lh_fake_crash_at(r->env, 2, false); // dies at the file's sync
    assert_int_not_equal(lk_checkpoint_write(&c), LH_OK);
    lk_checkpoint_free(&c);
    lh_fake_boot(r->env);
    assert_true(lh_fake_disk_used(r->env) > whole);
    for (size_t i = 0; i < LH_COUNT(others); i++) {
        assert_int_equal(lh_path(path, sizeof path, r->h.checkpoints, "%s", others[i]), LH_OK);
        assert_int_equal(lh_file_replace(r->env, path, lh_span("left", 4)), LH_OK);
    }
    // The process may die while it cleans, too.
    for (int64_t when = 0; when < 2; when++) {
        lh_fake_crash_at(r->env, when, false);
        assert_int_equal(lk_checkpoint_clean(&r->h.conf, 0), LH_ERR_KILLED);
        lh_fake_boot(r->env);
    }
    assert_int_equal(lk_checkpoint_clean(&r->h.conf, 0), LH_OK);
    assert_int_equal(lh_fake_disk_used(r->env),
                     whole + 5 * 4); // files of other shards stay
    for (size_t i = 4; i < LH_COUNT(others); i++) {
        assert_int_equal(lh_path(path, sizeof path, r->h.checkpoints, "%s", others[i]), LH_OK);
        assert_int_equal(lh_file_load(r->env, path, &b), i == 5 ? LH_OK : LH_ERR_NOT_FOUND);
        lh_buf_clear(&b);
    }
    lh_buf_free(&b);
}

// A state of 17 million parameters has 17 ranges of 4 MiB, more than may be unsynced during a
// write.
IN_HISTORY(a_large_one_is_synced_while_it_is_written, struct history_rig *r)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{4096, 4200}};
    enum { BEFORE = 14, AFTER = 20 }; // file operations; the sync after 16 ranges lies between them
    struct lk_checkpoint_conf conf = r->h.conf;
    struct lh_manifest m = {0};
    struct lk_replica large;
    struct lk_checkpoint c;
    assert_int_equal(lh_manifest_build(&m, 1, names, shapes, 1, NULL), LH_OK);
    assert_int_equal(lk_replica_create(&large, r->h.job, &m, 0, conf.keys), LH_OK);
    conf.dir = "large";
    assert_int_equal(r->env->ops->files->make_dir(r->env, conf.dir), LH_OK);
    assert_int_equal(lk_checkpoint_take(&conf, &large, &c), LH_OK);
    for (int n = BEFORE; n < AFTER; n++) {
        lh_fake_fail_at(r->env, n, LH_ERR_IO);
        assert_int_equal(lk_checkpoint_write(&c), LH_ERR_IO);
        assert_true(lh_fake_failed(r->env));
    }
    assert_int_equal(lk_checkpoint_write(&c), LH_OK);
    lk_checkpoint_free(&c);
    lk_replica_free(&large);
    lh_manifest_free(&m);
}
