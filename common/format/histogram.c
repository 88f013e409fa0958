// Histograms. See histogram.h.
#include "common/format/histogram.h"

const struct lh_histogram_scale lh_scale_seconds = {1e-3, 2};
const struct lh_histogram_scale lh_scale_versions = {1, 2};

void lh_histogram_add_many(struct lh_histogram *h, const struct lh_histogram_scale *s, double value,
                           uint64_t times)
{
    double bound = s->first;
    unsigned i = 0;
    for (; i < LH_HISTOGRAM_BUCKETS && !(value <= bound); i++) bound *= s->growth;
    h->count[i] += times;
    h->sum += value * (double)times;
}

void lh_histogram_add(struct lh_histogram *h, const struct lh_histogram_scale *s, double value)
{
    lh_histogram_add_many(h, s, value, 1);
}

json_t *lh_histogram_status(const struct lh_histogram *h, const struct lh_histogram_scale *s)
{
    json_t *bounds = json_array(), *counts = json_array();
    double bound = s->first;
    for (unsigned i = 0; i < LH_HISTOGRAM_BUCKETS; i++, bound *= s->growth)
        json_array_append_new(bounds, json_real(bound));
    for (unsigned i = 0; i <= LH_HISTOGRAM_BUCKETS; i++)
        json_array_append_new(counts, json_integer((json_int_t)h->count[i]));
    return json_pack("{s:o s:o s:f}", "le", bounds, "count", counts, "sum", h->sum);
}
