// A device's arrays copied through the host, for communicators that accept only host memory: the
// pinned buffer is as large as the gradient. On the communicator's thread.
#ifndef WK_COMM_HOST_H
#define WK_COMM_HOST_H

#include "worker/ranks/comm/comm.h"

// All: LH_ERR_IO if the device fails.
// fetch copies values [from, from + values) of the sum to the host once they are final; `out` holds
// them until wk_comm_host_return(), which copies the sums back.
LH_MUST lh_err wk_comm_host_fetch(struct wk_comm *c, uint64_t from, uint64_t values, float **out);
LH_MUST lh_err wk_comm_host_return(struct wk_comm *c, uint64_t from, uint64_t values);
// ops->share() of a part in device memory.
LH_MUST lh_err wk_comm_host_share(struct wk_comm *c, const struct wk_comm_part *part);
void wk_comm_host_free(struct wk_comm *c); // after its thread has ended

#endif
