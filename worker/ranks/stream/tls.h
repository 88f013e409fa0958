// Mutual TLS between the processes of a region, on sockets that do not block: TLS 1.3 with the
// run's certificates (common/security/certs.h).
//
// A peer is accepted if the run's CA signed its certificate and its identity is that of a worker of
// this domain, run and region. Any name is accepted, even this process's own: ranks may share a
// certificate.
#ifndef WK_TLS_H
#define WK_TLS_H

#include <sys/types.h>

#include "common/base/buf.h"
#include "common/env/env.h"

struct wk_tls_conf {
    struct lh_env *env;
    const char *ca, *cert, *key;       // PEM files
    const char *domain, *run, *region; // names of this process and its peers
    uint32_t rekey_records;            // records under one key; 0: WK_TLS_REKEY_RECORDS
};
// Certificates are re-read at most this often, for later connections.
enum { WK_TLS_RELOAD_S = 60 };
// AES-GCM is safe for 2^24.5 records per key (RFC 8446, section 5.5).
enum { WK_TLS_REKEY_RECORDS = 1 << 22 };

struct wk_tls;
// Borrows the texts until wk_tls_close(). LH_ERR_UNAUTHENTICATED: peers would not accept the own
// certificate. Only one thread at a time uses it and its sessions.
LH_MUST lh_err wk_tls_open(const struct wk_tls_conf *conf, struct wk_tls **out);
void wk_tls_close(struct wk_tls *t); // its sessions may continue; NULL is allowed

struct wk_tls_session;
// Borrows the connected socket. `accepts`: the peer opened the connection.
LH_MUST lh_err wk_tls_begin(struct wk_tls *t, int fd, bool accepts, struct wk_tls_session **out);
void wk_tls_end(struct wk_tls_session *s); // NULL is allowed
// LH_ERR_BEHIND: not yet; wait for the socket, for writing if *writes. LH_ERR_UNAUTHENTICATED: the
// peer is not accepted, or does not accept this process; LH_ERR_UNAVAILABLE: it is gone.
LH_MUST lh_err wk_tls_shake(struct wk_tls_session *s, bool *writes);
// As send(2) and recv(2) on a non-blocking socket. After EAGAIN the next call first sends the
// pending data.
ssize_t wk_tls_send(struct wk_tls_session *s, const void *data, size_t bytes);
ssize_t wk_tls_recv(struct wk_tls_session *s, void *to, size_t bytes);

#endif
