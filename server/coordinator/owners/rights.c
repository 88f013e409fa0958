// Rights: which servers' certificates may own a shard or stand by for it
// (server/docs/0004-authority.md#identity-before-role).
//
// A certificate identifies a server here. The rows of owner.c name directories, which any server
// can claim. A shard has one owner at a time (its row's `server`), and a few servers with rights:
//
// MAY_STAND  it may report as a standby, and be in sync.
// MAY_OWN    it may be the owner as well: it was named first, took over, got it by a move, or was
//            adopted.
// ADOPTED    it takes the shard from its owner when it asks to serve: an operator said so.
//
// coordinator.servers names them. A shard that it does not name belongs to the first server that
// reports as its owner; the first that reports as its standby may stand by. After that, only
// `longhaul move`, `longhaul adopt` and a take-over by the standby in sync change the owner.
//
// Store: rights/<shard 4 hex> = per server: id u64, rights u8, bytes of its name u16, REGION/NAME.
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/net/wire_admin.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/choice.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/rights.h"

static const char KEY[] = "rights/";
enum { MAY_STAND = 1, MAY_OWN = 2, ADOPTED = 4 };

// ---------------------------------------------------------------- what is stored

static lh_err store(struct ps_coordinator *c, uint32_t shard)
{
    const struct ps_co_shard *s = &c->shard[shard];
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    for (const struct ps_co_right *r = s->right; r < s->right + s->rights; r++) {
        if (!r->may) continue; // only the settings name it
        lh_put_u64(&b, r->server);
        lh_put_u8(&b, r->may);
        lh_put_str(&b, r->name);
    }
    return ps_co_put_row(c, KEY, shard, &b);
}

static lh_err read_row(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->rights = 0;
    while (at && lh_left(at) && !at->failed && s->rights < PS_CO_RIGHTS) {
        struct ps_co_right r = {.server = lh_get_u64(at), .may = lh_get_u8(at)};
        lh_get_str(at, r.name, sizeof r.name);
        if (!at->failed) s->right[s->rights++] = r;
    }
    if (at && lh_left(at)) at->failed = true;
    return LH_OK;
}

// ---------------------------------------------------------------- look-ups

static struct ps_co_right *right_of(struct ps_co_shard *s, uint64_t server)
{
    for (struct ps_co_right *r = s->right; r < s->right + s->rights; r++)
        if (r->server == server) return r;
    return NULL;
}

static uint8_t may(const struct ps_co_right *r)
{
    return r->may | r->named;
}

static bool some_may(const struct ps_co_shard *s, uint8_t what)
{
    bool some = false;
    for (uint32_t i = 0; i < s->rights; i++) some |= (may(&s->right[i]) & what) != 0;
    return some;
}

static bool some_named(const struct ps_co_shard *s)
{
    bool some = false;
    for (uint32_t i = 0; i < s->rights; i++) some |= s->right[i].named != 0;
    return some;
}

// A second standby of a shard must be named in the settings. After a take-over, the former owner
// stands by without that.
static bool has_standby(const struct ps_co_shard *s)
{
    for (uint32_t i = 0; i < s->rights; i++)
        if (!(may(&s->right[i]) & MAY_OWN) || s->right[i].server != s->server) return true;
    return false;
}

static const char *owner_name(struct ps_co_shard *s)
{
    const struct ps_co_right *r = right_of(s, s->server);
    return r ? r->name : "nobody";
}

static lh_err add(struct ps_co_shard *s, uint32_t shard, uint64_t server, const char *name,
                  struct ps_co_right **out)
{
    *out = right_of(s, server);
    if (*out) return LH_OK;
    if (s->rights == PS_CO_RIGHTS)
        return lh_fail(LH_ERR_TOO_LARGE, "shard %u has %d servers already", shard, PS_CO_RIGHTS);
    *out = &s->right[s->rights++];
    **out = (struct ps_co_right){.server = server};
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return LH_OK;
}

static lh_err give(struct ps_coordinator *c, uint32_t shard, uint64_t server, const char *name,
                   uint8_t what)
{
    struct ps_co_right *r;
    LH_TRY(add(&c->shard[shard], shard, server, name, &r));
    if ((r->may & what) == what) return LH_OK;
    r->may |= what;
    return store(c, shard);
}

static void name_of(const struct lh_peer *peer, char out[PS_CO_SERVER_NAME])
{
    snprintf(out, PS_CO_SERVER_NAME, "%s/%s", peer->region, peer->name);
}

// ---------------------------------------------------------------- whom the settings name

// Parses the next "REGION/NAME" of a list separated by plus signs.
static bool next_name(const char **at, struct lh_peer *out)
{
    size_t len = strcspn(*at, "+,"), slash = strcspn(*at, "/");
    bool ok =
        slash > 0 && slash < LH_NAME_BYTES && slash + 1 < len && len - slash - 1 < LH_NAME_BYTES;
    if (!ok) return false;
    memset(out->region, 0, sizeof out->region);
    memset(out->name, 0, sizeof out->name);
    memcpy(out->region, *at, slash);
    memcpy(out->name, *at + slash + 1, len - slash - 1);
    *at += len;
    return true;
}

