// Durable copies of the replica's fold state (server/docs/0000-protocol.md#rule-13).
//
// A copy is what a worker starts from, what makes a point stable once the coordinator heard of it
// (member.c), and what a server that lost its disk comes back from (offer.c). Its state is taken on
// the loop; it is written, and older ones are removed, on the copy lane, one at a time.
#include "worker/replica/durable_copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/disk_full.h"

enum { COPIES_MAX = 4 };

// Between two copies that find no room: each writes until there is none.
static const int64_t ROOM_AGAIN = 30 * LH_SECOND;

// Without a record for so long a log rests.
static const int64_t REST = 5 * LH_SECOND;

struct wk_durable_copy {
    struct wk_shard *shard;
    struct lk_checkpoint checkpoint;
    uint64_t stable;  // when it was begun
    uint64_t replace; // version of the newest copy before it
    unsigned copies;  // copies that are left
    lh_err result, tidied;
};

static bool closing(const struct wk_shard *s)
{
    return s->replica.ledger.plan.phase >= LH_PHASE_CLOSE;
}

// The newest copy is registered, or overtaken by one that is: the next one takes its elders away.
static bool registered(const struct wk_shard *s)
{
    if (s->stable.epoch != s->copies.durable.epoch)
        return s->stable.epoch > s->copies.durable.epoch;
    return s->stable.version >= s->copies.durable.version;
}

// The newest copy is of an epoch that is over: nobody registers it any more (stable.c).
static bool is_of_the_past(const struct wk_shard *s)
{
    return s->copies.durable.epoch < s->replica.ledger.epoch;
}

// A worker whose copies are not registered makes one at these versions all the same: its server
// can't vouch for the others any more, or no other region has a copy of those versions. These are
// the same for every worker, whatever copies it has, so that two regions always meet.
static bool is_common(const struct wk_shard *s)
{
    return s->replica.ledger.version % (COPIES_MAX * s->worker->conf.durable_every) == 0;
}

// At each multiple of so many versions: all regions have copies of the same versions, of which two
// make a stable point. While none of COPIES_MAX is registered, copies are made at common versions
// alone, and one in each new epoch. The run ends only when what a shard closed with is stable: of
// that there is a copy at once.
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

// The newest copy was proved, or is being read for that: it may be registered before this worker
// hears of it.
static bool may_be_registered(const struct wk_shard *s)
{
    const struct wk_proof *p = &s->copies.proof;
    return s->copies.proving ||
           (p->epoch == s->copies.durable.epoch && p->version == s->copies.durable.version);
}

// Copies of a history that was given up go, and those that the stable point has overtaken. One that
// was registered, or may have been, stays: a server that loses its disk comes back from it
// (server/docs/0000-protocol.md#rule-13). On the lane: to remove large files may take long.
static lh_err tidy_copies(struct wk_durable_copy *k)
{
    const struct wk_shard *s = k->shard;
    struct lk_checkpoint_conf conf = wk_durable_copy_conf(s->worker);
    LH_TRY(lk_checkpoint_drop_above(&conf, s->id, k->checkpoint.version));
    uint64_t kept = LH_BUG("copy_replaced") ? k->checkpoint.version : k->stable;
    LH_TRY(lk_checkpoint_drop_below(&conf, s->id, kept, &k->copies));
    if (k->copies <= COPIES_MAX + 1 || k->replace <= k->stable) return LH_OK;
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

// There is a copy of the replica as it is now.
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

// Releases of a private worker wait for the stable point (server/docs/0000-protocol.md#rule-34).
// Where all workers wait, no version comes that two of them would make a copy of. So each makes one
// of the version at which the log rests.
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

// No record may come any more that would ask for another copy.
static void found_no_room(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    char text[512];
    snprintf(text, sizeof text,
             "shard %u: no room in %.300s; outboxes and logs can't be trimmed until there is: free "
             "some space, it is tried again every %lld s",
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
