// The log, the ledger and checkpoints when the n-th allocation or file operation fails: each call
// returns that error, nothing leaks (AddressSanitizer checks), and everything acknowledged before
// is there at the next start.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/ledger.h"
#include "common/format/manifest.h"
#include "kernels/storage/checkpoint.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/state/disk_full.h"
#include "server/wal/wal.h"
#include "tests/fault/fault.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { RECORDS = 8, BODY = 600, SEGMENT = 1500, CALLS_MAX = 400, TAKEN_BACK = 5 };
static const uint8_t JOB[LH_JOB_BYTES] = {7};

struct rig {
    struct lh_fake_world *world;
    struct lh_env *disk, *env; // env: the same disk, with failures
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    if (!r) return -1;
    r->world = lh_fake_world_create(3);
    r->disk = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->disk);
    r->env = fault_env(r->disk);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    fault_over();
    lh_fake_world_destroy(r->world);
    free(r);
    return 0;
}

// A kind of failure. A scenario runs with the n-th call failing, for n = 0, 1, ..., until no call
// fails any more.
struct way {
    bool alloc;
    long more;
    lh_err err;
};
static const struct way ways[] = {
    {.alloc = true, .err = LH_ERR_NO_MEMORY}, {.err = LH_ERR_IO}, {.err = LH_ERR_DISK_FULL},
    {.more = 1, .err = LH_ERR_DISK_FULL}, // the clean-up fails too
    {.more = CALLS_MAX, .err = LH_ERR_IO},
};

static void ask(const struct way *w, long n)
{
    if (w->alloc)
        fault_alloc(n);
    else
        fault_files(n, w->more, w->err);
}

// ---------------------------------------------------------------- the log

static struct lh_record record(uint64_t version, uint8_t body[BODY])
{
    memset(body, (int)version, BODY);
    return (struct lh_record){
        .version = version, .epoch = 1, .kind = LH_FENCE, .body = lh_span(body, BODY)};
}

struct seen {
    uint64_t versions; // versions 1 to this one were seen, without gaps
    bool wrong;
};

static lh_err note(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct seen *s = arg;
    uint8_t body[BODY];
    struct lh_record want = record(r->version, body);
    (void)place;
    s->wrong |= shard != 0 || r->version != ++s->versions || !lh_span_equal(r->body, want.body);
    return LH_OK;
}

static lh_err look(void *arg, const struct ps_wal_entry *e)
{
    if (e->record) ++*(uint64_t *)arg;
    return LH_OK;
}

// Appends records up to `to`, each as a group of its own. A full disk drops the group and ends the
// append. *done is the last acknowledged version.
static lh_err append(struct ps_wal *w, uint64_t to, uint64_t *done)
{
    for (uint64_t v = *done + 1; v <= to; v++) {
        uint8_t body[BODY];
        struct lh_record r = record(v, body);
        struct ps_place place;
        struct lh_blob *read;
        LH_TRY(ps_wal_add(w, 0, &r, &place));
        lh_err err = ps_wal_commit(w);
        if (err == LH_ERR_DISK_FULL) ps_wal_drop_group(w);
        if (err) return err;
        place = ps_wal_committed_place(w, place);
        ps_wal_group_done(w);
        *done = v;
        LH_TRY(ps_wal_read(w, place, 0, place.bytes, &read));
        lh_blob_release(read);
    }
    if (ps_wal_mark(w)) {
        lh_err err = ps_wal_commit(w);
        if (err == LH_ERR_DISK_FULL) ps_wal_drop_group(w);
        if (err) return err;
        ps_wal_group_done(w);
    }
    return LH_OK;
}

