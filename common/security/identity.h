// Identity: a peer is one URI SAN, spiffe://<domain>/longhaul/<run>/<role>/<region>/<name>.
//
// The certificate gives the identity; the role table (transport.h) gives the calls that its role
// may make.
#ifndef LH_COMMON_IDENTITY_H
#define LH_COMMON_IDENTITY_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum lh_role { LH_W = 1, LH_S = 2, LH_C = 4, LH_A = 8 }; // worker, server, coordinator, admin
enum { LH_NAME_BYTES = 64, LH_URI_BYTES = 320 };
#define LH_DOMAIN_DEFAULT "longhaul.local" // trust domain of a run's certificates

struct lh_peer {
    enum lh_role role;
    char domain[LH_NAME_BYTES], run[LH_NAME_BYTES], region[LH_NAME_BYTES], name[LH_NAME_BYTES];
};

const char *lh_role_name(enum lh_role role);
// Whether a peer of this role may answer where role `wanted` was dialled. A process that is both
// coordinator and server has a coordinator's certificate, so a coordinator may answer as a server,
// never the reverse.
static inline bool lh_role_serves(enum lh_role role, enum lh_role wanted)
{
    return role == wanted || (wanted == LH_S && role == LH_C);
}
LH_MUST lh_err lh_role_parse(const char *text, enum lh_role *out);
// Strict: exactly this form, names of [a-z0-9._-], 1 to 63 long; else LH_ERR_UNAUTHENTICATED.
LH_MUST lh_err lh_peer_parse(struct lh_span uri, struct lh_peer *out);
void lh_peer_uri(const struct lh_peer *peer, char out[LH_URI_BYTES]);
// Both are of one run: is it the same identity?
bool lh_peer_same(const struct lh_peer *a, const struct lh_peer *b);

#endif
