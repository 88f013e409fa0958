// Certificates of a run: one CA per domain, one leaf per process, all P-256 with SHA-256.
//
// A leaf carries exactly one URI SAN, the peer's identity (identity.h), and the DNS SAN
// LH_CERTS_DNS, which every client verifies instead of a host name, so certificates contain no
// addresses. A leaf serves both sides of mutual TLS (serverAuth, clientAuth). Files are PEM; key
// files have mode 0600 and hold PKCS #8. Not for cores: it reads the machine's clock and files.
#ifndef LH_COMMON_CERTS_H
#define LH_COMMON_CERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/security/identity.h"

#define LH_CERTS_DNS "longhaul.internal"
enum {
    LH_CERTS_BACKDATE_S = 600, // NotBefore lies this far in the past, because clocks differ
    LH_CERTS_DAYS_MAX = 36500,
    LH_CERTS_PATH_BYTES = 1024,
};

// Writes dir/ca.pem and dir/ca.key; makes the directory if absent. `domain`: a name as in
// identity.h. days >= 1. Without `replace` existing files stay: LH_ERR_EXISTS. Replacing a CA
// invalidates every certificate that it issued.
LH_MUST lh_err lh_certs_ca_create(const char *dir, const char *domain, int days, bool replace);

// Writes out_dir/<peer name>.pem and .key, signed by the CA in ca_dir, whose domain must be the
// peer's. The name "ca" is refused. A reader during a replacement may see a pair that does not
// match: load again. days <= 0 is for tests: a certificate that expired -days days and one hour
// ago.
LH_MUST lh_err lh_certs_issue(const char *ca_dir, const struct lh_peer *peer, int days,
                              const char *out_dir, bool replace);

// Issues a certificate whose key never leaves its host. request() writes out_dir/<name>.key and
// <name>.csr on that host; sign() makes out_dir/<name>.pem from the latter at the CA. sign() takes
// only the key from the request, which must be P-256 and have signed it; the CA's holder sets
// identity, dates and uses. A request of another identity than `peer` is LH_ERR_DENIED with both
// names.
LH_MUST lh_err lh_certs_request(const struct lh_peer *peer, const char *out_dir, bool replace);
LH_MUST lh_err lh_certs_sign(const char *ca_dir, const char *request, const struct lh_peer *peer,
                             int days, const char *out_dir, bool replace);

// Issues out_dir/<name>.pem again for the identity of a certificate of this CA, expired or not: for
// the certificate's key, or for that of `request` (may be NULL), which must name the same identity.
// LH_ERR_UNAUTHENTICATED: another CA signed the certificate.
LH_MUST lh_err lh_certs_renew(const char *ca_dir, const char *cert, const char *request, int days,
                              const char *out_dir, bool replace);

enum { LH_CERTS_SERIAL_BYTES = 64 };

struct lh_certs_info {
    bool ca;
    char serial[LH_CERTS_SERIAL_BYTES]; // hexadecimal digits
    char domain[LH_NAME_BYTES];
    struct lh_peer peer;           // leaves only; a CA's is zeros
    int64_t not_before, not_after; // seconds since 1970; valid in [not_before, not_after]
};

// Reads the claims of a file's first certificate without verifying them against a CA.
// LH_ERR_NOT_FOUND, LH_ERR_MALFORMED, or LH_ERR_UNAUTHENTICATED for a foreign certificate: no URI
// SAN, several, or another form of URI.
LH_MUST lh_err lh_certs_inspect(const char *path, struct lh_certs_info *out);
// The same for PEM text in memory; error texts call it `name`.
LH_MUST lh_err lh_certs_inspect_pem(const char *name, struct lh_span pem,
                                    struct lh_certs_info *out);

#endif
