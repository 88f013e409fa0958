// Terms of links: byte caps for units that cross from one home region to another. Pure.
//
// Text: "asia>africa=50GiB,*>africa=200GiB". FROM>TO=CAP; `*` is any region. The first matching
// entry counts. A cap limits the bytes on the wire of all units that reach the region in the run.
#ifndef PS_CO_TERMS_H
#define PS_CO_TERMS_H

#include "common/base/err.h"
#include "common/security/identity.h"

struct lh_units;

enum { PS_TERMS_MAX = 64 };

struct ps_term {
    char from[LH_NAME_BYTES], to[LH_NAME_BYTES]; // "*": any
    double cap_bytes;
};

struct ps_terms {
    struct ps_term term[PS_TERMS_MAX];
    uint32_t terms;
};

// LH_ERR_CONFIG: a text that begins with the setting's key.
LH_MUST lh_err ps_terms_parse(const char *text, struct ps_terms *out);
// Is each FROM a home of these units? LH_ERR_CONFIG names one that is not: its cap has no effect.
LH_MUST lh_err ps_terms_check(const struct ps_terms *t, const struct lh_units *units);
// The terms of the link from a home region to another; NULL: no cap, or the same region.
const struct ps_term *ps_terms_of(const struct ps_terms *t, const char *from, const char *to);

#endif
