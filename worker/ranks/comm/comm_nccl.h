// Collectives by NCCL (nccl.h) on a device of the CUDA plugin (kernels/cuda/plugin.h): host arrays
// are copied to the device in buckets, reduced there among the ranks, and copied back. Arrays in
// device memory (comm.h) are reduced in place.
#ifndef WK_COMM_NCCL_H
#define WK_COMM_NCCL_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"

// Slots of a communicator, each on the device and in pinned memory: a bucket's size, or at most a
// mebibyte if a device holds the arrays.
enum { WK_COMM_NCCL_SLOTS = 2, WK_COMM_NCCL_SLOT_BYTES = 1 << 20 };
// Device memory of a communicator whose arrays are on the device, without NCCL's own.
uint64_t wk_comm_nccl_device_bytes(uint64_t bucket_bytes, enum wk_sum_type type);

struct wk_comm_nccl_conf {
    struct lh_log *log;
    const char *library;   // NCCL's file; "": wk_nccl_open() searches
    const char *plugin;    // the CUDA plugin's file; "": its loader searches
    const char *interface; // NCCL's own connections are bound to it
    const char *log_file;  // file for NCCL's warnings
    uint32_t rank;
};

// Opens both libraries; logs them and NCCL's environment. LH_ERR_UNSUPPORTED says in one line what
// is missing and what to do. NCCL stays open until the process ends, because its own threads may
// run. wk_comm_destroy() frees the rest.
LH_MUST lh_err wk_comm_nccl_create(const struct wk_comm_nccl_conf *conf, struct wk_comm **out);

#endif
