// Terms of links: parses the caps in a setting. See terms.h.
#include "server/coordinator/balance/terms.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/units.h"

static const char BLANKS[] = " ,";

static bool take_name(const char **at, const char *end, char stop, char out[LH_NAME_BYTES])
{
    const char *to = memchr(*at, stop, (size_t)(end - *at));
    size_t n = to ? (size_t)(to - *at) : 0;
    if (!n || n >= LH_NAME_BYTES) return false;
    memcpy(out, *at, n);
    out[n] = 0;
    *at = to + 1;
    return true;
}

// A number without sign or blanks, which strtod() would accept.
static bool take_number(const char **at, const char *end, double *out)
{
    char *stop = NULL;
    if (*at == end || **at < '0' || **at > '9') return false;
    *out = strtod(*at, &stop);
    bool good = stop <= end && isfinite(*out);
    *at = stop;
    return good;
}

static bool take_unit(const char **at, const char *end, double *bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
                 {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if ((size_t)(end - *at) < n || memcmp(*at, units[i].name, n) != 0) continue;
        *bytes *= units[i].factor;
        *at += n;
        return true;
    }
    return false;
}

// Parses the `len` characters at `at`.
static bool parse_term(const char *at, size_t len, struct ps_term *t)
{
    const char *end = at + len;
    *t = (struct ps_term){0};
    return take_name(&at, end, '>', t->from) && take_name(&at, end, '=', t->to) &&
           take_number(&at, end, &t->cap_bytes) && take_unit(&at, end, &t->cap_bytes) && at == end;
}

lh_err ps_terms_parse(const char *text, struct ps_terms *out)
{
    out->terms = 0;
    for (const char *at = text + strspn(text, BLANKS); *at; at += strspn(at, BLANKS)) {
        size_t len = strcspn(at, BLANKS);
        struct ps_term t;
        if (!parse_term(at, len, &t))
            return lh_fail(LH_ERR_CONFIG,
                           "coordinator.links: \"%.*s\" is not valid, expected FROM>TO=CAP, as "
                           "in asia>africa=50GiB",
                           (int)(len < 100 ? len : 100), at);
        if (out->terms == PS_TERMS_MAX)
            return lh_fail(LH_ERR_CONFIG, "coordinator.links: more than %d entries", PS_TERMS_MAX);
        out->term[out->terms++] = t;
        at += len;
    }
    return LH_OK;
}

lh_err ps_terms_check(const struct ps_terms *t, const struct lh_units *units)
{
    for (uint32_t i = 0; i < t->terms; i++) {
        const char *from = t->term[i].from;
        bool any = !strcmp(from, "*");
        for (uint64_t u = 0; u < units->count && !any; u++)
            any = !strcmp(units->unit[u].home, from);
        if (!any)
            return lh_fail(
                LH_ERR_CONFIG,
                "coordinator.links: %s>%s: no unit of data.units belongs to %s; is the name right?",
                from, t->term[i].to, from);
    }
    return LH_OK;
}

static bool names(const char *pattern, const char *region)
{
    return !strcmp(pattern, "*") || !strcmp(pattern, region);
}

const struct ps_term *ps_terms_of(const struct ps_terms *t, const char *from, const char *to)
{
    for (uint32_t i = 0; t && i < t->terms && strcmp(from, to) != 0; i++)
        if (names(t->term[i].from, from) && names(t->term[i].to, to)) return &t->term[i];
    return NULL;
}
