// Stock: the coordinator's units by pool and by holder. See stock.h.
//
// 1. A pool holds the units of one home that may leave it, or those that may not. Each unit has a
//    slot: pools one after the other, and within a pool in the run's lease order.
// 2. Free units are bits over slots, with a higher-level bit for each nonzero word of 64, and so
//    on: finding a pool's next free unit takes a few words, however many units there are.
// 3. Leased, uncredited units are in their holder's list; units recalled or kept for a worker are
//    in that worker's list. Both are linked through arrays, so that no change can fail for lack of
//    memory.
// 4. Only out() and in() move a unit and its tokens between lists and sums.
//
// Memory: 28 bytes per unit of the run, 32 with several data epochs.
#include "server/coordinator/balance/stock.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/order.h"

// ---------------------------------------------------------------- pools

static uint32_t home_of(struct ps_co_stock *s, const char *name)
{
    uint32_t h = 0;
    while (h < s->homes && strcmp(s->home[h], name) != 0) h++;
    if (h < s->homes) return h;
    const char **grown = realloc(s->home, (s->homes + 1) * sizeof *grown);
    if (!grown) return PS_CO_NO_POOL;
    s->home = grown;
    s->home[s->homes] = name;
    return s->homes++;
}

// Finds the pool of each unit of the data, and the size of each pool in units of the run.
static lh_err find_pools(struct ps_coordinator *c)
{
    struct ps_co_stock *s = &c->stock;
    const struct lh_units *u = c->conf.units;
    for (uint64_t i = 0, last = 0; i < u->count; i++) {
        bool same = i && strcmp(u->unit[i].home, u->unit[i - 1].home) == 0;
        uint32_t home = same ? (uint32_t)last : home_of(s, u->unit[i].home);
        if (home == PS_CO_NO_POOL) return LH_ERR_NO_MEMORY;
        s->pool_of[i] = 2 * home + (u->unit[i].may_leave ? 1 : 0);
        last = home;
    }
    s->pools = 2 * s->homes;
    s->pool = calloc(s->pools + 1, sizeof *s->pool);
    if (!s->pool) return LH_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < u->count; i++) s->pool[s->pool_of[i]].end += c->epochs;
    uint64_t slot = 0;
    for (uint32_t p = 0; p < s->pools; p++) {
        uint64_t units = s->pool[p].end;
        s->pool[p].home = p / 2;
        s->pool[p].leaves = p % 2;
        s->pool[p].first = s->pool[p].end = slot;
        slot += units;
    }
    return LH_OK;
}

static void place_units(struct ps_coordinator *c)
{
    struct ps_co_stock *s = &c->stock;
    for (uint64_t turn = 0; turn < c->units; turn++) {
        uint64_t u = ps_co_nth(c, turn);
        struct ps_co_pool *p = &s->pool[ps_co_stock_pool(c, u)];
        if (s->turn) s->turn[u] = (uint32_t)turn;
        s->slot[u] = (uint32_t)p->end;
        s->at[p->end++] = (uint32_t)u;
    }
}

static lh_err make_bits(struct ps_co_stock *s, uint64_t units)
{
    uint64_t words = units / 64 + 1;
    for (s->levels = 0; s->levels < PS_CO_STOCK_LEVELS; s->levels++) {
        s->bits[s->levels] = calloc(words, sizeof **s->bits);
        if (!s->bits[s->levels]) return LH_ERR_NO_MEMORY;
        s->words[s->levels] = words;
        words = words / 64 + 1;
    }
    return LH_OK;
}

lh_err ps_co_stock_make(struct ps_coordinator *c)
{
    struct ps_co_stock *s = &c->stock;
    uint64_t n = c->units + 1;
    s->pool_of = calloc(c->conf.units->count + 1, sizeof *s->pool_of);
    s->slot = calloc(n, sizeof *s->slot);
    s->at = calloc(n, sizeof *s->at);
    s->turn = c->order ? calloc(n, sizeof *s->turn) : NULL;
    for (int i = 0; i < 2; i++) {
        s->held[i] = calloc(n, sizeof **s->held);
        s->wanted[i] = calloc(n, sizeof **s->wanted);
        if (!s->held[i] || !s->wanted[i]) return LH_ERR_NO_MEMORY;
    }
    if (!s->pool_of || !s->slot || !s->at || (c->order && !s->turn)) return LH_ERR_NO_MEMORY;
    LH_TRY(find_pools(c));
    LH_TRY(make_bits(s, c->units));
    place_units(c);
    ps_co_stock_fill(c);
    return LH_OK;
}

