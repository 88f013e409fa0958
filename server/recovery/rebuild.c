// Rebuild: recovers a shard whose history is lost or must begin a new epoch
// (server/docs/0000-protocol.md#rule-13, #rule-17, #rule-18).
//
// Before a shard is served, the coordinator reports the registered and reported points of its
// history. A log that is the last one is served unchanged. A log that ends before the known end of
// its epoch shows that the directory is an older copy; it is not served
// (server/docs/0000-protocol.md#rule-27). If the coordinator was restarted and can't tell, or if it
// last heard from a process that this directory does not know, a new epoch begins at the log's end,
// so that no version of the old epoch can exist twice.
//
// If the directory is empty, or its log lost a tail with nothing acknowledged, an epoch is opened
// at once. If the log is damaged below its durable position, or is an older copy, the shard asks
// its followers: they are refused with LH_ERR_REBUILDING and offer their states. When all known
// workers have answered, or the grace time is over, the best state of the shard's own history is
// fetched, its epoch is registered by compare-and-swap, and only then it is installed: checkpoint,
// new log, EPOCH record (recover.c).
//
// choose.c decides which states count. If no worker holds a state at or above the stable point, the
// shard waits for one, or for an operator who sets rebuild.below_stable.
//
// While a standby is in sync, only its state is known to hold all acknowledged records, so it takes
// the shards over. If it is not in sync for all of them, it takes none; the shards for which it is
// in sync continue here from its state (held.c), and it keeps that state until they are served.
//
// While the outcome of an epoch request is unknown, nothing new is decided: a late request may
// still open that epoch at its old point. An answer to any later request settles that, because it
// used up the earlier ticket (coordinator/owners/epochs.c).
//
// A state that an operator chose as the history (refold.h) continues unchanged under a new epoch,
// even if followers hold versions above it, or the stable point is above it.
//
// A crash before the installation starts over, under another epoch.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_member.h"
#include "server/core.h"
#include "server/recovery/choose.h"
#include "server/recovery/epoch.h"
#include "server/recovery/held.h"
#include "server/recovery/rebuilding.h"
#include "server/recovery/restore.h"
#include "server/state/fold.h"

// An operator chose this directory's state, even below the stable point.
static bool operators_word(const struct ps_rebuild *b)
{
    return b->shard->server->conf.below_stable || b->shard->server->log.rewound;
}

// ---------------------------------------------------------------- who was heard

struct ps_offer *ps_rebuild_offer(struct ps_rebuild *b, uint64_t worker)
{
    for (uint32_t i = 0; i < b->offer_count; i++)
        if (b->offer[i].worker == worker) return &b->offer[i];
    return NULL;
}

static bool all_answered(struct ps_rebuild *b)
{
    for (size_t i = 0; i < b->live_count; i++)
        if (!ps_rebuild_offer(b, b->live[i])) return false;
    return true;
}

static bool waited(const struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    return lh_now(conf->env) - b->since_ns >= conf->grace_ns;
}

// ---------------------------------------------------------------- the coordinator

static bool take_points(struct lh_point **out, size_t *count, size_t n,
                        const struct lh_shard_point *list)
{
    struct lh_point *p = calloc(n + 1, sizeof *p);
    if (!p) return false;
    for (size_t i = 0; i < n; i++) p[i] = list[i].at;
    free(*out);
    *out = p;
    *count = n;
    return true;
}

// Takes two states from the coordinator's answer: the digest of the stable point, proved by workers
// of several regions, and the state that an operator chose.
static void take_words(struct ps_rebuild *b, const struct lh_epoch_reply *m)
{
    b->stable_digest = m->stable_digest;
    b->word_bytes = 0;
    if (m->chosen.len >= PS_WORD_BYTES_MIN && m->chosen.len <= LH_HASH_BYTES) {
        b->word_bytes = m->chosen.len;
        memcpy(b->word, m->chosen.data, m->chosen.len);
    }
}

