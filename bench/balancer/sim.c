// The balancer's policy under a virtual clock: made-up regions train made-up units, and the policy
// of server/coordinator/balance/balance.c assigns them, by noisy and late estimates.
//
//   bench_balancer_sim SEEDS FROM RATIO SPREAD
//
// prints one line of JSON for each seed: the instance, for the oracle of bench/balancer.py, and the
// makespan under each kind of policy; "alike" is the first kind with all links taken for the mean
// one. Everything follows from the seed.
//
// The instance: REGIONS regions, speeds lognormal; homes of units by Zipf's law; 15 % of all units
// stay at home, 10 % may go to two other regions only. Half of the regions slow to 1/2 or 1/4 of
// their speed at some moment. RATIO: a mean unit's time on a mean link, divided by its time in
// training. SPREAD: the fastest link by the slowest.
//
// The policy's input: a first probe of each link and region, off by 20 %; then each finished unit
// and transfer, off by 10 %, as moving estimates. It is called whenever a unit ends or arrives.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/balance.h"

enum { REGIONS = 6, UNITS = 1200, WINDOW = 4, QUEUE = 16, POOLS = 3 * REGIONS };
static const double UNIT_S = 60; // a mean unit in a mean region
static const double UNIT_TOKENS = 1e6, UNIT_BYTES = 2e6;
static const double REPLAN_S = 20; // between two plans
static const double FAR = 1e300;

// ---------------------------------------------------------------- random numbers

static double uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
    double u = 1 - uniform(state), v = uniform(state);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

// ---------------------------------------------------------------- the instance

struct unit {
    uint32_t home, pool;
    double tokens;
};

struct instance {
    double speed[REGIONS], drop_s[REGIONS], drop_to[REGIONS];
    double rate[REGIONS][REGIONS]; // bytes/s
    double mean_s;                 // a byte over a mean link
    uint64_t allowed[POOLS];
    struct unit unit[UNITS];
    double total;
};

static void draw_speeds(struct instance *in, uint64_t *chance)
{
    double mean = 0;
    for (int r = 0; r < REGIONS; r++) {
        in->speed[r] = exp(0.5 * normal(chance));
        mean += in->speed[r] / REGIONS;
    }
    for (int r = 0; r < REGIONS; r++) {
        in->speed[r] *= UNIT_TOKENS / UNIT_S / mean;
        in->drop_s[r] = FAR;
        in->drop_to[r] = 1;
        double whether = uniform(chance), when = uniform(chance), to = uniform(chance);
        if (whether >= 0.5) continue;
        in->drop_s[r] = (0.1 + 0.6 * when) * UNIT_S * UNITS / REGIONS;
        in->drop_to[r] = to < 0.5 ? 0.5 : 0.25;
    }
}

static void draw_links(struct instance *in, uint64_t *chance, double ratio, double spread)
{
    double mean = 0; // seconds a byte
    for (int i = 0; i < REGIONS; i++)
        for (int k = 0; k < REGIONS; k++) {
            in->rate[i][k] = pow(spread, uniform(chance));
            if (i != k) mean += 1 / in->rate[i][k] / (REGIONS * (REGIONS - 1));
        }
    in->mean_s = ratio * UNIT_S / UNIT_BYTES;
    double scale = mean * UNIT_BYTES / (ratio * UNIT_S);
    for (int i = 0; i < REGIONS; i++)
        for (int k = 0; k < REGIONS; k++) in->rate[i][k] *= scale;
}

