// Scenes from flags and a seed. See scene.h.
#include "bench/sim/scene.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BASE_TOKENS_PER_S = 1024; // a region with speed 1

// ---------------------------------------------------------------- flags

static _Noreturn void usage(const char *why)
{
    fprintf(stderr,
            "bench_sim: %s\n"
            "usage: bench_sim [--workers N] [--shards N] [--units N] [--values N]\n"
            "  [--stands-for N] [--rule level|finish|weighted] [--speeds A,B,...]\n"
            "  [--rtt-ms LOW,HIGH] [--mbit LOW,HIGH] [--loss P] [--port-mbit N]\n"
            "  [--slow SHARE,AT,TO] [--fail EVERY_S,DOWN_S] [--h-base N] [--cadence speed|link]\n"
            "  [--window N|0] [--stagger on|off] [--budget PART] [--limit-s N]\n"
            "  [--seed N]\n",
            why);
    exit(2);
}

static double number(const char *text, double low, double high, const char *flag)
{
    char *end;
    double v = strtod(text, &end);
    if (end != text && *end == 0 && v >= low && v <= high) return v;
    char why[160];
    snprintf(why, sizeof why, "--%s: \"%s\" is no number from %g to %g", flag, text, low, high);
    usage(why);
}

// Parses numbers with commas between them; gives their count.
static uint32_t list(const char *text, double low, double high, double *out, uint32_t room,
                     const char *flag)
{
    char copy[256], *save;
    uint32_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (n == room) usage("a list is too long");
        out[n++] = number(word, low, high, flag);
    }
    return n;
}

static void exactly(const char *text, double low, double high, double *out, uint32_t n,
                    const char *flag)
{
    char why[80];
    snprintf(why, sizeof why, "--%s takes %u numbers", flag, n);
    if (list(text, low, high, out, n, flag) != n) usage(why);
}

static struct scene_range range(const char *text, double low, double high, const char *flag)
{
    double v[2];
    exactly(text, low, high, v, 2, flag);
    if (v[0] > v[1]) usage("a range begins with its lower end");
    return (struct scene_range){v[0], v[1]};
}

static void read_rule(struct scene_flags *f, const char *word)
{
    f->follows = strcmp(word, "level") != 0;
    if (f->follows && !ps_balance_kind_of(word, &f->kind)) usage("--rule: no such rule");
}

const char *scene_rule(const struct scene_flags *f)
{
    return f->follows ? ps_balance_kind_name(f->kind) : "level";
}

static void read_flag(struct scene_flags *f, const char *name, const char *text)
{
    double v[3];
    if (!strcmp(name, "workers")) {
        f->workers = (uint32_t)number(text, 1, LH_WORKERS_MAX, name);
    } else if (!strcmp(name, "shards")) {
        f->shards = (uint32_t)number(text, 1, SCENE_SHARDS_MAX, name);
    } else if (!strcmp(name, "units")) {
        f->units = (uint32_t)number(text, 1, LH_UNITS_MAX / LH_WORKERS_MAX, name);
    } else if (!strcmp(name, "values")) {
        f->values = (uint32_t)number(text, 64, 1 << 20, name);
    } else if (!strcmp(name, "stands-for")) {
        f->stands_for = (uint32_t)number(text, 1, 1e6, name);
    } else if (!strcmp(name, "rule")) {
        read_rule(f, text);
    } else if (!strcmp(name, "speeds")) {
        f->speeds = list(text, 0.001, 1000, f->speed, SCENE_SPEEDS_MAX, name);
    } else if (!strcmp(name, "rtt-ms")) {
        f->rtt_ms = range(text, 0.1, 3000, name);
    } else if (!strcmp(name, "mbit")) {
        f->mbit = range(text, 0.1, 1e6, name);
    } else if (!strcmp(name, "loss")) {
        f->loss = number(text, 0, 0.5, name);
    } else if (!strcmp(name, "port-mbit")) {
        f->port_mbit = number(text, 0, 1e7, name);
    } else if (!strcmp(name, "slow")) {
        exactly(text, 0, 1, v, 3, name);
        f->slow_share = v[0], f->slow_at = v[1], f->slow_to = v[2];
        if (f->slow_to < 0.01) usage("--slow: TO is at least 0.01");
    } else if (!strcmp(name, "fail")) {
        exactly(text, 0, 1e6, v, 2, name);
        f->fail_every_s = v[0], f->fail_down_s = v[1];
    } else if (!strcmp(name, "h-base")) {
        f->h_base = (uint32_t)number(text, 1, 300, name);
    } else if (!strcmp(name, "cadence")) {
        f->by_link = !strcmp(text, "link");
        if (!f->by_link && strcmp(text, "speed") != 0) usage("--cadence: speed or link");
    } else if (!strcmp(name, "window")) {
        f->window = (uint32_t)number(text, 0, LH_WINDOW_MAX, name);
    } else if (!strcmp(name, "stagger")) {
        f->together = !strcmp(text, "off");
        if (!f->together && strcmp(text, "on") != 0) usage("--stagger: on or off");
    } else if (!strcmp(name, "budget")) {
        f->budget = number(text, 0.001, 1, name);
    } else if (!strcmp(name, "limit-s")) {
        f->limit_s = number(text, 1, 1e6, name);
    } else {
        f->seed = (uint64_t)number(text, 0, 1e15, name);
    }
}

