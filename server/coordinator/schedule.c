// Schedule: the wanted number of workers by time of day. See schedule.h.
#include "server/coordinator/schedule.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTES = 24 * 60 };

// Parses "22:00": two digits each.
static bool parse_time(const char *at, uint32_t *minute)
{
    for (int i = 0; i < 5; i++)
        if (i == 2 ? at[i] != ':' : (at[i] < '0' || at[i] > '9')) return false;
    uint32_t hours = (uint32_t)(at[0] - '0') * 10 + (uint32_t)(at[1] - '0');
    uint32_t minutes = (uint32_t)(at[3] - '0') * 10 + (uint32_t)(at[4] - '0');
    *minute = hours * 60 + minutes;
    return hours < 24 && minutes < 60;
}

// Parses the `len` characters at `at`: "[region@]HH:MM=workers".
static bool parse_entry(const char *at, size_t len, struct ps_schedule_entry *e)
{
    const char *end = at + len, *sign = memchr(at, '@', len);
    *e = (struct ps_schedule_entry){0};
    if (sign) {
        size_t name = (size_t)(sign - at);
        if (!name || name >= sizeof e->region) return false;
        memcpy(e->region, at, name);
        at = sign + 1;
    }
    if (end - at < 7 || !parse_time(at, &e->minute) || at[5] != '=') return false;
    char *stop = NULL;
    at += 6;
    if (*at < '0' || *at > '9') return false; // strtoul() accepts blanks and signs
    unsigned long workers = strtoul(at, &stop, 10);
    e->workers = (uint32_t)workers;
    return stop == end && workers <= LH_WORKERS_MAX;
}

static bool is_twice(const struct ps_schedule *s, const struct ps_schedule_entry *e)
{
    for (uint32_t i = 0; i < s->entries; i++)
        if (s->entry[i].minute == e->minute && !strcmp(s->entry[i].region, e->region)) return true;
    return false;
}

lh_err ps_schedule_parse(const char *text, struct ps_schedule *out)
{
    static const char BLANKS[] = " ,";
    out->entries = 0;
    for (const char *at = text + strspn(text, BLANKS); *at; at += strspn(at, BLANKS)) {
        size_t len = strcspn(at, BLANKS);
        struct ps_schedule_entry e;
        if (!parse_entry(at, len, &e))
            return lh_fail(LH_ERR_CONFIG,
                           "coordinator.scale: \"%.*s\" is not valid, expected HH:MM=workers or "
                           "region@HH:MM=workers, with times from 00:00 to 23:59 (UTC) and at most "
                           "%d workers",
                           (int)(len < 100 ? len : 100), at, LH_WORKERS_MAX);
        if (is_twice(out, &e))
            return lh_fail(LH_ERR_CONFIG, "coordinator.scale: \"%.*s\" gives a time a second time",
                           (int)(len < 100 ? len : 100), at);
        if (out->entries == PS_SCHEDULE_MAX)
            return lh_fail(LH_ERR_CONFIG, "coordinator.scale: more than %d entries",
                           PS_SCHEDULE_MAX);
        out->entry[out->entries++] = e;
        at += len;
    }
    return LH_OK;
}

const struct ps_schedule_entry *ps_schedule_at(const struct ps_schedule *s, const char *region,
                                               int64_t wall_s)
{
    uint32_t now = (uint32_t)(wall_s / 60 % MINUTES), least = MINUTES;
    const struct ps_schedule_entry *found = NULL;
    for (uint32_t i = 0; i < s->entries; i++) {
        const struct ps_schedule_entry *e = &s->entry[i];
        uint32_t since = (now + MINUTES - e->minute) % MINUTES; // minutes since the entry's time
        if (since >= least || strcmp(e->region, region) != 0) continue;
        least = since;
        found = e;
    }
    return found;
}
