// A handle, for the library's own files. longhaul.h has the public side.
#ifndef WK_CLIENT_HANDLE_H
#define WK_CLIENT_HANDLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "worker/client/longhaul.h"
#include "worker/external/channel.h"

// A device and a stream of the caller, and the stream and events for the copies of a cut.
struct wk_lane {
    int device;
    void *caller;    // the stream that changes parameters
    void *copies;    // the stream of the copies of a cut
    void *ready;     // an event: the parameters are those of the boundary
    void *copied;    // an event: the copies of the last cut have ended
    bool copies_fly; // true: that event has not been seen yet
    bool unheld;     // the caller's stream does not wait for that event yet
};

struct wk_pin { // whole pages of the shared memory
    uint8_t *at;
    uint64_t bytes;
};

// The CUDA runtime; the library is opened when the first parameter is on a device. Its functions
// return 0 or an error; find_all() of device.c names them.
struct wk_cuda {
    void *library;
    int (*count)(int *devices);
    int (*current)(int *device);
    int (*choose)(int device);
    int (*attributes)(void *out, const void *pointer);
    int (*copy)(void *to, const void *from, size_t n, int kind, void *stream);
    int (*stream)(void **out, unsigned flags);
    int (*stream_end)(void *stream);
    int (*sync)(void *stream);                                // the host waits for the stream
    int (*follow)(void *stream, void *event, unsigned flags); // the stream waits for the event
    int (*event)(void **out, unsigned flags);
    int (*event_end)(void *event);
    int (*record)(void *event, void *stream);
    int (*query)(void *event);
    int (*pin)(void *memory, size_t n, unsigned flags);
    int (*unpin)(void *memory);
    int (*forget)(void); // clears the thread's last error
    struct wk_lane lane[16];
    uint32_t lanes;
    struct wk_pin *pinned; // [pins], ordered by address
    uint32_t pins;
    uint64_t pinned_bytes; // bytes of all of them; 0: none is pinned
};

struct wk_extent { // consecutive values, in flat order, held by this process
    uint64_t at;   // offset in the flat order
    uint64_t first, count;
    uint64_t whole; // values of its tensor
    void *data;
    float *shadow; // fp32 values of bf16 parameters at the last renewal; else NULL
    bool device, replica;
    uint32_t lane;    // index of the lane, if it is on a device
    longhaul_add add; // fp32 on a device only; NULL: the library adds
    void *add_arg;
    longhaul_take take; // likewise; NULL: the library copies
    struct wk_channel_tensor tensor;
};

enum wk_link {
    WK_LINK_NONE,    // no life
    WK_LINK_UP,      // the worker is connected
    WK_LINK_AWAY,    // the worker is gone; this life goes on
    WK_LINK_CALLING, // the worker is back and was greeted
    WK_LINK_OVER,    // this life is over
};

struct wk_due { // due acts of a part; 0: none
    uint64_t renew, cut;
    uint64_t flies; // the cut whose copies are queued and whose number is not stored yet
};

struct longhaul {
    pid_t owner; // only this process may use it
    uint32_t rank, ranks;
    struct wk_extent *extent;
    uint32_t extents;
    uint64_t values; // values of all described tensors
    struct wk_cuda cuda;
    // the connection
    enum wk_link link;
    int sock, worker, memory; // -1: none; worker: its pidfd
    int64_t tried_ns;         // time of the last connection attempt
    bool greeted;             // WELCOME arrived on this connection
    struct wk_channel channel;
    uint8_t life[WK_CHANNEL_LIFE];
    // the boundary
    bool started;
    struct wk_due *due; // [parts]
    bool flies;         // some part's cut is being copied
    bool torn;          // a boundary of this life came before any wait for a cut's copies
    bool stands;        // LONGHAUL_PAUSE was due, and no wait has found the run to go on
    unsigned due_set;   // RENEW and CUT of enum longhaul_due
    uint32_t bell;      // its value when the words were last read
    bool acts_open;     // rank 0: some act is not done by all ranks yet
    uint64_t later;     // rank 0: trained steps at which the next wanted cut is due; or UINT64_MAX
    struct wk_channel_cut mark; // the last trained step
    uint64_t step;              // the last boundary; longhaul_finish() adds its own
    uint64_t tokens, noted;
    uint32_t private_steps; // private steps the next boundary ends; 0: the loop said nothing
    uint64_t clock; // several ranks: credited tokens, the same on all of them until the next step
    uint64_t away_from; // step at which the worker was missed
    uint64_t cuts, renewals, returns;
    char over[256]; // the worker's reason for ending this life; "": none
    char text[512];
};

