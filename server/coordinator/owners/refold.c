// Refold: see refold.h.
//
// An order is first a question in memory: every owner hears it with the answers to its reports, and
// says whether it could. The first refusal ends it, and no shard has changed. When all have said
// yes the order goes: it is durable, it names no standby in sync any more (a standby has the former
// history), and each owner that hears it takes its shards back under a new epoch. The order is over
// when every shard's owner has said that it did, or that it could not after all; then it is told as
// such until the next one. An order that no operator asks about any more is forgotten before it
// goes.
//
// Store: refold/order = number u64, over u8, worker u64, from u64, name of the worker, then per
// shard: version u64, state u8.
#include "server/coordinator/owners/refold.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/watch/expelled.h"

static const char KEY[] = "refold/order";
static const uint64_t HEAD = UINT64_MAX;            // A shard stays at its head.
static const int64_t FORGOTTEN_NS = 30 * LH_SECOND; // no operator asks any more

// ---------------------------------------------------------------- what is stored

lh_err ps_co_refold_make(struct ps_coordinator *c)
{
    c->refold.shard = calloc(c->conf.manifest->shards, sizeof *c->refold.shard);
    return c->refold.shard ? LH_OK : LH_ERR_NO_MEMORY;
}

static LH_MUST lh_err store_order(struct ps_coordinator *c)
{
    const struct ps_co_refold *r = &c->refold;
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_put_u64(&b, r->number);
    lh_put_u8(&b, r->stage == PS_CO_REFOLD_OVER);
    lh_put_u64(&b, r->without);
    lh_put_u64(&b, r->from);
    lh_put_str(&b, r->whom);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        lh_put_u64(&b, r->shard[i].to);
        lh_put_u8(&b, (uint8_t)r->shard[i].state);
    }
    return ps_co_put_buf(c, KEY, &b);
}

static void forget(struct ps_coordinator *c)
{
    struct ps_co_refold_shard *shard = c->refold.shard;
    memset(shard, 0, c->conf.manifest->shards * sizeof *shard);
    c->refold = (struct ps_co_refold){.shard = shard};
}

static const char *read_order(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    struct ps_co_refold *r = &c->refold;
    if (strcmp(name, "order") != 0) return "is of no known kind";
    r->number = lh_get_u64(at);
    r->stage = lh_get_u8(at) ? PS_CO_REFOLD_OVER : PS_CO_REFOLD_GOES;
    r->without = lh_get_u64(at);
    r->from = lh_get_u64(at);
    lh_get_str(at, r->whom, sizeof r->whom);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        uint8_t state;
        r->shard[i].to = lh_get_u64(at);
        state = lh_get_u8(at);
        if (state > PS_CO_SHARD_KEPT) return "names no state of a shard";
        r->shard[i].state = (enum ps_co_refold_state)state;
    }
    return NULL;
}

lh_err ps_co_load_refold(struct ps_coordinator *c)
{
    forget(c);
    return ps_co_load_named(c, "refold/", read_order);
}

bool ps_co_refold_goes(const struct ps_coordinator *c, uint32_t shard)
{
    return c->refold.stage == PS_CO_REFOLD_GOES && c->refold.shard[shard].state < PS_CO_SHARD_DONE;
}

// ---------------------------------------------------------------- an operator's request

static void describe(const struct ps_co_refold *r, char out[PS_CO_SERVER_NAME + 64])
{
    if (r->without)
        snprintf(out, PS_CO_SERVER_NAME + 64, "refold --without %s", r->whom);
    else
        snprintf(out, PS_CO_SERVER_NAME + 64, "rewind");
}

