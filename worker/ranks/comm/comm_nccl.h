// Collectives by NCCL (nccl.h) on a device of the CUDA plugin (kernels/cuda/plugin.h): arrays on
// the host go to the device in buckets, are reduced there among the ranks, and come back. Arrays of
// the device's (comm.h) are reduced in their place.
#ifndef WK_COMM_NCCL_H
#define WK_COMM_NCCL_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"

// Slots of a communicator, each on the device and in pinned memory: of a bucket's size, but where
// the arrays are the device's, which need no more than a mebibyte.
enum { WK_COMM_NCCL_SLOTS = 2, WK_COMM_NCCL_SLOT_BYTES = 1 << 20 };
// Memory of the device that a communicator takes whose arrays are there; NCCL's own not counted.
uint64_t wk_comm_nccl_device_bytes(uint64_t bucket_bytes, enum wk_sum_type type);

struct wk_comm_nccl_conf {
    struct lh_log *log;
    const char *library;   // NCCL's file; "": where wk_nccl_open() looks
    const char *plugin;    // the CUDA plugin's; "": where its loader looks
    const char *interface; // NCCL's own connections are bound to it.
    const char *log_file;  // NCCL's warnings go there.
    uint32_t rank;
    int device; // -1: the rank's number, modulo the devices
};

// Opens both libraries, and logs which, and the environment that NCCL will have. LH_ERR_UNSUPPORTED
// says in one line what is missing and what to do. NCCL stays open to the process's end: threads of
// its own may run. wk_comm_destroy() frees the rest.
LH_MUST lh_err wk_comm_nccl_create(const struct wk_comm_nccl_conf *conf, struct wk_comm **out);

#endif