// Pool 3*r: of home r, anywhere; 3*r + 1: at home only; 3*r + 2: there and in two others.
static void draw_units(struct instance *in, uint64_t *chance)
{
    int place[REGIONS];
    double sum = 0;
    for (int r = 0; r < REGIONS; r++) place[r] = r;
    for (int r = REGIONS - 1; r > 0; r--) {
        int k = (int)(uniform(chance) * (r + 1)), was = place[r];
        place[r] = place[k];
        place[k] = was;
    }
    for (int r = 0; r < REGIONS; r++) {
        uint32_t a = (uint32_t)(uniform(chance) * REGIONS),
                 b = (uint32_t)(uniform(chance) * REGIONS);
        in->allowed[3 * r] = (1u << REGIONS) - 1;
        in->allowed[3 * r + 1] = 1u << r;
        in->allowed[3 * r + 2] = 1u << r | 1u << a | 1u << b;
        sum += 1.0 / (1 + r);
    }
    for (int u = 0; u < UNITS; u++) {
        double at = uniform(chance) * sum, kind = uniform(chance);
        int r = 0;
        while (r < REGIONS - 1 && (at -= 1.0 / (1 + r)) > 0) r++;
        uint32_t home = (uint32_t)place[r];
        uint32_t pool = 3 * home + (kind < 0.15 ? 1 : kind < 0.25 ? 2 : 0);
        in->unit[u] = (struct unit){home, pool, UNIT_TOKENS * (0.8 + 0.4 * uniform(chance))};
        in->total += in->unit[u].tokens;
    }
}

// The time at which a region that begins at `from` has trained this many tokens.
static double trained_at(const struct instance *in, uint32_t r, double from, double tokens)
{
    double fast = in->speed[r], slow = fast * in->drop_to[r], drop = in->drop_s[r];
    if (from >= drop) return from + tokens / slow;
    double before = (drop - from) * fast;
    return tokens <= before ? from + tokens / fast : drop + (tokens - before) / slow;
}

// ---------------------------------------------------------------- the run

enum state { FREE, RESERVED, COMING, READY, RUNS, DONE };

struct region {
    uint32_t queue[QUEUE], queued;     // reserved and ready ones, in their order
    uint32_t coming[QUEUE], comes;     // the first is on its way, the others wait
    double arrives_s, begun_s, ends_s; // FAR: no such event
    uint32_t runs;
};

struct run {
    const struct instance *in;
    struct ps_balance b;
    struct ps_balance_plan plan;
    double now, planned_s;
    bool planned;
    enum state state[UNITS];
    uint32_t holder[UNITS];
    bool twice[UNITS];
    struct region region[REGIONS];
    uint64_t chance;
    uint32_t done, moved, stolen, doubled, recalled, violations;
    bool alike; // it knows only the mean speed of links
    bool split; // fixed shares by speed at the start
};

static double bytes_of(double tokens)
{
    return tokens * UNIT_BYTES / UNIT_TOKENS;
}

static double link_sample(struct run *run, uint32_t from, uint32_t to, double off)
{
    double rate = run->in->rate[from][to] * exp(off * normal(&run->chance));
    return run->alike ? 1 / run->in->mean_s : rate;
}

static void probe(struct run *run, enum ps_balance_kind kind)
{
    struct ps_balance *b = &run->b;
    b->conf = (struct ps_balance_conf){.kind = kind, .window = WINDOW, .hysteresis = 0.1};
    b->regions = REGIONS;
    b->pools = POOLS;
    for (uint32_t i = 0; i < REGIONS; i++) {
        run->region[i].arrives_s = run->region[i].ends_s = FAR;
        b->region[i].workers = 1;
        lh_estimate_take(&b->region[i].tokens_per_s,
                         run->in->speed[i] * exp(0.2 * normal(&run->chance)));
        for (uint32_t k = 0; k < REGIONS; k++) {
            lh_estimate_take(&b->link[i][k].bytes_per_s, link_sample(run, i, k, 0.2));
            b->link[i][k].cap_bytes = -1;
        }
    }
    for (uint32_t p = 0; p < POOLS; p++) {
        b->pool[p].home = p / 3;
        b->pool[p].allowed = run->in->allowed[p];
    }
}

