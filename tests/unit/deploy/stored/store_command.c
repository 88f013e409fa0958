// deploy/stored/store_command.c, upload.c: a folder is pushed into a store and pulled back
// unchanged; incomplete or changed folders, and units that must stay, are refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/stored/upload.h"
#include "deploy/text/data.h"
#include "deploy/tool/cli.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

struct rig {
    char dir[64], path[4][DP_PATH_BYTES], address[DP_PATH_BYTES];
    struct lh_env *env;
    struct lh_objects *o;
    unsigned next;
};

// Returns a path below the rig's folder, which the fourth call after this one overwrites.
static const char *at(struct rig *r, const char *name)
{
    char *out = r->path[r->next++ % LH_COUNT(r->path)];
    assert_int_equal(dp_path(out, "%s/%s", r->dir, name), LH_OK);
    return out;
}

static void save(struct rig *r, const char *name, const char *text)
{
    assert_int_equal(dp_file_write(at(r, name), lh_span_str(text), 0600), LH_OK);
}

static void is(struct rig *r, const char *name, const char *text)
{
    struct lh_buf got = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(at(r, name), &got), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&got), lh_span_str(text)));
    lh_buf_free(&got);
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "/tmp/longhaul-push-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->address, sizeof r->address, "file://%s/store", r->dir);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    const struct lh_objects_conf conf = {.env = r->env, .address = r->address};
    assert_int_equal(lh_objects_open(&conf, &r->o), LH_OK);
    assert_int_equal(dp_make_dirs(at(r, "data")), LH_OK);
    save(r, "data/a-000.bin", "some tokens");
    save(r, "data/b-000.bin", "");
    save(r, "data/units.json.index", "made anew anywhere");
    save(r, "data/left.tmp", "half");
    save(r, "data/.hidden", "not mine");
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_objects_close(r->o);
    lh_env_real_destroy(r->env);
    assert_int_equal(remove_tree(r->dir), 0);
    free(r);
    return 0;
}

static int run(const char *verb, const char *from, const char *to)
{
    char *argv[] = {"store", (char *)(uintptr_t)verb, (char *)(uintptr_t)from,
                    (char *)(uintptr_t)to, NULL};
    return dp_command(4, argv);
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(a_folder_comes_back_as_it_was, struct rig *r)
{
    assert_int_equal(run("pull", r->address, at(r, "back")), DP_MISSING);
    assert_int_equal(run("push", at(r, "data"), r->address), DP_OK);
    assert_int_equal(run("pull", r->address, at(r, "back")), DP_OK);
    is(r, "back/a-000.bin", "some tokens");
    is(r, "back/b-000.bin", "");
    assert_false(dp_file_exists(at(r, "store/units.json.index")));
    assert_false(dp_file_exists(at(r, "store/left.tmp")));
    assert_false(dp_file_exists(at(r, "store/.hidden")));
    assert_int_equal(run("push", at(r, "data"), r->address), DP_FAILED); // one folder a prefix
    assert_int_equal(run("push", at(r, "nothing"), r->address), DP_FAILED);
    assert_int_equal(run("pull", r->address, at(r, "back")), DP_OK); // all files are intact
    save(r, "back/a-000.bin", "other bytes");
    assert_int_equal(run("pull", r->address, at(r, "back")), DP_FAILED);
    is(r, "back/a-000.bin", "other bytes");
}

IN_RIG(changed_objects_and_lists_are_refused, struct rig *r)
{
    static const char *const bad[] = {
        "{}",
        "{\"schema\": \"longhaul.files/2\", \"files\": []}",
        "{\"schema\": \"longhaul.files/1\", \"files\": [{\"name\": \"../x\", \"bytes\": 1, "
        "\"sha256\": \"0000000000000000000000000000000000000000000000000000000000000000\"}]}",
        "{\"schema\": \"longhaul.files/1\", \"files\": [{\"name\": \"a-000.bin\", \"bytes\": -1, "
        "\"sha256\": \"0000000000000000000000000000000000000000000000000000000000000000\"}]}",
        "{\"schema\": \"longhaul.files/1\", \"files\": [{\"name\": \"a-000.bin\", \"bytes\": 11, "
        "\"sha256\": \"00\"}]}",
        "{\"schema\": \"longhaul.files/1\", \"files\": [7]}",
        "not even that",
    };
    unsigned count;
    uint64_t bytes;
    assert_int_equal(run("push", at(r, "data"), r->address), DP_OK);
    save(r, "store/a-000.bin", "same length");
    const char *to = at(r, "back");
    assert_int_equal(dp_download(r->env, r->o, r->address, to, NULL, NULL, &count, &bytes),
                     LH_ERR_CORRUPT);
    assert_false(dp_file_exists(at(r, "back/a-000.bin")));
    assert_false(dp_file_exists(at(r, "back/a-000.bin.tmp")));
    assert_int_equal(unlink(at(r, "store/a-000.bin")), 0);
    to = at(r, "back");
    assert_int_equal(dp_download(r->env, r->o, r->address, to, NULL, NULL, &count, &bytes),
                     LH_ERR_CORRUPT);
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        save(r, "store/stored.json", bad[i]);
        to = at(r, "back");
        assert_int_equal(dp_download(r->env, r->o, r->address, to, NULL, NULL, &count, &bytes),
                         LH_ERR_CORRUPT);
    }
}

// ---------------------------------------------------------------- a store that fails

static const struct lh_objects_ops *whole;
static int puts_left;