// Starts, appends, reads the first record back from its segment, trims, and scans the log.
static lh_err use_log(struct lh_env *env, uint64_t to, uint64_t *done, struct seen *seen)
{
    struct ps_wal_conf conf = {.env = env, .dir = "log", .segment_bytes = SEGMENT};
    struct ps_wal_found found;
    struct ps_wal *w = NULL;
    bool torn = false;
    uint64_t records = 0;
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    *seen = (struct seen){0};
    LH_TRY(ps_wal_open(&conf, note, seen, &torn, &w));
    lh_err err = append(w, to, done);
    if (!err) err = ps_wal_remove(w, ps_wal_release(w, 1)); // no segment is below it
    ps_wal_close(w);
    return err ? err : ps_wal_look(env, "log", JOB, look, &records, &found);
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(nothing_acknowledged_is_lost, struct rig *r)
{
    for (size_t i = 0; i < LH_COUNT(ways); i++) {
        bool struck = true;
        for (long n = 0; struck; n++) {
            struct seen seen;
            uint64_t done = 0;
            assert_true(n < CALLS_MAX);
            lh_fake_disk_wipe(r->disk);
            assert_int_equal(use_log(r->disk, 3, &done, &seen), LH_OK);
            ask(&ways[i], n);
            lh_err err = use_log(r->env, RECORDS, &done, &seen);
            struck = fault_over();
            if (!struck) assert_int_equal(err, LH_OK);
            if (seen.wrong) fail_msg("way %zu, call %ld: replayed something else", i, n);
            // a process whose disk failed ends, and its host too; the next one starts on that disk
            lh_fake_kill(r->disk, true);
            lh_fake_boot(r->disk);
            uint64_t kept = done;
            lh_err again = use_log(r->disk, done, &done, &seen);
            if (again) fail_msg("way %zu, call %ld: %s", i, n, lh_err_text(again));
            if (seen.versions < kept || seen.wrong)
                fail_msg("way %zu, call %ld: %d of %d", i, n, (int)seen.versions, (int)kept);
        }
    }
}

IN_RIG(a_log_that_failed_to_remove_segments_is_sound, struct rig *r)
{
    for (size_t i = 0; i < LH_COUNT(ways); i++) {
        bool struck = true;
        for (long n = 0; struck; n++) {
            struct ps_wal_conf conf = {.env = r->env, .dir = "log", .segment_bytes = SEGMENT};
            struct seen seen = {0};
            struct ps_wal *w;
            struct ps_wal_found found;
            bool torn;
            uint64_t done = 0, records = 0;
            memcpy(conf.job, JOB, LH_JOB_BYTES);
            lh_fake_disk_wipe(r->disk);
            assert_int_equal(use_log(r->disk, RECORDS, &done, &seen), LH_OK);
            assert_int_equal(ps_wal_open(&conf, note, &seen, &torn, &w), LH_OK);
            ask(&ways[i], n);
            lh_err err = ps_wal_remove(w, ps_wal_release(w, 3));
            struck = fault_over();
            assert_int_equal(err != LH_OK, struck);
            ps_wal_close(w);
            assert_int_equal(ps_wal_look(r->disk, "log", JOB, look, &records, &found), LH_OK);
            assert_true(records <= RECORDS && records >= RECORDS - 4);
        }
    }
}

// Commits a group of `n` records from version `from` on, and returns the commit's error. The bodies
// differ from record()'s if the group is expected to fail (`given_up`).
static lh_err commit_group(struct ps_wal *w, uint64_t from, size_t n, bool given_up)
{
    uint8_t body[TAKEN_BACK][BODY];
    struct ps_place place;
    assert_true(n <= TAKEN_BACK);
    for (size_t i = 0; i < n; i++) {
        struct lh_record r = record(from + i, body[i]);
        if (given_up) memset(body[i], 0xee, BODY);
        assert_int_equal(ps_wal_add(w, 0, &r, &place), LH_OK);
    }
    lh_err err = ps_wal_commit(w);
    if (err)
        ps_wal_drop_group(w);
    else
        ps_wal_group_done(w);
    return err;
}

// How a group is dropped, and what follows.
struct taken_back {
    long more;   // calls that fail after the first, so that the clean-up fails too
    size_t next; // records of the group that takes its place; 0: none does
    bool cut;    // the power fails when the process ends
};

// Checks two starts. Bytes of the dropped group may remain behind the log's end only if no group
// took their place and they could not be cut off. Otherwise a start must not report a torn tail,
// for which it would begin a new epoch.
static void start_after(struct rig *r, const struct ps_wal_conf *conf, const struct taken_back *how,
                        long n)
{
    uint64_t versions = 2 + how->next;
    bool may_remain = !how->next && (how->more || how->cut);
    for (int start = 0; start < 2; start++) {
        struct seen seen = {0};
        struct ps_wal *w;
        bool torn;
        lh_err err = ps_wal_open(conf, note, &seen, &torn, &w);
        if (err) fail_msg("call %ld: %s", n, lh_err_text(err));
        if (seen.versions != versions || seen.wrong)
            fail_msg("call %ld: %d of %d", n, (int)seen.versions, (int)versions);
        if (!may_remain) assert_false(torn);
        ps_wal_close(w);
        lh_fake_kill(r->disk, true);
        lh_fake_boot(r->disk);
    }
}

// Runs one scenario. Returns whether a call failed.
static bool take_back(struct rig *r, const struct taken_back *how, long n)
{
    struct ps_wal_conf conf = {.env = r->env, .dir = "log", .segment_bytes = 16 * SEGMENT};
    struct seen seen = {0};
    struct ps_wal *w;
    bool torn;
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    lh_fake_disk_wipe(r->disk);
    assert_int_equal(ps_wal_open(&conf, note, &seen, &torn, &w), LH_OK);
    assert_int_equal(commit_group(w, 1, 2, false), LH_OK);
    fault_files(n, how->more, LH_ERR_DISK_FULL);
    lh_err err = commit_group(w, 3, TAKEN_BACK, true);
    bool struck = fault_over(), goes_on = err == LH_ERR_DISK_FULL;
    if (!struck) assert_int_equal(err, LH_OK);
    if (goes_on && how->next) assert_int_equal(commit_group(w, 3, how->next, false), LH_OK);
    ps_wal_close(w);
    lh_fake_kill(r->disk, how->cut);
    lh_fake_boot(r->disk);
    if (goes_on) start_after(r, &conf, how, n);
    return struck;
}

// The disk is full at each call of a group's commit in turn, and perhaps also during the clean-up
// after it. Nothing of the group comes back, whatever takes its place and whenever the process
// dies.
IN_RIG(a_group_that_was_taken_back_leaves_nothing_behind, struct rig *r)
{
    for (long more = 0; more < 3; more++)
        for (size_t next = 0; next < TAKEN_BACK; next++)
            for (int cut = 0; cut < 2; cut++) {
                struct taken_back how = {.more = more, .next = next, .cut = cut};
                long n = 0;
                while (take_back(r, &how, n)) n++;
                assert_true(n > TAKEN_BACK);
            }
}

// Bytes may be on the disk although their sync failed, so the process ends whatever the error was.
IN_RIG(a_sync_that_finds_no_room_is_final, struct rig *r)
{
    struct ps_wal_conf conf = {.env = r->env, .dir = "log", .segment_bytes = SEGMENT};
    struct seen seen = {0};
    struct ps_wal *w;
    bool torn;
    uint64_t done = 0;
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    assert_int_equal(ps_wal_open(&conf, note, &seen, &torn, &w), LH_OK);
    assert_int_equal(append(w, 1, &done), LH_OK);
    fault_files(3, 0, LH_ERR_DISK_FULL); // head, body, end; then the sync
    assert_int_equal(commit_group(w, 2, 1, false), LH_ERR_IO);
    assert_true(fault_over());
    ps_wal_close(w);
}

IN_RIG(a_mark_without_memory_is_left_out, struct rig *r)
{
    struct ps_wal_conf conf = {.env = r->env, .dir = "log", .segment_bytes = SEGMENT};
    struct seen seen = {0};
    struct ps_wal *w;
    bool torn;
    assert_int_equal(ps_wal_open(&conf, note, &seen, &torn, &w), LH_OK);
    fault_alloc(0);
    assert_false(ps_wal_mark(w));
    assert_true(fault_over());
    assert_int_equal(ps_wal_group_bytes(w), 0);
    assert_true(ps_wal_mark(w));
    ps_wal_close(w);
}

// ---------------------------------------------------------------- the ledger

static struct lh_frame push(uint64_t step)
{
    struct lh_frame f = {.index_code = 1,
                         .value_code = 1,
                         .cipher = 1,
                         .density = 0.5f,
                         .key_id = 7,
                         .worker = 11,
                         .incarnation = {1, 5},
                         .step = step,
                         .tokens = 5,
                         .claims = 1,
                         .values = 1,
                         .plain_bytes = 4,
                         .claim = {40 * step}};
    memcpy(f.job, JOB, LH_JOB_BYTES);
    return f;
}

static lh_err apply(struct lh_ledger *l, uint16_t kind, const struct lh_buf *body)
{
    struct lh_record r = {.kind = kind, .scale = 1, .body = lh_buf_span(body)};
    lh_ledger_next(l, &r);
    return lh_ledger_apply(l, &r);
}

// Applies a plan that retires a name without a row.
static lh_err retire_nobody(struct lh_ledger *l)
{
    const struct lh_plan plan = {.number = 1,
                                 .phase = LH_PHASE_RUN,
                                 .live = 1,
                                 .worker = {11},
                                 .retired_up_to = 1,
                                 .retired_count = 1,
                                 .retired = {12}};
    struct lh_buf body = lh_buf(LH_SMALL_BYTES);
    lh_plan_write(&plan, &body);
    lh_err err = lh_buf_err(&body);
    if (!err) err = apply(l, LH_PLAN, &body);
    lh_buf_free(&body);
    return err;
}

static lh_err fold(struct lh_ledger *l, struct lh_ledger *copy, struct lh_ledger *back,
                   const struct lh_buf *fence, const struct lh_buf *frame, struct lh_buf *bytes)
{
    static const struct lh_hash manifest = {{9}};
    LH_TRY(lh_ledger_create(l, JOB, &manifest, 0, 1));
    LH_TRY(lh_ledger_create(back, JOB, &manifest, 0, 1));
    LH_TRY(apply(l, LH_FENCE, fence));
    LH_TRY(apply(l, LH_ADMIT, frame));
    LH_TRY(retire_nobody(l));
    LH_TRY(lh_ledger_copy(copy, l));
    lh_ledger_write(copy, bytes);
    LH_TRY(lh_buf_err(bytes));
    struct lh_cursor c = lh_cursor(lh_buf_span(bytes));
    return lh_ledger_read(back, &c);
}

IN_RIG(a_ledger_without_memory_says_so, void *unused)
{
    struct lh_buf fence = lh_buf(64), frame = lh_buf(4096);
    struct lh_frame f = push(1);
    lh_fence_write(11, f.incarnation, &fence);
    lh_frame_write_head(&f, &frame);
    lh_put_zeros(&frame, f.plain_bytes + LH_SEAL_TAG_BYTES);
    bool struck = true;
    for (long n = 0; struck; n++) {
        struct lh_ledger l = {0}, copy = {0}, back = {0};
        struct lh_buf bytes = lh_buf(1 << 20);
        assert_true(n < CALLS_MAX);
        fault_alloc(n);
        lh_err err = fold(&l, &copy, &back, &fence, &frame, &bytes);
        struck = fault_over();
        // the chain is a hash: folding without memory for it gives another one, which is refused
        assert_true(struck ? err != LH_OK : err == LH_OK);
        if (!struck) assert_true(lh_hash_equal(&back.chain, &l.chain));
        if (!struck) assert_true(lh_ledger_credited(&back, 40));
        lh_ledger_free(&l);
        lh_ledger_free(&copy);
        lh_ledger_free(&back);
        lh_buf_free(&bytes);
    }
    lh_buf_free(&fence);
    lh_buf_free(&frame);
}

// ---------------------------------------------------------------- checkpoints

struct job {
    struct lh_manifest manifest;
    struct lk_checkpoint_conf conf; // its env has the failures
    struct lk_replica replica;
};

static void make_job(struct rig *r, struct job *j, uint8_t optimizer)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    static const struct lh_seal_key key = {{1, 2, 3}};
    *j = (struct job){
        .conf = {.env = r->env, .dir = "c", .cipher = LH_CIPHER_XCHACHA20, .key_id = 7}};
    assert_int_equal(lh_keyring_create(&j->conf.keys), LH_OK);
    assert_int_equal(lh_keyring_add(j->conf.keys, 7, &key), LH_OK);
    assert_int_equal(lh_manifest_build(&j->manifest, 1, names, shapes, 1, NULL), LH_OK);
    assert_int_equal(lk_replica_create(&j->replica, JOB, &j->manifest, 0, j->conf.keys), LH_OK);
    struct lh_plan *plan = &j->replica.ledger.plan;
    plan->optimizer = optimizer;
    plan->momentum = optimizer ? 0.5f : 0;
    assert_int_equal(lk_outer_reserve(&j->replica.outer, plan, 80), LH_OK);
    lk_outer_plan(&j->replica.outer, plan);
}

