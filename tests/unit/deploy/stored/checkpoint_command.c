// deploy/stored/checkpoint_command.c, checkpoint_restore.c: an intact file passes; one with a
// flipped byte, another name, run or key does not. Shards are restored onto another number of
// servers with the same state, and pruning leaves a state to start from.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/app/node.h"
#include "common/base/check.h"
#include "deploy/stored/store.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/recovery/epoch.h"
#include "server/server.h"
#include "tests/history/files.h"
#include "tests/history/rig.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static int run(struct history_rig *r, const char *line)
{
    return history_command(r, "checkpoint", line);
}

static void load(const struct history_rig *r, const char *name, struct lh_buf *out)
{
    *out = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(history_in_root(r, name), out), LH_OK);
}

static void store(const struct history_rig *r, const char *name, struct lh_span bytes)
{
    assert_int_equal(dp_file_write(history_in_root(r, name), bytes, 0600), LH_OK);
}

// ---------------------------------------------------------------- ls, verify

#define IN_HISTORY(name, parameter)                                                                \
    TEST_WITH(name, parameter, history_set_up_files, history_tear_down)

IN_HISTORY(a_workers_folder_lists_its_durable_copies, struct history_rig *r)
{
    struct lh_buf bytes;
    load(r, "server/checkpoints/0000-0000000000000005.ckpt", &bytes);
    assert_int_equal(dp_make_dirs(history_in_root(r, "worker/replica")), LH_OK);
    store(r, "worker/replica/0000-0000000000000005.ckpt", lh_buf_span(&bytes));
    store(r, "worker/final.weights", lh_span("parameters", 10)); // written at the end of a run
    lh_buf_free(&bytes);
    assert_int_equal(run(r, "ls @worker"), DP_OK);
    assert_true(history_says(r, "0000-0000000000000005.ckpt"));
    assert_false(history_says(r, "final.weights"));
    assert_int_equal(run(r, "verify @worker"), DP_OK);
}

IN_HISTORY(a_listing_says_what_headers_say, struct history_rig *r)
{
    assert_int_equal(run(r, "ls @server"), DP_OK);
    assert_true(history_says(r, "0000-0000000000000005.ckpt"));
    assert_int_equal(run(r, "ls @server/checkpoints -o json"), DP_OK);
    assert_true(history_says(r, "\"channel\": \"full\""));
    assert_true(history_says(r, "\"version\": 11"));
    assert_true(history_says(r, "\"epoch\": 1"));
    assert_true(history_says(r, "\"signer\": \"-\""));
    store(r, "server/checkpoints/0000-0000000000000007.weights", lh_span("none", 4));
    assert_int_equal(run(r, "ls @server"), DP_UNVERIFIED); // the file has no valid header
    assert_int_equal(run(r, "ls"), DP_USAGE);
    assert_int_equal(run(r, "ls @server -o xml"), DP_USAGE);
    assert_int_equal(run(r, "ls @nothing"), DP_MISSING);
    assert_int_equal(run(r, "nothing"), DP_USAGE);
    assert_int_equal(run(r, "--help"), DP_OK);
}

IN_HISTORY(a_good_one_is_ok, struct history_rig *r)
{
    assert_int_equal(run(r, "verify @server"), DP_OK); // checks hashes only
    assert_int_equal(run(r, "verify @server JOB"), DP_OK);
    assert_int_equal(run(r, "verify @server JOB --run other"), DP_UNVERIFIED);
    assert_int_equal(run(r, "verify @nothing JOB"), DP_MISSING);
    assert_int_equal(run(r, "verify @server --keys @job.keys"), DP_USAGE);
    assert_int_equal(lh_key_generate(history_in_root(r, "other.keys")), LH_OK);
    assert_int_equal(run(r, "verify @server JOB --keys @other.keys"), DP_MISSING); // no key 7
    assert_int_equal(dp_make_dirs(history_in_root(r, "empty")), LH_OK);
    assert_int_equal(run(r, "verify @empty"), DP_MISSING);
}

