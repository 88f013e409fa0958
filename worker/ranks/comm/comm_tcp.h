// Collectives over TCP: a ring (ring.h) that needs neither a GPU nor NCCL, on one or several hosts.
#ifndef WK_COMM_TCP_H
#define WK_COMM_TCP_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"
#include "worker/ranks/stream/tls.h"

struct wk_comm_tcp_conf {
    struct lh_env *env;
    struct lh_log *log; // logs refused strangers
    // This host's numeric address at which the other ranks reach it; their connections use TLS. "":
    // all ranks are on this host, on loopback and without TLS.
    const char *address;
    struct wk_tls_conf tls;
};

// Connects only processes that got the communicator's secret over the region's own channel.
// wk_comm_destroy() frees it.
LH_MUST lh_err wk_comm_tcp_create(const struct wk_comm_tcp_conf *conf, struct wk_comm **out);

#endif