// Fills the coordinator's picture of the run as it would be at this time.
static void look(struct run *run)
{
    struct ps_balance *b = &run->b;
    b->done_tokens = 0;
    for (uint32_t p = 0; p < POOLS; p++)
        b->pool[p].units = b->pool[p].tokens = b->pool[p].bytes = 0;
    for (uint32_t r = 0; r < REGIONS; r++) b->region[r].held_tokens = b->region[r].arriving_s = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        double tokens = run->in->unit[u].tokens;
        struct ps_balance_pool *p = &b->pool[run->in->unit[u].pool];
        struct ps_balance_region *r = &b->region[run->holder[u]];
        switch (run->state[u]) {
        case FREE:
        case RESERVED:
            p->units++;
            p->tokens += tokens;
            p->bytes += bytes_of(tokens);
            break;
        case RUNS: {
            double gone = (run->now - run->region[run->holder[u]].begun_s) * r->tokens_per_s.mean;
            r->held_tokens += fmax(tokens - gone, 0.05 * tokens);
            break;
        }
        case DONE: b->done_tokens += tokens; break;
        default: r->held_tokens += tokens;
        }
    }
    for (uint32_t r = 0; r < REGIONS; r++)
        for (uint32_t i = 0; i < run->region[r].comes; i++) {
            const struct unit *u = &run->in->unit[run->region[r].coming[i]];
            b->region[r].arriving_s += ps_balance_arrival(b, u->home, r, bytes_of(u->tokens));
        }
}

static void start_transfer(struct run *run, uint32_t r)
{
    struct region *g = &run->region[r];
    if (!g->comes || g->arrives_s < FAR) return;
    const struct unit *u = &run->in->unit[g->coming[0]];
    g->arrives_s = run->now + bytes_of(u->tokens) / run->in->rate[u->home][r];
}

static void start_training(struct run *run, uint32_t r)
{
    struct region *g = &run->region[r];
    if (g->ends_s < FAR || !g->queued) return;
    g->runs = g->queue[0];
    memmove(g->queue, g->queue + 1, --g->queued * sizeof *g->queue);
    if (run->state[g->runs] != DONE && !run->twice[g->runs]) run->state[g->runs] = RUNS;
    g->begun_s = run->now;
    g->ends_s = trained_at(run->in, r, run->now, run->in->unit[g->runs].tokens);
}

// The home's last reservation of this pool leaves its queue.
static bool recall(struct run *run, uint32_t pool, uint32_t *out)
{
    struct region *g = &run->region[pool / 3];
    for (uint32_t i = g->queued; i-- > 0;) {
        uint32_t u = g->queue[i];
        if (run->state[u] != RESERVED || run->in->unit[u].pool != pool) continue;
        memmove(g->queue + i, g->queue + i + 1, (g->queued - i - 1) * sizeof *g->queue);
        g->queued--;
        run->recalled++;
        *out = u;
        return true;
    }
    return false;
}

static bool pick(struct run *run, uint32_t pool, uint32_t r, uint32_t *out)
{
    for (uint32_t u = 0; u < UNITS; u++)
        if (run->state[u] == FREE && run->in->unit[u].pool == pool) {
            *out = u;
            return true;
        }
    return r != pool / 3 && recall(run, pool, out);
}

static void receive(struct run *run, uint32_t r, uint32_t u)
{
    struct region *g = &run->region[r];
    if (!(run->in->allowed[run->in->unit[u].pool] >> r & 1)) run->violations++;
    if (run->in->unit[u].home == r) {
        g->queue[g->queued++] = u;
    } else {
        g->coming[g->comes++] = u;
        run->moved++;
    }
}

// A second run of a unit that another region will finish later than this one could.
static bool take_twice(struct run *run, uint32_t r)
{
    struct ps_balance *b = &run->b;
    struct ps_balance_choice best = {0};
    uint32_t which = 0;
    if (run->region[r].ends_s < FAR || run->region[r].comes) return false;
    for (uint32_t u = 0; u < UNITS; u++) {
        uint32_t from = run->holder[u];
        if (run->twice[u] || from == r || run->state[u] < COMING || run->state[u] == DONE) continue;
        const struct unit *at = &run->in->unit[u];
        double path = ps_balance_arrival(b, at->home, r, bytes_of(at->tokens));
        double there = b->region[from].held_tokens / b->region[from].tokens_per_s.mean;
        if (run->state[u] == COMING) there += b->region[from].arriving_s;
        struct ps_balance_choice c =
            ps_balance_twice(b, r, from, run->in->allowed[at->pool], at->tokens, path, there);
        if (!c.reason || (best.reason && c.there_s - c.here_s <= best.there_s - best.here_s))
            continue;
        best = c;
        which = u;
    }
    if (!best.reason) return false;
    run->twice[which] = true;
    run->doubled++;
    receive(run, r, which);
    return true;
}

