// Counters, gauges, histograms. See counters.h.
//
// Histogram buckets: values 0..7 have one each; above, every power of two is cut into 4, so a
// bucket is at most a quarter as wide as its lower bound.
#include "common/counters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

struct lh_metric *lh_metric(struct lh_counters *c, const char *name, enum lh_metric_kind kind)
{
    for (unsigned i = 0; i < c->count; i++) {
        if (strcmp(c->metric[i].name, name)) continue;
        LH_ASSERT(c->metric[i].kind == kind);
        return &c->metric[i];
    }
    LH_ASSERT(c->count < LH_METRICS_MAX);
    struct lh_metric *m = &c->metric[c->count++];
    m->name = name;
    m->kind = kind;
    if (kind == LH_HISTOGRAM) {
        m->bucket = calloc(LH_BUCKETS, sizeof *m->bucket);
        LH_ASSERT(m->bucket);
    }
    return m;
}

void lh_counters_free(struct lh_counters *c)
{
    for (unsigned i = 0; i < c->count; i++) free(c->metric[i].bucket);
    c->count = 0;
}

void lh_metric_add(struct lh_metric *m, int64_t n)
{
    atomic_fetch_add_explicit(&m->value, n, memory_order_relaxed);
}

void lh_metric_set(struct lh_metric *m, int64_t value)
{
    atomic_store_explicit(&m->value, value, memory_order_relaxed);
}

int64_t lh_metric_value(const struct lh_metric *m)
{
    return atomic_load_explicit(&m->value, memory_order_relaxed);
}

static unsigned bucket_of(uint64_t v)
{
    if (v < 4) return (unsigned)v;
    unsigned power = 63u - (unsigned)__builtin_clzll(v);
    return (power - 1) * 4 + (unsigned)((v >> (power - 2)) & 3);
}

static int64_t bucket_top(unsigned bucket)
{
    if (bucket < 4) return bucket;
    unsigned power = bucket / 4 + 1;
    uint64_t width = UINT64_C(1) << (power - 2);
    return (int64_t)((4 + bucket % 4) * width + (width - 1));
}

void lh_metric_observe(struct lh_metric *m, int64_t value)
{
    LH_ASSERT(m->kind == LH_HISTOGRAM);
    if (value < 0) value = 0;
    atomic_fetch_add_explicit(&m->value, value, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->bucket[bucket_of((uint64_t)value)], 1, memory_order_relaxed);
    int64_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
    while (value > max && !atomic_compare_exchange_weak(&m->max, &max, value))
        ;
}

int64_t lh_metric_quantile(const struct lh_metric *m, double q)
{
    LH_ASSERT(m->kind == LH_HISTOGRAM);
    int64_t count = atomic_load(&m->count), max = atomic_load(&m->max);
    uint64_t below = 0;
    for (unsigned i = 0; i < LH_BUCKETS && count; i++) {
        below += atomic_load_explicit(&m->bucket[i], memory_order_relaxed);
        if (below && (double)below >= q * (double)count)
            return bucket_top(i) < max ? bucket_top(i) : max;
    }
    return max;
}

void lh_counters_dump(const struct lh_counters *c, struct lh_buf *out)
{
    char line[256];
    for (unsigned i = 0; i < c->count; i++) {
        const struct lh_metric *m = &c->metric[i];
        int n;
        if (m->kind == LH_HISTOGRAM)
            n = snprintf(line, sizeof line,
                         "%s count %" PRId64 " sum %" PRId64 " p50 %" PRId64 " p99 %" PRId64
                         " max %" PRId64 "\n",
                         m->name, (int64_t)m->count, lh_metric_value(m), lh_metric_quantile(m, 0.5),
                         lh_metric_quantile(m, 0.99), (int64_t)m->max);
        else
            n = snprintf(line, sizeof line, "%s %" PRId64 "\n", m->name, lh_metric_value(m));
        lh_put(out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    }
}
