// Identity: the number that names a directory which may stand by. See identity.c.
#ifndef PS_IDENTITY_H
#define PS_IDENTITY_H

#include "common/base/err.h"

struct ps_server;

// Loads the directory's number into s->standby; creates it if missing.
LH_MUST lh_err ps_identity_load(struct ps_server *s);
LH_MUST lh_err ps_identity_renew(struct ps_server *s); // durable when it returns
// The log's tail was dropped, not yet durably: notes that a standby directory may lack records that
// it confirmed.
LH_MUST lh_err ps_identity_torn(struct ps_server *s);

#endif
