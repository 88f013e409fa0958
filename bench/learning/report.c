// Rows and pictures of the results so far. See learning.h.
//
// Differences are paired: only seeds that both arms have run count, and the interval is Student's t
// over the seeds' differences. The synchronous baseline is the arm with the lowest mean among those
// that have run the most seeds; the others of its grid, tried on fewer, are named beside it.
#include "bench/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/learning/learning.h"
#include "deploy/tool/files.h"
#include "deploy/up/up_plot.h"

enum { RESULTS_MAX = 512, ARMS_MAX = 128, LINE_MAX_BYTES = 16384, CURVES_MAX = 16 };

// A run on 7e9 parameters, for the third picture: seconds of a local step, a region's link.
static const double BIG_PARAMETERS = 7e9, BIG_STEP_S = 6.5, BIG_LINK_BITS = 100e6;

struct result {
    const char *arm;
    json_int_t seed;
    double mean, averaged; // nats per byte, mean of the languages; NAN: not in the line
    json_t *line;
};

struct results {
    struct result at[RESULTS_MAX];
    size_t count;
    const char *arm[ARMS_MAX]; // arms that ran: the table's in its order, then the others
    size_t arms;
    struct learn_conf conf; // conditions of all of them, but for the seed
};

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static double mean_of(const json_t *line, const char *what)
{
    const char *key;
    json_t *value, *languages = json_object_get(line, what);
    double sum = 0;
    json_object_foreach(languages, key, value) sum += json_number_value(value);
    return json_object_size(languages) ? sum / (double)json_object_size(languages) : NAN;
}

static bool ran(const struct results *r, const char *arm)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->at[i].arm, arm)) return true;
    return false;
}

static double number_or(const json_t *object, const char *key, double without)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_number_value(value) : without;
}

bool learn_line_of(const json_t *line, const struct learn_conf *conf)
{
    return json_integer_value(json_object_get(line, "tokens")) == (json_int_t)conf->tokens &&
           (uint32_t)number_or(line, "dim", LEARN_DIM) == conf->dim &&
           (uint32_t)number_or(line, "step_tokens", LEARN_STEP_TOKENS) == conf->step_tokens &&
           (uint32_t)number_or(line, "h", LEARN_H) == conf->h &&
           fabs(number_or(line, "base_rate", 0.006) - (double)conf->rate) < 1e-6 &&
           fabs(number_or(line, "decay", 0) - (double)conf->decay) < 1e-6 &&
           fabs(number_or(line, "warmup", 0.05) - learn_warmup(learn_rounds(conf))) < 1e-9;
}

static int read_results(const char *path, const struct learn_conf *conf, struct results *r)
{
    char text[LINE_MAX_BYTES];
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "bench_learning: cannot read %s\n", path);
        return 1;
    }
    while (fgets(text, sizeof text, f) && r->count < RESULTS_MAX) {
        json_t *line = json_loads(text, 0, NULL);
        const char *arm = json_string_value(json_object_get(line, "arm"));
        if (!arm || !learn_line_of(line, conf)) {
            json_decref(line);
            continue;
        }
        r->at[r->count++] =
            (struct result){arm, json_integer_value(json_object_get(line, "seed")),
                            mean_of(line, "language"), mean_of(line, "averaged"), line};
    }
    fclose(f);
    r->conf = *conf;
    for (size_t i = 0; i < learn_arm_count; i++)
        if (ran(r, learn_arms[i].name)) r->arm[r->arms++] = learn_arms[i].name;
    for (size_t i = 0; i < r->count && r->arms < ARMS_MAX; i++) {
        bool known = false;
        for (size_t k = 0; k < r->arms; k++) known |= !strcmp(r->arm[k], r->at[i].arm);
        if (!known) r->arm[r->arms++] = r->at[i].arm;
    }
    return 0;
}

static const struct result *find(const struct results *r, const char *arm, json_int_t seed)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].seed == seed && !strcmp(r->at[i].arm, arm)) return &r->at[i];
    return NULL;
}

static json_int_t last_seed(const struct results *r)
{
    json_int_t last = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].seed > last) last = r->at[i].seed;
    return last;
}

static bool is_sync(const char *arm)
{
    return !strncmp(arm, "sync-", 5);
}

static void add_word(char *list, size_t size, const char *word)
{
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? " " : "", word);
}

static size_t seeds_of(const struct results *r, const char *arm)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) n += !strcmp(r->at[i].arm, arm);
    return n;
}

