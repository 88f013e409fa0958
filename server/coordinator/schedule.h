// Schedule: how many workers are wanted at which time of the day (UTC). Pure.
//
// Text: "22:00=64,06:00=8,asia@22:00=32". An entry holds from its time on until the next one of the
// same region; the last one of a day holds over midnight. Without a region it is the number of all
// workers of the run. A region that no entry names has no number.
#ifndef PS_CO_SCHEDULE_H
#define PS_CO_SCHEDULE_H

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/security/identity.h"

enum { PS_SCHEDULE_MAX = 32 }; // entries: some a day of some regions

struct ps_schedule {
    struct ps_schedule_entry {
        char region[LH_NAME_BYTES]; // "": the whole run
        uint32_t minute;            // since midnight, 0 to 1439
        uint32_t workers;
    } entry[PS_SCHEDULE_MAX];
    uint32_t entries;
};

// LH_ERR_CONFIG says what is wrong, beginning with the setting's key.
LH_MUST lh_err ps_schedule_parse(const char *text, struct ps_schedule *out);
// The entry of this region that holds at this wall time; NULL: none names the region.
const struct ps_schedule_entry *ps_schedule_at(const struct ps_schedule *s, const char *region,
                                               int64_t wall_s);

#endif
