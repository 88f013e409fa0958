// Schedule: the wanted number of workers by time of day (UTC). Pure.
//
// Text: "22:00=64,06:00=8,asia@22:00=32". An entry holds until the next entry of the same region;
// the day's last entry holds over midnight. An entry without a region counts all workers of the
// run. A region without entries has no wanted number.
#ifndef PS_CO_SCHEDULE_H
#define PS_CO_SCHEDULE_H

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/security/identity.h"

enum { PS_SCHEDULE_MAX = 32 }; // entries: a few per day for a few regions

struct ps_schedule {
    struct ps_schedule_entry {
        char region[LH_NAME_BYTES]; // "": the whole run
        uint32_t minute;            // since midnight, 0 to 1439
        uint32_t workers;
    } entry[PS_SCHEDULE_MAX];
    uint32_t entries;
};

// LH_ERR_CONFIG: a text that begins with the setting's key.
LH_MUST lh_err ps_schedule_parse(const char *text, struct ps_schedule *out);
// This region's entry at this wall time; NULL: the region has no entries.
const struct ps_schedule_entry *ps_schedule_at(const struct ps_schedule *s, const char *region,
                                               int64_t wall_s);

#endif
