// Revoked certificates: a file (setting tls.revoked) lists their serials. Their holders can open no
// connections, and their open ones end.
#ifndef LH_COMMON_TRANSPORT_GRPC_REVOKED_H
#define LH_COMMON_TRANSPORT_GRPC_REVOKED_H

#include "common/base/err.h"
#include "common/env/env.h"

enum { LH_GRPC_REVOKED_MAX = 4096 }; // serials; a file of 170 KiB

struct lh_grpc_revoked;

// `path` "": nothing is ever revoked. LH_ERR_NOT_FOUND; LH_ERR_MALFORMED names the line.
LH_MUST lh_err lh_grpc_revoked_open(struct lh_env *env, const char *path,
                                    struct lh_grpc_revoked **out);
struct lh_grpc_revoked *lh_grpc_revoked_share(struct lh_grpc_revoked *r); // another owner
void lh_grpc_revoked_close(struct lh_grpc_revoked *r); // the last one frees it; may be NULL
// Reads the file again, on the loop; after an error the old list stays.
LH_MUST lh_err lh_grpc_revoked_reload(struct lh_grpc_revoked *r, bool *changed);
// Whether the first certificate of this PEM text is revoked; true if it can't be parsed. Any
// thread.
bool lh_grpc_revoked_is(struct lh_grpc_revoked *r, const char *pem, size_t len);
// The same for a serial in hexadecimal (lh_certs_info). Any thread.
bool lh_grpc_revoked_has(struct lh_grpc_revoked *r, const char *serial);
// Number of the list in use; each new list gets a higher one. Any thread.
uint64_t lh_grpc_revoked_generation(struct lh_grpc_revoked *r);

#endif
