// Servers: their reports, and the epochs that they request.
//
// An owner's report gives its shards' heads and credits, and which workers' copies match its log. A
// standby's report may make it the owner (owners/insync.c, owners/move.c). A server asks for a
// shard's epochs before it serves the shard, and opens the next epoch (owners/epochs.c).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/credit.h"
#include "common/format/frame.h"
#include "common/net/wire_member.h"
#include "server/audit.h"
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/grants.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/owners/rights.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/servers.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/stable.h"

enum { COPIES_ASKED = 256 }; // about this many workers' copies per answer

// ---------------------------------------------------------------- an owner's report

static bool bit_of(const uint8_t *bits, size_t bytes, uint64_t i)
{
    return i / 8 < bytes && bits[i / 8] >> i % 8 & 1;
}

typedef lh_err change_credit(struct ps_coordinator *c, uint64_t unit, bool credited);

static lh_err take_out(struct ps_coordinator *c, uint64_t unit, bool credited)
{
    ps_co_stock_out(c, unit);
    if (!credited) ps_co_lease_uncredited(c, unit);
    return LH_OK;
}

static lh_err put_in(struct ps_coordinator *c, uint64_t unit, bool credited)
{
    ps_co_stock_in(c, unit);
    return credited ? ps_co_lease_credited(c, unit) : LH_OK;
}

// Calls change() for every unit of this shard whose credit changes, even after an error. Returns
// the first error.
static lh_err change_all(struct ps_coordinator *c, uint32_t shard, const uint8_t *bits, size_t n,
                         const uint8_t *old, size_t was, change_credit *change)
{
    uint64_t shards = c->conf.manifest->shards;
    lh_err first = LH_OK;
    for (size_t i = 0; i < n || i < was; i++) {
        uint8_t differ = (uint8_t)((i < n ? bits[i] : 0) ^ (i < was ? old[i] : 0));
        for (uint64_t k = 8 * i; differ; k++, differ >>= 1) {
            uint64_t u = k * shards + shard;
            lh_err err = differ & 1 && u < c->units ? change(c, u, bit_of(bits, n, k)) : LH_OK;
            if (!first) first = err;
        }
    }
    return first;
}

// Takes ownership of the packed bits.
static lh_err replace_credits(struct ps_coordinator *c, uint32_t shard, uint8_t *bits, size_t n)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint8_t *old = s->credit;
    size_t was = s->credit_bytes;
    lh_err out = change_all(c, shard, bits, n, old, was, take_out);
    s->credit = bits;
    s->credit_bytes = n;
    lh_err in = change_all(c, shard, bits, n, old, was, put_in);
    free(old);
    return out ? out : in;
}

// Takes the shard's credits, in either form.
static lh_err take_credit(struct ps_coordinator *c, const struct lh_shard_report *r)
{
    uint32_t shard = r->head.shard, shards = c->conf.manifest->shards;
    struct ps_co_shard *s = &c->shard[shard];
    bool packed = r->credited_packed.len > 0;
    size_t bytes =
        packed ? r->credited_packed.len : lh_credit_packed_bytes(r->credited.len, shards);
    uint8_t *credit = malloc(bytes);
    if (!credit) return LH_ERR_NO_MEMORY;
    if (packed)
        memcpy(credit, r->credited_packed.data, bytes);
    else
        lh_credit_pack(r->credited.data, r->credited.len, shard, shards, credit);
    for (size_t i = 0; i < s->credit_bytes && i < bytes; i++)
        if (LH_BUG("ledger_sticky")) credit[i] |= s->credit[i]; // planted: done stays done
    lh_err err = replace_credits(c, shard, credit, bytes);
    s->credit_open = lh_credit_first_open(credit, bytes, shard, shards);
    s->credit_end = lh_credit_end(credit, bytes, shard, shards);
    return err;
}