struct scene_flags scene_read(int argc, char **argv)
{
    static const struct option options[] = {
        {"workers", 1, NULL, 0}, {"shards", 1, NULL, 0},     {"units", 1, NULL, 0},
        {"values", 1, NULL, 0},  {"stands-for", 1, NULL, 0}, {"rule", 1, NULL, 0},
        {"speeds", 1, NULL, 0},  {"rtt-ms", 1, NULL, 0},     {"mbit", 1, NULL, 0},
        {"loss", 1, NULL, 0},    {"port-mbit", 1, NULL, 0},  {"slow", 1, NULL, 0},
        {"fail", 1, NULL, 0},    {"h-base", 1, NULL, 0},     {"limit-s", 1, NULL, 0},
        {"cadence", 1, NULL, 0}, {"window", 1, NULL, 0},     {"seed", 1, NULL, 0},
        {"stagger", 1, NULL, 0}, {"budget", 1, NULL, 0},     {NULL, 0, NULL, 0}};
    struct scene_flags f = {.seed = 1,
                            .workers = 4,
                            .shards = 1,
                            .units = 24,
                            .values = 4096,
                            .stands_for = 2500,
                            .speed = {1},
                            .speeds = 1,
                            .rtt_ms = {50, 300},
                            .mbit = {100, 10000},
                            .h_base = 8,
                            .window = 2,
                            .budget = 1,
                            .limit_s = 20000};
    int at = 0, said;
    while ((said = getopt_long(argc, argv, "", options, &at)) == 0)
        read_flag(&f, options[at].name, optarg);
    if (said != -1 || optind < argc) usage("what is that?");
    if (!f.speeds) usage("--speeds: none");
    return f;
}

// ---------------------------------------------------------------- random draws

static double uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double within(struct scene_range r, uint64_t *state)
{
    return r.low * pow(r.high / r.low, uniform(state));
}

double scene_speed(const struct scene_region *r, double at_s)
{
    return r->slow_at_s >= 0 && at_s >= r->slow_at_s ? r->tokens_per_s * r->slow_to
                                                     : r->tokens_per_s;
}

// Tokens that all regions train in this many seconds, if none ever waits.
static double trained_within(const struct scene *s, double seconds)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->flags.workers; i++) {
        const struct scene_region *r = &s->region[i];
        double fast = r->slow_at_s >= 0 ? fmin(seconds, r->slow_at_s) : seconds;
        sum += r->tokens_per_s * (fast + (seconds - fast) * r->slow_to);
    }
    return sum;
}

static double bound(const struct scene *s)
{
    double low = 0, high = 1;
    while (trained_within(s, high) < s->tokens) high *= 2;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (trained_within(s, middle) < s->tokens)
            low = middle;
        else
            high = middle;
    }
    return high;
}

void scene_draw(struct scene *s, const struct scene_flags *flags)
{
    uint64_t chance = flags->seed * 0x9e3779b97f4a7c15u + 7;
    s->flags = *flags;
    double units = (double)flags->workers * flags->units;
    s->tokens = ceil(units * flags->budget) * SCENE_UNIT_TOKENS;
    for (uint32_t i = 0; i < flags->workers; i++)
        s->region[i] = (struct scene_region){
            .tokens_per_s = BASE_TOKENS_PER_S * flags->speed[i % flags->speeds],
            .slow_at_s = -1,
            .slow_to = 1,
            .rtt_s = within(flags->rtt_ms, &chance) / 1e3,
            .bytes_per_s = within(flags->mbit, &chance) * 1e6 / 8,
        };
    s->bound_s = bound(s);
    uint32_t slow = (uint32_t)ceil(flags->slow_share * flags->workers);
    uint32_t first = (uint32_t)(uniform(&chance) * flags->workers);
    for (uint32_t i = 0; i < slow; i++) {
        struct scene_region *r = &s->region[(first + i) % flags->workers];
        r->slow_at_s = flags->slow_at * s->bound_s;
        r->slow_to = flags->slow_to;
    }
    s->bound_s = bound(s);
}
