// Retired: names of workers that are gone for good. See retired.h.
//
// A run has at most LH_WORKERS_MAX names at a time: rows of every shard's ledger, and of this
// store. The plan lists the names being retired and the highest number ever granted to a retired
// one. When every shard's log has that plan, the names are free.
//
// Keys of the store: retiring/ID (u32: its highest number), until the name is free; the highest of
// all stays in the plan. retired_tokens (u64): admitted tokens of retired workers with data of
// their own, which the budget still counts. Invariants: 1. No worker joins, or gets a lease, under
// a name that is being retired. 2. Numbers up to the plan's are granted to members only.
#include "server/coordinator/watch/retired.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/commit.h"

static const char TOKENS[] = "retired_tokens", ROWS[] = "retiring/";
// Names are retired by age once this many are taken.
enum { FEW_LEFT = LH_WORKERS_MAX - LH_WORKERS_MAX / 8 };

static void insert(struct ps_coordinator *c, uint64_t id, uint32_t number)
{
    c->retiring[c->retiring_count++] = id;
    ps_co_sort(c->retiring, c->retiring_count);
    if (c->retired_up_to < number) c->retired_up_to = number;
}

static const char *read_row(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    uint64_t id;
    if (!ps_co_row_number(name, 16, &id)) return "is of nobody";
    if (c->retiring_count == LH_RETIRED_MAX) return "is of one more than may be retired at a time";
    insert(c, id, lh_get_u32(at));
    return NULL;
}

lh_err ps_co_load_retired(struct ps_coordinator *c)
{
    struct lh_span row;
    c->retired_tokens = 0;
    c->retiring_count = 0;
    c->retired_up_to = c->plan.retired_up_to;
    c->retired_plan = c->plan.number;
    LH_TRY(ps_co_load_named(c, ROWS, read_row));
    if (!ps_store_get(c->store, TOKENS, &row)) return LH_OK;
    struct lh_cursor at = lh_cursor(row);
    c->retired_tokens = lh_get_u64(&at);
    return at.failed ? ps_co_bad_row(c, TOKENS, "is too short") : LH_OK;
}

bool ps_co_plan_retired(struct ps_coordinator *c)
{
    struct lh_plan *p = &c->plan;
    size_t bytes = c->retiring_count * sizeof *c->retiring;
    bool same = p->retired_up_to == c->retired_up_to && p->retired_count == c->retiring_count &&
                !memcmp(p->retired, c->retiring, bytes);
    if (same) return false;
    p->retired_up_to = c->retired_up_to;
    p->retired_count = c->retiring_count;
    memcpy(p->retired, c->retiring, bytes);
    c->retired_plan = p->number + 1; // the plan that is stored next
    return true;
}

// ---------------------------------------------------------------- it begins

static LH_MUST lh_err check(const struct ps_coordinator *c, uint32_t index)
{
    const struct ps_co_worker *w = &c->worker[index];
    if (c->plan.phase > LH_PHASE_RUN)
        return lh_fail(LH_ERR_INVALID, "the run is ending: no name is retired any more");
    if (w->live)
        return lh_fail(LH_ERR_INVALID,
                       "%.64s of %.64s is running: end its process first (longhaul drain); its "
                       "name can be retired when it is lost or has drained and ended",
                       w->name, w->region);
    if (ps_co_data(c, w) == LH_DATA_PRIVATE)
        return lh_fail(LH_ERR_INVALID,
                       "%.64s of %.64s is private: every shard keeps its charges under this name",
                       w->name, w->region);
    if (c->retiring_count == LH_RETIRED_MAX)
        return lh_fail(LH_ERR_BUSY, "%d names are being retired: ask again in a moment",
                       LH_RETIRED_MAX);
    for (uint32_t i = 0; i < w->crossings; i++)
        if (ps_co_is_capped(c, w->crossing[i].home, index))
            return lh_fail(LH_ERR_INVALID,
                           "units came to %.64s of %.64s over a link with a cap, which counts them "
                           "under this name: it can't be retired",
                           w->name, w->region);
    return LH_OK;
}

static LH_MUST lh_err keep_tokens(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    if (ps_co_data(c, w) == LH_DATA_LEASED) return LH_OK;
    c->retired_tokens += ps_co_admitted_tokens(c, w);
    struct lh_buf b = lh_buf(8);
    lh_put_u64(&b, c->retired_tokens);
    return ps_co_put_buf(c, TOKENS, &b);
}

