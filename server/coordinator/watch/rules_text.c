// The text of coordinator.rules: see rules_text.h.
#include "server/coordinator/watch/rules_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "common/env/env.h"

enum { WORD_BYTES = 64 };
static const double FOR_S_MAX = 7 * 86400;

static const char *const metrics[] = {
    [PS_RULE_LOSS] = "loss",
    [PS_RULE_LOSS_RISE] = "loss_rise",
    [PS_RULE_UTILISATION] = "utilisation",
    [PS_RULE_FAILING] = "failing",
    [PS_RULE_STALLED] = "stalled",
    [PS_RULE_SILENT] = "silent",
    [PS_RULE_PRIVACY_SPENT] = "privacy_spent",
    [PS_RULE_DISK_FREE] = "disk_free",
    [PS_RULE_CERTIFICATE] = "certificate_ends",
};
LH_STATIC_ASSERT(LH_COUNT(metrics) == PS_RULE_METRICS, "a name for each metric");

const char *ps_rule_metric_name(enum ps_rule_metric metric)
{
    return metrics[metric];
}

struct reader {
    const char *at, *end; // the rest of a rule
    unsigned line;
    char word[WORD_BYTES]; // the last one taken; "": the end
};

static LH_MUST lh_err bad(const struct reader *r, const char *what)
{
    return lh_fail(LH_ERR_CONFIG, "coordinator.rules, line %u: %s", r->line, what);
}

// Takes the next word. '<' and '>' are words of their own.
static void next(struct reader *r)
{
    static const char BLANKS[] = " \t\r";
    size_t n = 0;
    while (r->at < r->end && strchr(BLANKS, *r->at)) r->at++;
    bool sign = r->at < r->end && (*r->at == '<' || *r->at == '>');
    while (r->at < r->end && !strchr(BLANKS, *r->at)) {
        if (n && (sign || *r->at == '<' || *r->at == '>')) break;
        if (n + 1 < sizeof r->word) r->word[n++] = *r->at;
        r->at++;
    }
    r->word[n] = 0;
}

static bool is(const struct reader *r, const char *word)
{
    return !strcmp(r->word, word);
}

// A number with a unit; `durations`: of time alone, and with one.
static bool number(const char *text, bool duration, double *out)
{
    static const struct {
        const char *name;
        double factor;
        bool time;
    } units[] = {
        {"", 1, false},          {"%", 0.01, false},         {"s", 1, true},     {"min", 60, true},
        {"h", 3600, true},       {"d", 86400, true},         {"MB", 1e6, false}, {"GB", 1e9, false},
        {"MiB", 1048576, false}, {"GiB", 1073741824, false},
    };
    char *end = NULL;
    if ((*text < '0' || *text > '9') && *text != '.') return false; // strtod() takes "nan"
    double v = strtod(text, &end);
    for (size_t i = 0; i < LH_COUNT(units); i++) {
        if (strcmp(end, units[i].name) != 0 || (duration && !units[i].time)) continue;
        *out = v * units[i].factor;
        return isfinite(*out) && *out <= 1e15;
    }
    return false;
}

// ---------------------------------------------------------------- one rule

static LH_MUST lh_err take_name(struct reader *r, const struct ps_rules *all, struct ps_rule *out)
{
    static const char LETTERS[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    next(r);
    size_t n = strlen(r->word);
    bool colon = n && r->word[n - 1] == ':';
    if (!colon) return bad(r, "a rule begins with its name and a colon, as in high_loss: loss > 9");
    r->word[--n] = 0;
    if (!n || n >= sizeof out->name || strspn(r->word, LETTERS) != n)
        return bad(r, "a rule's name has 1 to 31 letters, digits, - and _");
    memcpy(out->name, r->word, n + 1);
    for (uint32_t i = 0; i < all->rules; i++)
        if (!strcmp(all->rule[i].name, out->name))
            return bad(r, "another rule has this name; names must differ");
    next(r);
    return LH_OK;
}

static LH_MUST lh_err take_metric(const struct reader *r, enum ps_rule_metric *out)
{
    char text[400];
    for (int i = 0; i < PS_RULE_METRICS; i++)
        if (is(r, metrics[i])) {
            *out = (enum ps_rule_metric)i;
            return LH_OK;
        }
    struct lh_nearest nearest = lh_nearest(r->word);
    for (int i = 0; i < PS_RULE_METRICS; i++) lh_nearest_try(&nearest, metrics[i]);
    size_t n = (size_t)snprintf(text, sizeof text, "\"%s\" is no metric of rules; ", r->word);
    if (nearest.best)
        n += (size_t)snprintf(text + n, sizeof text - n, "did you mean %s? ", nearest.best);
    n += (size_t)snprintf(text + n, sizeof text - n, "There are");
    for (int i = 0; i < PS_RULE_METRICS; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %s", i ? "," : "", metrics[i]);
    return bad(r, text);
}

static LH_MUST lh_err take_when(struct reader *r, struct ps_rule *out)
{
    if (out->whens == PS_RULE_WHENS_MAX) return bad(r, "a rule has at most 4 conditions");
    struct ps_rule_when *w = &out->when[out->whens++];
    LH_TRY(take_metric(r, &w->metric));
    next(r);
    w->above = !is(r, "<");
    if (!is(r, "<") && !is(r, ">")) return LH_OK;
    next(r);
    if (!number(r->word, false, &w->bound))
        return bad(r, "after < and > comes a number, as in 9, 15%, 90s, 30d or 5GB");
    next(r);
    return LH_OK;
}

static LH_MUST lh_err take_rule(struct reader *r, struct ps_rules *all)
{
    if (all->rules == PS_RULES_MAX) return bad(r, "there are at most 16 rules");
    struct ps_rule *out = &all->rule[all->rules];
    *out = (struct ps_rule){.whens = 0};
    LH_TRY(take_name(r, all, out));
    LH_TRY(take_when(r, out));
    while (is(r, "and")) {
        next(r);
        LH_TRY(take_when(r, out));
    }
    if (is(r, "for")) {
        double seconds = 0;
        next(r);
        if (!number(r->word, true, &seconds) || seconds > FOR_S_MAX)
            return bad(r, "after for comes a duration up to 7d, as in 30s, 5min or 2h");
        out->for_ns = (int64_t)(seconds * (double)LH_SECOND);
        next(r);
    }
    if (is(r, "then")) {
        next(r);
        out->pauses = is(r, "pause");
        if (!out->pauses && !is(r, "alarm")) return bad(r, "then what? then alarm, or then pause");
        next(r);
    }
    if (r->word[0])
        return bad(r, "a rule is NAME: METRIC > NUMBER [and ...] [for DURATION] [then pause]");
    all->rules++;
    return LH_OK;
}

lh_err ps_rules_parse(const char *text, struct ps_rules *out)
{
    struct reader r = {.line = 1};
    out->rules = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n;");
        r.at = at;
        r.end = at + n;
        if (strspn(at, " \t\r") < n) LH_TRY(take_rule(&r, out));
        at += n;
        r.line += *at == '\n';
        at += *at != 0;
    }
    return LH_OK;
}