static lh_err put_some(struct lh_objects *o, const char *key, const char *path)
{
    if (!puts_left--) return lh_fail(LH_ERR_UNAVAILABLE, "away");
    return whole->put(o, key, path);
}

// The object is stored, but the answer is lost, so a retry finds it there.
static lh_err put_new_lost(struct lh_objects *o, const char *key, struct lh_span bytes)
{
    LH_TRY(whole->put_new(o, key, bytes));
    return LH_ERR_EXISTS;
}

static lh_err put_new_late(struct lh_objects *o, const char *key, struct lh_span bytes)
{
    (void)bytes;
    LH_TRY(whole->put_new(
        o, key, lh_span_str("{\"schema\": \"longhaul.files/1\", \"time_s\": 1, \"files\": []}")));
    return LH_ERR_EXISTS;
}

static lh_err push(struct rig *r)
{
    struct dp_upload u;
    lh_err err = dp_upload_begin(&u, r->env, r->o, r->address);
    if (!err) err = dp_upload_file(&u, at(r, "data/a-000.bin"), "a-000.bin");
    if (!err) err = dp_upload_file(&u, at(r, "data/b-000.bin"), "b-000.bin");
    return dp_upload_end(&u, err);
}

IN_RIG(an_interrupted_push_writes_no_list_and_can_be_repeated, struct rig *r)
{
    struct lh_objects_ops some = *r->o->ops;
    struct dp_upload u;
    whole = r->o->ops;
    some.put = put_some;
    some.put_new = put_new_lost;
    r->o->ops = &some;
    puts_left = 1;
    assert_int_equal(push(r), LH_ERR_UNAVAILABLE);
    assert_true(dp_file_exists(at(r, "store/a-000.bin")));
    assert_false(dp_file_exists(at(r, "store/stored.json")));
    puts_left = 2;
    assert_int_equal(push(r), LH_OK);
    assert_int_equal(unlink(at(r, "store/stored.json")), 0);
    some.put_new = put_new_late;
    puts_left = 2;
    assert_int_equal(push(r), LH_ERR_EXISTS); // another process was first
    r->o->ops = whole;
    assert_int_equal(unlink(at(r, "store/stored.json")), 0);
    assert_int_equal(dp_upload_begin(&u, r->env, r->o, r->address), LH_OK);
    assert_int_equal(dp_upload_file(&u, at(r, "data/a-000.bin"), "stored.json"), LH_ERR_INVALID);
    assert_int_equal(dp_upload_file(&u, at(r, "data/a-000.bin"), "a b"), LH_ERR_INVALID);
    assert_int_equal(dp_upload_end(&u, LH_ERR_INVALID), LH_ERR_INVALID);
    assert_false(dp_file_exists(at(r, "store/stored.json")));
}

// Another upload to the same address finishes first; its objects are not overwritten.
IN_RIG(a_second_upload_stops_before_it_overwrites, struct rig *r)
{
    struct dp_upload u, first;
    assert_int_equal(dp_upload_begin(&u, r->env, r->o, r->address), LH_OK);
    assert_int_equal(dp_upload_begin(&first, r->env, r->o, r->address), LH_OK);
    assert_int_equal(dp_upload_file(&first, at(r, "data/a-000.bin"), "a-000.bin"), LH_OK);
    assert_int_equal(dp_upload_end(&first, LH_OK), LH_OK);
    save(r, "data/a-000.bin", "tokens of another folder");
    lh_err err = dp_upload_file(&u, at(r, "data/a-000.bin"), "a-000.bin");
    assert_int_equal(dp_upload_end(&u, err), LH_ERR_EXISTS);
    is(r, "store/a-000.bin", "some tokens");
}

IN_RIG(units_that_stay_are_not_stored, struct rig *r)
{
    struct dp_texts staying = {.at = {"asia"}, .count = 1};
    char text[DP_PATH_BYTES], out[DP_PATH_BYTES], line[8192];
    struct dp_data_prepare_conf conf = {.text = text,
                                        .out = out,
                                        .unit_tokens = 64,
                                        .sequence = 16,
                                        .file_tokens = 200,
                                        .token_bytes = 2,
                                        .staying = &staying};
    assert_int_equal(dp_path(text, "%s/text", r->dir), LH_OK);
    assert_int_equal(dp_path(out, "%s/tokens", r->dir), LH_OK);
    assert_int_equal(dp_make_dirs(at(r, "text/asia/ja")), LH_OK);
    assert_int_equal(dp_make_dirs(at(r, "text/heldout")), LH_OK);
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = 0;
    save(r, "text/asia/ja/one.txt", line);
    save(r, "text/heldout/ja.txt", line);
    assert_int_equal(dp_data_prepare(&conf), LH_OK);
    assert_int_equal(run("push", out, r->address), DP_DENIED);
    assert_false(dp_file_exists(at(r, "store")));
    staying.count = 0;
    assert_int_equal(dp_path(out, "%s/tokens-2", r->dir), LH_OK);
    assert_int_equal(dp_data_prepare(&conf), LH_OK);
    assert_int_equal(run("push", out, r->address), DP_OK);
    assert_true(dp_file_exists(at(r, "store/units.json")));
    assert_false(dp_file_exists(at(r, "store/units.json.index")));
}

IN_RIG(a_wrong_line_is_told, struct rig *r)
{
    char *one[] = {"store", "push", "x", NULL};
    assert_int_equal(dp_command(3, one), DP_USAGE);
    assert_int_equal(run("mend", "x", r->address), DP_USAGE);
    assert_int_equal(run("push", at(r, "data"), at(r, "back")), DP_CONFIG); // no address
}