// The shard's report replaces the known values, also when an epoch lost credited units
// (server/docs/0000-protocol.md#rule-20).
static lh_err take_shard(struct ps_coordinator *c, const struct lh_report_request *m,
                         const struct lh_shard_report *r, uint64_t server)
{
    if (!r->has_head || r->head.shard >= c->conf.manifest->shards ||
        r->credited.len > LH_UNITS_MAX / 8 ||
        r->credited_packed.len > lh_credit_packed_bytes(LH_UNITS_MAX / 8, c->conf.manifest->shards))
        return lh_fail(LH_ERR_MALFORMED, "a report of a shard that does not exist");
    struct ps_co_shard *s = &c->shard[r->head.shard];
    const struct lh_point head = r->head.at;
    LH_TRY(ps_co_heard_owner(c, r->head.shard, m->standby, server, m->process, &head));
    LH_TRY(ps_co_believe_owner(c, r->head.shard, r->in_sync, r->changes));
    struct lh_point told = {.epoch = r->head.at.epoch};
    LH_TRY(ps_co_adopt_epoch(c, r->head.shard, &told));
    // Within an epoch versions only rise: this report was overtaken, or is a duplicate.
    if (s->reported && r->head.at.epoch == s->head.epoch && r->head.at.version < s->head.version)
        return LH_OK;
    LH_TRY(take_credit(c, r));
    s->head = head;
    if (LH_BUG("local_stable")) s->stable = s->head; // planted: durable, but on its own disk only
    if (s->reported && r->tokens > s->tokens) s->grew_ns = ps_co_now(c);
    s->tokens = r->tokens;
    s->plan = r->plan;
    s->phase = r->phase;
    s->process = m->process;
    s->reported = true;
    ps_co_take_admitted(c, r);
    snprintf(s->address, sizeof s->address, "%s", m->address);
    return ps_co_take_answers(c, r->head.shard, r);
}

// A report counts only if its server may report for all of its shards.
static LH_MUST lh_err check_rights(struct ps_coordinator *c, const struct lh_report_request *m,
                                   const struct lh_peer *peer)
{
    if (m->n_shards > c->conf.manifest->shards)
        return lh_fail(LH_ERR_MALFORMED, "a report of %zu shards; the model has %u", m->n_shards,
                       c->conf.manifest->shards);
    for (size_t i = 0; i < m->n_shards; i++) {
        const struct lh_shard_point *head = &m->shards[i].head;
        if (!m->shards[i].has_head || head->shard >= c->conf.manifest->shards)
            return lh_fail(LH_ERR_MALFORMED, "a report of a shard that does not exist");
        if (m->standing)
            LH_TRY(ps_co_speaks_as_standby(c, head->shard, peer, m->standby));
        else
            LH_TRY(ps_co_speaks_as_owner(c, head->shard, peer, m->standby));
        uint64_t begun = m->shards[i].begun > head->at.epoch ? m->shards[i].begun : head->at.epoch;
        LH_TRY(ps_co_check_reach(c, head->shard, begun, head->at.version));
    }
    return LH_OK;
}

static lh_err take_report(struct ps_coordinator *c, const struct lh_report_request *m,
                          const struct lh_peer *peer, bool *serves)
{
    uint64_t server = lh_worker_id(peer);
    *serves = false;
    LH_TRY(ps_co_check_run(c, m->wire, &m->run));
    LH_TRY(check_rights(c, m, peer));
    if (m->standing) return ps_co_turns(c, m, server, serves);
    for (size_t i = 0; i < m->n_shards; i++) LH_TRY(take_shard(c, m, &m->shards[i], server));
    return LH_OK;
}

// Notes from an accepted report that its server owns its shards (`owns`) or stands by for them.
static lh_err hear_server(struct ps_coordinator *c, const struct lh_report_request *m,
                          const struct lh_peer *peer, bool owns)
{
    for (size_t i = 0; i < m->n_shards; i++) {
        uint32_t shard = m->shards[i].head.shard;
        struct ps_co_shard *s = &c->shard[shard];
        if (!owns) {
            ps_co_note_standby(c, peer, m, &m->shards[i]);
            continue;
        }
        snprintf(s->name, sizeof s->name, "%s", peer->name);
        snprintf(s->region, sizeof s->region, "%s", peer->region);
        LH_TRY(ps_co_hear_owner_trip(c, shard, m->trip));
    }
    return LH_OK;
}

// ---------------------------------------------------------------- its answer

// To a standby: the owner that it follows, or the epochs that it must serve.
static void reply_standby(struct ps_coordinator *c, struct lh_request *rq,
                          const struct lh_report_request *m, bool serves,
                          struct lh_report_reply *out)
{
    size_t n = m->n_shards;
    struct lh_shard_turn *turns = calloc(n + 1, sizeof *turns);
    struct lh_shard_address *owners = calloc(n + 1, sizeof *owners);
    bool ok = turns && owners;
    for (size_t i = 0; i < n && ok; i++) {
        uint32_t id = m->shards[i].head.shard;
        const struct ps_co_shard *s = &c->shard[id];
        uint64_t last = ps_co_epoch(s);
        turns[i] = (struct lh_shard_turn){id, s->least > last ? s->least : last};
        owners[i] = (struct lh_shard_address){.shard = id, .address = s->address, .epoch = last};
    }
    out->n_turns = serves ? n : 0;
    out->turns = turns;
    out->n_owners = serves ? 0 : n;
    out->owners = owners;
    if (ok)
        ps_co_answer(c, rq, LH_MESSAGE(report_reply, out));
    else
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    free(turns);
    free(owners);
}

