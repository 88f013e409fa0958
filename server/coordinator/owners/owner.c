// Owners: the owner of each shard after take-overs, and the standby that must hold its records
// before they are acknowledged (server/docs/0000-protocol.md#rule-21).
//
// Store: insync/<shard 4 hex> = owner, standby, changes, least, server, gone, u64 each. `owner` is
// the identity of the standby that last took the shard over; 0: the server configured for it.
// `changes` counts the changes of this row: an owner changes it by compare-and-swap, so that a
// delayed request changes nothing. `least` is the lowest epoch in which that owner may serve.
// `server` is the id of the owner's certificate; 0, or missing: not known. `gone` is the name that
// a standby last gave up because its directory may lack records that it confirmed under it: an
// owner that does not know that yet must not join it again, because no server would ever take over
// under that name.
#include "server/coordinator/commit.h"
#include "server/coordinator/owners/owner.h"

static const char KEY[] = "insync/";

lh_err ps_co_store_insync(struct ps_coordinator *c, uint32_t shard)
{
    const struct ps_co_shard *s = &c->shard[shard];
    struct lh_buf b = lh_buf(64);
    lh_put_u64(&b, s->owner);
    lh_put_u64(&b, s->standby);
    lh_put_u64(&b, s->changes);
    lh_put_u64(&b, s->least);
    lh_put_u64(&b, s->server);
    lh_put_u64(&b, s->gone);
    return ps_co_put_row(c, KEY, shard, &b);
}

static lh_err read_insync(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->owner = s->standby = s->changes = s->least = s->server = s->gone = 0;
    if (!at) return LH_OK;
    s->owner = lh_get_u64(at);
    s->standby = lh_get_u64(at);
    s->changes = lh_get_u64(at);
    s->least = lh_get_u64(at);
    s->server = lh_get_u64(at);
    s->gone = lh_get_u64(at);
    return LH_OK;
}

lh_err ps_co_load_insync(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, KEY, read_insync);
}

// ---------------------------------------------------------------- whose it is

lh_err ps_co_check_owner(const struct ps_coordinator *c, uint32_t shard, uint64_t identity)
{
    const struct ps_co_shard *s = &c->shard[shard];
    if (identity == s->owner) return LH_OK;
    if (identity)
        return lh_fail(LH_ERR_FENCED, "shard %u is not this standby's: another server has it",
                       shard);
    return lh_fail(LH_ERR_FENCED,
                   "shard %u was taken over by its standby, or moved to it; start this server with "
                   "role: standby "
                   "(it becomes the new owner's), or, if the new owner is gone for good, with an "
                   "empty directory and rebuild.below_stable: true",
                   shard);
}

lh_err ps_co_set_owner(struct ps_coordinator *c, uint32_t shard, const struct ps_co_owner *to)
{
    struct ps_co_shard *s = &c->shard[shard];
    s->owner = to->identity;
    s->server = to->server;
    s->standby = to->standby;
    s->least = to->least;
    s->changes++;
    return ps_co_store_insync(c, shard);
}

lh_err ps_co_set_server(struct ps_coordinator *c, uint32_t shard, uint64_t server)
{
    c->shard[shard].server = server;
    return ps_co_store_insync(c, shard);
}

lh_err ps_co_hand_over(struct ps_coordinator *c, uint32_t shard, const struct ps_co_owner *to)
{
    struct ps_co_shard *s = &c->shard[shard];
    s->reported = false;
    s->heard_ns = ps_co_now(c);
    s->heard_of = to->server;
    if (s->gone == to->identity) s->gone = 0; // it did not get that answer
    return ps_co_set_owner(c, shard, to);
}

// ---------------------------------------------------------------- its standby

lh_err ps_co_set_standby(struct ps_coordinator *c, uint32_t shard, uint64_t standby)
{
    struct ps_co_shard *s = &c->shard[shard];
    s->standby = standby;
    s->changes++;
    return ps_co_store_insync(c, shard);
}

lh_err ps_co_believe_owner(struct ps_coordinator *c, uint32_t shard, uint64_t standby,
                           uint64_t changes)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (changes <= s->changes) return LH_OK;
    s->standby = standby;
    s->changes = changes;
    LH_TRY(ps_co_store_insync(c, shard));
    ps_co_say(c, LH_WARN, "store.old",
              "shard %u: its server knows of changes of its standby that this store does not: the "
              "store is an old copy; %s",
              shard, standby ? "the server's standby is in sync" : "no standby is in sync");
    return LH_OK;
}

// The standby may lack records that it confirmed: it can't take over any more, and the owner need
// not wait for it.
lh_err ps_co_strike_out(struct ps_coordinator *c, uint32_t shard, uint64_t identity)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (s->standby != identity) return LH_OK;
    return ps_co_set_standby(c, shard, 0);
}

// The answer to this report makes it stand by under another name.
lh_err ps_co_note_gone(struct ps_coordinator *c, uint32_t shard, uint64_t identity)
{
    struct ps_co_shard *s = &c->shard[shard];
    if (s->gone == identity) return LH_OK;
    s->gone = identity;
    return ps_co_store_insync(c, shard);
}
