// Collectives over TCP: a ring (ring.h) that needs no GPU and no NCCL, on one host or on several.
#ifndef WK_COMM_TCP_H
#define WK_COMM_TCP_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"
#include "worker/stream/tls.h"

struct wk_comm_tcp_conf {
    struct lh_env *env;
    struct lh_log *log; // Strangers who are turned away go there.
    // An address of this host, in numbers, at which the other ranks reach it; their connections are
    // under TLS. "": all ranks are on this host, on loopback and without TLS.
    const char *address;
    struct wk_tls_conf tls;
};

// Connections are made only between processes that were told the communicator's secret over the
// region's own channel. wk_comm_destroy() frees it.
LH_MUST lh_err wk_comm_tcp_create(const struct wk_comm_tcp_conf *conf, struct wk_comm **out);

#endif
