// In sync: holds back answers until the standby has the records, with the setting `acknowledge:
// replicated` (server/docs/0000-protocol.md#rule-21).
//
// alone     there is no standby: durable records are answered and published.
// catching  a standby has nearly caught up: answers now wait for it, too.
// joining   it has all answered records: the coordinator is asked to record it as in sync.
// in sync   the coordinator has recorded it: it may take over.
// leaving   it did not confirm in time: the coordinator is asked to strike it out. After a start
//           where nobody else can tell whether this log is the last, that is after
//           wait_ns.
//
// Invariant: while the coordinator may have a standby noted, no answer is sent, and no other
// follower gets a record, before that standby holds the record durably. So a server that replicated
// before starts in `leaving`, and leaves that state only on the coordinator's answer: with neither
// the standby nor the coordinator reachable, acknowledgements wait.
#include <inttypes.h>

#include "common/net/rpc.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/insync.h"
#include "server/push/item.h"
#include "server/push/older_copy.h"

enum { NEAR = 64 };     // versions behind; a standby within this distance soon catches up
enum { WAIT_GAPS = 4 }; // a pause of wait_ns / WAIT_GAPS is not the standby's silence
static const uint64_t ONLY_ASK = UINT64_MAX;

static void look(struct ps_shard *s);

// ---------------------------------------------------------------- answers that wait

static void wait_more(struct ps_item *i)
{
    struct ps_insync *n = &i->shard->insync;
    i->wait_version = i->shard->replica.ledger.version;
    i->next = NULL;
    *n->waiting_end = i;
    n->waiting_end = &i->next;
}

static struct ps_item *take_first(struct ps_insync *n)
{
    struct ps_item *i = n->waiting;
    n->waiting = i->next;
    if (!n->waiting) n->waiting_end = &n->waiting;
    return i;
}

// Counts the standby's silence only while an answer waits and this server is listening.
static void start_waiting(struct ps_shard *s)
{
    struct ps_insync *n = &s->insync;
    const struct ps_conf *conf = &s->server->conf;
    lh_listener_start(&n->listener, lh_now(conf->env), conf->wait_ns / WAIT_GAPS, conf->wait_ns);
    n->progress_ns = n->listener.ns;
    lh_cancel(conf->env, &n->timer); // it may be set for later than the listener's gap
}

static int64_t listened(struct ps_shard *s)
{
    return lh_listener_look(&s->insync.listener, lh_now(s->server->conf.env));
}

// How long the standby may be silent, from the round trip that it reports.
static int64_t patience(const struct ps_shard *s)
{
    const struct ps_conf *conf = &s->server->conf;
    return lh_trip_patience_ns(&s->insync.trip, conf->wait_ns, conf->wait_max_ns);
}

static void release(struct ps_shard *s)
{
    struct ps_insync *n = &s->insync;
    while (n->waiting && n->waiting->wait_version <= ps_shard_visible(s)) {
        struct ps_item *i = take_first(n);
        if (i->kind == PS_ITEM_FENCE && ps_shard_visible(s) < s->replica.ledger.version) {
            wait_more(i); // its answer must carry the row's newest state
            continue;
        }
        ps_item_done(i);
    }
    ps_follow_publish(s);
}

void ps_insync_answer(struct ps_item *i)
{
    struct ps_shard *s = i->shard;
    if (s->insync.state == PS_ALONE) {
        ps_item_done(i);
        return;
    }
    if (!s->insync.waiting) start_waiting(s);
    wait_more(i);
    release(s);
    look(s);
}

// ---------------------------------------------------------------- the coordinator's note

static uint64_t wanted(const struct ps_insync *n)
{
    return n->state == PS_JOINING || n->state == PS_IN_SYNC ? n->standby : 0;
}

// The standby noted by the coordinator, from its answers; *changes 0: not known.
uint64_t ps_insync_noted(const struct ps_shard *s, uint64_t *changes)
{
    const struct ps_insync *n = &s->insync;
    *changes = n->known ? n->changes : 0;
    return n->state == PS_IN_SYNC || n->state == PS_LEAVING ? n->standby : 0;
}

static void become(struct ps_shard *s, enum ps_insync_state state)
{
    struct ps_insync *n = &s->insync;
    n->state = state;
    n->progress_ns = listened(s);
    if (state == PS_IN_SYNC || (state == PS_ALONE && n->standby))
        lh_logf(s->server->conf.log, state == PS_ALONE ? LH_WARN : LH_INFO,
                state == PS_ALONE ? "standby.left" : "standby.in_sync",
                "shard %u: standby %016" PRIx64 " %s", s->id, n->standby,
                state == PS_ALONE ? "did not confirm in time; acknowledging without it"
                                  : "is in sync: it holds everything acknowledged from here on");
    if (state == PS_ALONE) n->standby = n->confirmed = 0;
    release(s);
}