IN_HISTORY(damaged_ones_are_not, struct history_rig *r)
{
    struct lh_buf b;
    load(r, "server/checkpoints/0000-0000000000000005.ckpt", &b);
    assert_int_equal(dp_make_dirs(history_in_root(r, "d")), LH_OK);
    for (size_t at = 0; at < b.len; at += 31) { // header, range and manifest
        b.data[at] ^= 1;
        store(r, "d/0000-0000000000000005.ckpt", lh_buf_span(&b));
        b.data[at] ^= 1;
        if (run(r, "verify @d JOB") != DP_UNVERIFIED || run(r, "verify @d") != DP_UNVERIFIED)
            fail_msg("byte %zu", at);
    }
    store(r, "d/0000-0000000000000005.ckpt", lh_buf_span(&b));
    assert_int_equal(run(r, "verify @d"), DP_OK);
    store(r, "d/0000-0000000000000006.ckpt", lh_buf_span(&b)); // its header has another version
    assert_int_equal(run(r, "verify @d"), DP_UNVERIFIED);
    assert_int_equal(run(r, "verify @d JOB"), DP_UNVERIFIED);
    assert_int_equal(remove(history_in_root(r, "d/0000-0000000000000006.ckpt")), 0);
    store(r, "d/notes.ckpt", lh_buf_span(&b));
    assert_int_equal(run(r, "ls @d"), DP_UNVERIFIED);
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- restore

// Checks the state from which a server would start in this directory.
static void check_start(struct history_rig *r, const char *dir, uint32_t shard, uint64_t version,
                        uint64_t epoch)
{
    char checkpoints[DP_PATH_BYTES];
    struct lk_replica replica;
    struct lk_checkpoint_conf conf = r->h.conf;
    assert_int_equal(dp_path(checkpoints, "%s/checkpoints", history_in_root(r, dir)), LH_OK);
    struct lh_env *real;
    assert_int_equal(lh_env_real_create(&real), LH_OK);
    conf.env = real;
    conf.dir = checkpoints;
    assert_int_equal(lk_replica_create(&replica, r->h.job, &r->h.manifest, shard, conf.keys), 0);
    assert_int_equal(lk_checkpoint_load(&conf, &replica, NULL, NULL), LH_OK);
    assert_int_equal(replica.ledger.version, version);
    struct lh_hash digest = lk_replica_digest(&replica);
    assert_true(lh_hash_equal(&digest, &r->h.digest[shard][version]));
    lk_replica_free(&replica);
    uint64_t begun = 0, token = 0;
    lh_err err = ps_epoch_read(real, history_in_root(r, dir), shard, &begun, &token);
    assert_int_equal(err, epoch ? LH_OK : LH_ERR_NOT_FOUND);
    assert_int_equal(begun, epoch);
    assert_int_equal(token, 0); // the server asks for the epoch with its own token
    lh_env_real_destroy(real);
}

IN_HISTORY(shards_go_onto_other_servers_without_loss, struct history_rig *r)
{
    assert_int_equal(run(r, "restore @server JOB --into @a --shards 0"), DP_OK);
    assert_int_equal(run(r, "restore @server JOB --into @b --shards 1"), DP_OK);
    check_start(r, "a", 0, 16, 0); // starts at the log's end, so no history is lost
    check_start(r, "b", 1, 9, 0);
    assert_false(dp_file_exists(history_in_root(r, "a/checkpoints/0001-0000000000000009.ckpt")));
    assert_int_equal(run(r, "restore @a/checkpoints @b/checkpoints JOB --into @c"), DP_OK);
    check_start(r, "c", 0, 16, 3); // checkpoints alone don't show what came after them
    check_start(r, "c", 1, 9, 3);
    assert_int_equal(run(r, "restore @a @b JOB --export @x.safetensors"), DP_OK);
    assert_true(dp_file_exists(history_in_root(r, "x.safetensors")));
}

IN_HISTORY(a_partial_restore_opens_an_epoch, struct history_rig *r)
{
    assert_int_equal(run(r, "restore @server/checkpoints JOB --into @a"), DP_OK);
    check_start(r, "a", 0, 11, 2);
    check_start(r, "a", 1, 4, 2);
    assert_int_equal(run(r, "restore @server JOB --into @b --to 0:14 --shards 0"), DP_OK);
    check_start(r, "b", 0, 14, 3); // its log has epoch 2
    assert_int_equal(run(r, "restore @server JOB --into @c --epoch 9"), DP_OK);
    check_start(r, "c", 0, 16, 9);
    // an epoch that has begun but has no record yet
    struct lh_buf b;
    load(r, "c/epoch-0000", &b);
    store(r, "server/epoch-0000", lh_buf_span(&b));
    assert_int_equal(run(r, "restore @server JOB --into @d"), DP_OK);
    check_start(r, "d", 0, 16, 9);
    assert_int_equal(run(r, "restore @server JOB --into @e --to 0:12 --shards 0"), DP_OK);
    check_start(r, "e", 0, 12, 10);
    store(r, "server/epoch-0000", lh_span(b.data, 9));
    assert_int_equal(run(r, "restore @server JOB --into @f"), DP_UNVERIFIED);
    lh_buf_free(&b);
}

IN_HISTORY(restores_that_must_not_be, struct history_rig *r)
{
    assert_int_equal(run(r, "restore @server JOB"), DP_USAGE);
    assert_int_equal(run(r, "restore @server JOB --into @a --export @b"), DP_USAGE);
    assert_int_equal(run(r, "restore @server --into @a"), DP_USAGE);
    assert_int_equal(run(r, "restore @server JOB --into @server"), DP_FAILED); // not empty
    assert_int_equal(run(r, "restore @server JOB --into @a --shards 2"), DP_USAGE);
    assert_int_equal(run(r, "restore @server JOB --into @a --shards x"), DP_USAGE);
    assert_int_equal(run(r, "restore @server JOB --into @a --to 0:77"), DP_MISSING);
    assert_int_equal(run(r, "restore @server JOB --into @a --sign-key @none"), DP_MISSING);
    assert_int_equal(run(r, "restore @server JOB --into @one --shards 1"), DP_OK);
    assert_int_equal(run(r, "restore @one JOB --into @b --shards 0"), DP_MISSING);
    store(r, "server/lock", lh_span("", 0));
    FILE *held = fopen(history_in_root(r, "server/lock"), "r+");
    assert_int_equal(flock(fileno(held), LOCK_EX | LOCK_NB), 0);
    assert_int_equal(run(r, "restore @server JOB --into @b"), DP_FAILED); // a server runs there
    assert_int_equal(run(r, "prune @server JOB"), DP_FAILED);
    assert_int_equal(run(r, "restore @server/checkpoints JOB --into @b"), DP_OK);
    fclose(held);
}

IN_HISTORY(restored_checkpoints_can_be_signed, struct history_rig *r)
{
    char line[256];
    assert_int_equal(lh_sign_generate(history_in_root(r, "signer"), "test"), LH_OK);
    assert_int_equal(run(r, "verify @server --signers @signer.pub"), DP_UNVERIFIED);
    assert_int_equal(run(r, "restore @server JOB --into @a --sign-key @signer"), DP_OK);
    assert_int_equal(run(r, "verify @a --signers @signer.pub"), DP_OK);
    assert_int_equal(run(r, "verify @a JOB --signers @signer.pub -o json"), DP_OK);
    struct lh_buf b;
    load(r, "signer.pub", &b);
    snprintf(line, sizeof line, "\"signer\": \"%.64s\"", (const char *)b.data);
    assert_true(history_says(r, line));
    assert_int_equal(run(r, "verify @a --signers @none"), DP_MISSING);
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- prune

IN_HISTORY(pruning_leaves_a_start, struct history_rig *r)
{
    struct lh_buf b;
    history_write(&r->h, 0, false); // 16, beside 5 and 11
    history_copy_out(&r->h, history_in_root(r, "server"));
    load(r, "server/checkpoints/0000-000000000000000b.ckpt", &b);
    b.data[200] ^= 1;
    store(r, "server/checkpoints/0000-000000000000000b.ckpt", lh_buf_span(&b));
    assert_int_equal(run(r, "prune @server JOB"), DP_OK);
    assert_true(history_says(r, "000b.ckpt: stays"));
    assert_true(
        dp_file_exists(history_in_root(r, "server/checkpoints/0000-0000000000000005.ckpt")));
    b.data[200] ^= 1;
    store(r, "server/checkpoints/0000-000000000000000b.ckpt", lh_buf_span(&b));
    assert_int_equal(run(r, "prune @server JOB --keep 3"), DP_OK);
    assert_true(
        dp_file_exists(history_in_root(r, "server/checkpoints/0000-0000000000000005.ckpt")));
    assert_int_equal(run(r, "prune @server JOB --keep 2"), DP_OK);
    assert_true(history_says(r, "0005.ckpt: removed"));
    assert_false(
        dp_file_exists(history_in_root(r, "server/checkpoints/0000-0000000000000005.ckpt")));
    assert_true(
        dp_file_exists(history_in_root(r, "server/checkpoints/0000-000000000000000b.ckpt")));
    assert_true(
        dp_file_exists(history_in_root(r, "server/checkpoints/0001-0000000000000004.ckpt")));
    assert_int_equal(run(r, "prune @server JOB --keep 1"), DP_USAGE);
    assert_int_equal(run(r, "prune JOB"), DP_USAGE);
    assert_int_equal(run(r, "prune @server"), DP_USAGE);
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- a store

static const char *address(const struct history_rig *r)
{
    static char text[DP_PATH_BYTES + 16];
    snprintf(text, sizeof text, "file://%s", history_in_root(r, "store"));
    return text;
}

// Puts the server's checkpoints into the store, as its uploader does.
static void store_all(const struct history_rig *r)
{
    struct dp_job job = {.config = NULL};
    struct lh_objects *o;
    static const struct lk_checkpoint_name names[] = {{0, 5, false}, {0, 11, false}, {1, 4, false}};
    assert_int_equal(dp_job_open(&job, false), LH_OK);
    assert_int_equal(dp_store_open(&job, address(r), &o), LH_OK);
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        uint64_t bytes;
        assert_int_equal(
            lk_stored_put(o, job.env, history_in_root(r, "server/checkpoints"), &names[i], &bytes),
            LH_OK);
        assert_true(bytes > 0);
    }
    lh_objects_close(o);
    dp_job_close(&job);
}

static int on_store(struct history_rig *r, const char *format)
{
    char line[2 * DP_PATH_BYTES];
    const char *at = strstr(format, "STORE");
    snprintf(line, sizeof line, "%.*s%s%s", (int)(at - format), format, address(r), at + 5);
    return run(r, line);
}

// Flips a byte of shard 0's newest stored checkpoint.
static void damage_newest(struct history_rig *r)
{
    struct lk_stored_list list;
    struct lk_stored_about about;
    struct dp_job job = {.config = NULL};
    struct lh_objects *o;
    struct lh_buf b;
    char name[LK_STORED_NAME_BYTES], file[160];
    assert_int_equal(dp_job_open(&job, false), LH_OK);
    assert_int_equal(dp_store_open(&job, address(r), &o), LH_OK);
    assert_int_equal(lk_stored_list(o, 0, &list), LH_OK);
    const struct lk_stored *newest = &list.at[list.count - 1];
    assert_int_equal(lk_stored_about(o, newest, &about), LH_OK);
    lk_stored_name(newest, name);
    snprintf(file, sizeof file, "store/%s.%.32s", name, about.sha256);
    load(r, file, &b);
    b.data[300] ^= 1;
    store(r, file, lh_buf_span(&b));
    lh_buf_free(&b);
    lk_stored_list_free(&list);
    lh_objects_close(o);
    dp_job_close(&job);
}

static bool holds(struct history_rig *r, const char *where, unsigned shard, unsigned version)
{
    char name[DP_PATH_BYTES];
    snprintf(name, sizeof name, "%s/checkpoints/%04x-%016x.ckpt", where, shard, version);
    return dp_file_exists(history_in_root(r, name));
}

IN_HISTORY(a_run_comes_back_from_a_store, struct history_rig *r)
{
    assert_int_equal(on_store(r, "ls STORE"), DP_OK); // empty
    assert_int_equal(on_store(r, "verify STORE"), DP_MISSING);
    assert_int_equal(on_store(r, "restore STORE JOB --into @new"), DP_MISSING);
    store_all(r);
    assert_int_equal(on_store(r, "ls STORE"), DP_OK);
    assert_true(history_says(r, "-000000000000000b.ckpt"));
    assert_int_equal(on_store(r, "verify STORE"), DP_OK);
    assert_int_equal(on_store(r, "verify STORE JOB -o json"), DP_OK);
    assert_int_equal(on_store(r, "restore STORE JOB --into @new"), DP_OK);
    assert_true(holds(r, "new", 0, 11) && holds(r, "new", 1, 4));
    assert_int_equal(run(r, "verify @new JOB"), DP_OK);
    assert_int_equal(on_store(r, "restore STORE JOB --into @one/deep --shards 1"), DP_OK);
    assert_true(holds(r, "one/deep", 1, 4) && !holds(r, "one/deep", 0, 11));
    assert_int_equal(on_store(r, "restore STORE JOB --into @old --to 0:5"), DP_OK);
    assert_true(holds(r, "old", 0, 5));
    assert_int_equal(on_store(r, "restore STORE JOB --into @new"), DP_FAILED); // not empty
    damage_newest(r);
    assert_int_equal(on_store(r, "verify STORE"), DP_UNVERIFIED);
    assert_true(history_says(r, "SHA-256"));
    assert_int_equal(on_store(r, "restore STORE JOB --into @older"), DP_OK);
    assert_true(holds(r, "older", 0, 5)); // the checkpoint before the damaged one
    assert_int_equal(on_store(r, "prune STORE --keep 2"), DP_OK);
    assert_false(history_says(r, "removed"));
    assert_int_equal(run(r, "ls ftp://x/y"), DP_MISSING); // taken as a folder's name
    assert_int_equal(run(r, "ls s3://x/"), DP_CONFIG);
}
