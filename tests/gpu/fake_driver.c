// A driver library (libcuda.so.1) that lists a GPU which does no work: calls that describe the
// device succeed, all others fail with CUDA_ERROR_DEVICE_UNAVAILABLE. bench/gpu/rehearse.sh runs
// bench/gpu/check.sh against it, in a root that has nothing else.
//
// The runtime library asks for functions by name (cuGetProcAddress); it gets those below, or
// refuse() for every other name.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 1, UNAVAILABLE = 46, DRIVER = 13000, MAJOR_OF = 75 };
#define CALL __attribute__((visibility("default"))) int

CALL cuInit(unsigned flags);
CALL cuDriverGetVersion(int *version);
CALL cuDeviceGetCount(int *count);
CALL cuDeviceGet(int *device, int index);
CALL cuDeviceGetName(char *name, int bytes, int device);
CALL cuDeviceTotalMem_v2(size_t *bytes, int device);
CALL cuDeviceGetAttribute(int *value, int attribute, int device);
CALL cuDeviceGetUuid_v2(void *uuid, int device);
CALL cuModuleGetLoadingMode(int *mode);
CALL cuGetErrorName(int err, const char **text);
CALL cuGetErrorString(int err, const char **text);
CALL cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status);
CALL cuGetProcAddress(const char *name, void **found, int version, uint64_t flags);
CALL cuGetExportTable(const void **table, const void *id);

typedef void (*any)(void); // the compiler casts any function to this one

static int refuse(void)
{
    return UNAVAILABLE;
}

CALL cuInit(unsigned flags)
{
    return flags ? INVALID : OK;
}

CALL cuDriverGetVersion(int *version)
{
    *version = DRIVER;
    return OK;
}

CALL cuDeviceGetCount(int *count)
{
    *count = 1;
    return OK;
}

CALL cuDeviceGet(int *device, int index)
{
    *device = index;
    return index ? INVALID : OK;
}

CALL cuDeviceGetName(char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "a GPU that does no work");
    return OK;
}

CALL cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 37;
    return OK;
}

CALL cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == MAJOR_OF ? 9 : attribute == MAJOR_OF + 1 ? 0 : 1;
    return OK;
}

CALL cuModuleGetLoadingMode(int *mode)
{
    *mode = 2; // CU_MODULE_LAZY_LOADING
    return OK;
}

CALL cuDeviceGetUuid_v2(void *uuid, int device)
{
    (void)device;
    memset(uuid, 1, 16);
    return OK;
}

CALL cuGetErrorName(int err, const char **text)
{
    *text = err ? "CUDA_ERROR_DEVICE_UNAVAILABLE" : "CUDA_SUCCESS";
    return OK;
}

CALL cuGetErrorString(int err, const char **text)
{
    return cuGetErrorName(err, text);
}

// Undocumented tables of the runtime library; every entry refuses.
CALL cuGetExportTable(const void **table, const void *id)
{
    static int (*entries[64])(void);
    (void)id;
    for (size_t i = 1; i < sizeof entries / sizeof *entries; i++) entries[i] = refuse;
    size_t bytes = sizeof entries; // a table begins with its size
    memcpy((void *)entries, &bytes, sizeof bytes);
    *table = (const void *)entries;
    return OK;
}

CALL cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    static const struct {
        const char *name;
        any call;
    } calls[] = {
#define NAMED(call) {#call, (any)call}
        NAMED(cuInit),
        NAMED(cuDriverGetVersion),
        NAMED(cuDeviceGetCount),
        NAMED(cuDeviceGet),
        NAMED(cuDeviceGetName),
        NAMED(cuDeviceGetAttribute),
        NAMED(cuGetErrorName),
        NAMED(cuGetErrorString),
        NAMED(cuGetExportTable),
        {"cuDeviceTotalMem", (any)cuDeviceTotalMem_v2},
        NAMED(cuGetProcAddress),
        NAMED(cuModuleGetLoadingMode),
        {"cuDeviceGetUuid", (any)cuDeviceGetUuid_v2},
    };
    any call = (any)refuse;
    (void)version;
    (void)flags;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0) call = calls[i].call;
    if (!strcmp(name, "cuGetProcAddress") && version >= 12000) call = (any)cuGetProcAddress_v2;
    memcpy((void *)found, (void *)&call, sizeof call);
    if (status) *status = 0;
    return OK;
}

CALL cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
