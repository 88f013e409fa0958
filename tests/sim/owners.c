// Owners: which server serves each shard, and for how long none does.
//
// Invariants: 1. A shard is not taken from a server that served it, and that the coordinator could
// reach, for as long as it takes to be believed dead. 2. If nobody serves a shard, its standby is
// in sync, and the standby and the coordinator reach each other, then the standby serves soon. A
// pause of the coordinator, and an equal time after it, do not count
// (server/docs/0000-protocol.md#rule-28); the time counted before is kept. Nor does the time count
// in which the network still delivers reports of the silent server. An owner does not serve while
// its disk hangs and a group waits for it. 3. No server serves less of an epoch than was
// acknowledged in it.
#include <inttypes.h>
#include <string.h>

#include "server/coordinator/core.h"
#include "tests/sim/judge.h"

// A standby takes over after 1.5 s of silence (lives.c), counted from the owner's last report.
// Reports come twice a second; the reports, the epoch and the row take at most four round trips of
// 0.2 s; the work on lanes takes milliseconds.
static const int64_t TAKE_OVER = 1500 * LH_MS, SOON = 4000 * LH_MS;
// With `far`: at most 20 s of silence (lives.c), and four round trips of 3 s each.
static const int64_t SOON_FAR = 36 * LH_SECOND;
// A call to a stopped coordinator ends after 3 s. The next call goes to the other one, which may
// have led since then without hearing anything.
static const int64_t OTHER = 4000 * LH_MS;
// An owner is silent once a group has waited for its disk for so long (common/env/slow.h); earlier
// reports may still be on their way.
static const int64_t HANGS = 2500 * LH_MS;
enum { ROOM_MIN = 1 << 16 }; // a disk with less free space counts as trouble

struct sim_node *sim_node_named(struct sim *s, const char *name)
{
    for (uint32_t i = 0; i < s->nodes; i++)
        if (!strcmp(s->node[i].name, name)) return &s->node[i];
    return NULL;
}

const struct ps_shard *sim_shard_at(const struct sim_node *n, uint32_t shard)
{
    for (uint32_t i = 0; n->server && i < n->server->conf.shard_count; i++)
        if (n->server->shard[i]->id == shard) return n->server->shard[i];
    return NULL;
}

bool sim_serves(const struct sim_node *n, uint32_t shard)
{
    return sim_shard_at(n, shard) && n->server->phase == PS_SERVING;
}

// ---------------------------------------------------------------- trouble

void sim_saw_trouble(struct sim_node *n)
{
    n->sim->judging->trouble[n - n->sim->node] = lh_fake_now(n->sim->world);
}

static bool well_for(const struct sim_node *n, int64_t ns)
{
    return lh_fake_now(n->sim->world) - n->sim->judging->trouble[n - n->sim->node] >= ns;
}

// Returns whether a group waits too long for the owner's disk, slow or hung, which makes the owner
// silent (server/docs/0000-protocol.md#rule-21).
static bool gives_way(const struct sim_node *n)
{
    double most_s = (double)LH_DISK_SLOW / LH_SECOND;
    return n->server && lh_slow_age_s(&n->server->slow, lh_now(n->env)) >= most_s;
}

// The coordinator's own pauses are no trouble: they do not excuse its later actions
// (server/docs/0000-protocol.md#rule-28).
static bool in_trouble(const struct sim_node *n)
{
    const struct sim *s = n->sim;
    bool runs = lh_fake_alive(n->env) && n->transport;
    if (n->kind == SIM_COORDINATOR) runs &= n->coordinator && !n->coordinator->stopped;
    if (n->kind == SIM_SERVER || n->kind == SIM_STANDBY)
        runs &= n->server && n->server->phase != PS_STOPPED;
    uint64_t room = 0;
    bool full = runs && (n->env->ops->files->room(n->env, n->dir, &room) || room < ROOM_MIN);
    bool still = n->kind != SIM_COORDINATOR && lh_fake_stalled(n->env);
    if (lh_fake_hangs(n->env) || (runs && gives_way(n))) return true;
    return !runs || full || still || n->cut_off || s->unheard == n;
}