static bool read_number(const char **at, uint32_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *out = (uint32_t)n;
    return n < LH_SHARDS_MAX;
}

// Calls each() for every shard and server in the text; false: the text is not valid.
static bool walk(const char *text, void *arg,
                 lh_err (*each)(void *arg, uint32_t shard, struct lh_peer *peer, bool first),
                 lh_err *err)
{
    *err = LH_OK;
    for (const char *at = text + strspn(text, " "); *at;) {
        uint32_t from, to;
        struct lh_peer peer = {.role = LH_S};
        if (!read_number(&at, &from)) return false;
        to = from;
        if (*at == '-') {
            at++;
            if (!read_number(&at, &to) || to < from) return false;
        }
        if (*at++ != '=') return false;
        for (bool first = true, more = true; more; first = false) {
            if (!next_name(&at, &peer)) return false;
            for (uint32_t i = from; each && i <= to && !*err; i++)
                *err = each(arg, i, &peer, first);
            more = *at == '+';
            at += more;
        }
        if (*at && *at != ',') return false;
        at += *at == ',';
        at += strspn(at, " ");
    }
    return true;
}

lh_err ps_rights_check(const char *text)
{
    lh_err err;
    if (walk(text, NULL, NULL, &err)) return LH_OK;
    return lh_fail(
        LH_ERR_CONFIG,
        "coordinator.servers: \"%.100s\" is not valid, expected SHARDS=REGION/NAME, with "
        "standbys after a plus sign, as in 0-3=asia/ps-0+europe/ps-1,4=africa/ps-2",
        text);
}

// The certificate id of the server with that region and name in this run.
static uint64_t id_of(const struct ps_coordinator *c, struct lh_peer *peer)
{
    const struct lh_peer *self = &c->conf.self;
    bool both = !strcmp(peer->region, self->region) && !strcmp(peer->name, self->name);
    peer->role = both ? LH_C : LH_S;
    memcpy(peer->domain, self->domain, sizeof peer->domain);
    memcpy(peer->run, self->run, sizeof peer->run);
    return lh_worker_id(peer);
}

static lh_err take_named(void *arg, uint32_t shard, struct lh_peer *peer, bool first)
{
    struct ps_coordinator *c = arg;
    char name[PS_CO_SERVER_NAME];
    if (shard >= c->conf.manifest->shards) return LH_OK;
    struct ps_co_right *r;
    name_of(peer, name);
    LH_TRY(add(&c->shard[shard], shard, id_of(c, peer), name, &r));
    r->named |= first ? MAY_STAND | MAY_OWN : MAY_STAND;
    return LH_OK;
}

lh_err ps_co_load_rights(struct ps_coordinator *c)
{
    lh_err err;
    LH_TRY(ps_co_load_rows(c, KEY, read_row));
    const char *text = c->conf.servers ? c->conf.servers : "";
    return walk(text, c, take_named, &err) ? err : ps_rights_check(text);
}

// ---------------------------------------------------------------- who may say what

static LH_MUST lh_err refused(struct ps_co_shard *s, uint32_t shard, const char *name,
                              const char *as)
{
    return lh_fail(LH_ERR_DENIED,
                   "shard %u belongs to server %s: %s may not act as its %s. To allow it: longhaul "
                   "adopt %s --shards %u",
                   shard, owner_name(s), name, as, name, shard);
}

static LH_MUST lh_err speaks_as_owner(struct ps_coordinator *c, uint32_t shard,
                                      const struct lh_peer *peer, uint64_t identity, bool adopted,
                                      bool given_up)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint64_t id = lh_worker_id(peer);
    char name[PS_CO_SERVER_NAME];
    name_of(peer, name);
    struct ps_co_right *r = right_of(s, id);
    bool known = some_may(s, MAY_OWN), owns = r && (may(r) & MAY_OWN);
    if (LH_BUG("speaks_any")) return LH_OK;
    if (known && !owns) return refused(s, shard, name, "owner");
    bool target = s->move.target && lh_same_directory(s->move.target, identity);
    if (s->server == id || (owns && target)) return LH_OK;
    bool takes = owns && ((adopted && (r->may & ADOPTED)) || given_up);
    if (s->server && !takes)
        return lh_fail(LH_ERR_FENCED,
                       "shard %u was taken over by its standby, or moved to it or another server: "
                       "%s has it; start %s with role: standby, or, if that one is gone for good, "
                       "with an empty directory and rebuild.below_stable: true",
                       shard, owner_name(s), name);
    LH_TRY(give(c, shard, id, name, MAY_OWN | MAY_STAND));
    if (takes)
        ps_co_say(c, LH_WARN, "shard.adopted",
                  "shard %u goes from server %s to %s, at an operator's request", shard,
                  owner_name(s), name);
    right_of(s, id)->may &= (uint8_t)~ADOPTED;
    LH_TRY(store(c, shard));
    return ps_co_set_server(c, shard, id);
}

