// The text of coordinator.rules: conditions over a run's metrics, and what to do. Pure.
//
// One rule a line, or separated by semicolons:
//
//     NAME: CONDITION [and CONDITION ...] [for DURATION] [then alarm | then pause]
//     CONDITION: METRIC > NUMBER | METRIC < NUMBER | METRIC
//
// A metric without a bound means "above 0". Numbers may end in %, s, min, h, d, MB, GB, MiB or GiB.
#ifndef PS_CO_RULES_TEXT_H
#define PS_CO_RULES_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

enum {
    PS_RULES_MAX = 16,     // rules of a run: each is one series of longhaul_alarm_active
    PS_RULE_WHENS_MAX = 4, // conditions of a rule
    PS_RULE_NAME_BYTES = 32,
};

// Those before PS_RULE_SILENT say nothing of a run that stands still. Those before
// PS_RULE_DISK_FREE are of a region, the others of the coordinator itself.
enum ps_rule_metric {
    PS_RULE_LOSS,        // mean over the region's workers, nats a token
    PS_RULE_LOSS_RISE,   // share by which the loss of a worker rose in its last 3 pushes
    PS_RULE_UTILISATION, // mean share of the time in which a step ran
    PS_RULE_FAILING,     // 1: a loop of the region ends with NaN or infinite values again and again
    PS_RULE_STALLED,     // 1: no worker of the region that is heard makes progress
    PS_RULE_SILENT,      // seconds for which no worker of the region was heard
    PS_RULE_PRIVACY_SPENT, // share of its privacy budget that a worker charged
    PS_RULE_DISK_FREE,     // bytes free on the coordinator's disk
    PS_RULE_CERTIFICATE,   // seconds until the coordinator's certificate ends
    PS_RULE_METRICS
};

struct ps_rules {
    struct ps_rule {
        char name[PS_RULE_NAME_BYTES];
        struct ps_rule_when {
            enum ps_rule_metric metric;
            bool above;
            double bound;
        } when[PS_RULE_WHENS_MAX];
        uint32_t whens;
        int64_t for_ns; // the conditions hold for so long before the alarm begins
        bool pauses;
    } rule[PS_RULES_MAX];
    uint32_t rules;
};

// LH_ERR_CONFIG: a text that begins with the setting's key and the line.
LH_MUST lh_err ps_rules_parse(const char *text, struct ps_rules *out);
const char *ps_rule_metric_name(enum ps_rule_metric metric); // "loss_rise"

#endif
