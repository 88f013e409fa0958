// The settings privacy.* of the coordinator, and the terms that they make.
#ifndef PS_PRIVACY_H
#define PS_PRIVACY_H

#include "common/format/privacy.h"
#include "server/settings.h"

// Refuses terms that are not sound beside the other settings, each with the reason and the nearest
// sound setting.
LH_MUST lh_err ps_privacy_check(const struct ps_settings *s);
// The terms; level 0 where no region is private. They enter the plan.
struct lh_privacy ps_privacy_terms(const struct ps_settings *s);

#endif
