// deploy/stored/log_command.c, log_verify.c, replay.c, weights_file.c, job.c: every state that a
// log ever had is replayed to its digest; damage is told from a torn tail by its place; and no
// command changes the directory.
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/stored/log_verify.h"
#include "deploy/stored/replay.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/history/files.h"
#include "tests/history/rig.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static void put_file(const char *path, struct lh_span bytes)
{
    assert_int_equal(dp_file_write(path, bytes, 0600), LH_OK);
}

static int run(struct history_rig *r, const char *line)
{
    return history_command(r, "log", line);
}

static size_t lines(const struct history_rig *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->out.len; i++) n += r->out.data[i] == '\n';
    return n;
}

static void segment_path(const struct history_rig *r, uint64_t number, char out[DP_PATH_BYTES])
{
    assert_int_equal(
        dp_path(out, "%s/log/%016" PRIx64 ".seg", history_in_root(r, "server"), number), LH_OK);
}

static void checkpoint_path(const struct history_rig *r, uint32_t shard, uint64_t version,
                            char out[DP_PATH_BYTES])
{
    assert_int_equal(dp_path(out, "%s/checkpoints/%04" PRIx32 "-%016" PRIx64 ".ckpt",
                             history_in_root(r, "server"), shard, version),
                     LH_OK);
}

// ---------------------------------------------------------------- replay

#define IN_HISTORY(name, parameter)                                                                \
    TEST_WITH(name, parameter, history_set_up_files, history_tear_down)

IN_HISTORY(every_version_comes_back_with_its_digest, struct history_rig *r)
{
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++)
        for (uint64_t v = 0; v <= r->h.replica[shard].ledger.version; v++) {
            char line[128], hex[2 * LH_HASH_BYTES + 1];
            snprintf(line, sizeof line,
                     "replay @server JOB --weights @weights.bin --to %" PRIu32 ":%" PRIu64, shard,
                     v);
            assert_int_equal(run(r, line), DP_OK);
            lh_hash_hex(&r->h.digest[shard][v], hex);
            if (!history_says(r, hex)) fail_msg("%s: %s", line, (const char *)r->out.data);
            lh_hash_hex(&r->h.digest[!shard][r->h.replica[!shard].ledger.version], hex);
            assert_true(history_says(r, hex)); // the other shard is replayed to its end
        }
}

IN_HISTORY(a_version_that_is_not_there_is_named, struct history_rig *r)
{
    char path[DP_PATH_BYTES];
    assert_int_equal(run(r, "replay @server JOB --to 0:17"), DP_MISSING);
    assert_int_equal(run(r, "replay @server JOB --to 0:4"), DP_USAGE); // needs --weights
    assert_int_equal(run(r, "replay @server JOB --to 2:1"), DP_USAGE);
    assert_int_equal(run(r, "replay @server JOB --to 0:x"), DP_USAGE);
    assert_int_equal(run(r, "replay @server JOB --run other"), DP_CONFIG);
    assert_int_equal(run(r, "replay JOB"), DP_USAGE);
    assert_int_equal(run(r, "replay @server"), DP_USAGE);
    assert_int_equal(run(r, "replay /nonexistent JOB"), DP_MISSING);
    segment_path(r, 1,
                 path); // the log now begins above the checkpoints at 5 and 4
    history_write(&r->h, 1, false);
    history_copy_out(&r->h, history_in_root(r, "server"));
    assert_int_equal(remove(path), 0);
    assert_int_equal(run(r, "replay @server JOB --weights @weights.bin --to 0:3"), DP_MISSING);
    assert_int_equal(run(r, "replay @server JOB --weights @weights.bin --to 0:5"),
                     DP_OK); // the checkpoint
    assert_int_equal(run(r, "replay @server JOB --weights @weights.bin --to 0:6"), DP_MISSING);
    assert_int_equal(run(r, "replay @server JOB"), DP_OK);
}