// A static split: the region's own units first, then units of the pool with the largest share left.
// A pool whose remaining shares are all below half a unit goes to its home.
static bool shared_out(const struct run *run, uint32_t p, uint32_t r)
{
    const struct ps_balance_pool *pool = &run->b.pool[p];
    double half = pool->tokens / pool->units / 2;
    bool left = pool->home != r;
    for (uint32_t i = 0; i < REGIONS; i++)
        left |= run->plan.tokens[p][i] >= half && (pool->allowed >> i & 1);
    return run->plan.tokens[p][r] >= half || !left;
}

static struct ps_balance_choice by_shares(const struct run *run, uint32_t r)
{
    struct ps_balance_choice best = {0};
    double most = -1;
    for (uint32_t p = 0; p < POOLS; p++) {
        const struct ps_balance_pool *pool = &run->b.pool[p];
        if (pool->units < 1 || !(pool->allowed >> r & 1) || !shared_out(run, p, r)) continue;
        if (pool->home == r)
            return (struct ps_balance_choice){.reason = PS_BALANCE_HOME, .pool = p, .from = r};
        if (run->plan.tokens[p][r] <= most) continue;
        most = run->plan.tokens[p][r];
        best =
            (struct ps_balance_choice){.reason = PS_BALANCE_PLANNED, .pool = p, .from = pool->home};
    }
    return best;
}

static bool take_one(struct run *run, uint32_t r)
{
    struct region *g = &run->region[r];
    if (g->comes + g->queued >= QUEUE) return false;
    look(run);
    if (!run->planned || (!run->split && run->now >= run->planned_s + REPLAN_S)) {
        ps_balance_plan(&run->b, &run->plan);
        run->planned = true;
        run->planned_s = run->now;
    }
    uint32_t ready = g->queued + (g->ends_s < FAR), window = ps_balance_window(&run->b);
    if (g->comes && ready + g->comes >= window) return false;
    struct ps_balance_choice c =
        run->split ? by_shares(run, r) : ps_balance_next(&run->b, &run->plan, r);
    if (!c.reason) return take_twice(run, r);
    uint32_t u = 0; // set where pick() finds one
    if (c.reason == PS_BALANCE_HOME && ready >= window) return false;
    if (!pick(run, c.pool, r, &u)) return false;
    run->stolen += c.reason == PS_BALANCE_STOLEN;
    run->plan.tokens[c.pool][r] -= run->in->unit[u].tokens;
    run->state[u] = c.reason == PS_BALANCE_HOME ? RESERVED : COMING;
    run->holder[u] = r;
    receive(run, r, u);
    return true;
}

static void serve_all(struct run *run)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < REGIONS; r++) {
            more |= take_one(run, r);
            start_transfer(run, r);
            start_training(run, r);
        }
    }
}

static void on_end(struct run *run, uint32_t r)
{
    struct region *g = &run->region[r];
    double took = run->now - g->begun_s, tokens = run->in->unit[g->runs].tokens;
    lh_estimate_take(&run->b.region[r].tokens_per_s,
                     tokens / took * exp(0.1 * normal(&run->chance)));
    g->ends_s = FAR;
    if (run->state[g->runs] != DONE) run->done++;
    run->state[g->runs] = DONE;
}

static void on_arrival(struct run *run, uint32_t r)
{
    struct region *g = &run->region[r];
    const struct unit *u = &run->in->unit[g->coming[0]];
    lh_estimate_take(&run->b.link[u->home][r].bytes_per_s, link_sample(run, u->home, r, 0.1));
    if (run->state[g->coming[0]] == COMING) run->state[g->coming[0]] = READY;
    if (run->state[g->coming[0]] != DONE) g->queue[g->queued++] = g->coming[0];
    memmove(g->coming, g->coming + 1, --g->comes * sizeof *g->coming);
    g->arrives_s = FAR;
}