// Names the servers that may stand by for the shards; without memory, the next answer names them.
static struct lh_shard_server *tell_stands(const struct ps_coordinator *c,
                                           const struct lh_report_request *m, size_t *count)
{
    struct lh_shard_server *list = calloc(m->n_shards * PS_CO_RIGHTS + 1, sizeof *list);
    for (size_t i = 0; i < m->n_shards && list; i++) {
        uint64_t id[PS_CO_RIGHTS];
        uint32_t shard = m->shards[i].head.shard;
        size_t n = ps_co_servers_of(c, shard, id);
        for (size_t k = 0; k < n; k++) list[(*count)++] = (struct lh_shard_server){shard, id[k]};
    }
    return list;
}

// The answer asks about at least one copy of every shard. Without memory, the next one asks.
static void reply_owner(struct ps_coordinator *c, struct lh_request *rq,
                        const struct lh_report_request *m, struct lh_report_reply *out)
{
    struct lh_buf plan = lh_buf(LH_SMALL_BYTES);
    size_t n = m->n_shards, each = n < COPIES_ASKED ? COPIES_ASKED / (n + 1) + 1 : 1;
    struct lh_shard_point *copies = calloc(n * each + 1, sizeof *copies);
    for (size_t i = 0; i < n && copies; i++)
        out->n_copies += ps_co_ask_copies(c, m->shards[i].head.shard, each, copies + out->n_copies);
    out->copies = copies;
    struct lh_shard_server *stands = tell_stands(c, m, &out->n_servers);
    out->servers = stands;
    if (c->plan.number && !c->stopped) lh_plan_write(&c->plan, &plan);
    out->plan = lh_buf_span(&plan);
    if (lh_buf_err(&plan))
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    else
        ps_co_answer(c, rq, LH_MESSAGE(report_reply, out));
    lh_buf_free(&plan);
    free(stands);
    free(copies);
}

// The server's moves; without memory, the next answer has them.
static struct lh_shard_move *tell_moves(const struct ps_coordinator *c,
                                        const struct lh_report_request *m, size_t *count)
{
    struct lh_shard_move *list = calloc(m->n_shards + 1, sizeof *list);
    for (size_t i = 0; i < m->n_shards && list; i++) {
        const struct lh_shard_report *r = &m->shards[i];
        *count += ps_co_tell_move(&c->shard[r->head.shard], m, r, &list[*count]);
    }
    return list;
}

// The keys of the reported shards; without memory, the next answer has them.
static struct lh_shard_key *tell_keys(const struct ps_coordinator *c,
                                      const struct lh_report_request *m, size_t *count)
{
    struct lh_shard_key *list = calloc(m->n_shards + 1, sizeof *list);
    for (; *count < m->n_shards && list; ++*count) {
        struct lh_shard_key *k = &list[*count];
        k->shard = m->shards[*count].head.shard;
        struct lh_grant_key key = ps_co_shard_key(c, k->shard);
        memcpy(k->key, key.b, sizeof k->key);
    }
    return list;
}

void ps_co_on_report(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_report_request *m = request;
    bool serves;
    lh_err err = take_report(c, m, lh_request_peer(rq), &serves);
    if (!err) err = hear_server(c, m, lh_request_peer(rq), serves || !m->standing);
    if (!err && !m->standing) err = ps_co_refold_heard(c, m);
    if (!err) err = ps_co_grants_keep(c);
    if (!err) ps_co_heard_giver(c, lh_request_peer(rq), m);
    if (err) {
        ps_co_refused_server(c, lh_request_peer(rq), "report.refused", err);
        ps_co_refuse(c, rq, err);
        return;
    }
    ps_co_tick(c);
    struct lh_report_reply out = {.wire = lh_versions_ours()};
    struct lh_shard_move *moves = tell_moves(c, m, &out.n_moves);
    struct lh_shard_key *keys = tell_keys(c, m, &out.n_keys);
    out.moves = moves;
    out.keys = keys;
    out.has_refold = !m->standing && ps_co_refold_tell(c, m, &out.refold);
    if (m->standing)
        reply_standby(c, rq, m, serves, &out);
    else
        reply_owner(c, rq, m, &out);
    free((uint64_t *)(uintptr_t)out.refold.to); // made by ps_co_refold_tell()
    free(keys);
    free(moves);
}

