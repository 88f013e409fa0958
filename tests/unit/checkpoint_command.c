// `longhaul checkpoint`: a good file is ok, and one flipped byte, another name, another run or
// another key is not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/check.h"
#include "common/node.h"
#include "deploy/commands.h"
#include "deploy/files.h"
#include "kernels/checkpoint.h"

static const char GOOD[] = "0000-0000000000000000.ckpt";
static char root[] = "/tmp/longhaul-ckpt-XXXXXX";

static const char *in_root(const char *name, char out[DP_PATH_SIZE])
{
    assert_int_equal(dp_path(out, "%s/%s", root, name), LH_OK);
    return out;
}

static void write_file(const char *name, struct lh_span bytes)
{
    char path[DP_PATH_SIZE];
    assert_int_equal(dp_file_write(in_root(name, path), bytes, 0600), LH_OK);
}

// A manifest, a job key and the checkpoint of a new shard 0 in `root`/c.
static void make_job(void)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    char path[DP_PATH_SIZE], dir[DP_PATH_SIZE];
    uint8_t job[LH_JOB];
    struct lh_manifest m = {0};
    struct lk_replica r;
    struct lk_checkpoint c;
    struct lh_buf json = lh_buf(1 << 16);
    struct lk_checkpoint_conf conf = {.dir = in_root("c", dir), .cipher = LH_CIPHER_XCHACHA20};
    lh_job_id("longhaul.local", "tiny", job);
    assert_int_equal(lh_env_real_create(&conf.env), LH_OK);
    assert_int_equal(dp_make_dirs(dir), LH_OK);
    assert_int_equal(lh_key_generate(in_root("job.keys", path)), LH_OK);
    assert_int_equal(lh_keyring_create(&conf.keys), LH_OK);
    assert_int_equal(lh_keyring_load(conf.keys, path), LH_OK);
    conf.key_id = lh_keyring_newest(conf.keys);
    assert_int_equal(lh_key_generate(in_root("other.keys", path)), LH_OK);
    assert_int_equal(lh_manifest_build(&m, 1, names, shapes, 1, NULL), LH_OK);
    assert_int_equal(lh_manifest_write(&m, &json), LH_OK);
    write_file("model.json", lh_buf_span(&json));
    assert_int_equal(lk_replica_create(&r, job, &m, 0, conf.keys), LH_OK);
    assert_int_equal(lk_checkpoint_take(&conf, &r, &c), LH_OK);
    assert_int_equal(lk_checkpoint_write(&c), LH_OK);
    lk_checkpoint_free(&c);
    lk_replica_free(&r);
    lh_manifest_free(&m);
    lh_buf_free(&json);
    lh_keyring_destroy(conf.keys);
    lh_env_real_destroy(conf.env);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(root)) return 1;
    make_job();
    return 0;
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int verify(const char *dir, const char *run, const char *keys_file)
{
    char at[DP_PATH_SIZE], manifest[DP_PATH_SIZE], keys[DP_PATH_SIZE];
    const char *argv[] = {"checkpoint",
                          "verify",
                          in_root(dir, at),
                          "--manifest",
                          in_root("model.json", manifest),
                          "--run",
                          run,
                          "--keys",
                          in_root(keys_file, keys)};
    return dp_cmd_checkpoint(LH_COUNT(argv), (char **)argv);
}

static void load_good(struct lh_buf *out)
{
    char path[DP_PATH_SIZE];
    assert_int_equal(dp_path(path, "%s/c/%s", root, GOOD), LH_OK);
    assert_int_equal(dp_file_read(path, out), LH_OK);
}

static void a_good_one(void **state)
{
    (void)state;
    assert_int_equal(verify("c", "tiny", "job.keys"), DP_OK);
    assert_int_equal(verify("c", "huge", "job.keys"), DP_UNVERIFIED); // another job's
    assert_int_equal(verify("c", "tiny", "other.keys"), DP_UNVERIFIED);
    assert_int_equal(verify("none", "tiny", "job.keys"), DP_MISSING);
}

static void damaged_ones(void **state)
{
    (void)state;
    char path[DP_PATH_SIZE];
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(dp_make_dirs(in_root("d", path)), LH_OK);
    load_good(&b);
    write_file("d/0000-0000000000000000.ckpt", lh_buf_span(&b));
    assert_int_equal(verify("d", "tiny", "job.keys"), DP_OK);
    for (size_t at = 0; at < b.len; at += 7) { // header, heads of ranges and sealed bytes
        b.data[at] ^= 1;
        write_file("d/0000-0000000000000000.ckpt", lh_buf_span(&b));
        b.data[at] ^= 1;
        if (verify("d", "tiny", "job.keys") != DP_UNVERIFIED) fail_msg("byte %zu", at);
    }
    write_file("d/0000-0000000000000000.ckpt", lh_span(b.data, b.len - 1));
    assert_int_equal(verify("d", "tiny", "job.keys"), DP_UNVERIFIED);
    write_file("d/0000-0000000000000000.ckpt", lh_buf_span(&b));
    write_file("d/0000-0000000000000001.ckpt", lh_buf_span(&b)); // says another version
    assert_int_equal(verify("d", "tiny", "job.keys"), DP_UNVERIFIED);
    lh_buf_free(&b);
}

static void listing_and_wrong_lines(void **state)
{
    (void)state;
    char path[DP_PATH_SIZE];
    const char *argv[] = {"checkpoint", "ls", in_root("c", path), "-o", "json"};
    assert_int_equal(dp_cmd_checkpoint(5, (char **)argv), DP_OK);
    assert_int_equal(dp_cmd_checkpoint(2, (char **)argv), DP_USAGE);
    argv[4] = "xml";
    assert_int_equal(dp_cmd_checkpoint(5, (char **)argv), DP_USAGE);
    argv[1] = "verify"; // without manifest, run and keys
    assert_int_equal(dp_cmd_checkpoint(3, (char **)argv), DP_USAGE);
    argv[1] = "ls";
    argv[2] = "/nonexistent";
    assert_int_equal(dp_cmd_checkpoint(3, (char **)argv), DP_MISSING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_one),
        cmocka_unit_test(damaged_ones),
        cmocka_unit_test(listing_and_wrong_lines),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
