// Durable copies of the replica's fold state (server/docs/0000-protocol.md#rule-13).
//
// A worker starts from its copy. A copy makes a point stable once the coordinator has heard of it
// (member.c), and restores a server that lost its disk (offer.c). The loop takes the copy's state;
// the copy lane writes it and removes older ones, one at a time.
#include "worker/replica/durable_copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/storage/checkpoint_read.h"
#include "worker/disk_full.h"

enum { COPIES_MAX = 4 };

// Pause between two copies on a full disk: each one writes until the disk is full.
static const int64_t ROOM_AGAIN = 30 * LH_SECOND;

// A log without records for this long is idle.
static const int64_t REST = 5 * LH_SECOND;

struct wk_durable_copy {
    struct wk_shard *shard;
    struct lk_checkpoint checkpoint;
    uint64_t stable;  // stable version when the copy began
    uint64_t replace; // version of the newest copy before it
    unsigned copies;  // remaining copies
    lh_err result, tidied;
};

static bool closing(const struct wk_shard *s)
{
    return s->replica.ledger.plan.phase >= LH_PHASE_CLOSE;
}

// True: the newest copy is registered or older than one that is, so the next one may replace older
// copies.
static bool registered(const struct wk_shard *s)
{
    if (s->stable.epoch != s->copies.durable.epoch)
        return s->stable.epoch > s->copies.durable.epoch;
    return s->stable.version >= s->copies.durable.version;
}

// True: the newest copy belongs to an ended epoch: the coordinator registers it no more (stable.c).
static bool is_of_the_past(const struct wk_shard *s)
{
    return s->copies.durable.epoch < s->replica.ledger.epoch;
}

// True: every worker makes a copy at this version, even if none of its copies is registered: its
// server may be unable to confirm the others, or no other region has them. Common versions are the
// same for all workers, so two regions always match.
static bool is_common(const struct wk_shard *s)
{
    return s->replica.ledger.version % (COPIES_MAX * s->worker->conf.durable_every) == 0;
}

// Copies are made at each multiple of `durable_every`, so all regions copy the same versions, and
// two equal copies make a stable point. With COPIES_MAX copies and none registered, only common
// versions are copied, and one version in each new epoch. A closing shard is copied at once: the
// run ends only when its last version is stable.
bool wk_durable_copy_due(const struct wk_shard *s)
{
    uint64_t every = s->worker->conf.durable_every, version = s->replica.ledger.version;
    if (closing(s)) return true;
    return every && version % every == 0 && version > s->copies.durable.version &&
           (s->copies.count < COPIES_MAX || registered(s) || is_of_the_past(s) || is_common(s));
}

struct lk_checkpoint_conf wk_durable_copy_conf(const struct wk_worker *w)
{
    return (struct lk_checkpoint_conf){.env = w->conf.env,
                                       .dir = w->replica_dir,
                                       .keys = w->conf.keys,
                                       .cipher = w->conf.cipher,
                                       .key_id = w->conf.key_id};
}

// True: the newest copy was proved or is being read for a proof, so it may be registered before
// this worker hears of it.
static bool may_be_registered(const struct wk_shard *s)
{
    const struct wk_proof *p = &s->copies.proof;
    return s->copies.proving ||
           (p->epoch == s->copies.durable.epoch && p->version == s->copies.durable.version);
}

// Removes copies of an abandoned history and those older than the stable point. Keeps a copy that
// is or may be registered: a server that loses its disk is restored from it
// (server/docs/0000-protocol.md#rule-13). Runs on the lane, because removing large files may be
// slow.
static lh_err tidy_copies(struct wk_durable_copy *k)
{
    const struct wk_shard *s = k->shard;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(s->worker);
    LH_TRY(lk_checkpoint_drop_above(&conf, s->id, k->checkpoint.version));
    uint64_t kept = LH_BUG("copy_replaced") ? k->checkpoint.version : k->stable;
    LH_TRY(lk_checkpoint_drop_below(&conf, s->id, kept, &k->copies));
    if (k->copies <= COPIES_MAX + 1 || k->replace <= k->stable) return LH_OK;
    // A copy of an abandoned history may be newer: it is gone, or this one has its name.
    if (k->replace >= k->checkpoint.version) return LH_OK;
    struct lk_checkpoint_name name = {s->id, k->replace, false};
    char path[LH_PATH_BYTES];
    LH_TRY(lk_checkpoint_path(conf.dir, &name, path));
    k->copies--;
    return conf.env->ops->files->remove(conf.env, path);
}

