// A process's curves in bounded memory. See history.h.
#include "common/app/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/metrics.h"

enum { LABELS_BYTES = 256 };

struct series {
    const struct lh_metric *metric;
    char labels[LABELS_BYTES];
    float value[LH_HISTORY_POINTS];
};

struct lh_history {
    double every_s;
    double time_s[LH_HISTORY_POINTS];
    unsigned points, series_count;
    uint64_t left_out;
    struct series *series[LH_HISTORY_SERIES];
};

// Metrics that get a curve.
static const char *const kept[] = {
    "longhaul_member_loss",          "longhaul_member_tokens_per_second",
    "longhaul_run_tokens_total",     "longhaul_member_utilisation_ratio",
    "longhaul_link_push_seconds",    "longhaul_stable_lag_versions",
    "longhaul_wire_sent_bytes_total"};

struct lh_history *lh_history_create(double every_s)
{
    struct lh_history *h = calloc(1, sizeof *h);
    if (h) h->every_s = every_s;
    return h;
}

void lh_history_destroy(struct lh_history *h)
{
    if (!h) return;
    for (unsigned i = 0; i < h->series_count; i++) free(h->series[i]);
    free(h);
}

static struct series *series_of(struct lh_history *h, const struct lh_metric *m, const char *labels)
{
    for (unsigned i = 0; i < h->series_count; i++)
        if (h->series[i]->metric == m && !strcmp(h->series[i]->labels, labels)) return h->series[i];
    bool fits = h->series_count < LH_HISTORY_SERIES && strlen(labels) < LABELS_BYTES;
    struct series *s = fits ? malloc(sizeof *s) : NULL;
    if (!s) {
        h->left_out++;
        return NULL;
    }
    s->metric = m;
    snprintf(s->labels, sizeof s->labels, "%s", labels);
    for (unsigned i = 0; i < LH_HISTORY_POINTS; i++) s->value[i] = NAN;
    return h->series[h->series_count++] = s;
}

static void keep(void *arg, const struct lh_metric *m, const char *labels, const json_t *value)
{
    struct lh_history *h = arg;
    struct series *s = series_of(h, m, labels);
    if (s) s->value[h->points] = (float)(json_number_value(value) * m->scale);
}

static void halve(struct lh_history *h)
{
    for (unsigned i = 0; i < LH_HISTORY_POINTS / 2; i++) h->time_s[i] = h->time_s[2 * i];
    for (unsigned k = 0; k < h->series_count; k++) {
        float *v = h->series[k]->value;
        for (unsigned i = 0; i < LH_HISTORY_POINTS; i++)
            v[i] = i < LH_HISTORY_POINTS / 2 ? v[2 * i] : NAN;
    }
    h->points = LH_HISTORY_POINTS / 2;
    h->every_s *= 2;
}

static void forget_last(struct lh_history *h)
{
    h->points--;
    for (unsigned k = 0; k < h->series_count; k++) h->series[k]->value[h->points] = NAN;
}

void lh_history_add(struct lh_history *h, double time_s, const json_t *status)
{
    while (h->points && time_s < h->time_s[h->points - 1]) forget_last(h); // a clock set back
    if (h->points && time_s - h->time_s[h->points - 1] < h->every_s) return;
    if (h->points == LH_HISTORY_POINTS) halve(h);
    h->left_out = 0;
    for (unsigned i = 0; i < lh_metrics_count; i++)
        for (unsigned k = 0; k < sizeof kept / sizeof *kept; k++)
            if (!strcmp(kept[k], lh_metrics[i].name))
                lh_metrics_each(status, &lh_metrics[i], keep, h);
    h->time_s[h->points++] = time_s;
}

void lh_history_json(const struct lh_history *h, struct lh_buf *out)
{
    json_t *times = json_array(), *all = json_array();
    for (unsigned i = 0; i < h->points; i++) json_array_append_new(times, json_real(h->time_s[i]));
    for (unsigned k = 0; k < h->series_count; k++) {
        const struct series *s = h->series[k];
        json_t *values = json_array();
        for (unsigned i = 0; i < h->points; i++)
            json_array_append_new(values, isfinite(s->value[i]) ? json_real((double)s->value[i])
                                                                : json_null());
        json_array_append_new(all, json_pack("{s:s s:s s:o}", "metric", s->metric->name, "labels",
                                             s->labels, "values", values));
    }
    json_t *root = json_pack("{s:o s:I s:o}", "time_s", times, "left_out", (json_int_t)h->left_out,
                             "series", all);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (text) lh_put(out, text, strlen(text));
    free(text);
    json_decref(root);
}
