// Certificates of a run: one CA per domain, one leaf per process, all P-256 under SHA-256.
//
// A leaf carries exactly one URI SAN, the peer's identity (identity.h), and the DNS SAN
// LH_CERTS_DNS that every client verifies the host by, so that addresses stay out of certificates.
// It serves both sides of mutual TLS (serverAuth, clientAuth). Files are PEM; key files have mode
// 0600 and hold PKCS #8. Not for cores: it reads the machine's clock and files.
#ifndef LH_COMMON_CERTS_H
#define LH_COMMON_CERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/security/identity.h"

#define LH_CERTS_DNS "longhaul.internal"
enum {
    LH_CERTS_BACKDATE_S = 600, // NotBefore lies this far in the past: clocks differ
    LH_CERTS_DAYS_MAX = 36500,
    LH_CERTS_PATH_BYTES = 1024,
};

// Writes dir/ca.pem and dir/ca.key (the directory is made when absent). `domain`: a name as in
// identity.h. days >= 1. Without `replace` existing files stay: LH_ERR_EXISTS. Replacing a CA
// orphans every certificate that the old one issued.
LH_MUST lh_err lh_certs_ca_create(const char *dir, const char *domain, int days, bool replace);

// Writes out_dir/<peer name>.pem and .key, signed by the CA in ca_dir, whose domain must be the
// peer's. The name "ca" is taken. A reader between the two files of a replacement sees a pair that
// does not match: reload again.
// days <= 0 is for tests: a certificate that expired -days days and one hour ago.
LH_MUST lh_err lh_certs_issue(const char *ca_dir, const struct lh_peer *peer, int days,
                              const char *out_dir, bool replace);

// A partner's certificate without its key leaving its host: request() writes out_dir/<name>.key and
// <name>.csr there, sign() makes out_dir/<name>.pem of the latter where the CA is. sign() takes the
// key alone from the request, which must be P-256 and have signed it: identity, dates and uses are
// the CA holder's. A request of another identity than `peer` is LH_ERR_DENIED, and both are named.
LH_MUST lh_err lh_certs_request(const struct lh_peer *peer, const char *out_dir, bool replace);
LH_MUST lh_err lh_certs_sign(const char *ca_dir, const char *request, const struct lh_peer *peer,
                             int days, const char *out_dir, bool replace);

// Makes out_dir/<name>.pem anew for the identity of a certificate of this CA, expired or not: for
// its key, or for that of a request that names the same identity (NULL: none).
// LH_ERR_UNAUTHENTICATED: another CA signed the certificate.
LH_MUST lh_err lh_certs_renew(const char *ca_dir, const char *cert, const char *request, int days,
                              const char *out_dir, bool replace);

enum { LH_CERTS_SERIAL_BYTES = 64 };

struct lh_certs_info {
    bool ca;
    char serial[LH_CERTS_SERIAL_BYTES]; // Hexadecimal digits.
    char domain[LH_NAME_BYTES];
    struct lh_peer peer;           // leaves only; a CA's is zeros
    int64_t not_before, not_after; // seconds since 1970; valid in [not_before, not_after]
};

// Reads a certificate file's claims (its first certificate); they are not verified against a CA.
// LH_ERR_NOT_FOUND, LH_ERR_MALFORMED, or LH_ERR_UNAUTHENTICATED for a certificate that is none of
// ours: it has no or several URI SANs, or another shape of URI.
LH_MUST lh_err lh_certs_inspect(const char *path, struct lh_certs_info *out);
// The same for PEM text in memory; `name` stands for it in error texts.
LH_MUST lh_err lh_certs_inspect_pem(const char *name, struct lh_span pem,
                                    struct lh_certs_info *out);

#endif