void ps_co_stock_free(struct ps_coordinator *c)
{
    struct ps_co_stock *s = &c->stock;
    for (uint32_t i = 0; i < PS_CO_STOCK_LEVELS; i++) free(s->bits[i]);
    for (int i = 0; i < 2; i++) {
        free(s->held[i]);
        free(s->wanted[i]);
    }
    free(s->home);
    free(s->pool);
    free(s->pool_of);
    free(s->slot);
    free(s->at);
    free(s->turn);
    *s = (struct ps_co_stock){0};
}

// ---------------------------------------------------------------- free units

static void mark(struct ps_co_stock *s, uint64_t slot)
{
    for (uint32_t i = 0; i < s->levels; i++, slot /= 64)
        s->bits[i][slot / 64] |= UINT64_C(1) << slot % 64;
}

static void unmark(struct ps_co_stock *s, uint64_t slot)
{
    for (uint32_t i = 0; i < s->levels; i++, slot /= 64) {
        s->bits[i][slot / 64] &= ~(UINT64_C(1) << slot % 64);
        if (s->bits[i][slot / 64]) return;
    }
}

// The first bit of this level at or after `at`; PS_CO_NO_SLOT: none.
static uint64_t next_bit(const struct ps_co_stock *s, uint32_t level, uint64_t at)
{
    uint64_t word = at / 64;
    if (word >= s->words[level]) return PS_CO_NO_SLOT;
    uint64_t rest = s->bits[level][word] >> at % 64;
    if (rest) return at + (uint64_t)__builtin_ctzll(rest);
    if (level + 1 == s->levels) {
        while (++word < s->words[level])
            if (s->bits[level][word]) break;
    } else {
        word = next_bit(s, level + 1, word + 1);
    }
    if (word >= s->words[level]) return PS_CO_NO_SLOT;
    return word * 64 + (uint64_t)__builtin_ctzll(s->bits[level][word]);
}

uint64_t ps_co_stock_next(const struct ps_coordinator *c, uint32_t pool, uint64_t from)
{
    const struct ps_co_pool *p = &c->stock.pool[pool];
    if (from < p->first) from = p->first;
    if (!p->free_units || from >= p->end) return PS_CO_NO_SLOT;
    uint64_t slot = next_bit(&c->stock, 0, from);
    return slot < p->end ? slot : PS_CO_NO_SLOT;
}

// ---------------------------------------------------------------- lists

static void link_in(uint32_t *const list[2], uint32_t *head, uint64_t unit)
{
    list[0][unit] = *head; // the next unit, + 1
    list[1][unit] = 0;     // the previous unit, + 1
    if (*head) list[1][*head - 1] = (uint32_t)unit + 1;
    *head = (uint32_t)unit + 1;
}

static void link_out(uint32_t *const list[2], uint32_t *head, uint64_t unit)
{
    uint32_t next = list[0][unit], before = list[1][unit];
    if (next) list[1][next - 1] = before;
    if (before)
        list[0][before - 1] = next;
    else
        *head = next;
}

static void count(uint64_t *sum, uint64_t by, bool in)
{
    *sum = in ? *sum + by : *sum - by;
}

static void move_leased(struct ps_coordinator *c, uint64_t unit, uint64_t tokens, bool in)
{
    struct ps_co_worker *w = &c->worker[c->lease[unit] - 1];
    (in ? link_in : link_out)(c->stock.held, &w->held.head, unit);
    count(&w->held.units, 1, in);
    count(&w->held.tokens[c->begun[unit]], tokens, in);
    bool away = c->wanted_by[unit] && c->wanted_by[unit] <= c->workers;
    if (away && c->begun[unit] == CO_WAITS) count(&w->held.away_tokens, tokens, in);
    count(&c->stock.leased_units, 1, in);
    count(&c->stock.pool[ps_co_stock_pool(c, unit)].leased_tokens[c->begun[unit]], tokens, in);
    count(&c->stock.pool[ps_co_stock_pool(c, unit)].leased_units[c->begun[unit]], 1, in);
}

