// The balancer's policy. Rules, shapes and costs: balance.h.
#include "server/coordinator/balance/balance.h"

#include <math.h>
#include <string.h>

enum { BISECTIONS = 32 };
static const double NEVER = 1e18; // seconds
static const double TAIL = 0.1;   // share of the run in which the window is short
static const double TWICE = 0.05; // share of the run in which a unit may run twice
static const double PATH_BUSY = 0.5, PATH_IDLE = 0.05; // shares of the remaining time
static const uint32_t TAIL_WINDOW = 2;

// ---------------------------------------------------------------- names

static const char *const REASONS[] = {"nothing", "home",   "planned", "stolen",
                                      "scored",  "budget", "twice"};
static const char *const KINDS[] = {"finish", "weighted", "blind"};

const char *ps_balance_reason_name(enum ps_balance_reason reason)
{
    return REASONS[reason];
}

const char *ps_balance_kind_name(enum ps_balance_kind kind)
{
    return KINDS[kind];
}

bool ps_balance_kind_of(const char *name, enum ps_balance_kind *out)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(name, KINDS[i]) == 0) {
            *out = (enum ps_balance_kind)i;
            return true;
        }
    return false;
}

// ---------------------------------------------------------------- estimates

static bool takes(const struct ps_balance *b, uint32_t r)
{
    return b->region[r].workers && b->region[r].tokens_per_s.mean > 0;
}

static double seconds_of(const struct ps_balance *b, uint32_t r, double tokens)
{
    return takes(b, r) ? tokens / b->region[r].tokens_per_s.mean : tokens > 0 ? NEVER : 0;
}

static double mean_rate(const struct ps_balance *b)
{
    double seconds = 0, n = 0; // mean of seconds per byte, so that slow links count
    for (uint32_t i = 0; i < b->regions; i++)
        for (uint32_t k = 0; k < b->regions; k++)
            if (i != k && b->link[i][k].bytes_per_s.mean > 0) {
                seconds += 1 / b->link[i][k].bytes_per_s.mean;
                n++;
            }
    return n > 0 ? n / seconds : 0;
}

// `mean`: mean rate of all links, used if this one's is unknown.
static double arrival(const struct ps_balance *b, uint32_t from, uint32_t to, double bytes,
                      double mean)
{
    const struct ps_balance_link *l = &b->link[from][to];
    if (from == to || l->lies_there || b->conf.kind == PS_BALANCE_BLIND) return 0;
    double rate = l->bytes_per_s.mean > 0 ? l->bytes_per_s.mean : mean;
    return l->rtt_s + (rate > 0 ? bytes / rate : 0);
}

double ps_balance_arrival(const struct ps_balance *b, uint32_t from, uint32_t to, double bytes)
{
    return arrival(b, from, to, bytes, mean_rate(b));
}

static double pooled(const struct ps_balance *b)
{
    double sum = 0;
    for (uint32_t p = 0; p < b->pools; p++) sum += b->pool[p].tokens;
    return sum;
}

// Tokens of pools within the budget, even if few regions can train them.
static double of_the_budget(const struct ps_balance *b)
{
    return fmax(pooled(b) - b->beyond_tokens, 0);
}

double ps_balance_left(const struct ps_balance *b)
{
    double left = of_the_budget(b);
    for (uint32_t r = 0; r < b->regions; r++) left += b->region[r].held_tokens;
    return left;
}

uint32_t ps_balance_window(const struct ps_balance *b)
{
    double left = ps_balance_left(b);
    bool tail = left < TAIL * (left + b->done_tokens);
    return tail && b->conf.window > TAIL_WINDOW ? TAIL_WINDOW : b->conf.window;
}

// ---------------------------------------------------------------- the plan

static bool allows(const struct ps_balance_pool *p, uint32_t r)
{
    return p->allowed >> r & 1;
}

// A live region with known speed may train the pool.
static bool goes_somewhere(const struct ps_balance *b, uint32_t p)
{
    for (uint32_t r = 0; r < b->regions; r++)
        if (allows(&b->pool[p], r) && takes(b, r)) return true;
    return false;
}