// Notes when the late copy of a report will arrive. The coordinator takes it for a sign of life,
// even if the server has died, because it can't tell a late copy from a slow report.
static void note_echo(struct sim *s, const struct sim_node *n, int64_t ns)
{
    int64_t *echo = &s->judging->echo[n - s->node], at = lh_fake_now(s->world) + ns;
    if (*echo < at) *echo = at;
}

bool sim_watched_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    struct sim *s = arg;
    bool goes = sim_fate(arg, from, to, rpc, fate);
    bool whole = goes && !fate->lose_request && !fate->lose_reply && !fate->cut_after;
    struct sim_node *n = sim_node_named(s, from);
    if (!n) return goes; // a liar's call
    const struct sim_node *called = sim_node_named(s, to);
    if (!whole && called && called->kind == SIM_COORDINATOR) sim_saw_trouble(n);
    if (goes && rpc == LH_RPC_REPORT && fate->again_ns)
        note_echo(s, n, fate->delay_ns + fate->again_ns);
    return goes;
}

// ---------------------------------------------------------------- take-overs

void sim_saw_taken(struct sim *s, uint32_t shard)
{
    const struct sim_log *l = sim_log_of(s, shard);
    int64_t served = l->served_since ? lh_fake_now(s->world) - l->served_since : 0;
    if (l->owner && served >= TAKE_OVER && well_for(l->owner, TAKE_OVER) &&
        well_for(&s->node[0], TAKE_OVER + (s->pair ? OTHER : 0)))
        sim_fail(s, "shard %u was taken from %s, which served and could be heard all the time",
                 shard, l->owner->name);
}

// A shard that lost a version is served under a later epoch, or not at all.
static void look_at_head(struct sim *s, uint32_t shard, const struct sim_node *n)
{
    const struct sim_log *l = sim_log_of(s, shard);
    const struct lh_ledger *has = &sim_shard_at(n, shard)->replica.ledger;
    if (has->epoch == l->epoch && has->version < l->acknowledged)
        sim_fail(s,
                 "shard %u: %s serves version %" PRIu64 " of epoch %" PRIu64
                 ", and version %" PRIu64 " was acknowledged in it",
                 shard, n->name, has->version, has->epoch, l->acknowledged);
}

// True: its disk hangs and a group waits for it, so pushes can't go on here.
static bool waits_for_disk(const struct sim_node *n)
{
    int64_t since = n->sim->judging->hangs_since[n - n->sim->node];
    return since && lh_fake_now(n->sim->world) - since >= HANGS;
}

static void look_at_disk(const struct sim_node *n)
{
    int64_t *since = &n->sim->judging->hangs_since[n - n->sim->node];
    bool waits = lh_fake_hangs(n->env) && n->server && n->server->committing;
    if (!waits)
        *since = 0;
    else if (!*since)
        *since = lh_fake_now(n->sim->world);
}

static void look_at_server(struct sim *s, uint32_t shard)
{
    struct sim_log *l = sim_log_of(s, shard);
    const struct sim_node *owner = NULL;
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        if (!sim_serves(n, shard)) continue;
        sim_spend_losses(l, n);
        look_at_head(s, shard, n);
        if (waits_for_disk(n)) continue;
        if (!owner || sim_shard_at(n, shard)->replica.ledger.epoch >
                          sim_shard_at(owner, shard)->replica.ledger.epoch)
            owner = n;
    }
    if (!owner)
        l->served_since = 0;
    else if (owner != l->owner || !l->served_since)
        l->served_since = lh_fake_now(s->world);
    if (owner) l->owner = owner;
}

// True: the standby may take over all of its shards; else it takes none.
static bool may_have_all(const struct sim *s, const struct sim_node *n, uint64_t identity)
{
    for (uint32_t k = 0; k < s->shards; k++) {
        const struct sim_stored_shard *row = &s->judging->stored.shard[k];
        bool its = row->standby == identity || row->owner == identity;
        if (sim_has(n, k) && (!its || row->move_target)) return false;
    }
    return true;
}