// The mean over the seeds that `other` has run as well.
static double mean_with(const struct results *r, const char *arm, const char *other)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->at[i].arm, arm) != 0 || !find(r, other, r->at[i].seed)) continue;
        sum += r->at[i].mean;
        n++;
    }
    return n > 0 ? sum / n : INFINITY;
}

// The best of the synchronous arms that have run the most seeds; `rest` lists the arms with fewer.
static const char *best_sync(const struct results *r, size_t *seeds, char *rest, size_t size)
{
    const char *best = NULL;
    *seeds = 0;
    for (size_t i = 0; i < r->arms; i++)
        if (is_sync(r->arm[i]) && seeds_of(r, r->arm[i]) > *seeds) *seeds = seeds_of(r, r->arm[i]);
    for (size_t i = 0; i < r->arms; i++) {
        const char *arm = r->arm[i];
        if (!is_sync(arm)) continue;
        if (seeds_of(r, arm) < *seeds)
            add_word(rest, size, arm);
        else if (!best || mean_with(r, arm, best) < mean_with(r, best, arm))
            best = arm;
    }
    return best;
}

// ---------------------------------------------------------------- rows

// Two-sided 95 % quantile of Student's t; by degrees of freedom, from 1.
static double t95(size_t freedom)
{
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
    size_t n = sizeof t / sizeof t[0];
    return freedom <= n ? t[freedom - 1] : 2.1;
}

// The synchronous arm that is best on this seed, known only afterwards, or NULL.
static const struct result *best_of_seed(const struct results *r, json_int_t seed)
{
    const struct result *best = NULL;
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].seed == seed && is_sync(r->at[i].arm) && (!best || r->at[i].mean < best->mean))
            best = &r->at[i];
    return best;
}

// Row of 100 * (a - b) / b over the seeds that both have run; returns their number. averaged: of
// the parameters' mean over the last tenth, in both arms. Without `base`: the best arm of every
// seed.
static size_t gap_row(struct bench_report *b, const struct results *r, const char *name,
                      const char *arm, const char *base, bool averaged)
{
    double d[BENCH_SAMPLES_MAX], mean = 0, sum = 0, base_mean = 0;
    size_t n = 0;
    for (json_int_t s = 1; s <= last_seed(r) && n < BENCH_SAMPLES_MAX; s++) {
        const struct result *x = find(r, arm, s);
        const struct result *y = base ? find(r, base, s) : best_of_seed(r, s);
        if (!x || !y) continue;
        double ours = averaged ? x->averaged : x->mean, theirs = averaged ? y->averaged : y->mean;
        if (isnan(ours) || isnan(theirs)) continue;
        d[n++] = 100 * (ours - theirs) / theirs;
        base_mean += theirs;
    }
    if (!n) return 0;
    for (size_t i = 0; i < n; i++) mean += d[i] / (double)n;
    for (size_t i = 0; i < n; i++) sum += (d[i] - mean) * (d[i] - mean);
    double half = n > 1 ? t95(n - 1) * sqrt(sum / (double)(n - 1) / (double)n) : -1;
    bench_estimate(b, name, "%", mean, mean - half, mean + half, n, NULL, 0);
    printf("%s: %s %+.2f %% of %s (%.4f)", name, arm, mean, base ? base : "the best of every seed",
           base_mean / (double)n);
    if (half >= 0) printf(", 95 %% interval %+.2f to %+.2f", mean - half, mean + half);
    printf(", %zu paired seeds\n", n);
    return n;
}

// The curve's loss after `tokens`, linear between its points; NAN: the curve does not reach there.
static double loss_after(const json_t *curve, double tokens)
{
    size_t i;
    json_t *point;
    double before_tokens = NAN, before = NAN;
    json_array_foreach(curve, i, point)
    {
        double t = json_number_value(json_array_get(point, 0));
        double nats = json_number_value(json_array_get(point, 3));
        if (t >= tokens && i == 0) return t > tokens ? NAN : nats;
        if (t >= tokens)
            return before + (nats - before) * (tokens - before_tokens) / (t - before_tokens);
        before_tokens = t;
        before = nats;
    }
    return NAN;
}