// One attempt: does everything end within `end_s`?
struct
try {
    const struct ps_balance *b;
    struct ps_balance_plan *out;
    double room[PS_BALANCE_REGIONS_MAX]; // tokens that each region can still train
    double path[PS_BALANCE_REGIONS_MAX]; // seconds that each can still receive
    double rest[PS_BALANCE_POOLS_MAX];   // tokens not assigned yet
    double left;                         // tokens of `rest` that must be assigned
    double all;                          // tokens of pools in the plan
    double cap[PS_BALANCE_REGIONS_MAX][PS_BALANCE_REGIONS_MAX]; // bytes; NEVER: no cap
    // Seconds per token of each pool until it arrives in each region; and the same plus its
    // language.
    double path_s[PS_BALANCE_POOLS_MAX][PS_BALANCE_REGIONS_MAX];
    double cost_s[PS_BALANCE_POOLS_MAX][PS_BALANCE_REGIONS_MAX];
};

static double bytes_a_token(const struct ps_balance_pool *p)
{
    return p->tokens > 0 ? p->bytes / p->tokens : 0;
}

// The budget's part of the pools that some region can train now.
static double all_of(const struct ps_balance *b)
{
    double sum = 0;
    for (uint32_t p = 0; p < b->pools; p++) sum += goes_somewhere(b, p) ? b->pool[p].tokens : 0;
    return fmin(sum, of_the_budget(b));
}

// Tokens of the pool too few to count. A budget may leave a small part of large pools.
static double few(const struct try *t, uint32_t pool)
{
    return 1e-6 * fmin(t->b->pool[pool].tokens, fmax(t->all, 1));
}

static void weigh(struct try *t, uint32_t pool, uint32_t r, double mean)
{
    const struct ps_balance *b = t->b;
    const struct ps_balance_pool *p = &b->pool[pool];
    double tokens = p->units > 0 ? p->tokens / p->units : 1;
    double path = arrival(b, p->home, r, bytes_a_token(p) * tokens, mean) / tokens;
    bool foreign = !(p->languages & b->region[r].languages) && takes(b, r);
    double language = foreign ? b->conf.affinity * seconds_of(b, r, 1) : 0;
    t->path_s[pool][r] = path;
    t->cost_s[pool][r] = path + language;
}

static void give(struct try *t, uint32_t pool, uint32_t r, double tokens)
{
    const struct ps_balance_pool *p = &t->b->pool[pool];
    t->out->tokens[pool][r] += tokens;
    t->rest[pool] -= tokens;
    t->left -= tokens;
    t->room[r] -= tokens;
    t->path[r] -= tokens * t->path_s[pool][r];
    if (r != p->home) t->cap[p->home][r] -= tokens * bytes_a_token(p);
}

// Tokens of the pool that this region can take.
static double can_take(const struct try *t, uint32_t pool, uint32_t r)
{
    const struct ps_balance_pool *p = &t->b->pool[pool];
    if (!allows(p, r) || !takes(t->b, r)) return 0;
    double most = fmin(fmin(t->rest[pool], t->left), t->room[r]), each = t->path_s[pool][r];
    if (each > 0) most = fmin(most, t->path[r] / each);
    if (r != p->home && p->bytes > 0) most = fmin(most, t->cap[p->home][r] / bytes_a_token(p));
    return most > few(t, pool) ? most : 0;
}

// The cheapest region for a pool, or -1; *regret: extra cost of the second-best (Vogel's rule).
static int cheapest(const struct try *t, uint32_t pool, double *regret)
{
    int best = -1;
    double first = NEVER, second = NEVER;
    for (uint32_t r = 0; r < t->b->regions; r++) {
        if (can_take(t, pool, r) <= 0) continue;
        double cost = t->cost_s[pool][r];
        if (cost < first) {
            second = first;
            first = cost;
            best = (int)r;
        } else if (cost < second) {
            second = cost;
        }
    }
    *regret = second - first;
    return best;
}

