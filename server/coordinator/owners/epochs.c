// Epochs: the points at which each shard's histories began, and the compare-and-swap that opens a
// new one (server/docs/0000-protocol.md#rule-17, #rule-18).
//
// Store: epoch/<shard 4 hex> = token u64 of the last epoch, then per epoch, ascending: epoch u64,
// version u64 and chain 32 at which it begins. Invariants: 1. No two histories of a shard have the
// same epoch. 2. Every epoch begins at or above the stable point of its time, unless an operator
// gave that up; then there is no stable point until a follower makes one. 3. So a version above the
// stable point in epoch e belongs to the shard's history only if no later epoch began below it.
// Epochs before the stable point's own have no such versions, and are forgotten. 4. Each row begins
// above the previous one: an epoch whose successor begins no higher adds no information, and is
// forgotten too. (Stores written before this rule have more rows.)
//
// A request that opens an epoch may come late, when its server has asked again and continues from
// another state (server/docs/0000-protocol.md#rule-17). So it names a ticket from the last answer,
// valid for one request: any request that names it uses it up, even one that only asks. Tickets are
// valid for one process of the coordinator. So a server with an answer to a later request knows
// whether the earlier one has opened its epoch; it can't open it later.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/commit.h"
#include "server/coordinator/owners/choice.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/stable.h"

static const char KEY[] = "epoch/";
enum { EPOCHS_MAX = 4096 }; // above the stable point, each beginning higher than the one before
// An epoch that a server reports is believed up to this much above the last known one.
static const uint64_t EPOCHS_AHEAD = UINT64_C(1) << 20;
static const uint64_t NUMBER_MOST = UINT64_C(1) << 62; // above any epoch and version of a log

// ---------------------------------------------------------------- what is stored

static lh_err store_epochs(struct ps_coordinator *c, uint32_t shard)
{
    const struct ps_co_shard *s = &c->shard[shard];
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_put_u64(&b, s->token);
    for (size_t i = 0; i < s->epochs; i++) {
        lh_put_u64(&b, s->begun[i].epoch);
        lh_put_u64(&b, s->begun[i].version);
        lh_put(&b, s->begun[i].chain.b, LH_HASH_BYTES);
    }
    return ps_co_put_row(c, KEY, shard, &b);
}

static lh_err add(struct ps_co_shard *s, const struct lh_point *p)
{
    struct lh_point *grown = realloc(s->begun, (s->epochs + 1) * sizeof *grown);
    if (!grown) return LH_ERR_NO_MEMORY;
    s->begun = grown;
    s->begun[s->epochs++] = *p;
    return LH_OK;
}

static lh_err read_epochs(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->epochs = 0;
    s->token = at ? lh_get_u64(at) : 0;
    while (at && lh_left(at)) {
        struct lh_point p = {.epoch = lh_get_u64(at)};
        p.version = lh_get_u64(at);
        lh_get_into(at, p.chain.b, LH_HASH_BYTES);
        if (at->failed) return LH_OK; // ps_co_load_rows() reports that
        LH_TRY(add(s, &p));
    }
    return LH_OK;
}

lh_err ps_co_load_epochs(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, KEY, read_epochs);
}

// ---------------------------------------------------------------- the compare-and-swap

static bool keeps_stable(const struct ps_co_shard *s, const struct lh_point *p)
{
    if (LH_BUG("take_no_stable")) return true; // planted
    if (p->version != s->stable.version) return p->version > s->stable.version;
    return !s->stable.version || lh_hash_equal(&p->chain, &s->stable.chain);
}

// Invariant 3: removes rows that the stable point has overtaken.
static void forget_overtaken(struct ps_co_shard *s)
{
    size_t n = 0;
    while (n + 1 < s->epochs && s->stable.version && s->begun[n].epoch <= s->stable.epoch) n++;
    memmove(s->begun, s->begun + n, (s->epochs - n) * sizeof *s->begun);
    s->epochs -= n;
}

// Invariant 4: number of rows that stay when an epoch begins at this version.
static size_t rows_below(const struct ps_co_shard *s, uint64_t version)
{
    size_t n = s->epochs;
    while (n && s->begun[n - 1].version >= version) n--;
    return n;
}

static lh_err begin(struct ps_co_shard *s, const struct lh_point *p)
{
    size_t stay = rows_below(s, p->version);
    LH_TRY(add(s, p));
    s->begun[stay] = *p;
    s->epochs = stay + 1;
    return LH_OK;
}

// With a standby in sync, only its state is known to hold all acknowledged records: it takes the
// shard over, or, if it can't, the owner continues from that state. The row stays: until the owner
// serves, and strikes the standby out as at every start, only the standby's disk holds that state.
static bool holds_acknowledged(const struct ps_co_shard *s, const struct lh_point *open,
                               uint64_t from)
{
    const struct lh_point *held = ps_co_held(s);
    if (!s->standby) return true;
    return from == s->standby && (!held || held->version <= open->version);
}

lh_err ps_co_check_reach(const struct ps_coordinator *c, uint32_t shard, uint64_t epoch,
                         uint64_t version)
{
    const struct ps_co_shard *s = &c->shard[shard];
    uint64_t last = ps_co_epoch(s) > s->move.epoch ? ps_co_epoch(s) : s->move.epoch;
    uint64_t most = last ? last + EPOCHS_AHEAD : NUMBER_MOST;
    if (epoch <= most && version < NUMBER_MOST) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED,
                   "shard %u: version %" PRIu64 " of epoch %" PRIu64
                   ": no log can have come so far; the last known epoch is %" PRIu64,
                   shard, version, epoch, last);
}