// An owner on an older copy must not strike the standby out.
static LH_MUST lh_err check_standby(const struct ps_shard *s, const struct lh_in_sync_reply *m)
{
    bool shown;
    LH_TRY(ps_older_copy_shown(s, m->standby, &m->held.at, &shown));
    return shown ? ps_older_copy_error(s, &m->held.at) : LH_OK;
}

static void on_asked(void *self, lh_err err, const void *answer)
{
    struct ps_shard *s = self;
    struct ps_insync *n = &s->insync;
    struct ps_server *server = s->server;
    n->ask = NULL;
    if (server->phase == PS_STOPPED) return;
    // The standby has taken the shard over, or an operator moved it. Or this server is already
    // starting a later epoch and the request was sent before; then the answer to the later request
    // names the owner.
    if (err == LH_ERR_FENCED && server->phase == PS_SERVING) {
        ps_fatal(server, err);
        return;
    }
    const struct lh_in_sync_reply *m = answer;
    if (!err) {
        err = check_standby(s, m);
        if (err == LH_ERR_FENCED) {
            ps_fatal(server, err);
            return;
        }
    }
    if (!err) {
        if (!n->known) n->least = m->changes + 1; // voids a late request of an earlier process
        n->known = true;
        n->noted = m->standby;
        n->changes = m->changes;
        n->checked = m->held.at;
        n->settled = m->standby == wanted(n) && m->changes >= n->least;
        if (n->settled && n->state == PS_JOINING) become(s, PS_IN_SYNC);
        if (n->settled && n->state == PS_LEAVING) become(s, PS_ALONE);
    }
    n->failed = err != LH_OK;
    look(s);
}

static lh_err ask(struct ps_shard *s)
{
    struct ps_insync *n = &s->insync;
    struct ps_server *server = s->server;
    const struct lh_ledger *l = &s->replica.ledger;
    struct lh_in_sync_request m = {
        .wire = lh_versions_ours(),
        .run = lh_run_of(server->conf.job, &server->conf.manifest->hash),
        .shard = s->id,
        .epoch = l->epoch,
        .standby = wanted(n),
        .expect = n->known ? n->changes : ONLY_ASK,
        .owner = server->standby.identity,
        .has_head = true,
        .head = lh_shard_point(l->shard, l->epoch, l->version, &l->chain),
        .process = server->process,
        .has_checked = true,
        .checked = {l->shard, true, n->checked},
    };
    if (n->known && n->least <= n->changes) n->least = n->changes + 1;
    return lh_ask(server->coordinator, LH_RPC_INSYNC,
                  ps_deadline(server, server->coordinator, PS_FIFTH_OF_DEADLINE),
                  LH_MESSAGE(in_sync_request, &m), on_asked, s, &n->ask);
}

static void on_timer(void *arg)
{
    struct ps_shard *s = arg;
    s->insync.timer = 0;
    s->insync.failed = false;
    look(s);
}

// The standby has kept answers waiting for too long.
static void give_up(struct ps_shard *s)
{
    struct ps_insync *n = &s->insync;
    if (n->state == PS_CATCHING || LH_BUG("degrade_local")) {
        become(s, PS_ALONE); // the coordinator has noted no standby
    } else if (n->state == PS_JOINING || n->state == PS_IN_SYNC) {
        n->settled = false;
        n->state = PS_LEAVING;
    }
}

// Runs the next step: asks the coordinator, gives up on the standby, or sets the timer.
static void look(struct ps_shard *s)
{
    struct ps_insync *n = &s->insync;
    struct ps_server *server = s->server;
    if (server->phase == PS_STOPPED || n->state == PS_ALONE) return;
    if (n->state == PS_CATCHING && n->confirmed >= n->answered) {
        n->settled = false;
        n->state = PS_JOINING;
    }
    int64_t left = patience(s) - (listened(s) - n->progress_ns);
    if (n->waiting && left <= 0) give_up(s);
    if (n->state == PS_ALONE) return;
    bool holds = n->state == PS_LEAVING && n->known && lh_now(server->conf.env) < n->hold_ns;
    bool asks = n->state != PS_CATCHING && !n->settled && !n->ask && !n->failed && !holds;
    if (asks && ask(s)) n->failed = true;
    if (n->timer || (!n->failed && !n->waiting && !holds)) return;
    int64_t again = server->conf.report_ns, listens = server->conf.wait_ns / (2 * WAIT_GAPS);
    if (left > 0 && left < again) again = left;
    if (n->waiting && listens && listens < again) again = listens;
    n->timer = lh_after(server->conf.env, again, on_timer, s);
}