// The order that the request asks for, in `out`, with shards of the caller's.
static LH_MUST lh_err parse(const struct ps_coordinator *c, const struct lh_peer *asker,
                            const struct lh_refold_request *m, struct ps_co_refold *out)
{
    uint32_t shards = c->conf.manifest->shards;
    for (uint32_t i = 0; i < shards; i++) out->shard[i].to = m->name[0] ? HEAD : m->to;
    if (m->name[0]) {
        const struct lh_expel_request who = {.name = m->name, .region = m->region};
        struct ps_co_expelled is;
        LH_TRY(ps_co_who(c, asker, &who, &is));
        out->without = is.id;
        out->from = m->from;
        snprintf(out->whom, sizeof out->whom, "%s/%s", is.region, is.name);
        return LH_OK;
    }
    for (size_t i = 0; i < m->n_shards; i++) {
        if (m->shards[i].shard >= shards)
            return lh_fail(LH_ERR_INVALID, "the model has no shard %u", m->shards[i].shard);
        out->shard[m->shards[i].shard].to = m->shards[i].version;
    }
    for (uint32_t i = 0; i < shards; i++)
        if (!out->shard[i].to || out->shard[i].to == HEAD)
            return lh_fail(LH_ERR_INVALID,
                           "back to which version of shard %u? longhaul rewind --to VERSION, or "
                           "--to SHARD:VERSION for each shard",
                           i);
    return LH_OK;
}

static bool same(const struct ps_coordinator *c, const struct ps_co_refold *wanted)
{
    const struct ps_co_refold *r = &c->refold;
    bool equal = r->without == wanted->without && r->from == wanted->from;
    for (uint32_t i = 0; i < c->conf.manifest->shards && equal; i++)
        equal = r->shard[i].to == wanted->shard[i].to;
    return equal;
}

// Every shard needs an owner that is heard, and is neither moved nor at its end.
static LH_MUST lh_err check_shards(struct ps_coordinator *c, const struct ps_co_refold *wanted)
{
    if (c->plan.phase >= LH_PHASE_CLOSE)
        return lh_fail(LH_ERR_INVALID,
                       "the run is closing or over, and its logs take no push any more: it can't "
                       "be taken back (longhaul log replay --without writes parameters to begin "
                       "another run from)");
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        const struct ps_co_shard *s = &c->shard[i];
        bool silent = ps_co_now(c) - s->heard_ns >= ps_co_owner_bound(c, s) && c->conf.take_over_ns;
        if (!s->reported || silent)
            return lh_fail(LH_ERR_BUSY,
                           "shard %u has no server that reports: wait until it has one", i);
        if (s->move.target)
            return lh_fail(LH_ERR_BUSY, "shard %u is being moved: wait until the move is over", i);
        if (wanted->shard[i].to != HEAD && wanted->shard[i].to > s->head.version)
            return lh_fail(LH_ERR_NOT_FOUND,
                           "shard %u: there is no version %" PRIu64 " yet, it is at %" PRIu64, i,
                           wanted->shard[i].to, s->head.version);
    }
    return LH_OK;
}

static LH_MUST lh_err begin(struct ps_coordinator *c, const struct ps_co_refold *wanted)
{
    struct ps_co_refold *r = &c->refold;
    struct ps_co_refold_shard *shard = r->shard;
    bool waits = r->stage == PS_CO_REFOLD_GOES ||
                 (r->stage == PS_CO_REFOLD_ASKED && ps_co_now(c) - r->asked_ns < FORGOTTEN_NS);
    if (waits && same(c, wanted)) return LH_OK;
    if (waits) {
        char what[PS_CO_SERVER_NAME + 64];
        describe(r, what);
        return lh_fail(LH_ERR_BUSY,
                       "another order is under way (%s): give that one again to wait for its end",
                       what);
    }
    LH_TRY(check_shards(c, wanted));
    memcpy(shard, wanted->shard, c->conf.manifest->shards * sizeof *shard);
    *r = *wanted;
    r->shard = shard;
    r->number = lh_random_u64(c->conf.env) | 1;
    r->stage = PS_CO_REFOLD_ASKED;
    return LH_OK;
}

// Gives REGION/NAME of the shard's server, or the shard's number if the server is unknown.
static void name_server(const struct ps_coordinator *c, uint32_t shard, char out[PS_CO_SERVER_NAME])
{
    const struct ps_co_shard *s = &c->shard[shard];
    if (s->name[0])
        snprintf(out, PS_CO_SERVER_NAME, "%s/%s", s->region, s->name);
    else
        snprintf(out, PS_CO_SERVER_NAME, "of shard %u", shard);
}

// Names the first server that the order waits for.
static void name_missing(struct ps_coordinator *c)
{
    struct ps_co_refold *r = &c->refold;
    bool goes = r->stage == PS_CO_REFOLD_GOES;
    char name[PS_CO_SERVER_NAME];
    r->waits[0] = 0;
    for (uint32_t i = 0; i < c->conf.manifest->shards && !r->waits[0]; i++) {
        bool said = goes ? r->shard[i].state >= PS_CO_SHARD_DONE : r->shard[i].state > 0;
        if (said) continue;
        name_server(c, i, name);
        snprintf(r->waits, sizeof r->waits, "%s (shard %u)", name, i);
    }
}

