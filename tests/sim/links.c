// Links, no fault: byte caps on the links over which units travel (needs `travel`), and languages.
// Leases follow the balancer's policy, which alone respects caps; the operator moves no units,
// because a move is not bound by a cap.
//
// A violation: more bytes than its cap crossed a link. The judge itself counts the units that
// arrived whole and correct, with the bytes that a sender sends for them. Two things do not count,
// as deploy/docs/balancer.md says:
// - a unit that had come to the same worker before, and was damaged, broken off, or lost with the
//   worker's memory;
// - a unit that arrived so shortly before its worker's death that no request reported it. The
//   coordinator's disk shows the reported ones.
#include <stdio.h>
#include <string.h>

#include "common/format/shrink.h"
#include "tests/sim/judge.h"

static uint64_t draw(struct sim *s, uint64_t n)
{
    return sim_draw(s, SIM_FAULT_links, n);
}

static uint32_t region_of(const char *name)
{
    uint32_t r = 0;
    while (r < SETUP_REGIONS && strcmp(setup_region[r], name) != 0) r++;
    LH_ASSERT(r < SETUP_REGIONS);
    return r;
}

// ---------------------------------------------------------------- choices

// Half of the links have a cap of 0 to 9 units. The first one always has, so the text is not empty.
static void choose_link(struct sim *s, uint32_t from, uint32_t to, char *text, size_t size)
{
    uint64_t capped = draw(s, 2), cap = draw(s, 9 * SIM_UNIT_BYTES);
    size_t used = strlen(text);
    if (!used) capped = 1;
    s->links.cap[from][to] = capped ? (double)cap : -1;
    if (capped)
        snprintf(text + used, size - used, ",%s>%s=%lluB", setup_region[from], setup_region[to],
                 (unsigned long long)cap);
}

void sim_choose_links(struct sim *s)
{
    static const double languages[] = {0, 0.5};
    static const enum ps_balance_kind kinds[] = {PS_BALANCE_FINISH, PS_BALANCE_FINISH,
                                                 PS_BALANCE_WEIGHTED};
    char text[2048] = "";
    if (!s->conf.faults.links) return;
    for (uint32_t from = 0; from < SETUP_REGIONS; from++)
        for (uint32_t to = 0; to < SETUP_REGIONS; to++)
            if (from != to) choose_link(s, from, to, text, sizeof text);
    lh_err err = ps_terms_parse(text + 1, &s->links.terms);
    LH_ASSERT(!err);
    s->links.conf =
        (struct ps_co_links_conf){.terms = &s->links.terms, .affinity = languages[draw(s, 2)]};
    enum ps_balance_kind kind = kinds[draw(s, LH_COUNT(kinds))];
    if (!s->conf.faults.balance) s->balance = (struct ps_co_balance_conf){true, kind};
    if (!s->ride_out_ns) s->ride_out_ns = (draw(s, 3) ? 300 : 1) * LH_SECOND;
    for (uint64_t u = 0; u < s->units.count; u++)
        snprintf(s->units.unit[u].language, sizeof s->units.unit[u].language, "l%u",
                 region_of(s->units.unit[u].home) / 2); // two regions share one
    s->budget_tokens = draw(s, 2) ? (uint64_t)SIM_UNITS * SIM_UNIT_TOKENS : 0; // all tokens
    sim_happened(s, links);
}

// ---------------------------------------------------------------- crossings

// Returns a unit's bytes on the link: an lz4 frame if that is smaller.
static uint64_t sent_bytes(const uint8_t *tokens, size_t bytes)
{
    struct lh_buf small = lh_buf(2 * bytes + 64);
    lh_err err = lh_shrink(lh_span(tokens, bytes), &small);
    uint64_t sent = !err && small.len ? small.len : bytes;
    lh_buf_free(&small);
    return sent;
}

void sim_links_arrived(struct sim_node *n, uint64_t unit, const uint8_t *tokens, size_t bytes)
{
    struct sim *s = n->sim;
    uint32_t from = region_of(s->units.unit[unit].home), to = region_of(n->self.region);
    struct sim_crossed *x = &s->links.crossed[from][to];
    uint64_t sent = sent_bytes(tokens, bytes);
    x->bytes += sent;
    if (s->links.came[n->index][unit]) x->again += sent;
    s->links.came[n->index][unit] = true;
}

// Returns the coordinator's number of a home region; homes are numbered by their first units.
static uint32_t number_of(const struct sim *s, uint32_t region)
{
    bool met[SETUP_REGIONS] = {false};
    uint32_t number = 0;
    for (uint64_t u = 0; u < s->units.count; u++) {
        uint32_t is = region_of(s->units.unit[u].home);
        if (is == region) return number;
        number += !met[is];
        met[is] = true;
    }
    return UINT32_MAX; // no unit has its home there
}

void sim_links_death(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (!s->conf.faults.links || n->kind != SIM_WORKER || !n->worker) return;
    uint32_t to = region_of(n->self.region);
    sim_read_store(s);
    for (uint32_t from = 0; from < SETUP_REGIONS; from++) {
        struct sim_crossed *x = &s->links.crossed[from][to];
        uint64_t told =
            sim_stored_crossed(&s->judging->stored, s->judging->id[n->index], number_of(s, from));
        if (x->bytes > told + x->untold) x->untold = x->bytes - told;
    }
}

void sim_judge_links(struct sim *s)
{
    for (uint32_t from = 0; s->conf.faults.links && from < SETUP_REGIONS; from++)
        for (uint32_t to = 0; to < SETUP_REGIONS; to++) {
            const struct sim_crossed *x = &s->links.crossed[from][to];
            double cap = s->links.cap[from][to];
            uint64_t excused = x->again + x->untold;
            bool capped = from != to && cap >= 0;
            if (capped && (double)x->bytes > cap + (double)excused)
                sim_fail(s, "%llu bytes crossed from %s to %s, whose cap is %.0f; %llu are excused",
                         (unsigned long long)x->bytes, setup_region[from], setup_region[to], cap,
                         (unsigned long long)excused);
        }
}

// Counts bytes over links with a cap, and those links without space for another unit.
void sim_links_count(struct sim *s)
{
    for (uint32_t from = 0; s->conf.faults.links && from < SETUP_REGIONS; from++)
        for (uint32_t to = 0; to < SETUP_REGIONS; to++) {
            const struct sim_crossed *x = &s->links.crossed[from][to];
            double cap = s->links.cap[from][to];
            if (from == to || cap < 0) continue;
            s->met.crossed += x->bytes;
            s->met.full_links += x->bytes && (double)x->bytes + SIM_UNIT_BYTES > cap;
        }
}
