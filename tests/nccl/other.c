// A library with NCCL's names, of another version (OTHER_VERSION) or without one call
// (OTHER_LACKS).
#define NAMES(X)                                                                                   \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllReduce)
#define STUB(name)                                                                                 \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 1;                                                                                  \
    }
NAMES(STUB)
#ifndef OTHER_LACKS
STUB(ncclBroadcast)
#endif

int ncclGetVersion(int *out);
int ncclGetVersion(int *out)
{
    *out = OTHER_VERSION;
    return 0;
}