static bool take_reply(struct ps_rebuild *b, const struct lh_epoch_reply *m)
{
    uint64_t *live = malloc((m->n_live + 1) * sizeof *live);
    if (!live || !take_points(&b->begun, &b->begun_count, m->n_begun, m->begun)) {
        free(live);
        return false;
    }
    if (m->n_live) memcpy(live, m->live, m->n_live * sizeof *live);
    free(b->live);
    b->live = live;
    b->live_count = m->n_live;
    b->epoch = b->begun_count ? b->begun[b->begun_count - 1].epoch : 0;
    b->token = m->token;
    b->ticket = m->ticket;
    b->pending = false;
    b->reserved = m->reserved;
    b->shard->end = m->end;
    b->shard->end_told = true;
    // A run that continues after its end may need an epoch.
    bool end = b->shard->replica.ledger.plan.phase == LH_PHASE_END;
    b->anew |= end && ps_epoch_due(b->shard);
    b->standby = m->standby;
    snprintf(b->held_at, sizeof b->held_at, "%s", m->held_at);
    b->process = m->process;
    b->stable = m->stable.at;
    b->head_known = m->has_head;
    if (m->has_head) b->head = m->head.at;
    b->regions = m->regions;
    take_words(b, m);
    if (!b->asked) b->since_ns = lh_now(b->shard->server->conf.env);
    b->asked = true;
    return true;
}

// The replica holds the state to serve, and its epoch is registered.
static void settled(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    lh_cancel(s->conf.env, &b->timer);
    b->ready = true;
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i]->rebuild && !s->shard[i]->rebuild->ready) return;
    ps_raise(s, PS_SETTLED);
}

static lh_err ask(struct ps_rebuild *b, bool open);
static void later(struct ps_rebuild *b);

static void on_timer(void *arg)
{
    struct ps_rebuild *b = arg;
    b->timer = 0;
    if (!b->ask && ask(b, false)) later(b);
}

static void later(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    if (!b->timer && !b->ready && s->phase != PS_STOPPED)
        b->timer = lh_after(s->conf.env, s->conf.report_ns, on_timer, b);
}

// Roles start in any order, so this many unanswered requests in a row (some ten seconds) give no
// warning.
enum { EARLY_ASKS = 8 };

static void on_asked(void *self, lh_err err, const void *answer)
{
    struct ps_rebuild *b = self;
    struct ps_server *s = b->shard->server;
    b->ask = NULL;
    if (s->phase == PS_STOPPED) return;
    if (err == LH_ERR_FENCED) { // another server owns the shard now
        ps_fatal(s, err);
        return;
    }
    if (err && lh_err_class(err) == LH_CLASS_REJECT)
        lh_log_peer(s->conf.log, LH_ERROR, "epoch.refused", "coordinator %s: %s",
                    s->conf.coordinator, lh_err_text(err));
    if (err && (!b->unheard || b->unheard == EARLY_ASKS))
        lh_logf(s->conf.log, b->unheard ? LH_WARN : LH_INFO, "start.waiting",
                "shard %u waits for coordinator %s (%s), which must confirm that this log is the "
                "newest. Nothing is lost meanwhile. Start the coordinator, or correct its address "
                "in the settings; this server then goes on by itself",
                b->shard->id, s->conf.coordinator, lh_err_text(err));
    b->unheard = err ? b->unheard + 1 : 0;
    const struct lh_epoch_reply *m = answer;
    // The coordinator refuses an epoch until another role acts: the target of a move, a standby, or
    // a worker that advances the stable point. Asks again later.
    if (err || !take_reply(b, m) || (b->opening && !m->opened))
        later(b);
    else
        ps_rebuild_decide(b);
}

