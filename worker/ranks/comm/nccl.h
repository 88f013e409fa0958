// NCCL behind a table: its calls as function pointers, found at run time; no NCCL header is needed.
//
// The declarations here are NCCL's public binary interface, from version 2.18 on: names of calls,
// their arguments, and the numbers below. A result of 0 is success. NCCL's own traffic is neither
// encrypted nor authenticated: README.md names the consequences.
#ifndef WK_NCCL_H
#define WK_NCCL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define WK_NCCL_SONAME "libnccl.so.2"
#define WK_NCCL_VARIABLE "LONGHAUL_NCCL_LIB" // environment variable: NCCL's file

enum { WK_NCCL_ID_BYTES = 128, WK_NCCL_PATH_BYTES = 512, WK_NCCL_VERSION_MIN = 21800 };

enum wk_nccl_result { // unlisted values are failures
    WK_NCCL_OK = 0,
    WK_NCCL_CUDA = 1,
    WK_NCCL_SYSTEM = 2,
    WK_NCCL_INTERNAL = 3,
    WK_NCCL_ARGUMENT = 4,
    WK_NCCL_USAGE = 5,
    WK_NCCL_REMOTE = 6, // a peer is gone, or a network error
    WK_NCCL_IN_PROGRESS = 7,
};
enum wk_nccl_type { WK_NCCL_UINT8 = 1, WK_NCCL_FP32 = 7, WK_NCCL_BF16 = 9 };
enum wk_nccl_op { WK_NCCL_SUM = 0 };

struct wk_nccl_id { // made by one rank, sent to all others over the worker's own channel
    char bytes[WK_NCCL_ID_BYTES];
};

// The settings of a communicator. NCCL reads `bytes` bytes and uses its defaults for missing fields
// and for INT_MIN and NULL.
struct wk_nccl_config {
    size_t bytes;
    unsigned magic, version;
    int blocking, cga_cluster, ctas_min, ctas_max;
    const char *net;
    int split_share;
};
#define WK_NCCL_CONFIG                                                                             \
    {                                                                                              \
        sizeof(struct wk_nccl_config), 0xcafebeefu, WK_NCCL_VERSION_MIN, 0, INT_MIN, INT_MIN,      \
            INT_MIN, NULL, INT_MIN                                                                 \
    }

typedef struct wk_nccl_comm *wk_nccl_comm; // NCCL's own
typedef void *wk_nccl_stream;              // a CUDA stream: lk_gpu_stream

// All calls of one communicator are on one thread, except abort, which may be on another.
struct wk_nccl_api {
    int (*version)(int *out);
    int (*unique_id)(struct wk_nccl_id *out);
    const char *(*error_text)(int result);
    // With blocking 0 each of these may return WK_NCCL_IN_PROGRESS and continue asynchronously.
    int (*init)(wk_nccl_comm *out, int ranks, struct wk_nccl_id id, int rank,
                struct wk_nccl_config *config);
    int (*async_error)(wk_nccl_comm comm, int *out);
    int (*finalize)(wk_nccl_comm comm);
    int (*destroy)(wk_nccl_comm comm);
    int (*abort)(wk_nccl_comm comm); // may hang
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, wk_nccl_comm comm,
                      wk_nccl_stream stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root,
                     wk_nccl_comm comm, wk_nccl_stream stream);
};

struct wk_nccl {
    void *library; // NULL: NCCL was not found
    char path[WK_NCCL_PATH_BYTES];
    int version; // NCCL numbering: 22809 is 2.28.9
    struct wk_nccl_api api;
};

// Opens `path`; NULL or "": the file in WK_NCCL_VARIABLE, else WK_NCCL_SONAME. LH_ERR_UNSUPPORTED,
// in one line: no such library, a missing call, or a version that is too old. `out` can be closed
// either way. One thread, at the start of a process.
LH_MUST lh_err wk_nccl_open(const char *path, struct wk_nccl *out);
void wk_nccl_close(struct wk_nccl *n); // no communicator may exist

// "2.28.9"
const char *wk_nccl_version_text(int version, char out[32]);

// Sets NCCL defaults that the environment may override: RAS (a listener of its own) off; the
// network interface of its traffic; a file for warnings. Call before wk_nccl_open(); "" leaves a
// setting to NCCL.
void wk_nccl_defaults(const char *interface, const char *log_file);
// Appends the NCCL_* variables in force, "NAME=value NAME=value", for the log.
void wk_nccl_environment(struct lh_buf *out);

#endif
