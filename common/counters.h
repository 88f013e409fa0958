// Counters, gauges and histograms of one process, by name; what status files and dumps show.
//
// Names are static strings, "push.admitted", with the unit last where there is one ("push.bytes",
// "fold.ns"). Registration is made on the owner's thread before others use the metric; changing and
// reading a value is allowed on any thread.
#ifndef LH_COMMON_COUNTERS_H
#define LH_COMMON_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/buf.h"

enum lh_metric_kind { LH_COUNTER, LH_GAUGE, LH_HISTOGRAM };
enum { LH_METRICS_MAX = 128, LH_BUCKETS = 248 };

struct lh_metric {
    const char *name; // borrows
    enum lh_metric_kind kind;
    _Atomic int64_t value;    // counter, gauge; histogram: sum
    _Atomic int64_t count;    // histogram: observations
    _Atomic int64_t max;      // histogram: largest
    _Atomic uint64_t *bucket; // histogram: LH_BUCKETS of them
};

struct lh_counters {
    struct lh_metric metric[LH_METRICS_MAX];
    unsigned count;
};

// Zero-initialised by the caller. The same name gives the same metric. Never NULL: a full table and
// a name of two kinds are our bugs (asserted); so is a histogram for which there is no memory.
struct lh_metric *lh_metric(struct lh_counters *c, const char *name, enum lh_metric_kind kind);
void lh_counters_free(struct lh_counters *c);

void lh_metric_add(struct lh_metric *m, int64_t n);         // counter: n >= 0; gauge: any
void lh_metric_set(struct lh_metric *m, int64_t value);     // gauge
void lh_metric_observe(struct lh_metric *m, int64_t value); // histogram; negative counts as 0
int64_t lh_metric_value(const struct lh_metric *m);
// Histogram: the upper bound of the bucket in which the q-quantile (0..1) lies, at most the largest
// value; exact below 8, else within 25 %. 0 without observations.
int64_t lh_metric_quantile(const struct lh_metric *m, double q);

// One line each, in order of registration: "name value", and for histograms
// "name count N sum N p50 N p99 N max N".
void lh_counters_dump(const struct lh_counters *c, struct lh_buf *out);

#endif
