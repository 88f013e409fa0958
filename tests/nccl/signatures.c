// Compiled and never run: compares worker/ranks/comm/nccl.h, which restates NCCL's binary
// interface, with the library's own nccl.h (real.py). A call with other arguments, another number,
// or a type of another size stops the compiler.
#include <nccl.h>

#include "worker/ranks/comm/nccl.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " is " #b)
#define SIZE(a, b)                                                                                 \
    _Static_assert(sizeof(a) == sizeof(b) && _Alignof(a) == _Alignof(b), #a " is as large as " #b)
#define FIELD(a, b)                                                                                \
    _Static_assert(offsetof(ncclConfig_t, a) == offsetof(struct wk_nccl_config, b) &&              \
                       sizeof(((ncclConfig_t *)0)->a) == sizeof(((struct wk_nccl_config *)0)->b),  \
                   "ncclConfig_t's " #a)

SAME(ncclSuccess, WK_NCCL_OK);
SAME(ncclUnhandledCudaError, WK_NCCL_CUDA);
SAME(ncclSystemError, WK_NCCL_SYSTEM);
SAME(ncclInternalError, WK_NCCL_INTERNAL);
SAME(ncclInvalidArgument, WK_NCCL_ARGUMENT);
SAME(ncclInvalidUsage, WK_NCCL_USAGE);
SAME(ncclRemoteError, WK_NCCL_REMOTE);
SAME(ncclInProgress, WK_NCCL_IN_PROGRESS);
SAME(ncclUint8, WK_NCCL_UINT8);
SAME(ncclFloat32, WK_NCCL_FP32);
SAME(ncclBfloat16, WK_NCCL_BF16);
SAME(ncclSum, WK_NCCL_SUM);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);
SIZE(ncclUniqueId, struct wk_nccl_id);
SIZE(ncclComm_t, wk_nccl_comm);
SIZE(cudaStream_t, wk_nccl_stream);
SIZE(ncclResult_t, int);
SIZE(ncclDataType_t, int);
SIZE(ncclRedOp_t, int);
FIELD(size, bytes);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cgaClusterSize, cga_cluster);
FIELD(minCTAs, ctas_min);
FIELD(maxCTAs, ctas_max);
FIELD(netName, net);
FIELD(splitShare, split_share);

// struct wk_nccl_api with NCCL's own types, entry by entry.
static const struct {
    ncclResult_t (*version)(int *);
    ncclResult_t (*unique_id)(ncclUniqueId *);
    const char *(*error_text)(ncclResult_t);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*finalize)(ncclComm_t);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
    ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t);
} calls = {
    ncclGetVersion,        ncclGetUniqueId,  ncclGetErrorString, ncclCommInitRankConfig,
    ncclCommGetAsyncError, ncclCommFinalize, ncclCommDestroy,    ncclCommAbort,
    ncclAllReduce,         ncclBroadcast,
};
_Static_assert(sizeof calls == sizeof(struct wk_nccl_api), "every entry of the table");

int main(void)
{
    static const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    struct wk_nccl_config ours = WK_NCCL_CONFIG;
    return calls.version == NULL || theirs.magic != ours.magic;
}