static void begin(struct try *t, double end_s)
{
    const struct ps_balance *b = t->b;
    memset(t->out->tokens, 0, sizeof t->out->tokens);
    for (uint32_t r = 0; r < b->regions; r++) {
        double until = fmax(end_s - b->region[r].exchange_s, 0);
        double all = takes(b, r) ? until * b->region[r].tokens_per_s.mean : 0;
        t->room[r] = fmax(all - b->region[r].held_tokens, 0);
        t->path[r] = fmax(end_s - b->region[r].arriving_s, 0);
        for (uint32_t k = 0; k < b->regions; k++) {
            double cap = b->link[r][k].cap_bytes;
            t->cap[r][k] = cap < 0 ? NEVER : cap;
        }
    }
}

// Units that no region can train now are in no plan; otherwise no end would be late enough.
static double whole_of(const struct ps_balance *b, uint32_t p)
{
    if (!goes_somewhere(b, p)) return 0;
    return b->beyond_tokens > 0 ? b->pool[p].whole_tokens : b->pool[p].tokens;
}

// A region's own units first, and among them those allowed in the fewest regions.
static void give_own(struct try *t)
{
    for (int staying = 1; staying >= 0; staying--)
        for (uint32_t p = 0; p < t->b->pools; p++) {
            uint32_t home = t->b->pool[p].home;
            bool stays = t->b->pool[p].allowed == 1ull << home;
            if (stays == staying) give(t, p, home, can_take(t, p, home));
        }
}

// Assigns the rest: own units first, then in the order of the pools' regret.
static void give_rest(struct try *t)
{
    give_own(t);
    for (;;) {
        int pool = -1, region = -1;
        double most = -1;
        for (uint32_t p = 0; p < t->b->pools; p++) {
            double regret;
            int r = t->rest[p] > few(t, p) ? cheapest(t, p, &regret) : -1;
            if (r < 0 || regret <= most) continue;
            most = regret;
            pool = (int)p;
            region = r;
        }
        if (pool < 0) break;
        give(t, (uint32_t)pool, (uint32_t)region, can_take(t, (uint32_t)pool, (uint32_t)region));
    }
}

static bool gives_all_of_it(struct try *t)
{
    t->left = 0;
    for (uint32_t p = 0; p < t->b->pools; p++) t->left += t->rest[p] = whole_of(t->b, p);
    give_rest(t);
    for (uint32_t p = 0; p < t->b->pools; p++)
        if (t->rest[p] > 10 * few(t, p)) return false;
    return true;
}

// Assigns the rest of the budget, with any units.
static bool gives_the_budget(struct try *t)
{
    t->left = t->all;
    for (uint32_t p = 0; p < t->b->pools; p++) {
        t->rest[p] = t->b->pool[p].tokens - whole_of(t->b, p);
        t->left -= whole_of(t->b, p);
    }
    if (t->left > 0) give_rest(t);
    return t->left <= 1e-5 * t->all;
}

static bool ends_within(struct try *t, double end_s)
{
    begin(t, end_s);
    bool whole = gives_all_of_it(t);
    return (t->b->beyond_tokens <= 0 || gives_the_budget(t)) && whole;
}

// Everything at the slowest rate over the slowest path: an end late enough, unless some units can
// go nowhere.
static double late_enough(const struct try *t)
{
    const struct ps_balance *b = t->b;
    double sum = 0, slow = NEVER, path = 0, latest = 0;
    for (uint32_t r = 0; r < b->regions; r++) {
        if (!takes(b, r)) continue;
        slow = fmin(slow, b->region[r].tokens_per_s.mean);
        sum += b->region[r].held_tokens;
        latest = fmax(latest, fmax(b->region[r].arriving_s, b->region[r].exchange_s));
    }
    for (uint32_t p = 0; p < b->pools; p++) {
        double worst = 0;
        for (uint32_t r = 0; r < b->regions; r++)
            if (allows(&b->pool[p], r)) worst = fmax(worst, t->path_s[p][r]);
        sum += b->pool[p].tokens;
        path += worst * b->pool[p].tokens;
    }
    return latest + path + (slow < NEVER ? sum / slow : 0);
}