// ---------------------------------------------------------------- epochs

static lh_err check_epoch(struct ps_coordinator *c, const struct lh_epoch_request *m)
{
    LH_TRY(ps_co_check_run(c, m->wire, &m->run));
    if (m->shard >= c->conf.manifest->shards)
        return lh_fail(LH_ERR_MALFORMED, "an epoch of a shard that does not exist");
    if (m->has_open && (!m->open.chained || !m->open.at.epoch))
        return lh_fail(LH_ERR_MALFORMED, "an epoch without the history that it begins from");
    return LH_OK;
}

static lh_err take_epoch(struct ps_coordinator *c, const struct lh_epoch_request *m,
                         const struct lh_peer *peer, bool *opened)
{
    uint64_t server = lh_worker_id(peer);
    *opened = false;
    LH_TRY(check_epoch(c, m));
    LH_TRY(ps_co_speaks_to_serve(c, m->shard, peer, m->standby, m->below_stable));
    if (m->has_open) LH_TRY(ps_co_check_reach(c, m->shard, m->open.at.epoch, m->open.at.version));
    struct ps_co_shard *s = &c->shard[m->shard];
    bool opens = ps_co_use_ticket(s, m->ticket) && m->has_open; // otherwise it only asks
    if (m->below_stable && opens) LH_TRY(ps_co_give_up_owner(c, m->shard, m->standby, server));
    if (!m->below_stable) LH_TRY(ps_co_check_owner(c, m->shard, m->standby));
    if (m->starts && !m->has_open)
        return LH_OK; // it serves at once, or asks again without `starts`
    snprintf(s->address, sizeof s->address, "%s", m->address);
    s->unwanted |= s->move.target != 0;
    if (!opens) return LH_OK;
    return ps_co_open_epoch(c, m->shard, m->expect, &m->open.at, m->token, m->from, m->below_stable,
                            m->rewound, opened);
}

static void reply_epoch(struct ps_coordinator *c, struct lh_request *rq, uint32_t shard,
                        bool opened)
{
    struct ps_co_shard *s = &c->shard[shard];
    struct lh_shard_point *begun = calloc(s->epochs + 1, sizeof *begun);
    uint64_t *live = calloc(c->workers + 1, sizeof *live);
    struct lh_epoch_reply out = {.wire = lh_versions_ours(),
                                 .opened = opened,
                                 .begun = begun,
                                 .token = s->token,
                                 .has_stable = s->stable.version > 0,
                                 .has_head = s->head.version > 0,
                                 .stable = {shard, true, s->stable},
                                 .head = {shard, true, s->head},
                                 .live = live,
                                 .standby = s->standby,
                                 .process = s->reported ? s->process : 0,
                                 .reserved = s->move.epoch,
                                 .ticket = s->ticket,
                                 .stable_digest = s->stable_digest,
                                 .regions = ps_co_regions(c),
                                 .chosen = lh_span(s->choice.b, s->choice_bytes)};
    if (c->plan.phase == LH_PHASE_END && shard < c->plan.ends) out.end = c->plan.end[shard] + 1;
    if (s->standby && s->held_by == s->standby) out.held_at = s->held_at;
    if (!begun || !live) {
        ps_co_refuse(c, rq, lh_fail(LH_ERR_BUSY, "out of memory"));
    } else {
        for (size_t i = 0; i < s->epochs; i++)
            begun[out.n_begun++] = (struct lh_shard_point){shard, true, s->begun[i]};
        for (uint32_t i = 0; i < c->workers; i++)
            if (c->worker[i].live) live[out.n_live++] = c->worker[i].id;
        ps_co_answer(c, rq, LH_MESSAGE(epoch_reply, &out));
    }
    free(begun);
    free(live);
}

void ps_co_on_epoch(void *self, struct lh_request *rq, const void *request)
{
    struct ps_coordinator *c = self;
    const struct lh_epoch_request *m = request;
    bool opened;
    lh_err err = take_epoch(c, m, lh_request_peer(rq), &opened);
    if (!err) {
        if (opened)
            ps_audit(c->conf.audit, "audit.epoch", lh_request_peer(rq), "shard %u: epoch %llu",
                     m->shard, (unsigned long long)m->open.at.epoch);
        reply_epoch(c, rq, m->shard, opened);
        return;
    }
    ps_co_refused_server(c, lh_request_peer(rq), "epoch.refused", err);
    ps_co_refuse(c, rq, err);
}