static void fill(struct ps_coordinator *c, struct lh_refold_reply *out)
{
    struct ps_co_refold *r = &c->refold;
    bool waits = r->stage == PS_CO_REFOLD_ASKED || r->stage == PS_CO_REFOLD_GOES;
    if (waits) name_missing(c);
    if (waits) out->waits = r->waits;
    out->number = r->number;
    out->goes = r->stage == PS_CO_REFOLD_GOES;
    out->over = r->stage == PS_CO_REFOLD_OVER;
    out->shards = c->conf.manifest->shards;
    out->why = r->why;
    for (uint32_t i = 0; i < out->shards; i++) {
        out->done += r->shard[i].state == PS_CO_SHARD_DONE;
        out->kept += r->shard[i].state == PS_CO_SHARD_KEPT;
        out->left_out += r->shard[i].left_out;
    }
}

lh_err ps_co_refold(struct ps_coordinator *c, const struct lh_peer *asker,
                    const struct lh_refold_request *m, struct lh_refold_reply *out)
{
    struct ps_co_refold *r = &c->refold, wanted = {0};
    if (m->number && m->number != r->number) return LH_OK; // it is not known any more
    if (!m->number) {
        wanted.shard = calloc(c->conf.manifest->shards, sizeof *wanted.shard);
        if (!wanted.shard) return lh_fail(LH_ERR_BUSY, "out of memory");
        lh_err err = parse(c, asker, m, &wanted);
        if (!err) err = begin(c, &wanted);
        free(wanted.shard);
        if (err) return err;
    }
    r->asked_ns = ps_co_now(c);
    if (r->stage == PS_CO_REFOLD_REFUSED)
        return lh_fail(r->gone ? LH_ERR_NOT_FOUND : LH_ERR_INVALID, "%s", r->why);
    fill(c, out);
    return LH_OK;
}

void ps_co_on_refold(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_refold_request *m = request;
    struct lh_refold_reply out = {0};
    lh_err err = ps_co_refold(c, lh_request_peer(rq), m, &out);
    if (!m->number) // the same request that asks again is no order
        ps_co_audit(c, "audit.refold", lh_request_peer(rq), "%s %.64s%s%.64s: %s",
                    m->name[0] ? "refold without" : "rewind", m->region, m->region[0] ? "/" : "",
                    m->name, err ? lh_err_text(err) : "taken");
    if (err)
        ps_co_refuse(c, rq, err);
    else
        ps_co_answer(c, rq, LH_MESSAGE(refold_reply, &out));
}

// ---------------------------------------------------------------- what servers say

static void refuse(struct ps_coordinator *c, bool gone, const char *why)
{
    struct ps_co_refold *r = &c->refold;
    r->stage = PS_CO_REFOLD_REFUSED;
    r->gone = gone;
    snprintf(r->why, sizeof r->why, "%s", why);
}

// From here on no kill of anybody ends the order.
static LH_MUST lh_err go(struct ps_coordinator *c)
{
    struct ps_co_refold *r = &c->refold;
    char what[PS_CO_SERVER_NAME + 64];
    r->stage = PS_CO_REFOLD_GOES;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        r->shard[i].state = PS_CO_SHARD_ASKED;
        if (c->shard[i].standby) LH_TRY(ps_co_set_standby(c, i, 0));
    }
    LH_TRY(store_order(c));
    describe(r, what);
    ps_co_say(c, LH_WARN, "refold.goes", "%s: every server can do it, and takes its shards back",
              what);
    return LH_OK;
}

static LH_MUST lh_err all_asked(struct ps_coordinator *c)
{
    const struct ps_co_refold *r = &c->refold;
    uint64_t left_out = 0;
    char why[PS_CO_SERVER_NAME + 64];
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        if (r->shard[i].state != PS_CO_SHARD_POSSIBLE) return LH_OK;
        left_out += r->shard[i].left_out;
    }
    if (!r->without || left_out) return go(c);
    snprintf(why, sizeof why, "no push of %s is in the log of any shard", r->whom);
    refuse(c, true, why);
    return LH_OK;
}

