// Goldens: stored bytes give the same state at every version, so no format changes unnoticed.
//
// The argument is a folder under tests/fixtures/history, a server's directory as make.c wrote it.
// Every checkpoint is read, and the log is folded from the initial parameters and from the newest
// checkpoint.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/files.h"
#include "kernels/storage/checkpoint_read.h"
#include "tests/history/history.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static const char *folder; // argv[1]

struct golden {
    struct lh_fake_world *world;
    struct history h;
    struct lh_env *real, *env;
    uint64_t last[HISTORY_SHARDS];
    char digest[HISTORY_SHARDS][HISTORY_VERSIONS][2 * LH_HASH_BYTES + 1];
    char chain[HISTORY_SHARDS][HISTORY_VERSIONS][2 * LH_HASH_BYTES + 1];
    uint64_t newest[HISTORY_SHARDS], before[HISTORY_SHARDS]; // versions of full checkpoints
    unsigned checkpoints, folded;                            // files of both kinds; records
    struct lh_trusted trusted; // signers; count 0: written before there were signatures
};

struct copy {
    struct golden *g;
    const char *sub;
};

static void note_checkpoint(struct golden *g, const char *file)
{
    struct lk_checkpoint_name name;
    if (!lk_checkpoint_name_parse(file, &name)) return;
    assert_in_range(name.shard, 0, HISTORY_SHARDS - 1);
    g->checkpoints++;
    if (name.weights) return;
    assert_true(name.version > g->newest[name.shard]); // sorted by name
    g->before[name.shard] = g->newest[name.shard];
    g->newest[name.shard] = name.version;
}

// Copies a file to the fake disk, where the test may change it.
static void copy_one(void *arg, const char *name)
{
    const struct copy *c = arg;
    char from[DP_PATH_BYTES], to[LH_PATH_BYTES];
    struct lh_buf bytes = lh_buf(1 << 20);
    assert_int_equal(dp_path(from, "%s/%s/%s", folder, c->sub, name), LH_OK);
    assert_int_equal(lh_path(to, sizeof to, c->sub, "%s", name), LH_OK);
    assert_int_equal(dp_file_read(from, &bytes), LH_OK);
    assert_int_equal(lh_file_replace(c->g->env, to, lh_buf_span(&bytes)), LH_OK);
    lh_buf_free(&bytes);
    note_checkpoint(c->g, name);
}

static void copy_dir(struct golden *g, const char *sub)
{
    char from[DP_PATH_BYTES];
    struct copy c = {g, sub};
    assert_int_equal(dp_path(from, "%s/%s", folder, sub), LH_OK);
    assert_int_equal(g->env->ops->files->make_dir(g->env, sub), LH_OK);
    assert_int_equal(g->real->ops->files->list(g->real, from, copy_one, &c), LH_OK);
}

static void load_expect(struct golden *g)
{
    char path[DP_PATH_BYTES], line[256];
    assert_int_equal(dp_path(path, "%s/expect.txt", folder), LH_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        uint32_t shard;
        uint64_t v;
        char chain[65], digest[65];
        assert_int_equal(
            sscanf(line, "%" SCNu32 " %" SCNu64 " %64s %64s", &shard, &v, chain, digest), 4);
        assert_true(shard < HISTORY_SHARDS && v < HISTORY_VERSIONS);
        memcpy(g->chain[shard][v], chain, sizeof chain);
        memcpy(g->digest[shard][v], digest, sizeof digest);
        if (v > g->last[shard]) g->last[shard] = v;
    }
    assert_int_equal(fclose(file), 0);
}

static void check_state(const struct golden *g, const struct lk_replica *r)
{
    char hex[2 * LH_HASH_BYTES + 1];
    const struct lh_ledger *l = &r->ledger;
    struct lh_hash digest = lk_replica_digest(r);
    lh_hash_hex(&digest, hex);
    assert_string_equal(hex, g->digest[l->shard][l->version]);
    lh_hash_hex(&l->chain, hex);
    assert_string_equal(hex, g->chain[l->shard][l->version]);
}

static int set_up(void **state)
{
    struct golden *g = calloc(1, sizeof *g);
    if (!g || lh_env_real_create(&g->real)) return -1;
    g->world = lh_fake_world_create(1);
    g->env = lh_fake_node(g->world, NULL, NULL);
    lh_fake_boot(g->env);
    load_expect(g);
    char signer[DP_PATH_BYTES];
    assert_int_equal(dp_path(signer, "%s/signer.pub", folder), LH_OK);
    if (dp_file_exists(signer)) assert_int_equal(lh_trusted_load(signer, &g->trusted), LH_OK);
    copy_dir(g, "log");
    copy_dir(g, "checkpoints");
    // keys, manifest and initial parameters; this history's own log is not used
    history_start(&g->h, g->env, "scratch");
    if (g->trusted.count) g->h.conf.trusted = &g->trusted;
    *state = g;
    return 0;
}

static int tear_down(void **state)
{
    struct golden *g = *state;
    history_finish(&g->h);
    lh_fake_world_destroy(g->world);
    lh_env_real_destroy(g->real);
    free(g);
    return 0;
}

// Folds the next record, unless the checkpoint already contains it.
static lh_err fold(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct golden *g = arg;
    struct lk_replica *replica = &g->h.replica[shard];
    (void)place;
    if (r->version <= replica->ledger.version) return LH_OK;
    LH_TRY(lk_replica_apply(replica, r));
    check_state(g, replica);
    g->folded++;
    return LH_OK;
}