IN_HISTORY(parameters_of_a_past_moment_are_exported, struct history_rig *r)
{
    char line[2 * DP_PATH_BYTES], path[DP_PATH_BYTES];
    const struct lh_manifest *m = &r->h.manifest;
    size_t bytes = m->values * sizeof(float);
    float *theta = malloc(bytes);
    struct dp_job job = {.manifest_path = history_in_root(r, "model.json"),
                         .run = HISTORY_RUN,
                         .keys_path = history_in_root(r, "job.keys")};
    struct dp_replay past;
    assert_int_equal(dp_job_open(&job, true), LH_OK);
    assert_int_equal(dp_replay_create(&past, &job), LH_OK);
    assert_int_equal(dp_replay_want(&past, "8"), LH_OK);
    assert_int_equal(dp_replay_dir(&past, history_in_root(r, "server")), LH_OK);
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++)
        memcpy(theta + m->shard[i].first, past.fold.shard[i].replica.theta,
               m->shard[i].values * sizeof(float));
    dp_replay_free(&past);
    dp_job_close(&job);

    assert_int_equal(dp_path(path, "%s/past.weights", r->root), LH_OK);
    snprintf(line, sizeof line, "replay @server JOB --to 8 --export %s", path);
    assert_int_equal(run(r, line), DP_OK);
    assert_int_equal(dp_file_read(path, &r->out), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&r->out), lh_span(theta, bytes)));

    assert_int_equal(dp_path(path, "%s/past.safetensors", r->root), LH_OK);
    snprintf(line, sizeof line, "replay @server JOB --to 8 --export %s", path);
    assert_int_equal(run(r, line), DP_OK);
    assert_int_equal(dp_file_read(path, &r->out), LH_OK);
    struct lh_cursor c = lh_cursor(lh_buf_span(&r->out));
    uint64_t header = lh_get_u64(&c);
    assert_int_equal((8 + header) % 8, 0);
    json_t *root = json_loadb((const char *)lh_get(&c, header).data, header, 0, NULL);
    assert_non_null(root);
    json_int_t from, to, dim;
    const char *type, *version;
    assert_int_equal(json_unpack(root, "{s:{s:s, s:[I], s:[I,I]}, s:{s:s}}", "large", "dtype",
                                 &type, "shape", &dim, "data_offsets", &from, &to, "__metadata__",
                                 "shard-1", &version),
                     0);
    assert_string_equal(type, "F32");
    assert_string_equal(version, "8");
    assert_int_equal(dim, 5000);
    assert_int_equal(from, 80 * sizeof(float));
    assert_int_equal(to, bytes);
    assert_true(lh_span_equal(lh_get(&c, lh_left(&c)), lh_span(theta, bytes)));
    json_decref(root);
    free(theta);
    assert_int_equal(run(r, "replay @server JOB --export /nonexistent/x"), DP_FAILED);
}

