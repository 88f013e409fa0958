// The channel between a worker and its external trainer: the layout of the shared memory, its
// words, and the socket's messages (worker/docs/0001-boundary.md). Pure: no system calls and only
// libc, because liblonghaul.so includes it.
//
// Every word of the memory has one writer, named below. A reader of the other side's word reads it
// once and checks the value: the other side may be faulty or dying.
#ifndef WK_CHANNEL_H
#define WK_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WK_CHANNEL_ABI = 1, // version of the memory's layout and of the messages
    WK_CHANNEL_PAGE = 4096,
    WK_CHANNEL_CHUNK = 4096, // values per chunk; a sparse correction counts its entries by chunk
    WK_CHANNEL_PARTS_MAX = 4096, // LH_SHARDS_MAX: each shard is a part
    WK_CHANNEL_RANKS_MAX = 64,   // trainer processes on one host
    WK_CHANNEL_TENSORS_MAX = 1 << 16,
    WK_CHANNEL_LIVE = 16, // corrections of one part that are not retired
    WK_CHANNEL_LEASES_MAX = 1 << 16,
    WK_CHANNEL_JOURNAL_MAX = 1 << 20,
    WK_CHANNEL_LIFE = 16,   // bytes of the name of a trainer's life
    WK_CHANNEL_HASH = 32,   // bytes of the manifest's hash
    WK_CHANNEL_NAME = 128,  // bytes of a tensor's name, with its zero
    WK_CHANNEL_METRIC = 64, // bytes of a reported figure's name, with its zero
    WK_CHANNEL_DIMS = 8,
    WK_CHANNEL_TEXT = 256,    // bytes of a refusal's text, with its zero
    WK_CHANNEL_MESSAGE = 512, // bytes of the longest message
};
#define WK_CHANNEL_MAGIC UINT64_C(0x31444e554f42484c) // "LHBOUND1"
#define WK_CHANNEL_VALUES_MAX (UINT64_C(1) << 40)
#define WK_CHANNEL_TOKENS_MAX (UINT64_C(1) << 40) // a step with more is refused

// ---------------------------------------------------------------- the memory

// Written once by the worker, before it shares the memory.
struct wk_channel_head {
    uint64_t magic;                  //   0
    uint32_t abi, parts;             //   8
    uint8_t life[WK_CHANNEL_LIFE];   //  16
    uint64_t values, bytes;          //  32  bytes: of the whole memory
    uint32_t ranks, leases, journal; //  48  leases, journal: entries a rank
    uint32_t zero;
    uint8_t manifest[WK_CHANNEL_HASH]; // 64
};

enum wk_channel_phase { WK_CHANNEL_RUN = 1, WK_CHANNEL_DRAIN, WK_CHANNEL_END, WK_CHANNEL_OVER };

// Written by the worker.
struct wk_channel_worker {
    _Atomic uint32_t bell;     //  0  rises with every change below; trainers sleep on it (futex)
    _Atomic uint32_t phase;    //  4  enum wk_channel_phase; OVER: begin another life
    _Atomic uint64_t credited; //  8  tokens of the run: the clock of all schedules
    _Atomic uint64_t run_on;   // 16  limit on steps without a living worker
    _Atomic uint64_t credited_first; // 24  `credited` when the life began
    // 32  The change of the run's budget, as of the life's start: new budget, old budget, tokens
    // credited at the change. All 0: no change.
    _Atomic uint64_t budget[3];
    _Atomic uint64_t paused; // 56  random number of the pause; 0: the run is not paused
};
struct wk_channel_worker_rank {
    _Atomic uint64_t leased;  //  0  leases written
    _Atomic uint64_t retired; //  8  journal entries already committed
    uint64_t zero[6];
};

