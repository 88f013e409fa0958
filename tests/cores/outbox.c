// An outbox that is never trimmed: at most one of its pushes is in memory, and the others are read
// again when they are needed. A damaged file costs only the push in it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cores/rig.h"
#include "tests/sim/synthetic.h"
#include "worker/push/outcome.h"

enum { PUSHES = 30, UNITS = 400, FRAMES_MAX = 1 };

// The life of worker 1 of the rig.
struct life {
    struct rig *rig;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    struct wk_shard *shard;
    bool unreadable; // damage() makes the file unreadable
};

static void on_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg;
    fail_msg("the worker ends with %s: %s", lh_err_name(err), text);
}

// The stable point never advances: only the first durable copy, and no residual snapshot.
static void live(struct rig *r, struct life *l)
{
    struct rig_node *n = &r->w[1];
    struct setup all = rig_common(r, n);
    all.listen = "";
    all.fatal = on_fatal;
    l->rig = r;
    l->trainer = sim_trainer_new(n->env, r->manifest.values, 50);
    struct wk_conf conf = setup_worker(&all, l->trainer);
    conf.lease_ns = 500 * LH_MS;
    conf.retry_base_ns = 100 * LH_MS;
    conf.retry_max_ns = conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 3 * LH_SECOND;
    conf.durable_every = 0;
    conf.snapshot_rounds = 0;
    assert_int_equal(wk_worker_start(&conf, &l->worker), LH_OK);
    l->shard = &l->worker->shard[0];
}

static void end(struct life *l)
{
    struct ps_coordinator *c = NULL;
    struct ps_server *s = NULL;
    rig_kill_worker(l->rig, 1, false);
    setup_stop(&c, &s, &l->worker, &l->trainer);
}

// Starts the next process on the same directory.
static void start_again(struct life *l)
{
    end(l);
    rig_boot_worker(l->rig, 1);
    live(l->rig, l);
    assert_int_equal(l->shard->outbox.held_bytes, 0); // it read all pushes and kept none
}

static uint64_t in_memory(const struct wk_outbox *o)
{
    uint64_t n = 0, bytes = 0;
    for (const struct wk_entry *e = o->first; e; e = e->next)
        if (e->frame) {
            n++;
            bytes += e->bytes;
        }
    assert_int_equal(bytes, o->held_bytes);
    return n;
}

static void go_on(struct life *l, int64_t ns)
{
    rig_run(l->rig, ns);
    assert_true(in_memory(&l->shard->outbox) <= FRAMES_MAX);
}

static void push(struct life *l, uint64_t cuts)
{
    uint64_t until = l->shard->progress.cut_count + cuts;
    for (int i = 0; i < 10000 && l->shard->progress.cut_count < until; i++) go_on(l, 10 * LH_MS);
    assert_true(l->shard->progress.cut_count >= until);
}

static void begin(struct rig *r, struct life *l)
{
    lh_units_free(&r->units);
    setup_units(&r->units, UNITS, 64, RIG_WORKERS);
    rig_serve(r, 2 * LH_SECOND);
    live(r, l);
    push(l, PUSHES);
    assert_true(l->shard->outbox.entries >= PUSHES); // none was trimmed
}

