// The world's random numbers, and a process's device: training and collectives. See world.h.
#include "tests/region/inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

// ---------------------------------------------------------------- random numbers

uint64_t world_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + 0x9e3779b97f4a7c15u * (b + 1);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t world_below(struct world *w, uint64_t n)
{
    w->seed = world_mix(w->seed, 0);
    return n ? w->seed % n : 0;
}

bool world_one_in(struct world *w, uint64_t n)
{
    return world_below(w, n) == 0;
}

__attribute__((format(printf, 2, 3))) void world_wrong(struct world *w, const char *format, ...)
{
    va_list list;
    if (!w->out.ok) return;
    w->out.ok = false;
    int n = snprintf(w->out.text, sizeof w->out.text, "at %.2f s: ", (double)w->now / 1e9);
    va_start(list, format);
    vsnprintf(w->out.text + n, sizeof w->out.text - (size_t)n, format, list);
    va_end(list);
}

__attribute__((format(printf, 2, 3))) void world_say(const struct world *w, const char *format, ...)
{
    va_list list;
    if (!w->loud) return;
    printf("%8.2f ", (double)w->now / 1e9);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
}

bool world_strikes(struct world *w, enum world_fault kind, uint64_t n)
{
    if (!w->storm || !world_one_in(w, n)) return false;
    w->out.faults[kind]++;
    return true;
}

// ---------------------------------------------------------------- training

// A bucket of one sequence's gradient, computed with the parameters that a rank holds.
static uint64_t gradient_of(uint64_t param, uint64_t payload, uint64_t i, uint64_t bucket)
{
    return world_mix(world_mix(payload, i + 77 + 1000 * bucket), param);
}

uint64_t world_payload(uint64_t step)
{
    return world_mix(step, 4711);
}

static uint64_t stepped_param(uint64_t param, uint64_t step, const uint64_t sum[BUCKETS])
{
    param = world_mix(param, step);
    for (int b = 0; b < BUCKETS; b++) param = world_mix(param, sum[b]);
    return param;
}

uint64_t world_corrected(uint64_t param, uint64_t step)
{
    return step % 7 == 3 ? world_mix(param, 555) : param;
}

uint64_t world_step(uint64_t param, uint64_t step)
{
    uint64_t sum[BUCKETS] = {0};
    param = world_corrected(param, step);
    for (uint64_t b = 0; b < BUCKETS; b++)
        for (uint64_t i = 0; i < SEQUENCES; i++)
            sum[b] += gradient_of(param, world_payload(step), i, b);
    return stepped_param(param, step, sum);
}

static void compute(void *arg, uint64_t step, uint32_t part, uint32_t parts, struct lh_span payload)
{
    struct process *p = arg;
    struct world *w = p->world;
    uint64_t from = (uint64_t)SEQUENCES * part / parts;
    uint64_t until = (uint64_t)SEQUENCES * (part + 1) / parts, seed = 0;
    LH_ASSERT(payload.len == sizeof seed && step == p->step);
    if (p->computing) world_wrong(w, "rank %u computes twice at a time", p->rank);
    memcpy(&seed, payload.data, sizeof seed);
    for (uint64_t b = 0; b < BUCKETS; b++) {
        p->gradient[b] = 0;
        for (uint64_t i = from; i < until; i++) p->gradient[b] += gradient_of(p->param, seed, i, b);
        p->value[b] = world_mix(p->gradient[b], 1);
    }
    p->computing = true;
    p->final = 0;
    p->began_ns = w->now;
    p->computed_ns = w->now + (int64_t)(20 + world_below(w, 60)) * LH_MS;
    if (world_strikes(w, WORLD_SLOW, 300)) p->computed_ns += (int64_t)world_below(w, 6000) * LH_MS;
}

// Advances the backward pass from bucket to bucket, and leaves each with its final value.
static void compute_on(struct process *p)
{
    int64_t each = (p->computed_ns - p->began_ns) / BUCKETS;
    while (p->computing && p->final < BUCKETS &&
           p->world->now >= (p->final + 1 < BUCKETS ? p->began_ns + (int64_t)(p->final + 1) * each
                                                    : p->computed_ns)) {
        p->value[p->final] = p->gradient[p->final];
        p->final++;
    }
}