static int64_t write_job(void *arg)
{
    struct wk_durable_copy *k = arg;
    k->result = lk_checkpoint_write(&k->checkpoint);
    if (k->result) return 0;
    LH_FAILPOINT("replica.written");
    k->tidied = tidy_copies(k);
    return 0;
}

// True: the newest copy holds the replica's current state.
static bool is_kept(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    return s->copies.durable.epoch == l->epoch && s->copies.durable.version >= l->version;
}

static void look_again(void *arg)
{
    struct wk_shard *s = arg;
    s->copies.timer = 0;
    lh_err err = is_kept(s) || !wk_durable_copy_due(s) ? LH_OK : wk_durable_copy_start(s);
    if (err) wk_fatal(s->worker, err);
}

// A private worker releases nothing new until the stable point advances
// (server/docs/0000-protocol.md#rule-34). If all workers wait for it, no new version arrives and no
// two of them copy the same one. So each worker copies the version at which its log has been idle.
static void at_rest(void *arg)
{
    struct wk_shard *s = arg;
    s->copies.rest = 0;
    if (is_kept(s) || s->worker->stopped || s->copies.count >= 2 * COPIES_MAX) return;
    if (s->copies.writing) {
        s->copies.rest = lh_after(s->worker->conf.env, REST, at_rest, s);
        return;
    }
    lh_err err = wk_durable_copy_start(s);
    if (err) wk_fatal(s->worker, err);
}

void wk_durable_copy_folded(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    if (!s->replica.ledger.plan.privacy.level || w->stopped) return;
    lh_cancel(w->conf.env, &s->copies.rest);
    s->copies.rest = lh_after(w->conf.env, REST, at_rest, s);
}

// Schedules a retry, because no later record may trigger another copy.
static void found_no_room(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    char text[512];
    snprintf(text, sizeof text,
             "shard %u: no space in %.300s; outboxes and logs can't be trimmed until there is: "
             "free some; trying again every %lld s",
             s->id, w->replica_dir, (long long)(ROOM_AGAIN / LH_SECOND));
    wk_disk_full_say(w, WK_DISK_FULL_REPLICA, text);
    lh_cancel(w->conf.env, &s->copies.timer);
    if (!w->stopped) s->copies.timer = lh_after(w->conf.env, ROOM_AGAIN, look_again, s);
}

static void write_done(void *arg)
{
    struct wk_durable_copy *k = arg;
    struct wk_shard *s = k->shard;
    s->copies.writing = NULL;
    lh_err err = k->result;
    if (!err && !s->worker->stopped) {
        s->copies.durable =
            (struct lh_point){k->checkpoint.epoch, k->checkpoint.version, k->checkpoint.chain};
        s->copies.count = k->copies;
        err = k->tidied;
    }
    if (!err) wk_disk_full_over(s->worker, WK_DISK_FULL_REPLICA);
    if (err == LH_ERR_DISK_FULL)
        found_no_room(s);
    else if (err && !s->worker->stopped)
        wk_fatal(s->worker, err);
    bool again = !k->result && closing(s) && s->copies.durable.version < s->replica.ledger.version;
    wk_durable_copy_free(k);
    if (again && !s->worker->stopped && (err = wk_durable_copy_start(s))) wk_fatal(s->worker, err);
}

void wk_durable_copy_free(struct wk_durable_copy *k)
{
    if (!k) return;
    lk_checkpoint_free(&k->checkpoint);
    free(k);
}

lh_err wk_durable_copy_start(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    if (s->copies.writing) return LH_OK;
    struct wk_durable_copy *k = calloc(1, sizeof *k);
    if (!k) return LH_ERR_NO_MEMORY;
    k->shard = s;
    k->stable = s->stable.version;
    k->replace = may_be_registered(s) ? 0 : s->copies.durable.version;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(w);
    lh_err err = lk_checkpoint_take(&conf, &s->replica, &k->checkpoint);
    if (err) {
        free(k);
        return err;
    }
    s->copies.writing = k;
    w->conf.env->ops->work(w->conf.env, LH_LANE_COPY, write_job, write_done, k);
    return LH_OK;
}