static void move_free(struct ps_coordinator *c, uint64_t unit, uint64_t tokens, bool in)
{
    struct ps_co_pool *p = &c->stock.pool[ps_co_stock_pool(c, unit)];
    (in ? mark : unmark)(&c->stock, c->stock.slot[unit]);
    count(&p->free_units, 1, in);
    count(&p->free_tokens, tokens, in);
    count(&c->stock.free_units, 1, in);
}

static void move(struct ps_coordinator *c, uint64_t unit, bool in)
{
    uint64_t tokens = ps_co_unit(c, unit)->tokens;
    bool credited = ps_co_credited(c, unit), leased = c->lease[unit] != CO_FREE;
    if (credited || leased) count(&c->stock.committed_tokens, tokens, in);
    if (credited) {
        count(&c->stock.credited_tokens, tokens, in);
        count(&c->stock.credited_units, 1, in);
        return;
    }
    if (leased)
        move_leased(c, unit, tokens, in);
    else
        move_free(c, unit, tokens, in);
    uint32_t by = c->wanted_by[unit];
    if (!by || by > c->workers) return;
    struct ps_co_worker *w = &c->worker[by - 1];
    (in ? link_in : link_out)(c->stock.wanted, &w->wanted.head, unit);
    count(&w->wanted.units, 1, in);
    count(leased ? &w->wanted.coming_tokens : &w->wanted.kept_tokens, tokens, in);
    if (!leased) count(&w->wanted.kept_units, 1, in);
}

void ps_co_stock_out(struct ps_coordinator *c, uint64_t unit)
{
    move(c, unit, false);
}

void ps_co_stock_in(struct ps_coordinator *c, uint64_t unit)
{
    move(c, unit, true);
}

void ps_co_stock_fill(struct ps_coordinator *c)
{
    struct ps_co_stock *s = &c->stock;
    for (uint32_t i = 0; i < s->levels; i++) memset(s->bits[i], 0, s->words[i] * sizeof **s->bits);
    for (uint32_t p = 0; p < s->pools; p++) {
        struct ps_co_pool *pool = &s->pool[p];
        *pool = (struct ps_co_pool){
            .home = pool->home, .leaves = pool->leaves, .first = pool->first, .end = pool->end};
    }
    for (uint32_t i = 0; i < c->workers; i++) {
        c->worker[i].held = (struct ps_co_held){0};
        c->worker[i].wanted = (struct ps_co_wanted){0};
    }
    s->leased_units = s->free_units = s->credited_units = 0;
    s->credited_tokens = s->committed_tokens = 0;
    for (uint64_t u = 0; u < c->units; u++) ps_co_stock_in(c, u);
}

// ---------------------------------------------------------------- look-ups

uint32_t ps_co_stock_home(const struct ps_coordinator *c, const char *region)
{
    uint32_t h = 0;
    while (h < c->stock.homes && strcmp(c->stock.home[h], region) != 0) h++;
    return h;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// Lists turns first, to sort by them; then replaces them by their units.
static uint32_t *listed(const struct ps_coordinator *c, uint32_t *const list[2], uint32_t head,
                        uint64_t units, size_t *count)
{
    uint32_t *out = malloc((units + 1) * sizeof *out);
    *count = 0;
    for (uint32_t at = head; out && at; at = list[0][at - 1])
        out[(*count)++] = (uint32_t)ps_co_stock_turn(c, at - 1);
    if (out) qsort(out, *count, sizeof *out, by_number);
    for (size_t i = 0; out && i < *count; i++) out[i] = (uint32_t)ps_co_nth(c, out[i]);
    return out;
}

uint32_t *ps_co_stock_held(const struct ps_coordinator *c, uint32_t worker, size_t *count)
{
    const struct ps_co_held *h = &c->worker[worker].held;
    return listed(c, c->stock.held, h->head, h->units, count);
}

uint32_t *ps_co_stock_wanted(const struct ps_coordinator *c, uint32_t worker, size_t *count)
{
    const struct ps_co_wanted *h = &c->worker[worker].wanted;
    return listed(c, c->stock.wanted, h->head, h->units, count);
}
