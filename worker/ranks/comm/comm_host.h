// A device's arrays by way of the host, for communicators that take the host's memory alone: what
// crosses waits in pinned memory as large as the gradient. On the communicator's thread.
#ifndef WK_COMM_HOST_H
#define WK_COMM_HOST_H

#include "worker/ranks/comm/comm.h"

// All: LH_ERR_IO where the device fails.
// Values [from, from + values) of the sum come to the host once they are there; `out` is their
// place until wk_comm_host_return(), which gives values of the sum back.
LH_MUST lh_err wk_comm_host_fetch(struct wk_comm *c, uint64_t from, uint64_t values, float **out);
LH_MUST lh_err wk_comm_host_return(struct wk_comm *c, uint64_t from, uint64_t values);
// ops->share() of a part that is the device's.
LH_MUST lh_err wk_comm_host_share(struct wk_comm *c, const struct wk_comm_part *part);
void wk_comm_host_free(struct wk_comm *c); // its thread is gone

#endif