lh_err ps_co_speaks_as_owner(struct ps_coordinator *c, uint32_t shard, const struct lh_peer *peer,
                             uint64_t identity)
{
    return speaks_as_owner(c, shard, peer, identity, false, false);
}

lh_err ps_co_speaks_to_serve(struct ps_coordinator *c, uint32_t shard, const struct lh_peer *peer,
                             uint64_t identity, bool below_stable)
{
    return speaks_as_owner(c, shard, peer, identity, true, below_stable);
}

// Another server recently reported with this directory.
static bool of_another(const struct ps_co_shard *s, const struct lh_peer *peer, uint64_t identity)
{
    for (const struct ps_co_standby *b = s->standing; b < s->standing + PS_CO_STANDBYS; b++)
        if (b->identity && lh_same_directory(b->identity, identity) &&
            (strcmp(b->name, peer->name) || strcmp(b->region, peer->region)))
            return true;
    return false;
}

lh_err ps_co_speaks_as_standby(struct ps_coordinator *c, uint32_t shard, const struct lh_peer *peer,
                               uint64_t identity)
{
    struct ps_co_shard *s = &c->shard[shard];
    uint64_t id = lh_worker_id(peer);
    char name[PS_CO_SERVER_NAME];
    name_of(peer, name);
    if (!right_of(s, id) && (some_named(s) || has_standby(s)))
        return refused(s, shard, name, "standby");
    if (of_another(s, peer, identity))
        return lh_fail(LH_ERR_DENIED,
                       "shard %u: another server reports with the directory %016" PRIx64
                       " that %s names",
                       shard, identity, name);
    return give(c, shard, id, name, MAY_STAND);
}

lh_err ps_co_may_own(struct ps_coordinator *c, uint32_t shard, uint64_t server)
{
    struct ps_co_right *r = right_of(&c->shard[shard], server);
    return r ? give(c, shard, server, r->name, MAY_OWN) : LH_OK;
}

size_t ps_co_servers_of(const struct ps_coordinator *c, uint32_t shard, uint64_t *out)
{
    const struct ps_co_shard *s = &c->shard[shard];
    for (uint32_t i = 0; i < s->rights; i++) out[i] = s->right[i].server;
    return s->rights;
}

void ps_co_refused_server(struct ps_coordinator *c, const struct lh_peer *peer, const char *event,
                          lh_err err)
{
    c->refused_servers += err == LH_ERR_DENIED;
    lh_log_peer(c->conf.log, LH_WARN, event, "server %s of %s: %s", peer->name, peer->region,
                lh_err_text(err));
}

// ---------------------------------------------------------------- what operators ask

lh_err ps_co_adopt(struct ps_coordinator *c, const struct lh_adopt_request *m, uint32_t *shards)
{
    if (m->state.len && !m->server[0]) return ps_co_choose_state(c, m, shards);
    *shards = 0;
    struct lh_peer peer = {.role = LH_S};
    const char *at = m->server;
    if (!next_name(&at, &peer) || *at)
        return lh_fail(
            LH_ERR_INVALID,
            "\"%.100s\" is not a server's name: expected REGION/NAME, as in its certificate",
            m->server);
    uint64_t id = id_of(c, &peer);
    for (size_t i = 0; i < m->n_shards; i++)
        if (m->shards[i] >= c->conf.manifest->shards)
            return lh_fail(LH_ERR_INVALID, "the model has no shard %u", m->shards[i]);
    for (size_t i = 0; i < m->n_shards; i++, ++*shards) {
        uint8_t what = MAY_STAND | MAY_OWN;
        if (c->shard[m->shards[i]].server != id) what |= ADOPTED;
        LH_TRY(give(c, m->shards[i], id, m->server, what));
    }
    if (!*shards) return lh_fail(LH_ERR_INVALID, "no shard is given: pass --shards");
    return LH_OK;
}

void ps_co_on_adopt(void *self, struct lh_request *rq, const void *message)
{
    struct ps_coordinator *c = self;
    const struct lh_adopt_request *m = message;
    struct lh_adopt_reply out = {0};
    lh_err err = ps_co_adopt(c, m, &out.shards);
    bool state = !m->server[0];
    ps_co_audit(c, "audit.adopt", lh_request_peer(rq), "%.140s, %u shards: %s",
                state ? "a state" : m->server, out.shards, err ? lh_err_text(err) : "done");
    if (err) {
        ps_co_refuse(c, rq, err);
        return;
    }
    if (state)
        ps_co_say(c, LH_WARN, "rebuild.chosen",
                  "%u shards will be restored from the state that %s chose", out.shards,
                  lh_request_peer(rq)->name);
    else
        ps_co_say(c, LH_WARN, "server.adopted",
                  "%.140s may own %u shards and stand by for them, by order of %s", m->server,
                  out.shards, lh_request_peer(rq)->name);
    ps_co_answer(c, rq, LH_MESSAGE(adopt_reply, &out));
}