// Differences of the curves after `tokens`, in percent, over the seeds that both have run; returns
// their number.
static size_t curve_gaps(const struct results *r, const char *arm, const char *base, double tokens,
                         double *d)
{
    size_t n = 0;
    for (json_int_t s = 1; s <= last_seed(r) && n < BENCH_SAMPLES_MAX; s++) {
        const struct result *x = find(r, arm, s), *y = find(r, base, s);
        if (!x || !y) continue;
        double ours = loss_after(json_object_get(x->line, "curve"), tokens);
        double theirs = loss_after(json_object_get(y->line, "curve"), tokens);
        if (isnan(ours) || isnan(theirs)) continue;
        d[n++] = 100 * (ours - theirs) / theirs;
    }
    return n;
}

// Intervals between the points of the arm's shortest curve.
static size_t curve_intervals(const struct results *r, const char *arm)
{
    size_t least = LEARN_POINTS_MAX + 2;
    for (size_t i = 0; i < r->count; i++) {
        size_t n = json_array_size(json_object_get(r->at[i].line, "curve"));
        if (!strcmp(r->at[i].arm, arm) && n < least) least = n;
    }
    return least > 1 ? least - 1 : 0;
}

// Rows of the place where the arm's curve is worst compared with that of `base`: the largest mean
// of the paired differences at as many places as the arm's curve has points from 5 % of the tokens
// on, with the interval there, and the place. The place was chosen for being the worst, so the
// interval holds for that place alone.
static void curve_rows(struct bench_report *b, const struct results *r, const char *name,
                       const char *arm, const char *base)
{
    double d[BENCH_SAMPLES_MAX], worst = -INFINITY, half = 0, place = 0;
    size_t points = curve_intervals(r, arm), places = 0, seeds = 0;
    for (size_t k = 1; k <= points; k++) {
        double part = (double)k / (double)points, mean = 0, sum = 0;
        if (part < 0.05) continue;
        size_t n = curve_gaps(r, arm, base, part * (double)r->conf.tokens, d);
        for (size_t i = 0; i < n; i++) mean += d[i] / (double)n;
        for (size_t i = 0; i < n; i++) sum += (d[i] - mean) * (d[i] - mean);
        places += n > 0;
        if (!n || mean <= worst) continue;
        worst = mean;
        place = 100 * part;
        seeds = n;
        half = n > 1 ? t95(n - 1) * sqrt(sum / (double)(n - 1) / (double)n) : -1;
    }
    if (!seeds) return;
    char row[96];
    snprintf(row, sizeof row, "learning.curve.worst_percent%s", name);
    bench_estimate(b, row, "%", worst, worst - half, worst + half, seeds, NULL, 0);
    snprintf(row, sizeof row, "learning.curve.worst_at_percent%s", name);
    bench_estimate(b, row, "% of tokens", place, 1, 0, 1, NULL, 0);
    snprintf(row, sizeof row, "learning.curve.points%s", name);
    bench_estimate(b, row, "points", (double)places, 1, 0, 1, NULL, 0);
}

static void arm_rows(struct bench_report *b, const struct results *r, const char *arm)
{
    struct bench_samples mean = {0}, averaged = {0};
    const json_t *first = NULL;
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->at[i].arm, arm) != 0) continue;
        if (!first) first = r->at[i].line;
        bench_sample(&mean, r->at[i].mean);
        if (!isnan(r->at[i].averaged)) bench_sample(&averaged, r->at[i].averaged);
    }
    if (!first) return;
    char name[96];
    const char *language;
    json_t *unused;
    snprintf(name, sizeof name, "learning.%s.mean", arm);
    bench_row(b, name, "nats/byte", &mean, NULL, 0);
    if (averaged.n) {
        snprintf(name, sizeof name, "learning.%s.mean.averaged", arm);
        bench_row(b, name, "nats/byte", &averaged, NULL, 0);
    }
    json_object_foreach(json_object_get(first, "language"), language, unused)
    {
        struct bench_samples one = {0};
        for (size_t i = 0; i < r->count; i++)
            if (!strcmp(r->at[i].arm, arm))
                bench_sample(&one, number(json_object_get(r->at[i].line, "language"), language));
        snprintf(name, sizeof name, "learning.%s.%s", arm, language);
        bench_row(b, name, "nats/byte", &one, NULL, 0);
    }
    snprintf(name, sizeof name, "learning.%s.up_bytes", arm);
    bench_estimate(b, name, "B", number(first, "up_bytes"), 1, 0, 1, NULL, 0);
    snprintf(name, sizeof name, "learning.%s.down_bytes", arm);
    bench_estimate(b, name, "B", number(first, "down_bytes"), 1, 0, 1, NULL, 0);
}