// Finds the server that should serve a shard without an owner: the standby in sync, or the one that
// has just taken it over. NULL: none, or one that is hindered.
static const struct sim_node *heir(struct sim *s, uint32_t shard)
{
    const struct sim_stored_shard *row = &s->judging->stored.shard[shard];
    uint64_t identity = row->standby ? row->standby : row->owner;
    const struct sim_node *found = sim_named(s, identity);
    if (!found || !may_have_all(s, found, identity) || s->conf.faults.slow) return NULL;
    const struct ps_shard *held = sim_shard_at(found, shard);
    return held && !held->rebuild && well_for(found, 1) && well_for(&s->node[0], 1) ? found : NULL;
}

// The time of the last trouble, however short, of the heir or the coordinator.
static int64_t last_trouble(const struct sim *s, const struct sim_node *next)
{
    int64_t its = s->judging->trouble[next - s->node], centre = s->judging->trouble[0];
    return its > centre ? its : centre;
}

// The time at which the coordinator heard the last late copy of the silent server's reports; now,
// if one is still on its way.
static int64_t last_echo(const struct sim *s, const struct sim_node *former)
{
    int64_t at = former ? s->judging->echo[former - s->node] : 0, now = lh_fake_now(s->world);
    return at < now ? at : now;
}

// Returns how much of the time since the last look the coordinator's clock of silence leaves out.
// That clock stops with the process, and in the same life for an equal time after it
// (server/docs/0000-protocol.md#rule-28).
static int64_t look_at_pause(struct sim *s)
{
    struct sim_judging *j = s->judging;
    int64_t now = lh_fake_now(s->world), ns = now - j->looked_ns;
    j->looked_ns = now;
    if (!lh_fake_alive(sim_centre(s)->env) || !sim_coordinator(s)) {
        j->paused_ns = j->rest_ns = 0;
    } else if (lh_fake_stalled(sim_centre(s)->env)) {
        j->paused_ns += ns;
        return ns;
    }
    if (j->rest_ns < j->paused_ns) j->rest_ns = j->paused_ns;
    j->paused_ns = 0;
    int64_t rested = ns < j->rest_ns ? ns : j->rest_ns;
    j->rest_ns -= rested;
    return rested;
}

static void look_at_silence(struct sim *s, uint32_t shard, int64_t unheard)
{
    struct sim_log *l = sim_log_of(s, shard);
    if (l->silent_since) l->silent_since += unheard;
    int64_t now = lh_fake_now(s->world), silent = l->silent_since ? now - l->silent_since : 0;
    bool served = l->served_since != 0;
    if (served && silent > 0) {
        s->met.silences++;
        if (silent > s->met.silence_ns) s->met.silence_ns = silent;
    }
    const struct sim_node *next = served ? NULL : heir(s, shard);
    int64_t hindered = next ? last_trouble(s, next) : 0, echo = last_echo(s, l->owner);
    if (hindered < echo) hindered = echo;
    if (!next)
        l->silent_since = 0;
    else if (!l->silent_since || hindered > l->silent_since)
        l->silent_since = l->silent_since ? hindered : now;
    else if (silent > (s->conf.faults.far ? SOON_FAR : SOON) + (s->pair ? OTHER : 0))
        sim_fail(s, "shard %u: nobody serves it for %.1f s, and %s is in sync and can be heard",
                 shard, (double)silent / LH_SECOND, next->name);
}

// Trouble of the coordinator is noted at the first node, whichever one leads. It is in trouble if
// none leads, if another one has led since the last look, and while its store does not answer it.
static void look_at_centre(struct sim *s)
{
    struct sim_judging *j = s->judging;
    const struct sim_node *n = sim_centre(s);
    bool other = j->centre && j->centre != n;
    j->centre = n;
    if (other || in_trouble(n) || !sim_pair_is_well(s)) sim_saw_trouble(&s->node[0]);
}

void sim_look_often(struct sim *s)
{
    look_at_centre(s);
    for (uint32_t i = 0; i < s->nodes; i++) {
        bool serves = s->node[i].kind == SIM_SERVER || s->node[i].kind == SIM_STANDBY;
        if (serves && in_trouble(&s->node[i])) sim_saw_trouble(&s->node[i]);
        look_at_disk(&s->node[i]);
        sim_note_copies(&s->node[i]);
    }
    sim_look_at_bounds(s);
    int64_t unheard = look_at_pause(s);
    for (uint32_t k = 0; k < s->shards; k++) {
        look_at_server(s, k);
        if (sim_standbys(s)) look_at_silence(s, k, unheard);
    }
}