// Asks for the registered state; `open`: requests the shard's epoch from the replica's point.
static lh_err ask(struct ps_rebuild *b, bool open)
{
    struct ps_shard *shard = b->shard;
    struct ps_server *s = shard->server;
    struct lh_point own = ps_rebuild_own(b);
    bool starts = !open && !b->anew;
    struct lh_epoch_request m = {
        .wire = lh_versions_ours(),
        .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
        .address = s->address,
        .shard = shard->id,
        .has_open = open,
        .open = lh_shard_point(shard->id, shard->begun, own.version, &own.chain),
        .expect = b->epoch,
        .token = shard->token,
        .below_stable = s->conf.below_stable && !starts,
        .standby = s->standby.identity,
        .starts = starts,
        .from = b->from,
        .ticket = b->ticket,
        .rewound = open && s->log.rewound,
    };
    b->opening = open;
    b->pending |= open;
    lh_cancel(s->conf.env, &b->timer);
    return lh_ask(s->coordinator, LH_RPC_EPOCH, ps_deadline(s, s->coordinator, PS_HALF_OF_DEADLINE),
                  LH_MESSAGE(epoch_request, &m), on_asked, b, &b->ask);
}

// ---------------------------------------------------------------- is it the last history?

// A point above the replica's version is known in this epoch or a later one.
static bool overtaken(const struct ps_rebuild *b, uint64_t epoch)
{
    uint64_t version = b->shard->replica.ledger.version;
    return (b->stable.epoch >= epoch && b->stable.version > version) ||
           (b->head.epoch >= epoch && b->head.version > version);
}

// The stand of a known point against the log; an unreadable point proves nothing.
static enum ps_stand stand_of(const struct ps_rebuild *b, const struct lh_point *p)
{
    enum ps_stand stand;
    return !p->version || ps_shard_stand(b->shard, p, &stand) ? PS_POINT_CUT : stand;
}

// The point that proves the directory an older copy, or of another history; NULL: none. A
// coordinator's store older than this log (the log's epoch is missing there) proves nothing.
static const struct lh_point *newer(struct ps_rebuild *b)
{
    const struct lh_ledger *l = &b->shard->replica.ledger;
    const struct lh_point *last = b->begun_count ? &b->begun[b->begun_count - 1] : NULL;
    if (!last || l->epoch > b->epoch) return NULL;
    if (l->epoch < b->epoch) return last;
    // The beginning of this epoch covers all earlier ones.
    b->unreliable |= stand_of(b, &b->stable) == PS_POINT_OTHER;
    b->unreliable |= stand_of(b, last) == PS_POINT_OTHER;
    if (b->unreliable || b->stable.version > l->version) return &b->stable;
    enum ps_stand head = stand_of(b, &b->head);
    return head == PS_POINT_AHEAD || head == PS_POINT_OTHER ? &b->head : NULL;
}