// Written by one rank of the trainer.
enum { WK_CHANNEL_CLOCKS = 4 }; // ranks are usually one step apart, and rank 0 is two ahead
struct wk_channel_rank {
    _Atomic uint64_t step, tokens; //  0  of the last boundary; tokens of this life
    _Atomic uint64_t taken;        // 16  leases taken
    _Atomic uint64_t noted;        // 24  journal entries written
    _Atomic uint64_t decided;      // 32  rank 0: acts of steps up to this one are final
    _Atomic uint32_t decided_bell; // 40  rank 0: rises with `decided`; other ranks sleep on it
    _Atomic uint32_t ending;       // 44  1: its loop is over; it waits for a last cut
    _Atomic uint64_t last;         // 48  rank 0: the final step; 0: not known yet
    _Atomic uint64_t trained;  // 56  last step of its loop; `step` continues to the end of the life
    _Atomic uint64_t wants;    // 64  leases requested in total; 0: it has its own data
    _Atomic uint64_t spent_ns; // 72  time in its boundaries, cuts and renewals
    _Atomic uint32_t schedule; // 80  enum wk_channel_schedule
    _Atomic uint32_t steps;    // 84  boundaries of this life that trained
    _Atomic uint64_t
        clock[WK_CHANNEL_CLOCKS]; // 88  rank 0: credited tokens, of all ranks at step n: [n % 4]
    _Atomic uint64_t clock_taken; // 120  last step whose clock this rank read
    // 128  rank 0: the step at whose boundary all ranks stand still, and the number of the pause
    // that this is for.
    _Atomic uint64_t hold, hold_for;
    // 144  Bits of three doubles: sigma, rate and clip of a loop that is private by itself. All 0:
    // not reported. The last is written last.
    _Atomic uint64_t noise[3];
    uint64_t zero[3];
};
// The clock of a rank's learning rates: not stated, the run's tokens, or its own steps.
enum wk_channel_schedule {
    WK_CHANNEL_UNTOLD = 0,
    WK_CHANNEL_RUNS_CLOCK = 1,
    WK_CHANNEL_OWN_STEPS = 2
};

enum wk_channel_kind { WK_CHANNEL_SPARSE = 1, WK_CHANNEL_DENSE = 2 };
struct wk_channel_entry { // one correction
    uint64_t number;
    uint32_t kind, zero;
    uint64_t at, count; // bytes from the start of the part's ring; number of values
};

// Written by the worker, one for each part.
struct wk_channel_part {
    _Atomic uint64_t wanted_step; //  0  the cut is due at this many trained steps
    _Atomic uint64_t wanted;      //  8  committed + 1: this cut is wanted; else none
    _Atomic uint64_t committed;   // 16  moves only after the worker's commit
    _Atomic uint64_t published;   // 24  corrections up to this one are complete
    uint64_t zero[4];
    struct wk_channel_entry entry[WK_CHANNEL_LIVE]; // correction c: [c % WK_CHANNEL_LIVE]
};

// Written by rank 0, one for each part: the act of all ranks at the boundary of `step`. Changed
// only after all ranks did the previous act; valid once `decided` reaches its step.
struct wk_channel_act {
    _Atomic uint64_t step, renew, cut; // renew, cut: numbers
    uint64_t zero[5];
};

struct wk_channel_cut {                     // the contents of a slot
    uint64_t step, tokens, included, noted; // included: corrections; noted: journal entries
    uint64_t steps;                         // steps of its life that trained
};
// Written by one rank, one for each part and rank.
struct wk_channel_done {
    _Atomic uint64_t renewed; //  0  corrections in its parameters
    _Atomic uint64_t cut;     //  8  the slot holds its share of this cut
    uint64_t zero[2];
    struct wk_channel_cut of[2]; // 32  of cut n: [n % 2]; written before `cut`
    uint64_t zero2[2];
};

struct wk_channel_lease {
    uint64_t unit, from, tokens; // already trained up to `from`; tokens of the whole unit
};
struct wk_channel_note {
    uint64_t unit, upto, step; // trained up to `upto`, at `step`
};