static void damage(struct life *l, const struct wk_entry *e)
{
    char path[160];
    snprintf(path, sizeof path, "%s/0000-%016llx-%016llx", l->shard->outbox.dir,
             (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    struct lh_env *env = l->rig->w[1].env;
    lh_err err =
        l->unreadable ? lh_fake_unreadable(env, path) : lh_fake_flip(env, path, e->bytes / 2, 1);
    assert_int_equal(err, LH_OK);
}

static void stop(struct life *l)
{
    end(l);
    rig_free(l->rig);
}

// ---------------------------------------------------------------- a start

// Runs until the replica has this version, record by record. Returns whether the worker told the
// server meanwhile that it holds no payload.
static bool wait_for_version(struct life *l, uint64_t version)
{
    bool held_none = false;
    for (int i = 0; i < 10000 && l->shard->replica.ledger.version < version; i++) {
        go_on(l, LH_MS);
        held_none |= l->shard->stream.hold_none;
    }
    assert_true(l->shard->replica.ledger.version >= version);
    assert_int_equal(l->shard->stream.elided_unknown + l->shard->stream.digest_mismatches, 0);
    assert_int_equal(l->worker->count.snapshots, 0);
    return held_none;
}

// The worker's copy of the replica lacks all its pushes, and the server leaves out their payloads.
TEST(a_start_folds_its_own_pushes_from_their_files)
{
    struct life l = {0};
    begin(rig_new(1), &l);
    uint64_t version = l.shard->replica.ledger.version;
    start_again(&l);
    assert_true(l.shard->replica.ledger.version < version / 2);
    assert_false(wait_for_version(&l, version));
    push(&l, PUSHES);
    assert_int_equal(l.worker->count.lost + l.worker->count.returned, 0);
    stop(&l);
}

static void folded_from_the_server(bool unreadable)
{
    struct life l = {.unreadable = unreadable};
    begin(rig_new(2), &l);
    uint64_t version = l.shard->replica.ledger.version;
    start_again(&l);
    damage(&l, l.shard->outbox.first->next->next);
    assert_true(wait_for_version(&l, version));
    push(&l, PUSHES);
    assert_int_equal(l.worker->count.lost + l.worker->count.returned, 0);
    stop(&l);
}

TEST(a_push_with_a_damaged_file_comes_from_the_server)
{
    folded_from_the_server(false);
}

TEST(a_push_with_an_unreadable_file_comes_from_the_server)
{
    folded_from_the_server(true);
}

// After a power cut the worker's pushes are of an older incarnation, and one of them is damaged.
// The worker tells the server which ones it holds on both sides of the gap, and the server sends
// that one.
TEST(a_gap_in_older_pushes_comes_from_the_server)
{
    struct life l = {0};
    begin(rig_new(8), &l);
    uint64_t version = l.shard->replica.ledger.version, number = l.worker->incarnation.number;
    damage(&l, l.shard->outbox.first->next->next);
    struct ps_coordinator *c = NULL;
    struct ps_server *s = NULL;
    rig_kill_worker(l.rig, 1, true);
    setup_stop(&c, &s, &l.worker, &l.trainer);
    rig_boot_worker(l.rig, 1);
    live(l.rig, &l);
    assert_true(l.worker->incarnation.number > number);
    assert_true(l.shard->replica.ledger.version < version / 2);
    for (int i = 0; i < 10000 && l.shard->replica.ledger.version < version; i++) go_on(&l, LH_MS);
    assert_true(l.shard->replica.ledger.version >= version);
    assert_int_equal(l.shard->stream.elided_unknown, 0);
    stop(&l);
}

// ---------------------------------------------------------------- a lost history

// The server loses its disk, and the worker restarts: only the worker's first copy of the shard is
// left. Everything that was admitted since comes back from the outbox.
static void lose_history(struct life *l, size_t damaged)
{
    struct rig *r = l->rig;
    rig_kill_server(r, false);
    lh_fake_disk_wipe(r->s.env);
    start_again(l);
    size_t pushes = l->shard->outbox.entries;
    assert_true(l->worker->incarnation.number && pushes >= PUSHES);
    for (size_t i = 0; i < damaged; i++) {
        struct wk_entry *e = l->shard->outbox.first;
        for (size_t k = 0; k < 3 + 5 * i; k++) e = e->next;
        damage(l, e);
    }
    assert_int_equal(rig_start_server(r, false), LH_OK);
    uint64_t returned = pushes - damaged;
    for (int i = 0; i < 1000 && l->worker->count.returned < returned; i++) go_on(l, 10 * LH_MS);
    assert_int_equal(l->worker->count.returned, returned);
    assert_int_equal(l->worker->count.lost, damaged);
    push(l, PUSHES);
    assert_int_equal(l->shard->stream.elided_unknown, 0);
}

TEST(pushes_that_a_server_lost_come_back_from_files)
{
    struct life l = {0};
    begin(rig_new(3), &l);
    lose_history(&l, 0);
    stop(&l);
}

TEST(only_what_a_damaged_file_held_is_lost)
{
    for (int unreadable = 0; unreadable < 2; unreadable++) {
        struct life l = {.unreadable = unreadable};
        begin(rig_new(4), &l);
        lose_history(&l, 2);
        stop(&l);
    }
}

// ---------------------------------------------------------------- an undecided push

// Leaves an undecided push, with the server down. No push may be on its way when the server is
// killed: it might be admitted.
static void leave_undecided(struct life *l)
{
    for (int i = 0; i < 1000 && (wk_outbox_undecided(&l->shard->outbox) || l->shard->cut); i++)
        go_on(l, LH_MS);
    assert_true(!wk_outbox_undecided(&l->shard->outbox) && !l->shard->cut);
    rig_kill_server(l->rig, false);
    for (int i = 0; i < 1000 && !wk_outbox_undecided(&l->shard->outbox); i++) go_on(l, 10 * LH_MS);
    assert_non_null(wk_outbox_undecided(&l->shard->outbox));
}

TEST(it_is_sent_again_from_its_file)
{
    struct life l = {0};
    begin(rig_new(5), &l);
    leave_undecided(&l);
    start_again(&l);
    assert_int_equal(rig_start_server(l.rig, false), LH_OK);
    push(&l, PUSHES);
    assert_int_equal(l.worker->count.lost + l.worker->count.returned, 0);
    assert_true(l.worker->count.admitted >= PUSHES - 1);
    stop(&l);
}

// The lost push's step will never arrive: without a new incarnation all later pushes would be
// BEHIND.
static void lost_undecided(uint64_t seed, bool before_the_start, bool unreadable)
{
    struct life l = {.unreadable = unreadable};
    begin(rig_new(seed), &l);
    leave_undecided(&l);
    uint64_t number = l.worker->incarnation.number;
    if (before_the_start) damage(&l, wk_outbox_undecided(&l.shard->outbox));
    start_again(&l);
    if (!before_the_start) damage(&l, wk_outbox_undecided(&l.shard->outbox));
    assert_int_equal(rig_start_server(l.rig, false), LH_OK);
    push(&l, PUSHES);
    assert_int_equal(l.worker->count.lost, 1);
    assert_true(l.worker->count.admitted >= PUSHES - 1);
    assert_int_equal(l.worker->incarnation.number, number + 1);
    start_again(&l); // the loss is reported only once
    assert_int_equal(l.worker->count.lost, 0);
    stop(&l);
}

TEST(one_that_is_damaged_before_the_start_raises_the_incarnation)
{
    for (int unreadable = 0; unreadable < 2; unreadable++) lost_undecided(6, true, unreadable);
}

TEST(one_that_is_damaged_after_the_start_raises_the_incarnation)
{
    for (int unreadable = 0; unreadable < 2; unreadable++) lost_undecided(7, false, unreadable);
}

// A disk on which no read succeeds is not a matter of single files: the start fails, and sets no
// push aside.
static const struct lh_files_ops *whole_files;

static lh_err reads_nothing(struct lh_file *f, uint64_t at, void *out, size_t n, size_t *got)
{
    (void)f;
    (void)at;
    (void)out;
    (void)n;
    (void)got;
    return lh_fail(LH_ERR_IO, "cannot read: input/output error");
}

static lh_err opens_no_push(struct lh_env *env, const char *path, unsigned flags,
                            struct lh_file **out)
{
    if (strstr(path, "/outbox/")) return lh_fail(LH_ERR_IO, "%s: too many open files", path);
    return whole_files->open(env, path, flags, out);
}

static void ends_the_start(struct lh_files_ops fails, const char *word)
{
    struct life l = {0};
    begin(rig_new(8), &l);
    struct lh_env *env = l.rig->w[1].env;
    const struct lh_env_ops *ops = env->ops;
    struct lh_env_ops broken = *ops;
    size_t pushes = l.shard->outbox.entries;
    struct lh_files_ops files = *ops->files;
    whole_files = ops->files;
    if (fails.open) files.open = fails.open;
    if (fails.read) files.read = fails.read;
    broken.files = &files;
    end(&l);
    rig_boot_worker(l.rig, 1);
    env->ops = &broken;
    struct rig_life core = {0};
    struct wk_conf conf = rig_life_conf(l.rig, &core, 50);
    assert_int_equal(wk_worker_start(&conf, &core.worker), LH_ERR_IO);
    assert_non_null(strstr(lh_err_text(LH_ERR_IO), word));
    env->ops = ops;
    rig_life_end(l.rig, &core, false);
    rig_boot_worker(l.rig, 1);
    live(l.rig, &l);
    assert_int_equal(l.shard->outbox.entries, pushes);
    assert_int_equal(l.worker->count.lost, 0);
    stop(&l);
}

TEST(a_disk_that_reads_nothing_ends_the_start)
{
    ends_the_start((struct lh_files_ops){.read = reads_nothing}, "input/output error");
}

// A push that this process can't open is not lost either: its file may be intact.
TEST(a_push_that_cant_be_opened_ends_the_start)
{
    ends_the_start(
        (struct lh_files_ops){.open = opens_no_push},
        "too many open files. The push in it may be intact: check the file's permissions");
}

// The worker started without a slot, so no file has its residual yet. If the disk fails while a
// refused push is returned, the residual stays as it was, whichever operation fails.
TEST(a_return_that_fails_takes_nothing)
{
    struct life l = {0};
    begin(rig_new(9), &l);
    leave_undecided(&l);
    struct wk_shard *s = l.shard;
    size_t bytes = s->layout->values * sizeof *s->slot.residual;
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, s->slot.residual, bytes);
    int64_t n = 0;
    lh_err err = LH_ERR_DISK_FULL;
    for (; err; n++) {
        struct wk_entry *e = wk_outbox_undecided(&s->outbox);
        s->slot.stored = false;
        lh_fake_fail_at(l.rig->w[1].env, n, LH_ERR_DISK_FULL);
        err = wk_entry_return(s, e);
        assert_true(n < 100 && (!err || err == LH_ERR_DISK_FULL));
        bool kept = !memcmp(before, s->slot.residual, bytes);
        assert_int_equal(kept, s->slot.committed->gone_step != e->head.step);
        if (!kept) break;
    }
    lh_fake_fail_at(l.rig->w[1].env, -1, LH_OK);
    assert_true(n > 4);
    free(before);
    stop(&l);
}