// Each boot has its own id, and the clock within one advances: no ticket of another process is
// valid, because a request takes longer than two nanoseconds.
void ps_co_first_tickets(struct ps_coordinator *c)
{
    uint8_t boot[16];
    c->conf.env->ops->boot_id(c->conf.env, boot);
    struct lh_cursor at = lh_cursor(lh_span(boot, sizeof boot));
    uint64_t first = lh_get_u64(&at) ^ lh_get_u64(&at);
    first += (uint64_t)c->listener.looked_ns;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) c->shard[i].ticket = first | 1;
}

bool ps_co_use_ticket(struct ps_co_shard *s, uint64_t ticket)
{
    if (ticket != s->ticket) return false;
    s->ticket += 2; // odd, so never 0
    return true;
}

lh_err ps_co_open_epoch(struct ps_coordinator *c, uint32_t shard, uint64_t expect,
                        const struct lh_point *open, uint64_t token, uint64_t from,
                        bool below_stable, bool rewound, bool *opened)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint64_t last = ps_co_epoch(s);
    *opened = last && token == s->token && lh_point_equal(&s->begun[s->epochs - 1], open);
    if (*opened) return LH_OK; // requested before: the answer was lost, or its server crashed
    if (expect != last || open->epoch <= last) return LH_OK;
    if (!holds_acknowledged(s, open, from)) return LH_OK;
    if (s->move.target) return LH_OK; // the target may serve already: it must answer
    // No server chooses another history by itself.
    if (rewound && !ps_co_refold_goes(c, shard)) return LH_OK;
    bool keeps = keeps_stable(s, open) && !rewound;
    if (!keeps && !below_stable && !rewound) return LH_OK;
    if (open->epoch <= s->move.epoch) // a server of this version requests none of these
        return lh_fail(LH_ERR_VERSION,
                       "shard %u: epoch %" PRIu64
                       " was reserved for another server by a move, and may have been served: "
                       "start a server of the coordinator's version, which begins a later epoch",
                       shard, open->epoch);
    if (rows_below(s, open->version) >= EPOCHS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "shard %u has begun %d epochs since its stable point",
                       shard, EPOCHS_MAX);
    if (!keeps && s->stable.version) {
        uint64_t given_up = s->stable.version;
        s->stable = (struct lh_point){0};
        s->stable_digest = (struct lh_hash){{0}};
        LH_TRY(ps_co_store_point(c, shard));
        ps_co_say(c, LH_ERROR, "stable.given_up",
                  "shard %u: an operator lets epoch %" PRIu64 " begin at version %" PRIu64
                  ", %s the stable point %" PRIu64 ": what %s is lost",
                  shard, open->epoch, open->version,
                  open->version < given_up ? "below" : "in another history than", given_up,
                  open->version < given_up ? "lies between" : "that one alone has");
    }
    LH_TRY(begin(s, open));
    s->token = token;
    forget_overtaken(s);
    LH_TRY(store_epochs(c, shard));
    LH_TRY(ps_co_forget_choice(c, shard));
    s->reported = false; // the last report is from an earlier epoch
    *opened = true;
    ps_co_say(c, LH_INFO, "epoch.opened", "shard %u: epoch %" PRIu64 " begins at version %" PRIu64,
              shard, open->epoch, open->version);
    return LH_OK;
}

// Takes a reported epoch that is not registered: this store is older than that history. Its
// beginning is unknown, so no version of earlier epochs counts above the stable point.
lh_err ps_co_adopt_epoch(struct ps_coordinator *c, uint32_t shard, const struct lh_point *begins)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (begins->epoch <= ps_co_epoch(s)) return LH_OK;
    LH_TRY(begin(s, begins));
    s->token = 0;
    return store_epochs(c, shard);
}

// ---------------------------------------------------------------- histories that are over

static bool known_to_differ(const struct lh_hash *a, const struct lh_hash *b)
{
    return lh_point_named(a) && lh_point_named(b) && !lh_hash_equal(a, b);
}

// A restarted server has made durable all that its earlier process reported, and all that became
// stable. Messages of the known process may be overtaken by its later ones.
lh_err ps_co_check_history(const struct ps_coordinator *c, uint32_t shard, uint64_t process,
                           const struct lh_point *head)
{
    const struct ps_co_shard *s = &c->shard[shard];
    const char *way_out = "its directory is an old copy; start it with an empty one, and it comes "
                          "back from its followers";
    if (s->process && process == s->process) return LH_OK;
    bool same = s->stable.epoch == head->epoch;
    if (same && head->version < s->stable.version)
        return lh_fail(LH_ERR_FENCED,
                       "shard %u is stable at version %" PRIu64 " of epoch %" PRIu64
                       ", and its server has %" PRIu64 ": %s",
                       shard, s->stable.version, head->epoch, head->version, way_out);
    if (same && head->version == s->stable.version &&
        known_to_differ(&head->chain, &s->stable.chain))
        return lh_fail(LH_ERR_FENCED,
                       "shard %u: version %" PRIu64 " of epoch %" PRIu64
                       " is stable with another history than its server's: %s",
                       shard, head->version, head->epoch, way_out);
    if (s->head.epoch == head->epoch && head->version < s->head.version)
        return lh_fail(LH_ERR_FENCED,
                       "shard %u was at version %" PRIu64 " of epoch %" PRIu64
                       " when its server last reported, and it comes back with %" PRIu64 ": %s",
                       shard, s->head.version, head->epoch, head->version, way_out);
    return LH_OK;
}