static uint64_t final(void *arg)
{
    struct process *p = arg;
    compute_on(p);
    return p->final < BUCKETS ? p->final : BUCKETS - 1;
}

static enum wk_region_progress computed(void *arg)
{
    struct process *p = arg;
    compute_on(p);
    if (!p->computing || p->final < BUCKETS) return WK_REGION_BUSY;
    p->computing = false;
    return WK_REGION_OK;
}

static lh_err apply(void *arg)
{
    struct process *p = arg;
    p->param = stepped_param(p->param, p->step, p->value);
    memset(p->value, 0, sizeof p->value);
    p->step++;
    return LH_OK;
}

static uint64_t step_of(void *arg)
{
    return ((struct process *)arg)->step;
}

static uint64_t digest_of(void *arg)
{
    struct process *p = arg;
    return world_mix(p->param, p->step);
}

static uint64_t parameters_of(void *arg)
{
    return ((struct process *)arg)->param;
}

// ---------------------------------------------------------------- collectives

static uint32_t version(void *arg)
{
    return ((struct process *)arg)->nccl;
}

static lh_err unique_id(void *arg, struct wk_nccl_id *out)
{
    struct world *w = ((struct process *)arg)->world;
    LH_ASSERT(w->groups < GROUPS_MAX);
    *out = (struct wk_nccl_id){{0}};
    memcpy(out->bytes, &w->groups, sizeof w->groups);
    w->group[w->groups++] = (struct group){.ranks = 0};
    return LH_OK;
}

// Draws the faults of a communicator at this rank.
static void draw_wrong(struct process *p)
{
    struct world *w = p->world;
    struct endpoint *e = &p->end;
    e->notices = world_one_in(w, 2) ? 0 : 10 + world_below(w, 2000);
    e->wrong_at = 1 + world_below(w, 12 * BUCKETS);
    if (world_strikes(w, WORLD_INIT, 25)) e->wrong = NEVER;
    if (world_strikes(w, WORLD_OPERATION, 12)) e->wrong = ERROR;
    if (world_strikes(w, WORLD_HANG, 15)) e->wrong = HANGS;
    if (world_strikes(w, WORLD_STICKY, 40)) e->wrong = STUCK;
    if (p->rank && p->rank == w->hopeless) e->wrong = NEVER;
    e->abort_hangs = world_strikes(w, WORLD_ABORT, 20);
}

static void init(void *arg, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    struct process *p = arg;
    struct world *w = p->world;
    unsigned n;
    (void)rank;
    if (p->end.live) world_wrong(w, "rank %u makes a communicator beside another", p->rank);
    memcpy(&n, id->bytes, sizeof n);
    LH_ASSERT(n < w->groups);
    struct group *g = &w->group[n];
    p->end = (struct endpoint){.live = true, .group = g};
    draw_wrong(p);
    g->ranks = ranks;
    if (p->end.wrong != NEVER) g->joined++;
    p->end.due_ns = w->now + (int64_t)(10 + world_below(w, 300)) * LH_MS;
}

static void begin(struct process *p, bool share)
{
    struct world *w = p->world;
    struct endpoint *e = &p->end;
    struct group *g = e->group;
    if (!e->made || e->aborted_ns) world_wrong(w, "rank %u uses what is no communicator", p->rank);
    e->ops++;
    e->over = false;
    e->sharing = share;
    e->due_ns = 0;
    if (e->wrong == HANGS && e->ops >= e->wrong_at) return;
    unsigned slot = e->ops % 4;
    if (e->ops > g->ops) {
        g->ops = e->ops;
        g->begun_by[slot] = 0;
        g->sum[slot] = 0;
    }
    if (!share) g->sum[slot] += p->value[e->done];
    if (share && p->rank == 0) {
        g->state[0] = p->step;
        g->state[1] = p->param;
    }
    if (++g->begun_by[slot] < g->ranks || g->broken) return;
    g->ready = e->ops;
    g->ready_ns = w->now + (int64_t)(5 + world_below(w, 40)) * LH_MS;
    if (share) w->out.shares++;
}