static LH_MUST lh_err hear_shard(struct ps_coordinator *c, uint32_t shard,
                                 const struct lh_refold_state *m)
{
    struct ps_co_refold *r = &c->refold;
    struct ps_co_refold_shard *s = &r->shard[shard];
    if (!m->refused && !m->done) {
        if (r->stage == PS_CO_REFOLD_ASKED) s->state = PS_CO_SHARD_POSSIBLE;
        return LH_OK;
    }
    if (r->stage != PS_CO_REFOLD_GOES || s->state >= PS_CO_SHARD_DONE) return LH_OK;
    s->state = m->done ? PS_CO_SHARD_DONE : PS_CO_SHARD_KEPT;
    if (m->refused) {
        char name[PS_CO_SERVER_NAME];
        name_server(c, shard, name);
        snprintf(r->why, sizeof r->why, "shard %u: its server %s says: %s", shard, name, m->why);
        ps_co_say(
            c, LH_ERROR, "refold.kept",
            "shard %u is not taken back, and keeps its present history; its server %s says: %s",
            shard, name, m->why);
    }
    return store_order(c);
}

static LH_MUST lh_err all_done(struct ps_coordinator *c)
{
    struct ps_co_refold *r = &c->refold;
    char what[PS_CO_SERVER_NAME + 64];
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (r->shard[i].state < PS_CO_SHARD_DONE) return LH_OK;
    r->stage = PS_CO_REFOLD_OVER;
    LH_TRY(store_order(c));
    describe(r, what);
    ps_co_say(c, LH_WARN, "refold.over", "%s: the run goes on from there%s", what,
              r->why[0] ? ", but for shards that were kept" : "");
    return LH_OK;
}

lh_err ps_co_refold_heard(struct ps_coordinator *c, const struct lh_report_request *m)
{
    struct ps_co_refold *r = &c->refold;
    bool waits = r->stage == PS_CO_REFOLD_ASKED || r->stage == PS_CO_REFOLD_GOES;
    const struct lh_refold_state *said = &m->refold;
    if (!m->has_refold || !waits || said->number != r->number) return LH_OK;
    if (said->refused && r->stage == PS_CO_REFOLD_ASKED && m->n_shards) {
        char why[sizeof r->why], name[PS_CO_SERVER_NAME];
        name_server(c, m->shards[0].head.shard, name);
        snprintf(why, sizeof why, "server %s says: %s", name, said->why);
        refuse(c, said->gone, why);
        ps_co_say(c, LH_WARN, "refold.refused", "%s; no shard has changed", r->why);
        return LH_OK;
    }
    for (size_t i = 0; i < m->n_shards; i++) {
        uint32_t shard = m->shards[i].head.shard;
        LH_TRY(hear_shard(c, shard, said));
        if (r->stage == PS_CO_REFOLD_ASKED) r->shard[shard].left_out = i ? 0 : said->left_out;
    }
    return r->stage == PS_CO_REFOLD_ASKED ? all_asked(c) : all_done(c);
}

bool ps_co_refold_tell(struct ps_coordinator *c, const struct lh_report_request *m,
                       struct lh_refold_order *out)
{
    const struct ps_co_refold *r = &c->refold;
    uint32_t shards = c->conf.manifest->shards;
    bool waits = r->stage == PS_CO_REFOLD_ASKED && ps_co_now(c) - r->asked_ns < FORGOTTEN_NS;
    bool open = false;
    *out = (struct lh_refold_order){0};
    for (size_t i = 0; i < m->n_shards; i++) {
        enum ps_co_refold_state state = r->shard[m->shards[i].head.shard].state;
        open |= waits ? state == PS_CO_SHARD_ASKED : state < PS_CO_SHARD_DONE;
    }
    if (!open || (!waits && r->stage != PS_CO_REFOLD_GOES)) return false;
    out->number = r->number;
    out->goes = !waits;
    out->without = r->without;
    out->from = r->from;
    if (r->without) return true;
    uint64_t *to = calloc(shards, sizeof *to);
    for (uint32_t i = 0; i < shards && to; i++) to[out->n_to++] = r->shard[i].to;
    out->to = to;
    return to != NULL;
}