// The next end to try. One nearly stalled region puts `high` far behind the others' end; then the
// bisection is geometric.
static double between(double low, double high)
{
    double from = fmax(low, 1e-3);
    return high > 16 * from ? sqrt(from * high) : (low + high) / 2;
}

// Derives each region's end, and the last one, from the plan's tokens.
static void conclude(const struct ps_balance *b, struct ps_balance_plan *out)
{
    out->end_s = 0;
    for (uint32_t r = 0; r < b->regions; r++) {
        double tokens = b->region[r].held_tokens;
        for (uint32_t p = 0; p < b->pools; p++) tokens += out->tokens[p][r];
        out->finish_s[r] = seconds_of(b, r, tokens) + (tokens > 0 ? b->region[r].exchange_s : 0);
        if (takes(b, r)) out->end_s = fmax(out->end_s, out->finish_s[r]);
    }
}

// Splits each pool, within the budget, over its allowed regions in proportion to tokens/s.
static void split(const struct ps_balance *b, struct ps_balance_plan *out)
{
    double all = pooled(b), share = all > 0 ? fmax(1 - b->beyond_tokens / all, 0) : 0;
    memset(out->tokens, 0, sizeof out->tokens);
    for (uint32_t p = 0; p < b->pools; p++) {
        double sum = 0;
        for (uint32_t r = 0; r < b->regions; r++)
            if (allows(&b->pool[p], r) && takes(b, r)) sum += b->region[r].tokens_per_s.mean;
        for (uint32_t r = 0; r < b->regions && sum > 0; r++)
            if (allows(&b->pool[p], r) && takes(b, r))
                out->tokens[p][r] =
                    share * b->pool[p].tokens * b->region[r].tokens_per_s.mean / sum;
    }
}

void ps_balance_plan(const struct ps_balance *b, struct ps_balance_plan *out)
{
    struct try t; // 170 KiB
    t.b = b;
    t.out = out;
    t.all = all_of(b);
    double mean = mean_rate(b);
    for (uint32_t p = 0; p < b->pools; p++)
        for (uint32_t r = 0; r < b->regions; r++) weigh(&t, p, r, mean);
    memset(out, 0, sizeof *out);
    if (b->conf.kind == PS_BALANCE_WEIGHTED) {
        split(b, out);
    } else {
        double low = 0, high = late_enough(&t);
        for (int i = 0; i < BISECTIONS; i++) {
            double mid = between(low, high);
            if (ends_within(&t, mid))
                high = mid;
            else
                low = mid;
        }
        (void)ends_within(&t, high); // pools that can go nowhere stay unassigned
    }
    conclude(b, out);
}

// ---------------------------------------------------------------- the next unit

static double unit_of(const struct ps_balance_pool *p, double all)
{
    return p->units > 0 ? all / p->units : 0;
}

// May this region get a whole unit of this pool over that link?
static bool may_have(const struct ps_balance *b, uint32_t pool, uint32_t r)
{
    const struct ps_balance_pool *p = &b->pool[pool];
    double cap = b->link[p->home][r].cap_bytes;
    return p->units >= 1 && allows(p, r) &&
           (r == p->home || cap < 0 || cap >= unit_of(p, p->bytes));
}

double ps_balance_cost_of(const struct ps_balance *b, uint32_t pool, uint32_t r, double tokens)
{
    const struct ps_balance_pool *p = &b->pool[pool];
    bool foreign = r != p->home && !(p->languages & b->region[r].languages);
    return foreign ? b->conf.affinity * seconds_of(b, r, tokens) : 0;
}

double ps_balance_cost(const struct ps_balance *b, uint32_t pool, uint32_t r)
{
    const struct ps_balance_pool *p = &b->pool[pool];
    return ps_balance_cost_of(b, pool, r, unit_of(p, p->tokens));
}