// A directory with one of two shards shows its digest, but can't be exported.
IN_HISTORY(an_export_needs_every_shard, struct history_rig *r)
{
    char path[DP_PATH_BYTES], from[DP_PATH_BYTES], line[2 * DP_PATH_BYTES], hex[65];
    assert_int_equal(dp_path(path, "%s/half/checkpoints", r->root), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    snprintf(line, sizeof line, "replay %s/half JOB", r->root);
    assert_int_equal(run(r, line), DP_MISSING); // nothing is there yet
    checkpoint_path(r, 1, 4, from);
    assert_int_equal(dp_file_read(from, &r->out), LH_OK);
    assert_int_equal(dp_path(path, "%s/half/checkpoints/0001-0000000000000004.ckpt", r->root), 0);
    put_file(path, lh_buf_span(&r->out));
    snprintf(line, sizeof line, "replay %s/half JOB --export %s/x", r->root, r->root);
    assert_int_equal(run(r, line), DP_MISSING);
    snprintf(line, sizeof line, "replay %s/half JOB", r->root);
    assert_int_equal(run(r, line), DP_OK);
    lh_hash_hex(&r->h.digest[1][4], hex);
    assert_true(history_says(r, hex));
    assert_int_equal(lines(r), 2);
    snprintf(line, sizeof line, "replay @server %s/half JOB", r->root);
    assert_int_equal(run(r, line), DP_USAGE); // shard 1 twice
}

// ---------------------------------------------------------------- dump

IN_HISTORY(every_record_is_a_line, struct history_rig *r)
{
    char hex[2 * LH_HASH_BYTES + 1];
    assert_int_equal(run(r, "dump @server"), DP_OK);
    assert_int_equal(lines(r), 1 + 25);
    assert_int_equal(run(r, "dump @server --shard 1"), DP_OK);
    assert_int_equal(lines(r), 1 + 9);
    assert_int_equal(run(r, "dump @server --shard 0 --from 5 --to 7 -o json"), DP_OK);
    assert_int_equal(lines(r), 3);
    json_error_t error;
    json_t *o = json_loads((const char *)r->out.data, JSON_DISABLE_EOF_CHECK, &error);
    const char *kind, *chain, *worker, *incarnation, *segment, *reason;
    json_int_t version, shard, epoch, step, tokens;
    assert_int_equal(json_unpack(o, "{s:s s:s s:s s:s s:s s:s s:I s:I s:I s:I s:I}", "kind", &kind,
                                 "chain", &chain, "worker", &worker, "incarnation", &incarnation,
                                 "segment", &segment, "reason", &reason, "version", &version,
                                 "shard", &shard, "epoch", &epoch, "step", &step, "tokens",
                                 &tokens),
                     0);
    lh_hash_hex(&r->h.chain[0][5], hex);
    assert_string_equal(chain, hex);
    assert_string_equal(kind, "refuse");
    assert_string_equal(reason, "LH_ERR_STALE");
    assert_string_equal(worker, "000000000000000b");
    assert_string_equal(incarnation, "1.0");
    assert_string_equal(segment, "0000000000000001");
    assert_int_equal(version, 5);
    assert_int_equal(shard, 0);
    assert_int_equal(epoch, 1);
    assert_int_equal(step, 3);
    assert_int_equal(tokens, 512);
    json_decref(o);
    assert_int_equal(run(r, "dump"), DP_USAGE);
    assert_int_equal(run(r, "dump @server -o xml"), DP_USAGE);
    assert_int_equal(run(r, "dump @server --from x"), DP_USAGE);
    assert_int_equal(run(r, "dump @server --from 7 --to 5"), DP_USAGE);
    assert_int_equal(run(r, "dump @server --shard 9"), DP_MISSING);
    assert_int_equal(run(r, "dump /nonexistent"), DP_MISSING);
    assert_int_equal(run(r, "dump @server/checkpoints"), DP_MISSING);
    assert_int_equal(lines(r), 0); // not even a heading
    assert_int_equal(run(r, "nothing"), DP_USAGE);
    assert_int_equal(run(r, "--help"), DP_OK);
}

// ---------------------------------------------------------------- verify

static void flip(const char *path, size_t at)
{
    struct lh_buf b = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(path, &b), LH_OK);
    assert_in_range(at, 0, b.len - 1);
    b.data[at] ^= 0x10;
    put_file(path, lh_buf_span(&b));
    lh_buf_free(&b);
}

IN_HISTORY(a_whole_log_is_whole, struct history_rig *r)
{
    assert_int_equal(run(r, "verify @server"), DP_OK);
    assert_true(history_says(r, ": whole"));
    assert_int_equal(run(r, "verify @server JOB --weights @weights.bin -o json"), DP_OK);
    json_t *o = json_loads((const char *)r->out.data, 0, NULL);
    const char *what;
    json_int_t entries, records, last;
    int folded;
    assert_int_equal(json_unpack(o, "{s:s s:I s:I s:[{s:I s:b}{}]}", "state", &what, "entries",
                                 &entries, "records", &records, "shards", "last", &last, "folded",
                                 &folded),
                     0);
    assert_string_equal(what, "whole");
    assert_int_equal(records, 25);
    assert_int_equal(entries, 26);
    assert_int_equal(last, 16);
    assert_true(folded);
    json_decref(o);
    assert_int_equal(run(r, "verify @server --run other --manifest x"), DP_MISSING);
    assert_int_equal(run(r, "verify @server --run other"), DP_CONFIG);
    assert_int_equal(run(r, "verify @server --keys x"), DP_USAGE);
    assert_int_equal(run(r, "verify"), DP_USAGE);
}

