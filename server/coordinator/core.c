// Core: the functions that all other files of the coordinator use: the stop after a fatal error,
// the listener's clock, the check of a request's run, and look-ups in memory. This file calls no
// other file of this folder.
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core.h"

void ps_co_fatal(struct ps_coordinator *c, lh_err err)
{
    if (c->stopped) return;
    c->stopped = true;
    lh_logf(c->conf.log, LH_ERROR, "coordinator.stop", "%s", lh_err_text(err));
    if (c->conf.fatal) c->conf.fatal(c->conf.fatal_arg, err, lh_err_text(err));
}

lh_err ps_co_check_run(const struct ps_coordinator *c, struct lh_versions wire,
                       const struct lh_run *run)
{
    uint32_t version;
    LH_TRY(lh_wire_negotiate(wire.min, wire.max, &version));
    return lh_run_check(run, c->conf.job, &c->conf.manifest->hash, "member");
}

// ---------------------------------------------------------------- the clock

int64_t ps_co_now(struct ps_coordinator *c)
{
    return lh_listener_look(&c->listener, lh_now(c->conf.env));
}

void ps_co_kept_waiting(struct ps_coordinator *c, uint64_t peer)
{
    int64_t now = ps_co_now(c);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (c->shard[i].heard_of == peer) c->shard[i].heard_ns = now;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].id == peer) c->worker[i].seen_ns = now;
}

// ---------------------------------------------------------------- lists of numbers

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void ps_co_sort(uint64_t *list, size_t count)
{
    qsort(list, count, sizeof *list, ascending);
}

bool ps_co_sorted_has(const uint64_t *list, size_t count, uint64_t number)
{
    return bsearch(&number, list, count, sizeof number, ascending) != NULL;
}

// ---------------------------------------------------------------- look-ups: workers

void ps_co_free_worker(struct ps_co_worker *w)
{
    free(w->measured.path);
    free(w->admitted);
    free(w->away);
    free(w->refused);
    free(w->crossing);
    free(w->fetches);
    free(w->stall.hold);
    free(w->final);
    free(w->claim);
    *w = (struct ps_co_worker){0};
}

uint32_t ps_co_worker_index(const struct ps_coordinator *c, uint64_t id)
{
    uint32_t i = 0, *guess = &c->guess[id % PS_CO_GUESSES]; // ids are hashes
    if (*guess < c->workers && c->worker[*guess].id == id) return *guess;
    while (i < c->workers && c->worker[i].id != id) i++;
    if (i < c->workers) *guess = i;
    return i;
}

enum lh_data ps_co_region_data(const struct ps_coordinator *c, const char *region)
{
    enum lh_data data = c->conf.data;
    if (c->conf.region_data && c->conf.region_data(c->conf.region_data_arg, region, &data))
        return data;
    return c->conf.data;
}

enum lh_data ps_co_data(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return ps_co_region_data(c, w->region);
}

bool ps_co_any_own(const struct ps_coordinator *c)
{
    uint32_t own = 0, spent = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        if (ps_co_data(c, &c->worker[i]) == LH_DATA_LEASED) continue;
        own++;
        spent += c->worker[i].spent;
    }
    return own ? own > spent : c->conf.data != LH_DATA_LEASED;
}

bool ps_co_all_spent(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (!c->worker[i].spent) return false;
    return c->workers > 0;
}

bool ps_co_is_retiring(const struct ps_coordinator *c, uint64_t worker)
{
    for (uint32_t i = 0; i < c->retiring_count; i++)
        if (c->retiring[i] == worker) return true;
    return false;
}

uint32_t ps_co_drained_index(const struct ps_coordinator *c, const char *region)
{
    uint32_t i = 0;
    while (i < c->drained_regions && strcmp(c->drained_region[i], region) != 0) i++;
    return i;
}

bool ps_co_leaving(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return w->asked || w->spent || ps_co_drained_index(c, w->region) < c->drained_regions;
}

bool ps_co_draining(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return c->draining || ps_co_leaving(c, w);
}

// ---------------------------------------------------------------- look-ups: shards and units

uint64_t ps_co_epoch(const struct ps_co_shard *s)
{
    return s->epochs ? s->begun[s->epochs - 1].epoch : 0;
}

const struct lh_point *ps_co_held(const struct ps_co_shard *s)
{
    for (const struct ps_co_standby *b = s->standing; b < s->standing + PS_CO_STANDBYS; b++)
        if (s->standby && b->identity == s->standby && b->head.epoch) return &b->head;
    return NULL;
}

const struct lh_unit *ps_co_unit(const struct ps_coordinator *c, uint64_t unit)
{
    return lh_units_at(c->conf.units, unit);
}

bool ps_co_credited(const struct ps_coordinator *c, uint64_t unit)
{
    uint32_t shards = c->conf.manifest->shards;
    const struct ps_co_shard *s = &c->shard[unit % shards];
    uint64_t i = unit / shards;
    return i / 8 < s->credit_bytes && (s->credit[i / 8] >> (i % 8) & 1);
}

struct ps_co_span ps_co_under_way(const struct ps_coordinator *c)
{
    uint64_t count = c->conf.units->count;
    struct ps_co_span out = {c->units, c->leased_end};
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        const struct ps_co_shard *s = &c->shard[i];
        if (s->credit_open < out.from) out.from = s->credit_open;
        if (s->credit_end > out.to) out.to = s->credit_end;
    }
    out.from -= out.from % count;
    out.to += (count - out.to % count) % count;
    if (out.to > c->units) out.to = c->units;
    return out;
}

uint64_t ps_co_admitted_tokens(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; w->admitted && i < c->conf.manifest->shards; i++)
        if (w->admitted[i].tokens < least) least = w->admitted[i].tokens;
    return w->admitted ? least : 0;
}

uint64_t ps_co_own_tokens(const struct ps_coordinator *c)
{
    uint64_t sum = c->retired_tokens;
    for (uint32_t i = 0; i < c->workers; i++)
        if (ps_co_data(c, &c->worker[i]) != LH_DATA_LEASED &&
            !ps_co_is_retiring(c, c->worker[i].id))
            sum += ps_co_admitted_tokens(c, &c->worker[i]);
    return sum;
}

uint64_t ps_co_credited_tokens(const struct ps_coordinator *c)
{
    return c->stock.credited_tokens + ps_co_own_tokens(c);
}

bool ps_co_budget_is_credited(const struct ps_coordinator *c)
{
    return c->conf.budget_tokens && ps_co_credited_tokens(c) >= c->conf.budget_tokens;
}
