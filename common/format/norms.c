// Norms. See norms.h. Uses only IEEE additions, products and divisions in a fixed order, so every
// replica, on every machine, gets the same bits.
#include "common/format/norms.h"

#include <string.h>

#include "common/format/ledger.h"

void lh_norms_find_median(struct lh_norms *n)
{
    float sorted[LH_NORMS];
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > n->last[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = n->last[i];
    }
    n->median = n->count ? sorted[(n->count - 1) / 2] : 0;
}

bool lh_norms_set_aside(const struct lh_norms *n)
{
    return n->outliers >= LH_OUTLIERS_MAX;
}

// ---------------------------------------------------------------- over workers

// Voices are the live workers with norms; if there are fewer than two, all workers with norms.
// Workers that are set aside or expelled are none.
static bool counts(const struct lh_ledger *l, const struct lh_row *row, uint64_t skip)
{
    return row->worker != skip && row->norms.count && !lh_norms_set_aside(&row->norms) &&
           !lh_plan_expelled(&l->plan, row->worker);
}

// Rows and live workers both ascend.
static uint32_t counted(const struct lh_ledger *l, uint64_t skip, bool all,
                        const struct lh_row *out[LH_WORKERS_MAX])
{
    uint32_t n = 0, live = 0;
    for (uint32_t i = 0; i < l->rows; i++) {
        const struct lh_row *row = &l->row[i];
        while (live < l->plan.live && l->plan.worker[live] < row->worker) live++;
        bool is_live = live < l->plan.live && l->plan.worker[live] == row->worker;
        if ((all || is_live) && counts(l, row, skip)) out[n++] = row;
    }
    return n;
}

// Hoare's quickselect: what would stand at `at` if v were sorted. Afterwards nothing before `at` is
// larger, and nothing behind it is smaller. n > at; no NaN.
static double nth(double *v, uint32_t n, uint32_t at)
{
    int64_t first = 0, last = (int64_t)n - 1;
    while (first < last) {
        double pivot = v[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i > j) break;
            double swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        if (at <= j)
            last = j;
        else if (at >= i)
            first = i;
        else
            break;
    }
    return v[at];
}

struct medians {
    uint32_t workers;
    double low, high;
};

static struct medians medians_of(const struct lh_row *const *row, uint32_t n)
{
    double v[LH_WORKERS_MAX];
    struct medians out = {.workers = n};
    if (!n) return out;
    for (uint32_t i = 0; i < n; i++) v[i] = (double)row[i]->norms.median;
    out.high = nth(v, n, n / 2);
    out.low = n % 2 ? out.high : nth(v, n / 2, n / 2 - 1);
    return out;
}

static uint32_t voices(const struct lh_ledger *l, const struct lh_row *out[LH_WORKERS_MAX])
{
    uint32_t n = counted(l, 0, false, out);
    return n < 2 ? counted(l, 0, true, out) : n;
}

uint32_t lh_norms_voices(const struct lh_ledger *l)
{
    const struct lh_row *row[LH_WORKERS_MAX];
    return voices(l, row);
}

struct lh_norms_others lh_norms_others(const struct lh_ledger *l, uint64_t worker)
{
    const struct lh_row *row[LH_WORKERS_MAX];
    uint32_t all = counted(l, worker, false, row), n = 0;
    for (uint32_t i = 0; i < all; i++)
        if (!row[i]->norms.clipped && row[i]->norms.count == LH_NORMS) row[n++] = row[i];
    return (struct lh_norms_others){n, medians_of(row, n).high};
}

uint32_t lh_norms_steps(const struct lh_ledger *l, uint64_t worker, uint32_t steps)
{
    const struct lh_row *row[LH_WORKERS_MAX];
    double v[LH_WORKERS_MAX];
    uint32_t most = LH_NORM_STEPS_MAX, n = counted(l, worker, false, row);
    if (!n) n = counted(l, worker, true, row);
    for (uint32_t i = 0; i < n; i++) v[i] = row[i]->norms.steps;
    if (n) most = LH_NORM_STEPS * (uint32_t)nth(v, n, (n - 1) / 2);
    if (most > LH_NORM_STEPS_MAX) most = LH_NORM_STEPS_MAX;
    if (steps > most) steps = most;
    return steps ? steps : 1;
}

// Live workers that have pushed often enough but have no norms.
static uint32_t silent(const struct lh_ledger *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->rows; i++) {
        const struct lh_row *row = &l->row[i];
        n += lh_plan_has(&l->plan, row->worker) && !row->norms.count && row->admitted >= LH_NORMS;
    }
    return n;
}

// `another`: a worker has its first norm. While there are few voices that resets the reference,
// else one early worker's influence would last.
static void move_reference(struct lh_ledger *l, bool another)
{
    enum { FEW = 3 }; // one worker does not control the median of three
    const struct lh_row *row[LH_WORKERS_MAX];
    struct medians all = medians_of(row, voices(l, row));
    double live = l->plan.live > 1 ? l->plan.live : 1, by = 1 + LH_NORM_GROWTH / live;
    if (another && all.workers > 1 && all.workers <= FEW) {
        l->norm_reference = all.low;
    } else if (l->norm_reference <= 0) {
        bool heard = all.workers + silent(l) >= 2 || l->plan.live < 2;
        if (heard && all.workers) l->norm_reference = all.low;
    } else if (l->norm_reference < all.low) {
        double grown = l->norm_reference * by;
        l->norm_reference = grown < all.low ? grown : all.low;
    } else if (all.workers && l->norm_reference > all.high) {
        double shrunk = l->norm_reference / by;
        l->norm_reference = shrunk > all.high ? shrunk : all.high;
    }
}

void lh_norms_note(struct lh_ledger *l, struct lh_norms *n, const struct lh_norm *norm,
                   uint32_t steps)
{
    bool says = steps && norm->at_equal_h > 0, another = says && !n->count;
    if (says) {
        memmove(n->last + 1, n->last, (LH_NORMS - 1) * sizeof *n->last);
        n->last[0] = norm->at_equal_h;
        if (n->count < LH_NORMS) n->count++;
        n->steps = steps;
        lh_norms_find_median(n);
    }
    n->clipped = norm->clipped;
    n->outliers = norm->outlier ? n->outliers + 1 : 0;
    move_reference(l, another);
}
