// Link settings: quantities with units, and which links a command selects. See topology.h.
//
// Invariant: a command changes every link it selects or none.
#include <stdlib.h>
#include <string.h>

#include "deploy/wan/topology.h"

const struct dp_unit dp_units_time[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
const struct dp_unit dp_units_rate[] = {
    {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
const struct dp_unit dp_units_size[] = {{"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {NULL, 0}};
const struct dp_unit dp_units_share[] = {{"%", 0.01}, {NULL, 0}};

static const double TIME_MAX = 60e9, RATE_MIN = 1e3, RATE_MAX = 1e12, QUEUE_BYTES_MAX = 1e12;

static bool parse_quantity(const char *text, const struct dp_unit *units, double most,
                           double *value)
{
    char *end;
    size_t digits = strspn(text, "0123456789.");
    double number = strtod(text, &end);
    while (units->name && strcmp(units->name, end) != 0) units++;
    *value = number * units->scale;
    return digits > 0 && end == text + digits && units->name && *value <= most;
}

static LH_MUST lh_err parse_time(const char *word, const char *text, int64_t *time)
{
    double value;
    if (!parse_quantity(text, dp_units_time, TIME_MAX, &value))
        return lh_fail(LH_ERR_INVALID,
                       "'%s': want a time up to 60s, such as 90ms (units us, ms, s)", word);
    *time = (int64_t)value;
    return LH_OK;
}

static LH_MUST lh_err parse_rtt(const char *word, const char *text, bool both_ways, int64_t *delay)
{
    int64_t rtt = 0;
    if (!both_ways)
        return lh_fail(
            LH_ERR_INVALID,
            "'%s': a round trip takes both directions; for one of them give delay=", word);
    LH_TRY(parse_time(word, text, &rtt));
    *delay = rtt / 2;
    return LH_OK;
}

static LH_MUST lh_err parse_rate(const char *word, const char *text, double *rate)
{
    *rate = 0;
    if (strcmp(text, "unlimited") == 0) return LH_OK;
    if (parse_quantity(text, dp_units_rate, RATE_MAX, rate) && *rate >= RATE_MIN) return LH_OK;
    return lh_fail(LH_ERR_INVALID,
                   "'%s': want 'unlimited' or a rate from 1kbit to 1000gbit (units bit, kbit, mbit,"
                   " gbit)",
                   word);
}

static LH_MUST lh_err parse_queue(const char *word, const char *text, struct dp_settings *settings)
{
    settings->queue_in_bytes =
        parse_quantity(text, dp_units_size, QUEUE_BYTES_MAX, &settings->queue);
    if (settings->queue_in_bytes || parse_quantity(text, dp_units_time, TIME_MAX, &settings->queue))
        return LH_OK;
    return lh_fail(LH_ERR_INVALID,
                   "'%s': want a time up to 60s or a size (units us, ms, s, b, kb, mb)", word);
}

// The value in a word KEY=VALUE; NULL: it has another key.
static const char *value_of(const char *word, const char *key)
{
    size_t length = strlen(key);
    return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static LH_MUST lh_err parse_setting(const char *word, bool both_ways, struct dp_settings *settings)
{
    const char *text;
    if (strcmp(word, "up") == 0 || strcmp(word, "down") == 0) {
        settings->up = word[0] == 'u';
        return LH_OK;
    }
    if ((text = value_of(word, "delay"))) return parse_time(word, text, &settings->delay);
    if ((text = value_of(word, "jitter"))) return parse_time(word, text, &settings->jitter);
    if ((text = value_of(word, "rtt"))) return parse_rtt(word, text, both_ways, &settings->delay);
    if ((text = value_of(word, "rate"))) return parse_rate(word, text, &settings->rate);
    if ((text = value_of(word, "queue"))) return parse_queue(word, text, settings);
    if ((text = value_of(word, "loss"))) {
        if (parse_quantity(text, dp_units_share, 1, &settings->loss)) return LH_OK;
        return lh_fail(LH_ERR_INVALID, "'%s': want a share from 0%% to 100%%, such as 0.1%%", word);
    }
    if ((text = value_of(word, "reorder"))) {
        settings->reorder = strcmp(text, "yes") == 0;
        if (settings->reorder || strcmp(text, "no") == 0) return LH_OK;
        return lh_fail(LH_ERR_INVALID, "'%s': want yes or no", word);
    }
    return lh_fail(
        LH_ERR_INVALID,
        "'%s': no such setting; the settings are rtt=, delay=, jitter=, rate=, queue=, loss=, "
        "reorder=, up, down",
        word);
}

// ---------------------------------------------------------------- which links

struct selection {
    int a, b; // regions; -1: all
    bool both_ways;
    char *const *settings;
    int count;
};

static LH_MUST lh_err find_end(const struct dp_world *world, const char *name, int *region)
{
    *region = -1;
    if (strcmp(name, "all") == 0) return LH_OK;
    for (int i = 0; i < world->regions; i++)
        if (strcmp(world->region[i].name, name) == 0) *region = i;
    return *region < 0 ? lh_fail(LH_ERR_INVALID, "no region '%s'", name) : LH_OK;
}

static LH_MUST lh_err parse_selection(const struct dp_world *world, char *const *words, int count,
                                      struct selection *s)
{
    s->both_ways = count < 2 || strcmp(words[1], "to") != 0;
    int b = s->both_ways ? 1 : 2;
    s->settings = words + b + 1;
    s->count = count - b - 1;
    if (s->count < 0)
        return lh_fail(LH_ERR_INVALID, "want two regions: A B or, for one direction, A to B");
    if (s->count == 0) return lh_fail(LH_ERR_INVALID, "want a setting, such as rtt=90ms");
    LH_TRY(find_end(world, words[0], &s->a));
    LH_TRY(find_end(world, words[b], &s->b));
    if (s->a >= 0 && s->a == s->b)
        return lh_fail(LH_ERR_INVALID, "'%s' cannot have a link to itself", words[0]);
    return LH_OK;
}

static bool selects(const struct selection *s, int from, int to)
{
    bool forth = (s->a < 0 || s->a == from) && (s->b < 0 || s->b == to);
    bool back = (s->a < 0 || s->a == to) && (s->b < 0 || s->b == from);
    return from != to && (forth || (s->both_ways && back));
}

static LH_MUST lh_err new_settings(const struct dp_world *world, const struct selection *s,
                                   int from, int to, struct dp_settings *settings)
{
    *settings = world->link[from][to].settings;
    for (int i = 0; i < s->count; i++)
        LH_TRY(parse_setting(s->settings[i], s->both_ways, settings));
    if (settings->jitter > settings->delay)
        return lh_fail(LH_ERR_INVALID, "%s to %s: the jitter would exceed the one-way delay",
                       world->region[from].name, world->region[to].name);
    return LH_OK;
}

static void change_link(struct dp_world_link *link, const struct dp_settings *settings)
{
    if (link->settings.up && !settings->up) link->epoch++;
    link->settings = *settings;
    link->drift_start = INT64_MIN / 2; // long past: draw new levels
}

lh_err dp_world_change(struct dp_world *world, char *const *words, int count)
{
    struct selection s = {0};
    struct dp_settings settings;
    LH_TRY(parse_selection(world, words, count, &s));
    for (int changing = 0; changing < 2; changing++) // the first round only checks
        for (int from = 0; from < world->regions; from++)
            for (int to = 0; to < world->regions; to++) {
                if (!selects(&s, from, to)) continue;
                LH_TRY(new_settings(world, &s, from, to, &settings));
                if (changing) change_link(&world->link[from][to], &settings);
            }
    return LH_OK;
}
