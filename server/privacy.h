// The coordinator's settings privacy.*, and the privacy terms that they define.
#ifndef PS_PRIVACY_H
#define PS_PRIVACY_H

#include "common/format/privacy.h"
#include "server/settings.h"

// Refuses unsound terms, each with the reason and the nearest sound setting.
LH_MUST lh_err ps_privacy_check(const struct ps_settings *s);
// The terms for the plan; level 0 if no region is private.
struct lh_privacy ps_privacy_terms(const struct ps_settings *s);

#endif