static void conditions(struct bench_report *b, const struct results *r)
{
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < r->count; i++) {
        double load = number(r->at[i].line, "load");
        low = fmin(low, load);
        high = fmax(high, load);
    }
    bench_condition(b, "tokens", "%llu, shares 4:2:1, each region on its own languages",
                    (unsigned long long)r->conf.tokens);
    bench_condition(b, "rounds", "%llu, local steps %u, %u, %u of %u tokens",
                    (unsigned long long)learn_rounds(&r->conf), learn_h(&r->conf, 0),
                    learn_h(&r->conf, 1), learn_h(&r->conf, 2), r->conf.step_tokens);
    bench_condition(b, "model", "%.2f M parameters: dim %u, 4 layers, bytes, context 128",
                    number_or(r->at[0].line, "parameters", 0) / 1e6, r->conf.dim);
    char fall[48] = "";
    if (r->conf.decay > 0)
        snprintf(fall, sizeof fall, " in the last %g %%", 100 * (double)r->conf.decay);
    bench_condition(b, "optimizer", "AdamW, peak %g, cosine to 2 %%%s, warm-up %.0f %%",
                    (double)r->conf.rate, fall, 100 * learn_warmup(learn_rounds(&r->conf)));
    bench_condition(b, "links", "200, 180, 150 ms round trip, on the virtual clock");
    bench_condition(b, "ours", "density %.4f",
                    (double)learn_density(learn_arm_find("ours"), learn_rounds(&r->conf)));
    bench_condition(b, "load average", "%.1f to %.1f at the arms' ends", low, high);
    char list[480] = "";
    for (size_t i = 0; i < r->count; i++) {
        const char *commit = json_string_value(json_object_get(r->at[i].line, "commit"));
        if (commit && !strstr(list, commit)) add_word(list, sizeof list, commit);
    }
    bench_condition(b, "trained at", "%s", list);
    list[0] = 0;
    for (size_t i = 0; i < learn_arm_count; i++)
        if (!ran(r, learn_arms[i].name)) add_word(list, sizeof list, learn_arms[i].name);
    bench_condition(b, "not run", "%s", list[0] ? list : "nothing");
}

// ---------------------------------------------------------------- pictures

struct picture {
    const char *file, *title, *x_name;
    double (*x)(const struct results *r, const struct result *at, const json_t *point);
};

static double at(const json_t *point, size_t i)
{
    return json_number_value(json_array_get(point, i));
}

static double by_tokens(const struct results *r, const struct result *a, const json_t *point)
{
    (void)r;
    (void)a;
    return at(point, 0);
}

static double by_bytes(const struct results *r, const struct result *a, const json_t *point)
{
    (void)r;
    (void)a;
    return log10(at(point, 1) + at(point, 2) + 1);
}

// Hours of the fastest region: its steps, and its traffic, which overlaps them unless every round
// waits for it.
static double by_hours(const struct results *r, const struct result *a, const json_t *point)
{
    double parameters = number(a->line, "parameters");
    double rounds = at(point, 0) / (double)learn_round_tokens(&r->conf);
    double compute = rounds * learn_h(&r->conf, 0) * BIG_STEP_S;
    double up = at(point, 1), down = at(point, 2), busier = up > down ? up : down;
    double link = busier * (BIG_PARAMETERS / parameters) * 8 / BIG_LINK_BITS;
    return (is_sync(a->arm) ? compute + link : fmax(compute, link)) / 3600;
}

static const struct picture pictures_of[] = {
    {"learning-tokens.svg", "Held-out loss against tokens, the same for every arm", "tokens",
     by_tokens},
    {"learning-bytes.svg", "Held-out loss against bytes of the busiest region, up and down",
     "log10 of bytes", by_bytes},
    {"learning-wallclock.svg",
     "Held-out loss, modelled for 7e9 parameters: 6.5 s a step, 100 Mbit/s a region, bytes scaled "
     "by 7e9 / parameters; sync waits",
     "hours", by_hours},
};

// The first tenth is left out: it would flatten the rest.
static size_t curve_of(const struct results *r, const struct result *a, const struct picture *p,
                       struct dp_point *out)
{
    size_t n = 0, i;
    json_t *point;
    json_array_foreach(json_object_get(a->line, "curve"), i, point)
    {
        if (at(point, 0) * 10 < (double)r->conf.tokens || n == LEARN_POINTS_MAX + 2) continue;
        out[n++] = (struct dp_point){p->x(r, a, point), at(point, 3)};
    }
    return n;
}