static void free_job(struct job *j)
{
    lk_replica_free(&j->replica);
    lh_manifest_free(&j->manifest);
    lh_keyring_destroy(j->conf.keys);
}

// Tells the checkpoint of a record that gives the shard an optimizer with state, if it had none.
static lh_err plan_comes(struct job *j, struct lk_checkpoint *c)
{
    struct lk_checkpoint_late late;
    const struct lh_record plan = {.kind = LH_PLAN};
    struct lk_replica later = j->replica;
    later.outer.kind = LH_OPT_DELAYED_NESTEROV;
    return lk_checkpoint_folded(c, &later, &plan, &late);
}

static lh_err keep(struct job *j, bool weights)
{
    struct lk_checkpoint c;
    if (!weights) LH_TRY(lk_checkpoint_take(&j->conf, &j->replica, &c));
    if (!weights) lk_checkpoint_free(&c);
    LH_TRY(lk_checkpoint_begin(&j->conf, &j->replica, &c));
    c.weights = weights;
    lh_err err = plan_comes(j, &c);
    if (!err) err = lk_checkpoint_copy(&c, &j->replica, UINT64_MAX);
    if (!err) err = lk_checkpoint_write(&c);
    lk_checkpoint_free(&c);
    return err;
}

static lh_err keep_and_read(struct job *j, struct lk_replica *scratch)
{
    struct lk_checkpoint_info info;
    uint64_t oldest;
    LH_TRY(j->conf.env->ops->files->make_dir(j->conf.env, "c"));
    LH_TRY(keep(j, false));
    LH_TRY(keep(j, true));
    LH_TRY(lk_checkpoint_load(&j->conf, scratch, NULL, NULL));
    LH_TRY(lk_checkpoint_check(&j->conf, "c/0000-0000000000000000.weights", &info));
    LH_TRY(lk_checkpoint_peek(j->conf.env, "c/0000-0000000000000000.ckpt", &info));
    LH_TRY(lk_checkpoint_prune(&j->conf, 0, false, 2, &oldest));
    j->replica.ledger.version = 1; // a second checkpoint of weights
    lh_err err = keep(j, true);
    j->replica.ledger.version = 0;
    return err ? err : lk_checkpoint_prune(&j->conf, 0, true, 0, &oldest);
}