IN_HISTORY(damage_is_told_with_its_place, struct history_rig *r)
{
    char path[DP_PATH_BYTES];
    segment_path(r, 2, path);
    flip(path, 64 + 70); // inside its first entry
    assert_int_equal(run(r, "verify @server"), DP_UNVERIFIED);
    const char *text = lh_err_text(LH_ERR_CORRUPT);
    assert_non_null(strstr(text, "0000000000000002.seg: damaged at byte 64 "));
    assert_true(history_says(r, ": damaged"));
    assert_int_equal(run(r, "replay @server JOB"), DP_UNVERIFIED);
    assert_int_equal(run(r, "dump @server"), DP_UNVERIFIED);
    assert_true(lines(r) > 5); // entries before the damage are shown
    flip(path, 64 + 70);
    assert_int_equal(run(r, "verify @server"), DP_OK);
}

// Invalid bytes behind the last entry are a torn tail, unless a server holds the directory.
IN_HISTORY(a_torn_end_is_told_from_damage, struct history_rig *r)
{
    char path[DP_PATH_BYTES], lock[DP_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    segment_path(r, 3, path);
    assert_int_equal(dp_file_read(path, &b), LH_OK);
    size_t end = b.len;
    while (end && !b.data[end - 1]) end--;
    flip(path, end + 40);
    assert_int_equal(run(r, "verify @server"), DP_FAILED);
    assert_true(history_says(r, ": torn"));
    char place[64];
    snprintf(place, sizeof place, "segment 0000000000000003 byte %zu", (end + 7) / 8 * 8);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFLICT), place));
    assert_int_equal(run(r, "verify @server -o json"), DP_FAILED);
    assert_true(history_says(r, "\"torn\""));
    assert_int_equal(run(r, "replay @server JOB"), DP_OK); // the intact part can be replayed
    assert_int_equal(run(r, "dump @server"), DP_OK);

    assert_int_equal(dp_path(lock, "%s/lock", history_in_root(r, "server")), LH_OK);
    put_file(lock, lh_span("", 0));
    assert_int_equal(run(r, "verify @server"), DP_FAILED); // nobody holds the lock
    FILE *held = fopen(lock, "r+");
    assert_non_null(held);
    assert_int_equal(flock(fileno(held), LOCK_EX | LOCK_NB), 0);
    assert_int_equal(run(r, "verify @server"), DP_OK);
    assert_true(history_says(r, ": being written"));
    fclose(held);
    lh_buf_free(&b);
}

IN_HISTORY(log_and_checkpoints_must_fit, struct history_rig *r)
{
    char path[DP_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    history_write(&r->h, 1, false); // its checkpoint is at 9
    history_copy_out(&r->h, history_in_root(r, "server"));
    segment_path(r, 1, path); // without it, the log needs checkpoints 11 and 9
    assert_int_equal(dp_file_read(path, &b), LH_OK);
    assert_int_equal(remove(path), 0);
    assert_int_equal(run(r, "verify @server JOB"), DP_OK);
    checkpoint_path(r, 1, 9, path);
    assert_int_equal(remove(path), 0);
    assert_int_equal(run(r, "verify @server"), DP_UNVERIFIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "no checkpoint"));
    segment_path(r, 1, path);
    put_file(path, lh_buf_span(&b));
    assert_int_equal(run(r, "verify @server"), DP_OK);
    lh_buf_free(&b);

    // a checkpoint of the same version from another history of this run
    struct history other;
    history_start(&other, r->env, "other");
    history_add(&other, 0, LH_FENCE);
    history_add(&other, 0, LH_PLAN);
    for (int i = 0; i < 3; i++) history_add(&other, 0, LH_ADMIT);
    history_write(&other, 0, false);
    history_copy_one(&other, "checkpoints", "0000-0000000000000005.ckpt",
                     history_in_root(r, "server"));
    history_finish(&other);
    assert_int_equal(run(r, "verify @server"), DP_UNVERIFIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "another history"));
}