// ---------------------------------------------------------------- the standby's word

static lh_err take_confirm(struct ps_server *server, const struct lh_confirm_request *m,
                           const struct lh_peer *peer, struct ps_shard **out)
{
    LH_TRY(ps_check_run(server, &m->run, "standby"));
    struct ps_shard *s = m->has_have ? ps_server_shard(server, m->have.shard) : NULL;
    if (!s || !m->standby)
        return lh_fail(LH_ERR_NOT_OWNER, "a standby of a shard that is not owned here");
    LH_TRY(ps_peers_check(s, peer));
    *out = s;
    struct ps_insync *n = &s->insync;
    const struct lh_ledger *l = &s->replica.ledger;
    const struct lh_point *have = &m->have.at;
    enum ps_stand stand;
    if (!server->conf.replicated) return LH_OK;
    LH_TRY(ps_shard_stand(s, have, &stand));
    // A standby with another history finds that out at the first record that does not follow.
    if (stand != PS_POINT_OURS) return LH_OK;
    bool near = n->state == PS_ALONE && have->version + NEAR >= l->version;
    if (near) {
        n->standby = m->standby;
        n->confirmed = 0;
        n->answered = l->version;
        n->state = PS_CATCHING;
    }
    if (n->state == PS_ALONE || n->state == PS_LEAVING || m->standby != n->standby) return LH_OK;
    n->trip = m->trip;
    if (have->version > n->confirmed || near) {
        n->confirmed = have->version;
        n->progress_ns = listened(s);
    }
    release(s);
    look(s);
    return LH_OK;
}

void ps_on_confirm(void *self, struct lh_request *rq, const void *request)
{
    struct ps_server *server = self;
    struct ps_shard *s = NULL;
    const struct lh_confirm_request *m = request;
    lh_err err = take_confirm(server, m, lh_request_peer(rq), &s);
    if (err) {
        lh_log_peer(server->conf.log, LH_WARN, "standby.refused", "server %s: %s",
                    lh_request_peer(rq)->name, lh_err_text(err));
        lh_reply_error(rq, err, NULL);
        return;
    }
    struct lh_confirm_reply out = {.in_sync = s->insync.state == PS_IN_SYNC &&
                                              s->insync.standby == m->standby};
    lh_answer(rq, LH_MESSAGE(confirm_reply, &out));
}

// ---------------------------------------------------------------- life

static const char NOTE[] = "acknowledges with a standby\n";

// DIR/replicated marks a directory that once acknowledged with a standby, so the coordinator may
// still have one recorded, even if the settings have changed. A standby that the coordinator named
// at this start is struck out before anything is acknowledged, even if this directory has no mark:
// an older copy may predate that standby.
lh_err ps_insync_start(struct ps_server *s, bool noted)
{
    char path[LH_PATH_BYTES];
    struct lh_buf b = lh_buf(64);
    if (!s->conf.coordinator[0]) return LH_OK;
    LH_TRY(lh_path(path, sizeof path, s->conf.dir, "replicated"));
    lh_err err = lh_file_load(s->conf.env, path, &b);
    lh_buf_free(&b);
    bool before = !err;
    if (err == LH_ERR_NOT_FOUND) err = LH_OK;
    bool notes = s->conf.replicated || noted;
    if (!err && !before && notes)
        err = lh_file_replace(s->conf.env, path, lh_span(NOTE, sizeof NOTE - 1));
    if (err || (!before && !notes)) return err;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        shard->insync.state = PS_LEAVING;
        shard->insync.confirmed = 0;
        shard->insync.settled = false; // the shard may have been served before (move.c)
        shard->insync.hold_ns = shard->unproved ? lh_now(s->conf.env) + s->conf.wait_ns : 0;
        shard->unproved = false;
        if (shard->insync.ask)
            lh_unary_cancel(shard->insync.ask); // the request may be of an earlier epoch (move.c)
        shard->insync.ask = NULL;
        look(shard);
    }
    return LH_OK;
}

void ps_insync_close(struct ps_shard *s)
{
    lh_cancel(s->server->conf.env, &s->insync.timer);
}

void ps_insync_free(struct ps_shard *s)
{
    ps_insync_close(s);
    ps_items_stop(s->insync.waiting);
    s->insync.waiting = NULL;
}

json_t *ps_insync_status(const struct ps_shard *s)
{
    static const char *const name[] = {"alone", "catching up", "joining", "in sync", "leaving"};
    const struct ps_insync *n = &s->insync;
    return json_pack("{s:s s:I s:b}", "state", name[n->state], "confirmed",
                     (json_int_t)n->confirmed, "waited_for", n->waiting != NULL);
}
