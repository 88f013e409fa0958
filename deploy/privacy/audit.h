// longhaul privacy audit. See audit.c.
#ifndef DP_AUDIT_H
#define DP_AUDIT_H

#include "common/base/err.h"

LH_MUST lh_err dp_privacy_audit(int argc, char **argv);

#endif
