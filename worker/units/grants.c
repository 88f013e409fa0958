// Grants: the proofs that this worker's units were leased to it
// (server/docs/0004-authority.md#grants).
//
// A grant arrives with the answer that leases its unit. It goes into the claim when the unit is
// finished, and from then on is durable with the claim: in the outbox or in the slot. After a
// restart an unfinished unit is leased again, with a grant.
//
// The table uses open addressing over the unit's number. Its capacity covers all units in progress.
// When it is half full, it is rebuilt from the worker's current units.
#include "worker/units/grants.h"

#include <stdlib.h>

#include "worker/units/units.h"
#include "worker/worker.h"

enum { SLOTS = 1 << 15 };
LH_STATIC_ASSERT(SLOTS / 2 > LH_LEASES_MAX + WK_POSITIONS_MAX + LH_LEASES_MAX,
                 "what the worker has and one answer are less than half of the table");

struct wk_granted {
    uint64_t unit_1; // the unit + 1; 0: an empty slot
    struct lh_grant grant;
};

static struct wk_granted *slot_of(struct wk_granted *table, uint64_t unit)
{
    uint32_t at = (uint32_t)(unit * 2654435761u) % SLOTS;
    while (table[at].unit_1 && table[at].unit_1 != unit + 1) at = (at + 1) % SLOTS;
    return &table[at];
}

static void put(struct wk_grants *g, uint64_t unit, struct lh_grant grant)
{
    struct wk_granted *at = slot_of(g->table, unit);
    g->used += !at->unit_1;
    *at = (struct wk_granted){unit + 1, grant};
}

static void keep(const struct wk_worker *w, struct wk_grants *to, uint64_t unit)
{
    struct lh_grant grant;
    if (wk_grants_find(w, unit, &grant)) put(to, unit, grant);
}

// If memory runs out, the old table stays; grants that don't fit arrive again with a later lease.
static void make_anew(struct wk_worker *w)
{
    struct wk_grants anew = {.table = calloc(SLOTS, sizeof *anew.table)};
    if (!anew.table) return;
    for (uint32_t i = 0; i < w->queued; i++) keep(w, &anew, w->queue[i].unit);
    for (uint32_t i = 0; i < w->resume_count; i++) keep(w, &anew, w->resume[i].unit);
    free(w->grants.table);
    w->grants = anew;
}

void wk_grants_take(struct wk_worker *w, struct lh_span bytes)
{
    size_t n = bytes.len / LH_CLAIM_BYTES;
    if (!n || n > LH_LEASES_MAX) return;
    if (!w->grants.table) w->grants.table = calloc(SLOTS, sizeof *w->grants.table);
    if (!w->grants.table) return;
    if (w->grants.used + n > SLOTS / 2) make_anew(w);
    struct lh_cursor c = lh_cursor(bytes);
    for (; n && w->grants.used < SLOTS - 1; n--) {
        struct lh_grant grant;
        uint64_t unit = lh_claim_read(&c, &grant);
        put(&w->grants, unit, grant);
    }
}

bool wk_grants_find(const struct wk_worker *w, uint64_t unit, struct lh_grant *out)
{
    if (!w->grants.table) return false;
    const struct wk_granted *at = slot_of(w->grants.table, unit);
    if (!at->unit_1) return false;
    *out = at->grant;
    return true;
}