// The makespan.
static double play(struct run *run)
{
    serve_all(run);
    while (run->done < UNITS) {
        double next = FAR;
        for (uint32_t r = 0; r < REGIONS; r++)
            next = fmin(next, fmin(run->region[r].ends_s, run->region[r].arrives_s));
        if (next >= FAR) {
            fprintf(stderr, "bench_balancer_sim: nobody trains, %u units are left\n",
                    UNITS - run->done);
            exit(1);
        }
        run->now = next;
        for (uint32_t r = 0; r < REGIONS; r++) {
            if (run->region[r].ends_s <= next) on_end(run, r);
            if (run->region[r].arrives_s <= next) on_arrival(run, r);
        }
        serve_all(run);
    }
    return run->now;
}

// ---------------------------------------------------------------- output

static void tell_instance(const struct instance *in, uint64_t seed)
{
    double tokens[POOLS] = {0};
    for (int u = 0; u < UNITS; u++) tokens[in->unit[u].pool] += in->unit[u].tokens;
    printf("{\"seed\": %llu, \"speed\": [", (unsigned long long)seed);
    for (int r = 0; r < REGIONS; r++)
        printf("%s[%.9g, %.9g, %.9g]", r ? ", " : "", in->speed[r],
               in->drop_s[r] < FAR ? in->drop_s[r] : -1, in->drop_to[r]);
    printf("], \"pools\": [");
    for (int p = 0; p < POOLS; p++)
        printf("%s[%d, %llu, %.9g]", p ? ", " : "", p / 3, (unsigned long long)in->allowed[p],
               tokens[p]);
    printf("], \"seconds_per_token\": [");
    for (int i = 0; i < REGIONS; i++)
        for (int k = 0; k < REGIONS; k++)
            printf("%s%.9g", i + k ? ", " : "",
                   i == k ? 0 : UNIT_BYTES / UNIT_TOKENS / in->rate[i][k]);
    printf("]");
}

static void play_kind(const struct instance *in, uint64_t seed, enum ps_balance_kind kind,
                      const char *name)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run) exit(1);
    run->in = in;
    run->alike = strcmp(name, "alike") == 0;
    run->split = strcmp(name, "static") == 0;
    run->chance = seed ^ 0x5bd1e995;
    probe(run, kind);
    double makespan = play(run);
    printf(", \"%s\": {\"makespan\": %.9g, \"moved\": %u, \"stolen\": %u, \"twice\": %u, "
           "\"recalled\": %u, \"violations\": %u}",
           name, makespan, run->moved, run->stolen, run->doubled, run->recalled, run->violations);
    free(run);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench_balancer_sim SEEDS FROM RATIO SPREAD\n");
        return 2;
    }
    uint64_t seeds = strtoull(argv[1], NULL, 10), from = strtoull(argv[2], NULL, 10);
    double ratio = strtod(argv[3], NULL), spread = strtod(argv[4], NULL);
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        struct instance *in = calloc(1, sizeof *in);
        uint64_t chance = seed * 0x9e3779b97f4a7c15u + 1;
        if (!in) return 1;
        draw_speeds(in, &chance);
        draw_links(in, &chance, ratio, spread);
        draw_units(in, &chance);
        tell_instance(in, seed);
        for (int kind = PS_BALANCE_FINISH; kind <= PS_BALANCE_BLIND; kind++)
            play_kind(in, seed, (enum ps_balance_kind)kind,
                      ps_balance_kind_name((enum ps_balance_kind)kind));
        play_kind(in, seed, PS_BALANCE_FINISH, "alike");
        play_kind(in, seed, PS_BALANCE_WEIGHTED, "static"); // its plan is by speeds
        printf("}\n");
        free(in);
    }
    return 0;
}