// The memory's layout is a function of these numbers; each side computes it.
struct wk_channel_shape {
    uint64_t values;
    uint32_t parts, ranks, leases, journal;
    const uint64_t *first; // [parts + 1]: first value of each part; the last one is `values`
};
struct wk_channel_layout {
    uint64_t first_at, worker_at, worker_rank_at, rank_at, part_at, act_at, done_at, lease_at,
        note_at, slot_at[2], ring_at, bytes;
};

// A mapped memory. Pointers into it; `first` and the layout are the reader's own copies.
struct wk_channel {
    uint8_t *base;
    struct wk_channel_shape shape;
    struct wk_channel_layout layout;
    uint64_t *first;   // shape.first; malloc'd
    uint64_t *ring_of; // [parts + 1]: offset of each part's ring; malloc'd
};

// False: a number is beyond its limit, or `first` does not rise from 0 to values.
bool wk_channel_plan(const struct wk_channel_shape *s, struct wk_channel_layout *out);
uint64_t wk_channel_ring_bytes(uint64_t values); // bytes of a part's ring
// Lays the channel over memory of layout.bytes. False: no memory for its tables.
bool wk_channel_open(struct wk_channel *c, const struct wk_channel_shape *s, void *base);
void wk_channel_close(struct wk_channel *c); // frees the tables, not the memory
// Writes head and table into zeroed memory.
void wk_channel_format(const struct wk_channel *c, const uint8_t life[WK_CHANNEL_LIFE],
                       const uint8_t manifest[WK_CHANNEL_HASH]);
// Opens a memory that the other side wrote. NULL: it is valid; otherwise the reason why not.
const char *wk_channel_read(struct wk_channel *c, void *base, uint64_t bytes);

struct wk_channel_head *wk_channel_head(const struct wk_channel *c);
struct wk_channel_worker *wk_channel_worker(const struct wk_channel *c);
struct wk_channel_worker_rank *wk_channel_worker_rank(const struct wk_channel *c, uint32_t rank);
struct wk_channel_rank *wk_channel_rank(const struct wk_channel *c, uint32_t rank);
struct wk_channel_part *wk_channel_part(const struct wk_channel *c, uint32_t part);
struct wk_channel_act *wk_channel_act(const struct wk_channel *c, uint32_t part);
struct wk_channel_done *wk_channel_done(const struct wk_channel *c, uint32_t part, uint32_t rank);
struct wk_channel_lease *wk_channel_lease(const struct wk_channel *c, uint32_t rank, uint64_t n);
struct wk_channel_note *wk_channel_note(const struct wk_channel *c, uint32_t rank, uint64_t n);
float *wk_channel_slot(const struct wk_channel *c, uint64_t number); // all values, flat
uint8_t *wk_channel_ring(const struct wk_channel *c, uint32_t part);

// ---------------------------------------------------------------- corrections

// Sparse: u64 begin[chunks + 1], fp32 value[count], u16 index[count]; begin[k] to begin[k + 1] are
// the entries of the part's k-th chunk, their indices within it. Dense: fp32 value[of the part].
struct wk_channel_correction {
    enum wk_channel_kind kind;
    uint64_t values, count; // values: of the whole part
    const float *value;
    const uint64_t *begin; // sparse only
    const uint16_t *index;
};
static inline uint64_t wk_channel_chunks(uint64_t values)
{
    return (values + WK_CHANNEL_CHUNK - 1) / WK_CHANNEL_CHUNK;
}
uint64_t wk_channel_correction_bytes(enum wk_channel_kind kind, uint64_t values, uint64_t count);
// The correction with this number. False: the ring does not hold it, or it is invalid.
bool wk_channel_correction(const struct wk_channel *c, uint32_t part, uint64_t number,
                           struct wk_channel_correction *out);
