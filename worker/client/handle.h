// A handle as the library's own files see it. See longhaul.h for its users' side.
#ifndef WK_CLIENT_HANDLE_H
#define WK_CLIENT_HANDLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "worker/client/longhaul.h"
#include "worker/external/channel.h"

// Copies between a CUDA device and the host; the library is opened when the first parameter lies
// on a device.
struct wk_cuda {
    void *library;
    int (*copy)(void *to, const void *from, size_t n, int kind, void *stream);
    int (*sync)(void *stream);
};
enum { WK_CUDA_TO_DEVICE = 1, WK_CUDA_TO_HOST = 2 }; // cudaMemcpyKind

struct wk_extent { // consecutive values of the flat order that this process holds
    uint64_t at;   // place in the flat order
    uint64_t first, count;
    uint64_t whole; // values of its tensor
    void *data;
    float *shadow; // bf16's parameters as they would be in fp32 at the last renewal; else NULL
    bool device, replica;
    void *stream;
    struct wk_channel_tensor tensor;
};

enum wk_link {
    WK_LINK_NONE,    // no life
    WK_LINK_UP,      // the worker is there
    WK_LINK_AWAY,    // it is not; this life goes on
    WK_LINK_CALLING, // it is there again and was greeted
    WK_LINK_OVER,    // this life is over
};

struct wk_due { // what a part is due; 0: nothing
    uint64_t renew, cut;
};

struct longhaul {
    pid_t owner; // the process that may use it
    uint32_t rank, ranks;
    struct wk_extent *extent;
    uint32_t extents;
    uint64_t values; // values of all described tensors
    struct wk_cuda cuda;
    // the connection
    enum wk_link link;
    int sock, worker, memory; // -1: none; worker: its pidfd
    int64_t tried_ns;         // when a connection was last tried
    bool greeted;             // WELCOME came in this connection
    struct wk_channel channel;
    uint8_t life[WK_CHANNEL_LIFE];
    // the boundary
    bool started;
    struct wk_due *due; // [parts]
    unsigned due_set;   // RENEW and CUT of enum longhaul_due
    uint32_t bell;      // as it was when the words were last read
    bool acts_open;     // rank 0: some act is not done by all ranks
    uint64_t later;     // rank 0: the next step at which a cut that is wanted comes; or UINT64_MAX
    struct wk_channel_cut mark; // the last step that was trained
    uint64_t step;              // the last boundary; longhaul_finish() has some of its own
    uint64_t tokens, noted;
    uint64_t clock; // several ranks: credited tokens as all of them see them until the next step
    uint64_t away_from; // step at which the worker was missed
    uint64_t cuts, renewals, returns;
    char text[256];
};

// ---- error.c: records the text, returns the error
int wk_client_fail(struct longhaul *c, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
// False: this process may not use the handle.
bool wk_client_mine(const struct longhaul *c);

// ---- link.c: the socket. No call waits but those with a timeout.
int64_t wk_link_now(void);
int wk_link_connect(struct longhaul *c, int timeout_ms); // a new life
void wk_link_look(struct longhaul *c, uint64_t step);    // has the worker gone, or come back?
void wk_link_ring(struct longhaul *c);                   // look at the memory
void wk_link_close(struct longhaul *c, bool orderly);
void wk_link_forget(struct longhaul *c); // lets this life's memory go
// Sleeps until *word is another than `seen`, at most so long.
void wk_link_sleep(const _Atomic uint32_t *word, uint32_t seen, int64_t ns);
void wk_link_wake(const _Atomic uint32_t *word);

// ---- pieces.c: values between parameters and the channel. [from, until) are values of the flat
// order within one part. LONGHAUL_OK or an error.
int wk_pieces_load(struct longhaul *c, uint32_t part, uint64_t number); // from this slot
int wk_pieces_cut(struct longhaul *c, uint32_t part, uint64_t number, uint32_t i, uint32_t n);
int wk_pieces_renew(struct longhaul *c, uint32_t part, uint64_t after, uint64_t upto, uint32_t i,
                    uint32_t n);

// ---- device.c
int wk_device_open(struct longhaul *c); // LONGHAUL_E_UNSUPPORTED: no CUDA here
void wk_device_close(struct longhaul *c);
int wk_device_get(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to, size_t n);
int wk_device_set(struct longhaul *c, const struct wk_extent *e, uint64_t from, const void *p,
                  size_t n);

#endif