static void replay(struct golden *g)
{
    struct ps_wal_conf conf = {.env = g->env, .dir = "log", .segment_bytes = 1 << 16};
    struct ps_wal *wal;
    bool torn;
    memcpy(conf.job, g->h.job, LH_JOB_BYTES);
    lh_err err = ps_wal_open(&conf, fold, g, &torn, &wal);
    if (err) fail_msg("%s", lh_err_text(err));
    assert_false(torn);
    ps_wal_close(wal);
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++)
        assert_int_equal(g->h.replica[i].ledger.version, g->last[i]);
}

#define IN_HISTORY(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_HISTORY(the_log_folds_to_every_state, struct golden *g)
{
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++) check_state(g, &g->h.replica[i]);
    replay(g);
    assert_int_equal(g->folded, g->last[0] + g->last[1]);
    assert_true(g->last[0] >= 16 && g->last[1] >= 9); // the usual history, not an empty folder
}

static void skipped(void *arg, const char *file, lh_err err)
{
    (void)arg;
    fail_msg("%s: %s", file, lh_err_text(err));
}

IN_HISTORY(checkpoint_and_log_fold_to_the_last_state, struct golden *g)
{
    struct lk_checkpoint_conf conf = g->h.conf;
    conf.dir = "checkpoints";
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++) {
        lh_err err = lk_checkpoint_load(&conf, &g->h.replica[i], skipped, NULL);
        if (err) fail_msg("%s", lh_err_text(err));
        check_state(g, &g->h.replica[i]);
    }
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++)
        assert_int_equal(g->h.replica[i].ledger.version, g->newest[i]);
    replay(g);
    assert_int_equal(g->folded, g->last[0] - g->newest[0] + g->last[1] - g->newest[1]);
}

struct each {
    struct golden *g;
    unsigned count;
};

// The hashes can be checked without a key, and an extra byte counts as damage.
static void check_hashes_and_length(struct golden *g, const char *path, struct lk_replica *r)
{
    struct lk_checkpoint_info info;
    struct lh_buf b = lh_buf(1 << 20);
    lh_err err = lk_checkpoint_check(&g->h.conf, path, &info);
    assert_int_equal(err, LH_OK);
    assert_int_equal(lh_file_load(g->env, path, &b), LH_OK);
    lh_put_u8(&b, 0);
    assert_int_equal(lh_file_replace(g->env, "longer", lh_buf_span(&b)), LH_OK);
    assert_int_equal(lk_checkpoint_read(&g->h.conf, "longer", r), LH_ERR_CORRUPT);
    lh_buf_free(&b);
}

static void read_one(void *arg, const char *name)
{
    struct each *e = arg;
    struct golden *g = e->g;
    struct lk_replica r;
    char path[LH_PATH_BYTES];
    uint32_t shard = (uint32_t)(name[3] - '0');
    assert_in_range(shard, 0, HISTORY_SHARDS - 1);
    assert_int_equal(lh_path(path, sizeof path, "checkpoints", "%s", name), LH_OK);
    assert_int_equal(lk_replica_create(&r, g->h.job, &g->h.manifest, shard, g->h.conf.keys), 0);
    lh_err err = lk_checkpoint_read(&g->h.conf, path, &r);
    if (err) fail_msg("%s", lh_err_text(err));
    if (strstr(name, ".weights")) // holds the log's last version
        assert_memory_equal(r.theta, g->h.replica[shard].theta, r.layout->values * sizeof(float));
    else
        check_state(g, &r);
    check_hashes_and_length(g, path, &r);
    lk_replica_free(&r);
    e->count++;
}

IN_HISTORY(every_checkpoint_is_read, struct golden *g)
{
    struct each e = {.g = g};
    replay(g);
    assert_int_equal(g->env->ops->files->list(g->env, "checkpoints", read_one, &e), LH_OK);
    assert_int_equal(e.count, g->checkpoints);
    assert_true(e.count >= (g->trusted.count ? 3 + 2 : 3)); // files of weights only count too
}

static void passed_over(void *arg, const char *file, lh_err err)
{
    (void)file, (void)err;
    ++*(unsigned *)arg;
}

IN_HISTORY(a_checkpoint_with_changed_bytes_is_passed_over, struct golden *g)
{
    struct lk_checkpoint_name newest = {.version = g->newest[0]};
    struct lk_checkpoint_conf conf = g->h.conf;
    struct lh_buf bytes = lh_buf(1 << 20);
    char path[LH_PATH_BYTES];
    unsigned passed = 0;
    conf.dir = "checkpoints";
    assert_int_equal(lk_checkpoint_path(conf.dir, &newest, path), LH_OK);
    assert_int_equal(lh_file_load(g->env, path, &bytes), LH_OK);
    assert_int_equal(lh_fake_flip(g->env, path, bytes.len / 2, 1), LH_OK);
    lh_buf_free(&bytes);
    assert_int_equal(lk_checkpoint_load(&conf, &g->h.replica[0], passed_over, &passed), LH_OK);
    assert_int_equal(passed, 1);
    assert_int_equal(g->h.replica[0].ledger.version, g->before[0]);
    check_state(g, &g->h.replica[0]);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: golden_read tests/fixtures/history/NAME\n");
        return 2;
    }
    folder = argv[1];
    return test_run(NULL, NULL);
}