// Time at which a unit of the pool would end here: after its arrival and the region's held units.
static double ends_here(const struct ps_balance *b, uint32_t pool, uint32_t r)
{
    const struct ps_balance_pool *p = &b->pool[pool];
    double path = ps_balance_arrival(b, p->home, r, unit_of(p, p->bytes));
    double here = fmax(b->region[r].arriving_s + path, seconds_of(b, r, b->region[r].held_tokens));
    return here + seconds_of(b, r, unit_of(p, p->tokens)) + b->region[r].exchange_s;
}

// Time at which the pool's home would end all its remaining units if this region took none; counts
// at least one whole unit. A home that its own units do not reach never ends.
static double ends_there(const struct ps_balance *b, const struct ps_balance_plan *plan,
                         uint32_t pool, uint32_t r)
{
    const struct ps_balance_pool *from = &b->pool[pool];
    if (!allows(from, from->home)) return NEVER;
    double tokens = plan->tokens[pool][r];
    for (uint32_t p = 0; p < b->pools; p++) tokens += plan->tokens[p][from->home];
    tokens = fmax(tokens, unit_of(from, from->tokens));
    return seconds_of(b, from->home, b->region[from->home].held_tokens + tokens) +
           b->region[from->home].exchange_s;
}

static double hysteresis(const struct ps_balance *b, uint32_t a, uint32_t c)
{
    double spread = fmax(lh_estimate_doubt(b->region[a].tokens_per_s),
                         lh_estimate_doubt(b->region[c].tokens_per_s));
    return b->conf.hysteresis * (1 + spread);
}

// The foreign pool with the most planned tokens here, among those whose unit ends earlier here.
static struct ps_balance_choice foreign(const struct ps_balance *b,
                                        const struct ps_balance_plan *plan, uint32_t r)
{
    struct ps_balance_choice best = {0};
    double most = 0, gain = 0;
    for (uint32_t p = 0; p < b->pools; p++) {
        uint32_t home = b->pool[p].home;
        if (home == r || !may_have(b, p, r)) continue;
        struct ps_balance_choice c = {
            PS_BALANCE_STOLEN,        p, home, ends_here(b, p, r), ps_balance_cost(b, p, r),
            ends_there(b, plan, p, r)};
        double here = c.here_s + c.cost_s;
        if (here >= c.there_s * (1 - hysteresis(b, r, home))) continue;
        double planned = plan->tokens[p][r];
        bool better = planned > most || (most <= 0 && c.there_s - here > gain);
        if (!better) continue;
        if (planned > 0) c.reason = PS_BALANCE_PLANNED;
        most = fmax(most, planned);
        gain = c.there_s - here;
        best = c;
    }
    return best;
}

// If a budget ends the run first, the plan may have used up this region's share of its own pool for
// now: then foreign units of whole data epochs come before own units of a later epoch.
static bool is_due(const struct ps_balance *b, const struct ps_balance_plan *plan, uint32_t p,
                   uint32_t r)
{
    bool all = !plan || b->beyond_tokens <= 0;
    return all || plan->tokens[p][r] >= unit_of(&b->pool[p], b->pool[p].tokens) / 2;
}

// Own units, first those allowed in the fewest other regions, so that mobile units stay for regions
// that help later. Due units come before all others. `plan` NULL: all are due.
static struct ps_balance_choice own(const struct ps_balance *b, const struct ps_balance_plan *plan,
                                    uint32_t r)
{
    struct ps_balance_choice best = {0};
    double allowed = 0;
    for (uint32_t p = 0; p < b->pools; p++) {
        if (b->pool[p].home != r || !may_have(b, p, r)) continue;
        double n = (double)__builtin_popcountll(b->pool[p].allowed);
        if (!is_due(b, plan, p, r)) n += PS_BALANCE_REGIONS_MAX;
        if (best.reason && n >= allowed) continue;
        allowed = n;
        best = (struct ps_balance_choice){PS_BALANCE_HOME, p, r, ends_here(b, p, r), 0, 0};
    }
    return best;
}

