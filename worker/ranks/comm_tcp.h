// Collectives over TCP connections of one host: a ring (ring.h) that needs no GPU and no NCCL.
#ifndef WK_COMM_TCP_H
#define WK_COMM_TCP_H

#include "worker/ranks/comm.h"

// Connections are made on the loopback interface, and only between processes that were told the
// communicator's secret over the region's own channel. wk_comm_destroy() frees it.
LH_MUST lh_err wk_comm_tcp_create(struct lh_env *env, struct wk_comm **out);

#endif