static void share(void *arg, enum wk_region_share what)
{
    (void)what;
    begin(arg, true);
}

// Begins the sum of the next bucket, if it may.
static void next_bucket(struct process *p)
{
    struct endpoint *e = &p->end;
    compute_on(p);
    if (!e->over || e->done == BUCKETS || e->given <= e->done) return;
    p->world->out.early += p->computing;
    begin(p, false);
}

static void reduce(void *arg, uint64_t given)
{
    struct process *p = arg;
    struct endpoint *e = &p->end;
    if (!e->reducing) e->done = 0;
    if (!e->reducing) e->over = true;
    e->reducing = true;
    e->given = given;
    next_bucket(p);
}

static enum wk_region_progress finish_operation(struct process *p)
{
    struct endpoint *e = &p->end;
    struct group *g = e->group;
    if (e->sharing) {
        p->step = g->state[0];
        p->param = g->state[1];
    } else {
        p->value[e->done] = g->sum[e->ops % 4];
        e->reducing = ++e->done < BUCKETS;
    }
    e->over = true;
    if (e->reducing) next_bucket(p);
    return e->reducing ? WK_REGION_BUSY : WK_REGION_OK;
}

static enum wk_region_progress poll_init(struct process *p)
{
    struct endpoint *e = &p->end;
    e->made = e->group->joined == e->group->ranks && p->world->now >= e->due_ns;
    return e->made ? WK_REGION_OK : WK_REGION_BUSY;
}

static enum wk_region_progress poll(void *arg)
{
    struct process *p = arg;
    struct world *w = p->world;
    struct endpoint *e = &p->end;
    struct group *g = e->group;
    bool noticed = g->broken && e->notices && w->now > g->broken_ns + (int64_t)e->notices * LH_MS;
    if (e->wrong == ERROR && e->ops >= e->wrong_at) return WK_REGION_WRONG;
    if (e->wrong == STUCK && e->ops >= e->wrong_at) return WK_REGION_STICKY;
    if (!e->made) return noticed ? WK_REGION_WRONG : poll_init(p);
    if (!e->ops || e->over)
        return noticed ? WK_REGION_WRONG : e->reducing ? WK_REGION_BUSY : WK_REGION_OK;
    if (g->ready >= e->ops && !e->due_ns)
        e->due_ns = g->ready_ns + (int64_t)world_below(w, 30) * LH_MS;
    if (e->due_ns && w->now >= e->due_ns && g->ready >= e->ops) return finish_operation(p);
    return noticed ? WK_REGION_WRONG : WK_REGION_BUSY;
}

void world_break_group(struct process *p)
{
    struct group *g = p->end.group;
    if (!p->end.live || g->broken) return;
    g->broken = true;
    g->broken_ns = p->world->now;
    if (g->ready_ns > p->world->now) g->ready = g->ready ? g->ready - 1 : 0; // finished nowhere yet
    bool half = p->end.sharing && !p->end.over && p->region;
    if (half && p->rank) p->param ^= 1;
}

static void abort_comm(void *arg)
{
    struct process *p = arg;
    struct world *w = p->world;
    world_break_group(p);
    int64_t takes = (int64_t)(1 + world_below(w, 200)) * LH_MS;
    if (p->end.abort_hangs)
        takes = world_one_in(w, 2) ? INT64_MAX / 2 : (int64_t)world_below(w, 4000) * LH_MS;
    p->end.aborted_ns = w->now + takes;
}

static bool aborted(void *arg)
{
    struct process *p = arg;
    if (p->world->now < p->end.aborted_ns) return false;
    p->end.live = false;
    return true;
}

static const char *why(void *arg)
{
    (void)arg;
    return "a made-up error";
}

const struct wk_region_comm_ops world_comm = {version, unique_id,  init,    share, reduce,
                                              poll,    abort_comm, aborted, why};
const struct wk_region_ops world_work = {.compute = compute,
                                         .final = final,
                                         .computed = computed,
                                         .apply = apply,
                                         .step = step_of,
                                         .digest = digest_of,
                                         .parameters = parameters_of};