static void check_whole_or_error(struct rig *r, uint8_t optimizer)
{
    struct job j;
    make_job(r, &j, optimizer);
    struct lh_hash digest = lk_replica_digest(&j.replica);
    for (size_t i = 0; i < LH_COUNT(ways); i++) {
        bool struck = true;
        for (long n = 0; struck; n++) {
            struct lk_replica scratch;
            assert_true(n < CALLS_MAX);
            assert_int_equal(lk_replica_create(&scratch, JOB, &j.manifest, 0, j.conf.keys), LH_OK);
            scratch.theta[3] = 5; // differs until the checkpoint is loaded
            lh_fake_disk_wipe(r->disk);
            ask(&ways[i], n);
            lh_err err = keep_and_read(&j, &scratch);
            struck = fault_over();
            assert_true(struck ? err != LH_OK : err == LH_OK);
            struct lk_checkpoint_conf conf = j.conf;
            conf.env = r->disk;
            if (r->disk->ops->files->make_dir(r->disk, "c")) fail();
            err = lk_checkpoint_load(&conf, &scratch, NULL, NULL);
            assert_true(err == LH_OK || err == LH_ERR_NOT_FOUND);
            struct lh_hash got = lk_replica_digest(&scratch);
            assert_int_equal(err == LH_OK, lh_hash_equal(&got, &digest));
            lk_replica_free(&scratch);
        }
    }
    free_job(&j);
}

IN_RIG(a_checkpoint_is_whole_or_an_error, struct rig *r)
{
    check_whole_or_error(r, LH_OPT_SGD);
    check_whole_or_error(r, LH_OPT_DELAYED_NESTEROV);
}