// An older copy is never served. Its state becomes one of the candidates for the rebuild, under a
// new epoch; if the settings forbid a rebuild, the server stops.
static lh_err give_up_log(struct ps_rebuild *b, const struct lh_point *known)
{
    struct ps_server *s = b->shard->server;
    const struct lh_ledger *l = &b->shard->replica.ledger;
    lh_err err =
        lh_fail(LH_ERR_FENCED,
                "%s is an older copy, of another history, or its log lost its end: shard %u ends "
                "at version %" PRIu64 " of epoch %" PRIu64 ", and the coordinator knows of version "
                "%" PRIu64 " of epoch %" PRIu64,
                s->conf.dir, b->shard->id, l->version, l->epoch, known->version, known->epoch);
    if (!s->conf.rebuild_damaged && !s->conf.below_stable)
        return lh_fail(
            err,
            "%s. Nothing is served from it. Start the server on the newer directory, if there is "
            "one, or with rebuild.damaged: followers, to restore the shards from their followers",
            lh_err_text(err));
    lh_logf(s->conf.log, LH_ERROR, "log.older",
            "%s; the shards are rebuilt from their followers (rebuild.damaged)", lh_err_text(err));
    // One shard proves it for all of them; stored, so that no later start must find it again.
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(ps_epoch_give_up(s->shard[i]));
    s->log.damaged = true;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        if (!shard->rebuild) LH_TRY(ps_rebuild_begin(shard));
        shard->rebuild->ready = false;
        shard->rebuild->anew = true;
        if (shard->rebuild != b && !shard->rebuild->ask) later(shard->rebuild);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- the decision

// The newest registered epoch is this directory's request, from the replica's present point.
static bool registered(const struct ps_rebuild *b)
{
    const struct ps_shard *s = b->shard;
    struct lh_point own = ps_rebuild_own(b);
    const struct lh_point *last = b->begun_count ? &b->begun[b->begun_count - 1] : NULL;
    return last && s->begun == last->epoch && s->token && s->token == b->token &&
           own.version == last->version && lh_hash_equal(&own.chain, &last->chain) &&
           !b->unreliable;
}

// This very process requested the epoch, so nothing was served in it before. An epoch that an
// earlier process requested may have been served since: the directory may be a copy from the time
// between the request and the EPOCH record, and a restarted coordinator knows no version that
// proves it (server/docs/0000-protocol.md#rule-18).
static bool opened(const struct ps_rebuild *b)
{
    return registered(b) && b->shard->drawn && !overtaken(b, b->epoch);
}

static lh_err open_next(struct ps_rebuild *b)
{
    struct ps_shard *s = b->shard;
    const struct lh_ledger *l = &s->replica.ledger;
    bool first = !b->epoch && !l->version;
    uint64_t least = first ? 1 : (b->epoch > l->epoch ? b->epoch : l->epoch) + 1;
    // The epoch of a move belongs to the target, even if this log lost the MOVE record.
    uint64_t reserved = b->reserved > l->move.epoch ? b->reserved : l->move.epoch;
    if (least <= reserved) least = reserved + 1;
    if (s->begun < least || !s->token || !s->drawn)
        LH_TRY(ps_epoch_store(s, s->begun < least ? least : s->begun));
    return ask(b, true);
}

void ps_rebuild_name_lost(struct ps_rebuild *b, const struct lh_point *best, uint64_t worker)
{
    struct ps_shard *s = b->shard;
    b->named = true;
    s->lost.from = best->version + 1;
    s->lost.to = b->head.version > best->version ? b->head.version : 0;
    s->lost.worker = worker;
    lh_logf(s->server->conf.log, LH_WARN, "shard.rebuilt",
            "shard %u goes on from version %" PRIu64 " of epoch %" PRIu64 ", as %s %016" PRIx64
            " holds it; %s%" PRIu64
            "; workers push again what they still have of it, the rest is lost",
            s->id, best->version, best->epoch, worker ? "follower" : "this directory", worker,
            s->lost.to ? "lost: the versions after it, at least to "
                       : "no later one is known to be lost, last ",
            b->head.version);
}

void ps_rebuild_took(struct ps_rebuild *b, uint64_t standby)
{
    b->unreliable = false;
    b->chosen = b->fetched = true;
    b->from = standby;
}

static void tell_waiting(struct ps_rebuild *b, const char *what)
{
    struct ps_server *s = b->shard->server;
    if (b->told) return;
    b->told = true;
    lh_logf(s->conf.log, LH_WARN, "shard.rebuilding",
            "shard %u: %s; the stable point is version %" PRIu64 " of epoch %" PRIu64
            ", %u of %zu workers have said what they hold",
            b->shard->id, what, b->stable.version, b->stable.epoch, b->offer_count, b->live_count);
}

// No version was ever stable, and neither a worker nor this directory holds any of the history: the
// shard restarts from its initial state.
static lh_err begin_anew(struct ps_rebuild *b)
{
    struct ps_shard *s = b->shard;
    LH_TRY(ps_fold_anew(s));
    b->unreliable = false;
    b->chosen = b->fetched = true; // the disk's state is discarded
    struct lh_point own = ps_rebuild_own(b);
    ps_rebuild_name_lost(b, &own, 0);
    return LH_OK;
}

// The next start may be able to read a checkpoint that the disk failed to read. Its state is not
// given up for an older one.
static lh_err check_unread(const struct ps_rebuild *b, const struct lh_point *best)
{
    const struct ps_shard *s = b->shard;
    if (s->unread <= best->version || s->server->conf.below_stable) return LH_OK;
    return lh_fail(LH_ERR_IO,
                   "%s: the disk failed to read shard %u's checkpoint of version %" PRIu64
                   ", and no worker holds more than version %" PRIu64
                   ": start again. If it stays so, remove that checkpoint to give up what is above",
                   s->server->conf.dir, s->id, s->unread, best->version);
}

// Asks followers; sets `chosen`, or `wanted` and `wanted_of`.
static void gather(struct ps_rebuild *b)
{
    struct ps_state best;
    uint64_t worker;
    if (ps_restore_coming(b)) return;
    ps_restore_drop_silent(b);
    ps_restore_pass_over(b);
    b->wanted_of = 0;
    b->undecided = false;
    bool heard = all_answered(b) || waited(b), found = ps_rebuild_choose(b, &best, &worker);
    if (!heard) {
        tell_waiting(b, "its history is incomplete here: waiting for its followers");
    } else if (!found && ps_rebuild_undecided(b)) {
        b->undecided = true;
        ps_rebuild_tell_undecided(b);
    } else if (!found && !b->stable.version) {
        lh_err err = check_unread(b, &(struct lh_point){0});
        if (!err) err = begin_anew(b);
        if (err) ps_fatal(b->shard->server, err);
    } else if (!found) {
        b->told &= b->stuck;
        b->stuck = true;
        tell_waiting(b, "no follower that answered holds the stable point: waiting for one that "
                        "does (to give up the missing records, set rebuild.below_stable)");
    } else if (check_unread(b, &best.at)) {
        ps_fatal(b->shard->server, LH_ERR_IO);
    } else if (worker) {
        b->wanted = best;
        b->wanted_of = worker;
    } else {
        b->chosen = true;
        if (!b->named) ps_rebuild_name_lost(b, &best.at, 0);
    }
}

// While a standby is in sync, it holds all acknowledged records, and this damaged log does not: the
// standby takes the shards over. If it can't, because it is not in sync for another shard, this
// shard continues from its state (server/docs/0000-protocol.md#rule-21). False: that state is here,
// or no standby is needed.
static bool waits_for_standby(struct ps_rebuild *b)
{
    if (!b->standby || b->from == b->standby || operators_word(b)) return false;
    if (b->held_at[0]) ps_held_fetch(b);
    if (waited(b)) ps_held_tell(b);
    later(b);
    return true;
}

// Checks a log that needs no new epoch on its own account. False: it is served, or never will be.
static bool confirm(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    const struct lh_ledger *l = &b->shard->replica.ledger;
    const struct lh_point *known = newer(b);
    b->anew = true;
    if (known) {
        lh_err err = give_up_log(b, known);
        if (err && (lh_err_class(err) == LH_CLASS_STOP || err == LH_ERR_FENCED))
            ps_fatal(s, err);
        else if (err)
            later(b); // disk full
        return !err;
    }
    bool ours = b->process && (b->process == s->former || b->process == s->process);
    bool told = b->head_known && b->head.epoch == l->epoch && ours;
    bool silent = ps_shard_over(b->shard) || l->move.epoch; // this shard decides nothing any more
    // Without the standby in sync nothing is acknowledged here, and the standby can tell
    // (follow.c).
    b->shard->unproved = !told && b->standby;
    if (!told && !silent && !b->standby) return true;
    settled(b);
    return false;
}

// This directory is to serve shards that it took over, or that were moved here, but a later epoch
// is known above its log's end: an earlier process of this directory served that epoch, so this is
// an older copy. An empty directory is no older copy: it replaces a lost one. Nor is a state
// fetched from followers.
static bool left_behind(const struct ps_rebuild *b)
{
    const struct ps_shard *s = b->shard;
    const struct lh_ledger *l = &s->replica.ledger;
    const struct lh_point *last = b->begun_count ? &b->begun[b->begun_count - 1] : NULL;
    if (s->server->log.damaged || operators_word(b) || l->epoch >= s->least_epoch) return false;
    if (b->fetched) return false;
    return l->version && last && last->epoch > l->epoch &&
           (last->version > l->version || overtaken(b, last->epoch));
}

void ps_rebuild_decide(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    const struct lh_ledger *l = &b->shard->replica.ledger;
    struct lh_point own = ps_rebuild_own(b);
    if (b->ready || b->ask || b->pending || !b->asked || s->phase == PS_STOPPED) return;
    bool served = l->version && !s->log.rewound && registered(b) && overtaken(b, b->epoch);
    if ((served || left_behind(b) || !b->anew) && !confirm(b)) return;
    bool begins = !b->epoch && !l->version; // no history anywhere
    // The log lost its tail, but nothing acknowledged.
    bool shorter = l->version && ps_rebuild_counts(b, &own) && own.version >= b->stable.version;
    // Recomputed each time: the stable point may have moved, or the epoch was refused. If the log
    // is no choice, the standby's state may be one.
    bool held = b->from && ps_rebuild_enough(b, &own);
    bool rewound = s->log.rewound && l->version;
    b->chosen = rewound || held || (!b->from && !s->log.damaged && (begins || shorter));
    if (!opened(b) && waits_for_standby(b)) return;
    if (!b->chosen && !opened(b)) gather(b);
    if (opened(b) || (b->chosen && ps_shard_over(b->shard))) {
        settled(b);
        return;
    }
    lh_err err = b->chosen ? open_next(b) : LH_OK;
    if (err && lh_err_class(err) == LH_CLASS_STOP)
        ps_fatal(s, err);
    else if (err || !b->chosen)
        later(b);
}

// ---------------------------------------------------------------- life

lh_err ps_rebuild_begin(struct ps_shard *shard)
{
    struct ps_server *s = shard->server;
    struct ps_rebuild *b = calloc(1, sizeof *b);
    if (!b) return LH_ERR_NO_MEMORY;
    b->shard = shard;
    b->unreliable = s->log.unreliable;
    b->anew = ps_epoch_due(shard) || s->log.rewound;
    shard->rebuild = b;
    if (ask(b, false)) later(b);
    return LH_OK;
}

bool ps_rebuild_fetched(const struct ps_rebuild *b)
{
    return b && b->fetched;
}

bool ps_rebuild_noted(const struct ps_rebuild *b)
{
    return b && b->standby;
}

void ps_rebuild_close(struct ps_rebuild *b)
{
    if (!b) return;
    lh_cancel(b->shard->server->conf.env, &b->timer);
    ps_held_end(b);
}

static const char *waits_for(const struct ps_rebuild *b)
{
    if (b->ready) return "";
    if (!b->asked || b->unheard) return "coordinator";
    bool held = b->standby && b->from != b->standby && !operators_word(b);
    return held ? "standby" : b->chosen ? "" : b->undecided ? "operator" : "followers";
}

json_t *ps_rebuild_status(const struct ps_rebuild *b)
{
    return json_pack("{s:s s:I s:I s:i s:i s:o*}", "waits_for", waits_for(b), "stable",
                     (json_int_t)b->stable.version, "epoch", (json_int_t)b->epoch, "workers",
                     (int)b->live_count, "answered", (int)b->offer_count, "claims",
                     ps_rebuild_claims(b));
}

void ps_rebuild_free(struct ps_rebuild *b)
{
    if (!b) return;
    ps_rebuild_close(b);
    ps_restore_forget(b);
    free(b->begun);
    free(b->live);
    free(b);
}