static LH_MUST lh_err begin(struct ps_coordinator *c, uint32_t worker)
{
    struct ps_co_worker *w = &c->worker[worker];
    uint32_t number = w->granted ? w->granted : 1; // a late answer may have granted it
    struct lh_buf b = lh_buf(4);
    lh_put_u32(&b, number);
    LH_TRY(ps_co_put_of(c, ROWS, w->id, &b));
    LH_TRY(keep_tokens(c, w));
    LH_TRY(ps_co_free_leases(c, worker));
    ps_co_lease_drop_wanted(c, worker);
    insert(c, w->id, number);
    ps_co_say(c, LH_INFO, "worker.retires",
              "%s of %s: its name is free as soon as every shard knows", w->name, w->region);
    return LH_OK;
}

lh_err ps_co_retire(struct ps_coordinator *c, uint64_t worker, bool *changed)
{
    uint32_t i = ps_co_worker_index(c, worker);
    *changed = false;
    if (i == c->workers) return lh_fail(LH_ERR_NOT_FOUND, "no worker of that name is in this run");
    if (ps_co_is_retiring(c, worker)) return LH_OK;
    LH_TRY(check(c, i));
    *changed = true;
    return begin(c, i);
}

// ---------------------------------------------------------------- it ends

static bool all_know(const struct ps_coordinator *c)
{
    if (c->plan.retired_count != c->retiring_count) return false; // the next plan lists them
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (!c->shard[i].reported || c->shard[i].plan < c->retired_plan) return false;
    return true;
}

static LH_MUST lh_err remove_rows(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    static const char *const kinds[] = {"worker/",       "trip/w/",  "machine/",
                                        "drain/worker/", "drained/", NULL};
    char key[64];
    for (const char *const *kind = kinds; *kind; kind++) LH_TRY(ps_co_remove_of(c, *kind, w->id));
    for (uint32_t i = 0; i < w->crossings; i++) {
        snprintf(key, sizeof key, "crossed/%016" PRIx64 "/%02u", w->id, w->crossing[i].home);
        LH_TRY(ps_co_remove(c, key));
    }
    return LH_OK;
}

static void rename_index(uint16_t *list, uint64_t n, uint32_t gone, uint32_t from)
{
    for (uint64_t u = 0; u < n; u++) {
        if (list[u] == gone + 1) list[u] = 0; // rest of a credited unit's lease
        if (list[u] == from + 1) list[u] = (uint16_t)(gone + 1);
    }
}

// Moves the last worker to this place, so that indices have no gap.
static void take_place(struct ps_coordinator *c, uint32_t gone)
{
    struct ps_co_worker *w = &c->worker[gone];
    uint32_t last = c->workers - 1;
    ps_co_free_worker(w);
    rename_index(c->lease, c->units, gone, last);
    rename_index(c->wanted_by, c->units, gone, last);
    for (uint32_t i = 0; i < c->seconds; i++)
        if (c->second[i].worker == last) c->second[i].worker = gone;
    if (gone != last) *w = c->worker[last];
    c->worker[last] = (struct ps_co_worker){0};
    c->workers--;
}

static LH_MUST lh_err free_name(struct ps_coordinator *c, uint64_t id)
{
    uint32_t i = ps_co_worker_index(c, id);
    if (i == c->workers) return LH_OK;
    LH_TRY(remove_rows(c, &c->worker[i]));
    ps_co_say(c, LH_INFO, "worker.retired", "%s of %s: its name is free", c->worker[i].name,
              c->worker[i].region);
    take_place(c, i);
    return LH_OK;
}

static LH_MUST lh_err free_names(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->retiring_count; i++) {
        LH_TRY(ps_co_remove_of(c, ROWS, c->retiring[i]));
        LH_TRY(free_name(c, c->retiring[i]));
    }
    c->retiring_count = 0;
    return ps_co_load_decided(c); // decisions name workers by index
}

// ---------------------------------------------------------------- by age

static bool is_old(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return !w->live && c->listener.ns - w->seen_ns >= c->conf.retire_ns &&
           !ps_co_is_retiring(c, w->id);
}

static LH_MUST lh_err begin_old_ones(struct ps_coordinator *c)
{
    if (!c->conf.retire_ns || c->workers < FEW_LEFT || c->retiring_count) return LH_OK;
    for (uint32_t i = 0; i < c->workers; i++)
        if (is_old(c, &c->worker[i]) && !check(c, i)) LH_TRY(begin(c, i));
    return LH_OK;
}

lh_err ps_co_look_at_retired(struct ps_coordinator *c)
{
    if (c->plan.phase > LH_PHASE_RUN) return LH_OK;
    if (c->retiring_count && all_know(c)) return free_names(c);
    return begin_old_ones(c);
}