static int draw(const struct results *r, const struct picture *p, const char *dir,
                const char *const *arm, size_t arms)
{
    struct dp_curve curve[CURVES_MAX];
    struct dp_point point[CURVES_MAX][LEARN_POINTS_MAX + 2];
    size_t n = 0;
    for (size_t i = 0; i < arms; i++) {
        const struct result *a = find(r, arm[i], 1);
        if (!a || n == CURVES_MAX) continue;
        curve[n] = (struct dp_curve){arm[i], point[n], curve_of(r, a, p, point[n])};
        n++;
    }
    char path[DP_PATH_BYTES];
    struct lh_buf svg = lh_buf(1 << 20);
    dp_plot_svg(curve, n, p->title, p->x_name, "nats per byte, mean of the languages, seed 1",
                &svg);
    lh_err err = dp_path(path, "%s/%s", dir, p->file);
    FILE *f = err ? NULL : fopen(path, "w");
    bool failed = !f || fwrite(svg.data, 1, svg.len, f) != svg.len;
    if (f && fclose(f)) failed = true;
    if (failed) fprintf(stderr, "bench_learning: cannot write %s/%s\n", dir, p->file);
    lh_buf_free(&svg);
    return failed;
}

// ---------------------------------------------------------------- the report

static size_t all_rows(struct bench_report *b, const struct results *r, const char *best)
{
    size_t paired = 0;
    if (best) {
        paired = gap_row(b, r, "learning.gap_to_sync_dense_percent", "ours", best, false);
        gap_row(b, r, "learning.gap_to_sync_dense_percent.averaged", "ours", best, true);
        gap_row(b, r, "learning.gap_to_sync_dense_percent.each_seeds_best", "ours", NULL, false);
        gap_row(b, r, "learning.gap_to_sync_dense_percent.p64", "ours-p64", best, false);
        gap_row(b, r, "learning.gap_to_sync_dense_percent.p64.averaged", "ours-p64", best, true);
        curve_rows(b, r, "", "ours", best);
        curve_rows(b, r, ".p64", "ours-p64", best);
        for (size_t i = 0; i < r->arms; i++) {
            const char *arm = r->arm[i];
            char name[96];
            if (is_sync(arm) || !strcmp(arm, "ours") || !strcmp(arm, "ours-p64")) continue;
            snprintf(name, sizeof name, "learning.gap_to_sync_dense_percent.%s", arm);
            gap_row(b, r, name, arm, best, false);
        }
    }
    gap_row(b, r, "learning.gap_to_single_percent", "ours", "single", false);
    if (paired) bench_estimate(b, "learning.seeds", "seeds", (double)paired, 1, 0, 1, NULL, 0);
    for (size_t i = 0; i < r->arms; i++) arm_rows(b, r, r->arm[i]);
    return paired;
}

int learn_report(const char *results, const struct learn_conf *conf, const char *json,
                 const char *pictures)
{
    struct results *r = calloc(1, sizeof *r);
    struct bench_report *b = calloc(1, sizeof *b);
    if (!r || !b || read_results(results, conf, r) || !r->count) {
        fprintf(stderr, "bench_learning: %s has no arm of %llu tokens, dim %u, steps of %u\n",
                results, (unsigned long long)conf->tokens, conf->dim, conf->step_tokens);
        free(r);
        free(b);
        return 1;
    }
    size_t tuned;
    char rest[400] = "";
    const char *best = best_sync(r, &tuned, rest, sizeof rest);
    *b = (struct bench_report){.bench = "learning", .json = json};
    conditions(b, r);
    if (best)
        bench_condition(b, "sync dense", "%s, the best by %zu seed%s%s%s", best, tuned,
                        tuned == 1 ? "" : "s", *rest ? "; tried on fewer: " : "", rest);
    all_rows(b, r, best);
    int failed = bench_finish(b);
    const char *const drawn[] = {"single",   best ? best : "",  "ours",
                                 "ours-p64", "ours-dense-sign", "async-naive-nesterov"};
    for (size_t i = 0; pictures && i < sizeof pictures_of / sizeof pictures_of[0]; i++)
        failed |= draw(r, &pictures_of[i], pictures, drawn, sizeof drawn / sizeof drawn[0]);
    for (size_t i = 0; i < r->count; i++) json_decref(r->at[i].line);
    free(r);
    free(b);
    return failed;
}