// The share of the remaining time in which the plan uses the path to this region.
static double path_share(const struct ps_balance *b, const struct ps_balance_plan *plan, uint32_t r)
{
    double busy = 0;
    for (uint32_t p = 0; p < b->pools; p++)
        if (b->pool[p].home != r && plan->tokens[p][r] > 0 && b->pool[p].tokens > 0)
            busy += ps_balance_arrival(b, b->pool[p].home, r,
                                       plan->tokens[p][r] * bytes_a_token(&b->pool[p]));
    return plan->end_s > 0 ? busy / plan->end_s : 0;
}

static bool stays(const struct ps_balance *b, const struct ps_balance_choice *c, uint32_t r)
{
    return c->reason && b->pool[c->pool].allowed == 1ull << r;
}

// If the plan uses the path most of the time, foreign units come now. Otherwise units that no other
// region may train come first: a region that becomes slow later then has fewer of them left. If
// units arrive almost at once, none needs to come before the region's own are trained.
static bool own_first(const struct ps_balance *b, const struct ps_balance_plan *plan,
                      const struct ps_balance_choice *mine, uint32_t r)
{
    double share = path_share(b, plan, r);
    return share <= (stays(b, mine, r) ? PATH_BUSY : PATH_IDLE);
}

static struct ps_balance_choice by_finish(const struct ps_balance *b,
                                          const struct ps_balance_plan *plan, uint32_t r)
{
    struct ps_balance_choice mine = own(b, plan, r), theirs = {0};
    bool path_free = b->region[r].arriving_s <= 0;
    bool due = mine.reason && is_due(b, plan, mine.pool, r);
    if (due && (!path_free || own_first(b, plan, &mine, r))) return mine;
    theirs = foreign(b, plan, r);
    return theirs.reason == PS_BALANCE_PLANNED || !mine.reason ? theirs : mine;
}

static struct ps_balance_choice by_score(const struct ps_balance *b, uint32_t r)
{
    struct ps_balance_choice best = own(b, NULL, r);
    double most = 0, slowest = 0, least = 0;
    if (best.reason) return best;
    for (uint32_t p = 0; p < b->pools; p++) {
        most = fmax(most, b->pool[p].tokens);
        slowest = fmax(slowest, ps_balance_arrival(b, b->pool[p].home, r, 1e6));
    }
    for (uint32_t p = 0; p < b->pools; p++) {
        uint32_t home = b->pool[p].home;
        if (!may_have(b, p, r)) continue;
        double path = ps_balance_arrival(b, home, r, 1e6);
        double score = 0.6 * (1 - b->pool[p].tokens / most) + 0.4 * path / fmax(slowest, 1e-9);
        if (best.reason && score >= least) continue;
        least = score;
        best = (struct ps_balance_choice){PS_BALANCE_SCORED,        p, home, ends_here(b, p, r),
                                          ps_balance_cost(b, p, r), 0};
    }
    return best;
}

struct ps_balance_choice ps_balance_next(const struct ps_balance *b,
                                         const struct ps_balance_plan *plan, uint32_t region)
{
    if (!takes(b, region)) return (struct ps_balance_choice){0};
    return b->conf.kind == PS_BALANCE_WEIGHTED ? by_score(b, region) : by_finish(b, plan, region);
}

struct ps_balance_choice ps_balance_twice(const struct ps_balance *b, uint32_t region,
                                          uint32_t from, uint64_t allowed, double tokens,
                                          double transfer_s, double there_s)
{
    struct ps_balance_choice c = {.from = from, .there_s = there_s};
    double left = ps_balance_left(b);
    c.here_s = fmax(b->region[region].arriving_s + transfer_s,
                    seconds_of(b, region, b->region[region].held_tokens)) +
               seconds_of(b, region, tokens) + b->region[region].exchange_s;
    bool end = left < TWICE * (left + b->done_tokens), may = allowed >> region & 1;
    bool finish = b->conf.kind == PS_BALANCE_FINISH || b->conf.kind == PS_BALANCE_BLIND;
    if (finish && end && may && takes(b, region) && from != region &&
        c.here_s < there_s * (1 - hysteresis(b, region, from)))
        c.reason = PS_BALANCE_TWICE;
    return c;
}
