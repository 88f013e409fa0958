// A handle as the library's own files see it. See longhaul.h for its users' side.
#ifndef WK_CLIENT_HANDLE_H
#define WK_CLIENT_HANDLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "worker/client/longhaul.h"
#include "worker/external/channel.h"

// A device and a stream of the caller's, and what the copies of a cut go on beside it.
struct wk_lane {
    int device;
    void *caller;    // the stream that changes parameters
    void *copies;    // the copies of a cut have this one
    void *ready;     // an event: the parameters are those of the boundary
    void *copied;    // an event: the copies of the last cut have ended
    bool copies_fly; // nobody saw that event yet
    bool unheld;     // the caller's stream was not told yet to wait for that event
};

struct wk_pin { // whole pages of the shared memory
    uint8_t *at;
    uint64_t bytes;
};

// The CUDA runtime; the library is opened when the first parameter lies on a device. Its functions
// give 0 or its error; find_all() of device.c says which is which.
struct wk_cuda {
    void *library;
    int (*count)(int *devices);
    int (*current)(int *device);
    int (*choose)(int device);
    int (*attributes)(void *out, const void *pointer);
    int (*copy)(void *to, const void *from, size_t n, int kind, void *stream);
    int (*stream)(void **out, unsigned flags);
    int (*stream_end)(void *stream);
    int (*sync)(void *stream); // the host waits for all that the stream has
    int (*follow)(void *stream, void *event, unsigned flags); // the stream waits for the event
    int (*event)(void **out, unsigned flags);
    int (*event_end)(void *event);
    int (*record)(void *event, void *stream);
    int (*query)(void *event);
    int (*pin)(void *memory, size_t n, unsigned flags);
    int (*unpin)(void *memory);
    int (*forget)(void); // the thread's last error
    struct wk_lane lane[16];
    uint32_t lanes;
    struct wk_pin *pinned; // [pins], in the order of their addresses
    uint32_t pins;
    uint64_t pinned_bytes; // Bytes of all of them; 0: nothing is pinned.
};

struct wk_extent { // consecutive values of the flat order that this process holds
    uint64_t at;   // place in the flat order
    uint64_t first, count;
    uint64_t whole; // values of its tensor
    void *data;
    float *shadow; // bf16's parameters as they would be in fp32 at the last renewal; else NULL
    bool device, replica;
    uint32_t lane;    // the index, where it lies on a device
    longhaul_add add; // fp32 on a device alone; NULL: the library adds
    void *add_arg;
    longhaul_take take; // the same; NULL: the library copies
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
    uint64_t flies; // the cut whose copies are queued, and whose number is not stored yet
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
    bool flies;         // some part's cut does
    bool torn;          // a boundary of this life came before anything waited for a cut's copies
    unsigned due_set;   // RENEW and CUT of enum longhaul_due
    uint32_t bell;      // as it was when the words were last read
    bool acts_open;     // rank 0: some act is not done by all ranks
    uint64_t later;     // rank 0: trained steps at which the next wanted cut comes; or UINT64_MAX
    struct wk_channel_cut mark; // the last step that was trained
    uint64_t step;              // the last boundary; longhaul_finish() has some of its own
    uint64_t tokens, noted;
    uint64_t clock; // several ranks: credited tokens as all of them see them until the next step
    uint64_t away_from; // step at which the worker was missed
    uint64_t cuts, renewals, returns;
    char over[256]; // why the worker ended this life, in its own words; "": it said nothing
    char text[512];
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
// Tells the worker a figure; drops it where that would wait.
void wk_link_report(struct longhaul *c, const char *name, double value);
int wk_link_damaged(struct longhaul *c, uint64_t unit);
// After the memory said that this life is over: takes the worker's words about it, which follow.
void wk_link_hear_end(struct longhaul *c);
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
int wk_pieces_renewed(struct longhaul *c); // the end of a piece of a renewal, of all parts
// Calls `found` with each range of values that this process cuts of devices, in their order.
void wk_pieces_cut_here(struct longhaul *c,
                        void (*found)(struct longhaul *c, uint64_t from, uint64_t until));
// After the copies of a cut have ended: what they left in the slot becomes its values.
void wk_pieces_landed(struct longhaul *c, uint32_t part, uint64_t number);

// ---- device.c
int wk_device_open(struct longhaul *c); // LONGHAUL_E_UNSUPPORTED: no CUDA here
void wk_device_close(struct longhaul *c);
// The lane of this pointer and this stream; it is made when it is new.
int wk_device_lane(struct longhaul *c, const void *data, void *stream, uint32_t *lane);
// Memory that this process's copies write becomes pinned, where CUDA can do that: its own share of
// the slots, so that a host's ranks pin each page once; beside it the corrections, where it is the
// only rank. Unpinning comes once no copy flies.
void wk_device_pin(struct longhaul *c);
void wk_device_unpin(struct longhaul *c);
// A copy of a cut that is queued after the fence reads what the callers' streams wrote before it.
// Several threads may fence and queue; then one calls _queued().
int wk_device_fence(struct longhaul *c);
int wk_device_queue(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to,
                    size_t n);
int wk_device_queued(struct longhaul *c);
// The callers' streams wait for what was queued before they do what they get from now on.
int wk_device_hold(struct longhaul *c);
bool wk_device_unheld(const struct longhaul *c); // _hold() comes first
// Have all copies ended? `wait`: until they have.
int wk_device_landed(struct longhaul *c, bool wait, bool *landed);
// The caller waits for these.
int wk_device_get(struct longhaul *c, const struct wk_extent *e, uint64_t from, void *to, size_t n);
int wk_device_set(struct longhaul *c, const struct wk_extent *e, uint64_t from, const void *p,
                  size_t n);

#endif
