// Pace: how often each worker pushes to a shard (server/docs/0000-protocol.md#rule-25,
// server/docs/0004-authority.md#bounds-on-what-peers-claim).
//
// 1. A worker has a bucket of pushes. It refills FASTER times as fast as the other live workers
//    push (the median of each one's last intervals), and at LEAST_HZ or more. While no other
//    worker's pace is known, it refills at UNKNOWN_HZ. A push that finds the bucket empty is
//    answered "busy" and does not enter the log. The only live worker is not limited. Nothing that
//    a worker reports counts, and the buckets are in this process's memory only.
// 2. Staleness counts at most a limit of pushes per other worker since the base: twice the lower
//    median of the live workers' counts. The pusher's own count is raised by one. All this follows
//    from the log alone. If the base is older than this process's first folded record, or from an
//    earlier epoch, all pushes count.
#include "server/push/pace.h"

#include <stdlib.h>
#include <string.h>

#include "server/core.h"

enum { FASTER = 8, LEAST_HZ = 4, UNKNOWN_HZ = 20, KNOWN = 3, MEDIANS = 2 };

static struct ps_pace_row *find(const struct ps_pace *p, uint64_t worker)
{
    for (uint32_t i = 0; i < p->rows; i++)
        if (p->row[i].worker == worker) return &p->row[i];
    return NULL;
}

static struct ps_pace_row *find_or_make(struct ps_pace *p, uint64_t worker)
{
    struct ps_pace_row *r = find(p, worker);
    if (r) return r;
    struct ps_pace_row *row = realloc(p->row, (p->rows + 1) * sizeof *row);
    if (!row) return NULL;
    p->row = row;
    row[p->rows] = (struct ps_pace_row){.worker = worker, .pushes = PS_PACE_BURST};
    return &row[p->rows++];
}