// Prefetches the memory that wk_channel_add() will change with the same arguments: a sparse
// correction's cache lines are scattered, so hardware prefetching does not help. Changes nothing.
void wk_channel_foresee(const struct wk_channel_correction *r, uint64_t k, uint64_t from,
                        uint64_t n, const float *to);
// Adds the correction's entries of chunk k within the values [from, from + n) of the part to
// to[0..n); the range lies in that chunk. False: a damaged entry; some may have been added.
bool wk_channel_add(const struct wk_channel_correction *r, uint64_t k, uint64_t from, uint64_t n,
                    float *to);

// ---------------------------------------------------------------- messages

// A message is u32 bytes (its own), u16 abi, u16 kind, and the kind's fields; little endian.
enum wk_channel_message_kind {
    WK_CHANNEL_HELLO = 1, // trainer: its rank and life; with the memory, if it has one
    WK_CHANNEL_TENSOR,    // trainer: one of its parameters
    WK_CHANNEL_DESCRIBED, // trainer: all parameters were described
    WK_CHANNEL_RING,      // trainer: check the memory for changes
    WK_CHANNEL_LEAVE,     // trainer: an orderly end
    WK_CHANNEL_REPORT,    // trainer: a figure of its loop, such as the loss
    WK_CHANNEL_DAMAGED,   // trainer: its tokens of a leased unit differ from the run's
    WK_CHANNEL_WELCOME,   // worker: accepted; with the memory if it is new
    WK_CHANNEL_REFUSED,   // worker: the reason for the refusal
    WK_CHANNEL_KINDS,
};
enum wk_channel_dtype { WK_CHANNEL_FP32 = 1, WK_CHANNEL_BF16 = 2 };
enum wk_channel_refusal {
    WK_CHANNEL_OTHER_VERSION = 1, // the abi differs
    WK_CHANNEL_OTHER_MODEL,       // the run's parameters differ
    WK_CHANNEL_BUSY,              // this worker already has a trainer
    WK_CHANNEL_AGAIN,             // this life is over: greet again, without the memory
    WK_CHANNEL_BAD,               // an invalid message or memory
    WK_CHANNEL_NOT_FINITE,        // as AGAIN: a cut held a value that is not finite
    WK_CHANNEL_REFUSALS,
};
struct wk_channel_hello {
    uint32_t rank, ranks, tensors;
    bool resumes; // it brings the memory of `life`
    uint8_t life[WK_CHANNEL_LIFE];
};
struct wk_channel_tensor {
    uint32_t index, dtype, dims;
    uint64_t first, count; // values of the tensor that this rank holds
    bool replica;          // every rank holds the whole tensor
    uint64_t shape[WK_CHANNEL_DIMS];
    char name[WK_CHANNEL_NAME];
};
struct wk_channel_welcome {
    uint64_t bytes;
    bool resumed;
    uint8_t life[WK_CHANNEL_LIFE];
};
struct wk_channel_refused {
    uint32_t why;
    char text[WK_CHANNEL_TEXT];
};
struct wk_channel_report {
    double value;
    char name[WK_CHANNEL_METRIC];
};
struct wk_channel_message {
    uint16_t abi, kind;
    union {
        struct wk_channel_hello hello;
        struct wk_channel_tensor tensor;
        struct wk_channel_welcome welcome;
        struct wk_channel_refused refused;
        struct wk_channel_report report;
        uint64_t damaged; // unit of the run
    } as;
};
// Returns the bytes written into out[WK_CHANNEL_MESSAGE]; 0: the message is too long or invalid.
size_t wk_channel_encode(const struct wk_channel_message *m, uint8_t out[WK_CHANNEL_MESSAGE]);
// False: not a valid message. Of another abi only the header up to the kind is read.
bool wk_channel_decode(const uint8_t *bytes, size_t n, struct wk_channel_message *out);
// Values of the whole tensor; 0: too many.
uint64_t wk_channel_tensor_values(const struct wk_channel_tensor *t);

#endif