// Flips bytes all over a segment: a damaged byte is refused, or it does not count.
IN_HISTORY(no_flipped_byte_is_overlooked, struct history_rig *r)
{
    char path[DP_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    size_t damaged = 0, seen = 0;
    segment_path(r, 2, path);
    assert_int_equal(dp_file_read(path, &b), LH_OK);
    for (size_t at = 0; at < b.len; at += 17) {
        bool counts = at < 60; // the header's last word is not checked
        flip(path, at);
        int code = run(r, "verify @server");
        flip(path, at);
        if (counts) assert_int_equal(code, DP_UNVERIFIED);
        assert_true(code == DP_OK || code == DP_UNVERIFIED);
        damaged += code == DP_UNVERIFIED;
        seen++;
    }
    assert_true(damaged * 4 > seen); // the segment is more than a quarter full
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- nothing changes

static struct lh_hash tree_hash;

static int hash_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)kind, (void)at;
    struct lh_buf b = lh_buf(1 << 20);
    if (S_ISREG(is->st_mode)) assert_int_equal(dp_file_read(path, &b), LH_OK);
    struct lh_span part[] = {lh_span(tree_hash.b, LH_HASH_BYTES), lh_span_str(path),
                             lh_buf_span(&b), lh_span(&is->st_mtim, sizeof is->st_mtim)};
    tree_hash = lh_hash_of((struct lh_span){0}, part, LH_COUNT(part));
    lh_buf_free(&b);
    return 0;
}

static struct lh_hash hash_dir(const struct history_rig *r)
{
    memset(&tree_hash, 0, sizeof tree_hash);
    assert_int_equal(nftw(history_in_root(r, "server"), hash_one, 16, FTW_PHYS), 0);
    return tree_hash;
}

IN_HISTORY(nothing_is_changed, struct history_rig *r)
{
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/log/%016x.seg", history_in_root(r, "server"), 4), LH_OK);
    put_file(path, lh_span("", 0)); // an unfinished segment, which a start would remove
    struct lh_hash before = hash_dir(r);
    assert_int_equal(run(r, "dump @server"), DP_OK);
    assert_int_equal(run(r, "verify @server JOB"), DP_OK);
    assert_int_equal(run(r, "replay @server JOB"), DP_OK);
    struct lh_hash after = hash_dir(r);
    assert_true(lh_hash_equal(&before, &after));
}

// One worker made all pushes of the history: without them the parameters are the initial ones.
IN_HISTORY(a_workers_pushes_are_left_out, struct history_rig *r)
{
    char line[2 * DP_PATH_BYTES], path[DP_PATH_BYTES];
    static const char by_id[] = "--without 000000000000000b";
    assert_int_equal(dp_path(path, "%s/without.weights", r->root), LH_OK);
    snprintf(line, sizeof line, "replay @server JOB --weights @weights.bin %s --export %s", by_id,
             path);
    assert_int_equal(run(r, line), DP_OK);
    struct lh_buf initial = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(path, &r->out), LH_OK);
    assert_int_equal(dp_file_read(history_in_root(r, "weights.bin"), &initial), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&r->out), lh_buf_span(&initial)));
    lh_buf_free(&initial);
    // The oldest checkpoint contains some of the pushes.
    snprintf(line, sizeof line, "replay @server JOB %s", by_id);
    assert_int_equal(run(r, line), DP_MISSING);
    snprintf(line, sizeof line, "replay @server JOB %s --from 1000", by_id);
    assert_int_equal(run(r, line), DP_OK);
    assert_int_equal(run(r, "replay @server JOB --weights @weights.bin --without far/nobody"),
                     DP_OK);
    assert_int_equal(run(r, "replay @server JOB --without nobody"), DP_USAGE);
    assert_int_equal(run(r, "replay @server JOB --without a/B*"), DP_USAGE);
    assert_int_equal(run(r, "replay @server JOB --from 3"), DP_USAGE);
}