// ---- error.c: records the text and returns the error
int wk_client_fail(struct longhaul *c, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
// False: this process must not use the handle.
bool wk_client_mine(const struct longhaul *c);

// ---- link.c: the socket. Only calls with a timeout block.
int64_t wk_link_now(void);
int wk_link_connect(struct longhaul *c, int timeout_ms); // a new life
void wk_link_look(struct longhaul *c,
                  uint64_t step);      // checks whether the worker has left or returned
void wk_link_ring(struct longhaul *c); // tells the worker to check the memory
// Sends the worker a figure; drops it if that would block.
void wk_link_report(struct longhaul *c, const char *name, double value);
int wk_link_damaged(struct longhaul *c, uint64_t unit);
// After the memory said that this life is over: reads the worker's reason, which follows.
void wk_link_hear_end(struct longhaul *c);
void wk_link_close(struct longhaul *c, bool orderly);
void wk_link_forget(struct longhaul *c); // gives up this life's memory
// Sleeps until *word differs from `seen`, at most this long.
void wk_link_sleep(const _Atomic uint32_t *word, uint32_t seen, int64_t ns);
void wk_link_wake(const _Atomic uint32_t *word);

// ---- pieces.c: moves values between parameters and the channel. [from, until) are values of the
// flat order within one part. LONGHAUL_OK or an error.
int wk_pieces_load(struct longhaul *c, uint32_t part, uint64_t number); // from this slot
int wk_pieces_cut(struct longhaul *c, uint32_t part, uint64_t number, uint32_t i, uint32_t n);
int wk_pieces_renew(struct longhaul *c, uint32_t part, uint64_t after, uint64_t upto, uint32_t i,
                    uint32_t n);
int wk_pieces_renewed(struct longhaul *c); // the end of a piece of a renewal, for all parts
// Calls `found` for each range of device values that this process cuts, in order.
void wk_pieces_cut_here(struct longhaul *c,
                        void (*found)(struct longhaul *c, uint64_t from, uint64_t until));
// After the copies of a cut have ended: turns their data in the slot into its values.
void wk_pieces_landed(struct longhaul *c, uint32_t part, uint64_t number);

// ---- device.c
int wk_client_device_open(struct longhaul *c); // LONGHAUL_E_UNSUPPORTED: no CUDA here
void wk_client_device_close(struct longhaul *c);
// The lane of this pointer and this stream, added if new.
int wk_device_lane(struct longhaul *c, const void *data, void *stream, uint32_t *lane);
// Pins the memory that this process's copies write, if CUDA can: its own share of the slots, so
// that the ranks of a host pin each page once, and the corrections if it is the only rank. Unpin
// when no copy is in flight.
void wk_device_pin(struct longhaul *c);
void wk_device_unpin(struct longhaul *c);
// A copy of a cut queued after the fence reads values written earlier on the callers' streams.
// Several threads may fence and queue; then one calls _queued().
int wk_device_fence(struct longhaul *c);
int wk_device_queue(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to,
                    size_t n);
int wk_device_queued(struct longhaul *c);
// Makes later work on the callers' streams wait for the copies queued so far.
int wk_device_hold(struct longhaul *c);
bool wk_device_unheld(const struct longhaul *c); // true: _hold() must come first
// Reports whether all copies have ended. `wait`: waits for them.
int wk_device_landed(struct longhaul *c, bool wait, bool *landed);
// These block the caller.
int wk_device_get(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to, size_t n);
int wk_device_set(struct longhaul *c, const struct wk_extent *e, uint64_t from, const void *p,
                  size_t n);

#endif