void ps_pace_free(struct ps_shard *s)
{
    free(s->pace.row);
    s->pace = (struct ps_pace){0};
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t lower_median(int64_t *of, uint32_t n)
{
    qsort(of, n, sizeof *of, ascending);
    return of[(n - 1) / 2];
}

// ---------------------------------------------------------------- the bucket

// Pushes per second that the worker may make; 0: no limit.
static double rate_of(const struct ps_shard *s, uint64_t worker)
{
    int64_t other[LH_WORKERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->pace.rows && n < LH_WORKERS_MAX; i++) {
        const struct ps_pace_row *r = &s->pace.row[i];
        if (r->worker != worker && r->median_ns && lh_plan_has(&s->head->plan, r->worker))
            other[n++] = r->median_ns;
    }
    if (!n) return s->head->plan.live > lh_plan_has(&s->head->plan, worker) ? UNKNOWN_HZ : 0;
    double rate = FASTER * (double)LH_SECOND / (double)lower_median(other, n);
    return rate > LEAST_HZ ? rate : LEAST_HZ;
}

// The bucket's content now.
static double filled(const struct ps_shard *s, const struct ps_pace_row *r, double rate)
{
    double pushes = r->pushes + rate * (double)(s->pace.now_ns - r->last_ns) / (double)LH_SECOND;
    return pushes < PS_PACE_BURST ? pushes : PS_PACE_BURST;
}

bool ps_pace_is_busy(const struct ps_shard *s, uint64_t worker)
{
    const struct ps_pace_row *r = find(&s->pace, worker);
    if (!r || filled(s, r, LEAST_HZ) >= 1) return false;
    double rate = rate_of(s, worker);
    return rate > 0 && filled(s, r, rate) < 1;
}

void ps_pace_decided(struct ps_shard *s, uint64_t worker)
{
    int64_t now = s->pace.now_ns;
    struct ps_pace_row *r = find_or_make(&s->pace, worker);
    if (!r) return; // no memory: this push is not counted
    double rate = rate_of(s, worker);
    r->pushes = (rate > 0 ? filled(s, r, rate) : PS_PACE_BURST) - 1;
    if (r->last_ns) {
        int64_t interval = now - r->last_ns;
        r->interval_ns[r->intervals++ % PS_PACE_INTERVALS] = interval > 0 ? interval : 1;
    }
    r->last_ns = now;
    if (r->intervals < KNOWN) return;
    uint32_t n = r->intervals < PS_PACE_INTERVALS ? r->intervals : PS_PACE_INTERVALS;
    int64_t sorted[PS_PACE_INTERVALS];
    memcpy(sorted, r->interval_ns, sizeof sorted);
    r->median_ns = lower_median(sorted, n);
}

uint32_t ps_pace_clipped(struct ps_shard *s, uint64_t worker, bool clipped)
{
    struct ps_pace_row *r = find_or_make(&s->pace, worker);
    if (!r) return 0; // no memory: no warning
    r->clipped = clipped ? r->clipped + 1 : 0;
    return r->clipped;
}

// ---------------------------------------------------------------- staleness

void ps_pace_anew(struct ps_shard *s)
{
    s->pace.sees = false;
    for (uint32_t i = 0; i < s->pace.rows; i++) s->pace.row[i].admitted = 0;
}

void ps_pace_folded(struct ps_shard *s, const struct lh_record *r)
{
    struct ps_pace *p = &s->pace;
    if (!p->sees) p->since = r->version - 1;
    p->sees = true;
    if (r->kind != LH_ADMIT) return;
    struct lh_frame f;
    struct lh_frame_parts parts;
    struct ps_pace_row *row = NULL;
    if (!lh_frame_parse(r->body, &f, &parts)) row = find_or_make(p, f.worker);
    if (row)
        row->version[row->admitted++ % PS_PACE_COUNTED] = r->version;
    else
        ps_pace_anew(s); // no memory
}

// Admitted pushes of a worker after the version, PS_PACE_COUNTED at most.
static uint32_t count_after(const struct ps_pace_row *r, uint64_t version)
{
    uint32_t n = 0;
    while (r && n < PS_PACE_COUNTED && n < r->admitted &&
           r->version[(r->admitted - 1 - n) % PS_PACE_COUNTED] > version)
        n++;
    return n;
}

// How many pushes of each other worker staleness counts at most.
static uint32_t most_counted(const struct ps_shard *s, const struct lh_frame *f)
{
    const struct lh_plan *plan = &s->head->plan;
    int64_t count[LH_WORKERS_MAX + 1];
    uint32_t n = 0;
    count[n++] = 1 + count_after(find(&s->pace, f->worker), f->base_version);
    for (uint32_t i = 0; i < plan->live && i < LH_WORKERS_MAX; i++)
        if (plan->worker[i] != f->worker)
            count[n++] = count_after(find(&s->pace, plan->worker[i]), f->base_version);
    int64_t median = lower_median(count, n);
    return MEDIANS * (uint32_t)(median > 1 ? median : 1);
}

uint64_t ps_pace_staleness(const struct ps_shard *s, const struct lh_frame *f)
{
    const struct ps_pace *p = &s->pace;
    const struct lh_ledger *durable = &s->replica.ledger;
    uint64_t all = lh_ledger_staleness(s->head, f->worker, f->base_others);
    bool known = p->sees && f->base_epoch == s->head->epoch && f->base_version >= p->since;
    if (!all || !known) return all;
    uint32_t most = most_counted(s, f);
    // pushes that this group has admitted are not folded yet
    uint64_t sum = lh_ledger_others(s->head, f->worker) - lh_ledger_others(durable, f->worker);
    for (uint32_t i = 0; i < p->rows; i++) {
        if (p->row[i].worker == f->worker) continue;
        uint32_t n = count_after(&p->row[i], f->base_version);
        sum += n < most ? n : most;
    }
    uint64_t turn = s->head->plan.live > 1 ? s->head->plan.live - 1 : 0;
    uint64_t counted = sum > turn ? sum - turn : 0;
    return counted < all ? counted : all;
}
