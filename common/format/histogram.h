// Counts of values by size, for metrics, as in Prometheus' histograms. Fixed memory.
#ifndef LH_COMMON_HISTOGRAM_H
#define LH_COMMON_HISTOGRAM_H

#include <jansson.h>
#include <stdint.h>

enum { LH_HISTOGRAM_BUCKETS = 16 };

// Zeros: empty. Bucket i counts values of at most first * growth^i and above the previous bucket's;
// the last counts the rest.
struct lh_histogram {
    uint64_t count[LH_HISTOGRAM_BUCKETS + 1];
    double sum;
};

struct lh_histogram_scale {
    double first, growth;
};

extern const struct lh_histogram_scale lh_scale_seconds;  // 1 ms to 33 s, doubling
extern const struct lh_histogram_scale lh_scale_versions; // 1 to 32,768, doubling

void lh_histogram_add(struct lh_histogram *h, const struct lh_histogram_scale *s, double value);
void lh_histogram_add_many(struct lh_histogram *h, const struct lh_histogram_scale *s, double value,
                           uint64_t times);
// {"le": [bounds], "count": [not cumulative, one more than bounds], "sum"}; NULL: no memory.
json_t *lh_histogram_status(const struct lh_histogram *h, const struct lh_histogram_scale *s);

#endif
