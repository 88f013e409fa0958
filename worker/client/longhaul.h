/* longhaul.h: a training loop of your own joins a run of Longhaul.
 *
 * The worker, a process of its own on the same host, keeps keys, network and disk. Your process
 * keeps the parameters and trains. Between two steps your loop calls longhaul_boundary() and
 * does the work that is due:
 *
 *     longhaul_open(&c);
 *     for (...) longhaul_parameter(c, &tensor);
 *     longhaul_connect(c, 60000);
 *     longhaul_start(c);                            the run's parameters, into yours
 *     for (step = 1;; step++) {
 *         longhaul_before_step(c);                  if parameters are on CUDA
 *         train(longhaul_credited(c, &clock));      one optimizer step
 *         longhaul_boundary(c, step, tokens, &due);
 *         if (due & LONGHAUL_RENEW) longhaul_renew(c);
 *         if (due & LONGHAUL_CUT) longhaul_cut(c);
 *         if (due & LONGHAUL_WAIT) longhaul_wait(c, 1000);
 *         while (due & LONGHAUL_PAUSE && longhaul_wait(c, 1000) == LONGHAUL_E_TIMEOUT) continue;
 *         if (due & LONGHAUL_DRAIN) break;
 *     }
 *     longhaul_finish(c, 60000);                    the final parameters, into yours
 *     longhaul_close(c);
 *
 * Threads: one thread at a time calls with one handle, except longhaul_renew_piece() and
 * longhaul_cut_piece(), which any threads may call at once with different pieces. The library
 * starts no thread, never ends the process, writes nothing to your files.
 *
 * Fork: a forked child has the handle and may not use it: every call but longhaul_close() gives
 * LONGHAUL_E_FORKED there. The parent is not disturbed.
 *
 * Costs are those of one call; "a copy" is one memcpy of the parameters.
 *
 * Growth: from LONGHAUL_ABI 1 on, a struct with a `size` grows only at its end, so programs and
 * libraries of different versions work together. The library takes fields missing from a shorter
 * struct as 0. Fields of a longer one that the library does not know must be 0, else the call gives
 * LONGHAUL_E_INVALID: the program asks for a feature that this library lacks. Structs that the
 * library gives out without a `size` do not change, except for additions at the end of
 * longhaul_addition and longhaul_taking. LONGHAUL_ABI rises when anything else changes.
 */
#ifndef LONGHAUL_H
#define LONGHAUL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LONGHAUL_API __attribute__((visibility("default")))
#define LONGHAUL_ABI 1

struct longhaul; /* a connection with the worker, and the description of your parameters */

enum longhaul_error {
    LONGHAUL_OK = 0,
    LONGHAUL_E_INVALID,     /* an invalid argument */
    LONGHAUL_E_STATE,       /* not now: another call must come first */
    LONGHAUL_E_FORKED,      /* this process is a fork of the one that opened the handle */
    LONGHAUL_E_UNSUPPORTED, /* not on this host: no CUDA library, say */
    LONGHAUL_E_NO_MEMORY,
    LONGHAUL_E_SYSTEM,  /* a system call failed; the text says which */
    LONGHAUL_E_VERSION, /* worker and library are of different versions */
    LONGHAUL_E_MODEL,   /* the run's parameters differ from yours */
    LONGHAUL_E_BUSY,    /* another process is this worker's trainer */
    LONGHAUL_E_REFUSED, /* the worker refuses; the text says why */
    LONGHAUL_E_RESTART, /* this life is over: longhaul_connect() and longhaul_start() again */
    LONGHAUL_E_TIMEOUT, /* nothing came in time */
    LONGHAUL_E_AGAIN,   /* nothing available now: longhaul_wait(), then again */
    LONGHAUL_E_DRAINED, /* no more units: longhaul_finish() */
    LONGHAUL_E_DAMAGED, /* the shared memory holds invalid data */
    LONGHAUL_ERRORS
};

enum longhaul_dtype { LONGHAUL_FP32 = 1, LONGHAUL_BF16 = 2 };
enum longhaul_memory { LONGHAUL_HOST = 0, LONGHAUL_CUDA = 1 };

/* The clock of learning rates: the run's (longhaul_credited()), or the loop's own steps. */
enum longhaul_schedule { LONGHAUL_RUNS_CLOCK = 1, LONGHAUL_OWN_STEPS = 2 };

/* Work that is due at a boundary, in this order. */
enum longhaul_due {
    LONGHAUL_RENEW = 1, /* longhaul_renew() */
    LONGHAUL_CUT = 2,   /* longhaul_cut(), before the next optimizer step changes parameters */
    LONGHAUL_WAIT = 4,  /* the worker has been away for too long: longhaul_wait() */
    LONGHAUL_DRAIN = 8, /* this was the last step: longhaul_finish() */
    LONGHAUL_PAUSE = 16 /* the run is paused: no step until longhaul_wait() gives no
                           LONGHAUL_E_TIMEOUT. Due on all ranks at the same step */
};

/* Values of a correction, to be added to a parameter on CUDA: value[i] to value first + i of this
 * rank's values, or to first + index[i] if there is an index. Each is named once. An index and its
 * values are valid only during the call. Values without an index do not change until a cut that
 * holds them is committed; a host's only rank has them in pinned memory if longhaul_state() says
 * so, and an asynchronous copy then needs no wait. A call with a count of 0 ends each piece of a
 * renewal: queue all deferred additions then. */
struct longhaul_addition {
    uint64_t first, count; /* values of the parameter, at most 4 Mi; 0: the end */
    uint64_t entries;      /* values to add: `count` without an index */
    const float *value;
    const int32_t *index; /* 0 to count - 1; or NULL */
};
/* Queues the addition on the parameter's stream, in fp32: one rounding per value. Not 0: it failed.
 * Any thread that calls longhaul_renew_piece() may call it. */
typedef int (*longhaul_add)(void *arg, const struct longhaul_addition *a);

/* Values `first` to `first` + `count` of a parameter on CUDA, for a cut. */
struct longhaul_taking {
    uint64_t first, count; /* as above; at most 4 Mi */
    float *to;             /* destination: pinned memory if longhaul_state() says so */
    void *stream; /* the library's own; it follows the parameter's stream up to the cut. Queue the
                     copy on it, or finish the copy before the call returns */
};
/* Queues the copy of these values, if the described memory does not hold them as a cut needs them.
 * It does not change its input. Not 0: it failed. Threads: as with longhaul_add. */
typedef int (*longhaul_take)(void *arg, const struct longhaul_taking *t);

/* A parameter. `size` is sizeof(struct longhaul_tensor). The library borrows `data` until close
 * and copies the rest. A rank that holds only some values of the tensor (Shard(0)) names them:
 * values `first` to `first` + `count` of it, in row-major order. Both 0: it holds all. `first` is
 * the number of all values and `count` 0: it holds none, and `data` may be NULL. */
struct longhaul_tensor {
    uint32_t size;
    int32_t dtype, memory; /* enum longhaul_dtype, enum longhaul_memory */
    int32_t ndim;          /* 0 to 8 */
    const uint64_t *shape;
    const char *name; /* as the run's manifest names it, shorter than 128 bytes */
    void *data;       /* contiguous */
    uint64_t first, count;
    void *stream; /* CUDA: the stream that changes the parameter; NULL: the default stream of its
                     device. Parameters of one handle have at most 16 streams. */
    longhaul_add add;   /* CUDA, fp32: adds corrections in the library's place; or NULL */
    void *add_arg;      /* argument of `add` and `take` */
    longhaul_take take; /* CUDA, fp32: copies a cut's values in the library's place; or NULL. With
                           it `add` gets every value that a correction covers, even those without
                           entries. */
};

/* A unit of the run. Its data are those of unit `unit` modulo the number of units in units.json;
 * the quotient is the data epoch, from 0. */
struct longhaul_unit {
    uint64_t unit, from, tokens; /* train it from token `from` to token `tokens` */
};

struct longhaul_state {
    uint32_t size;           /* sizeof(struct longhaul_state), set by the caller */
    uint32_t worker_lives;   /* 1: the worker is connected */
    uint64_t away_steps;     /* steps since it left */
    uint64_t cuts, renewals; /* of this handle: parts cut, corrections added */
    uint64_t returns;        /* times that it returned and this life continued */
    uint64_t memory_bytes;   /* shared with the worker */
    uint64_t shadow_bytes;   /* fp32 copies beside bf16 parameters: 4 bytes a value */
    uint64_t pinned_bytes; /* of the shared memory, pinned for copies from CUDA: the memory of this
                              rank's cuts and, for an only rank, the corrections; 0: no
                              parameter is on CUDA, or CUDA can't pin it, and cuts block */
    uint64_t committed;    /* cuts of this life that the worker has made durable, of the part
                              with the fewest */
};

/* ---- before a connection */

/* Cost: nothing. Any thread. */
LONGHAUL_API uint32_t longhaul_abi(void);
LONGHAUL_API const char *longhaul_error_name(int error); /* "LONGHAUL_E_BUSY" */

/* A handle, without connection. Rank and ranks of this host come from LOCAL_RANK and
 * LOCAL_WORLD_SIZE if torchrun set them, else 0 of 1. Cost: one allocation. */
LONGHAUL_API int longhaul_open(struct longhaul **out);
LONGHAUL_API int longhaul_ranks(struct longhaul *c, uint32_t rank, uint32_t ranks);

/* Describes one parameter; all of them, in the manifest's order, before longhaul_connect(). Memory
 * that two parameters share (tied weights) is described once; a second description
 * gives LONGHAUL_E_INVALID and names both. bf16 takes an fp32 shadow. Cost: an allocation, 4 bytes
 * a value of bf16. */
LONGHAUL_API int longhaul_parameter(struct longhaul *c, const struct longhaul_tensor *t);
/* The same from a DLManagedTensor (DLPack before 1.0), which stays the caller's: host and CUDA,
 * fp32 and bf16, contiguous. */
LONGHAUL_API int longhaul_parameter_dlpack(struct longhaul *c, const char *name, void *managed,
                                           void *stream);

/* ---- the connection */

/* Connects with the worker at the Unix socket that LONGHAUL_SOCKET names, waits until it runs and
 * all ranks are there, maps the shared memory. Again after LONGHAUL_E_RESTART.
 * Cost: up to timeout_ms; maps 14 bytes a parameter, and pins slots and corrections for CUDA. */
LONGHAUL_API int longhaul_connect(struct longhaul *c, int timeout_ms);
/* Writes the run's parameters over yours: a new life begins without progress. Cost: a copy. */
LONGHAUL_API int longhaul_start(struct longhaul *c);
/* Ends the connection and frees the handle; progress since the last cut is dropped. NULL is
 * allowed. In a forked child it frees only the child's copy. */
LONGHAUL_API void longhaul_close(struct longhaul *c);

/* ---- at every boundary between two steps */

/* `step` rises by one or more from call to call; `tokens` were trained since the last call, by this
 * rank, at most 2^40. *due gets a set of enum longhaul_due. The parameters are not touched. With
 * several ranks all must call it with the same steps; work is due at the same step on each, and
 * must be done before the next boundary. Never waits for the worker. Cost: under 50 us if nothing
 * is due; with several ranks it waits for rank 0 if this rank is more than two steps ahead. */
LONGHAUL_API int longhaul_boundary(struct longhaul *c, uint64_t step, uint64_t tokens,
                                   unsigned *due);
/* Adds the other workers' progress to the parameters; your progress stays. Cost: at most 2 copies.
 * On CUDA: two over the bus, in blocks, added on the host, and the call waits for the streams; with
 * the parameter's own `add` only the corrections cross the bus, and the call waits for nothing. */
LONGHAUL_API int longhaul_renew(struct longhaul *c);
/* Copies the parameters, or this rank's share of them, to the worker. Cost: at most 1.5 copies.
 * A stream of the library copies parameters on CUDA once each parameter's stream has done all work
 * queued before this call, and the call returns at once: forward and backward passes, which do not
 * change parameters, may run meanwhile. The worker has the cut when
 * longhaul_before_step(), or a call of _boundary(), _wait() or _finish() after it, finds that the
 * copy ended. That call also widens bf16: a copy. If the process dies before it, the cut is lost.
 */
LONGHAUL_API int longhaul_cut(struct longhaul *c);
/* Call it after a cut, before parameters on CUDA change, and before the next boundary: later work
 * on their streams then waits for the copy, on the device. Does nothing without such parameters. A
 * loop that waits for the worker after a cut calls it first, otherwise the cut waits too. If it was
 * left out, the cut may be torn and never reaches the worker: the next boundary gives
 * LONGHAUL_E_STATE, and so does every later call until longhaul_connect(). longhaul_finish() takes
 * such a cut again. Cost: a few microseconds. */
LONGHAUL_API int longhaul_before_step(struct longhaul *c);
/* The same on several of your threads: piece i of `pieces`, each once, then _done() once. A piece
 * has its share of the values and shares no memory with another. Errors have no text. */
LONGHAUL_API int longhaul_renew_piece(struct longhaul *c, uint32_t i, uint32_t pieces);
LONGHAUL_API int longhaul_renew_done(struct longhaul *c);
LONGHAUL_API int longhaul_cut_piece(struct longhaul *c, uint32_t i, uint32_t pieces);
LONGHAUL_API int longhaul_cut_done(struct longhaul *c);

/* Sleeps until the worker reports a change or returns; LONGHAUL_E_TIMEOUT: it did not. */
LONGHAUL_API int longhaul_wait(struct longhaul *c, int timeout_ms);
/* Tokens of the whole run that are credited: the clock of learning rates. Several ranks get the
 * same number between two boundaries, a step or two old; older while one is steps behind. Cost: one
 * load. */
LONGHAUL_API int longhaul_credited(struct longhaul *c, uint64_t *tokens);
/* Whether the run's budget was changed before this life began, by an operator's settings. Learning
 * rates then continue from their current value: they follow the old budget's schedule up to
 * `changed` credited tokens, and then move linearly to the new one's. All 0: it never was. */
struct longhaul_budget {
    uint64_t tokens, old_tokens, changed;
};
LONGHAUL_API int longhaul_budget(struct longhaul *c, struct longhaul_budget *out);
/* States which clock the learning rates follow; only reports it. The worker's status shows it, and
 * that the regions' rates may differ if they follow the loop's own steps. A new life begins with
 * none stated. Cost: one store. */
LONGHAUL_API int longhaul_schedule(struct longhaul *c, enum longhaul_schedule follows);
/* The noise of a loop that clips each record's gradient and adds Gaussian noise by itself, where
 * the worker's settings say privacy.reported. `size` is sizeof(struct longhaul_noise). */
struct longhaul_noise {
    uint32_t size;
    uint32_t steps; /* private steps that the next boundary ends; calls add up; none: one step */
    double sigma;   /* standard deviation of the noise over `clip`, above 0 */
    double rate;    /* probability that a step draws a record, above 0 and at most 1 */
    double clip;    /* bound of the norm of one record's gradient, above 0 */
};
/* Reports it, before a boundary: before the first one of each life, and again when a number changes
 * or the boundary ends several private steps. The worker pushes nothing of a loop that reports
 * none, or less noise than the run's terms; it counts the steps, charges them to the region's
 * budget, and drains the loop when that is spent. Nobody checks that the loop does what it reports.
 * Cost: a few stores. */
LONGHAUL_API int longhaul_noise(struct longhaul *c, const struct longhaul_noise *noise);
/* Reports a figure of the loop to the worker: its status and the run's tables show the loss and the
 * other figures. A name is shorter than 64 bytes; the worker stores 16 of them. Values that are not
 * finite are dropped. Never waits: while the worker is away or busy the figure is dropped. Cost: a
 * system call. */
LONGHAUL_API int longhaul_report(struct longhaul *c, const char *name, double value);
/* Fills the fields of *out that library and caller both know; sets out->size to their bytes. */
LONGHAUL_API int longhaul_state(struct longhaul *c, struct longhaul_state *out);
/* The error text of this handle's last failed call. Never NULL. */
LONGHAUL_API const char *longhaul_text(const struct longhaul *c);

/* ---- units of data that the run leases; a loop with its own data calls none of these */

/* The next leased unit for this rank. LONGHAUL_E_AGAIN: none now. Continue with boundaries of
 * rising steps and no tokens, because the run may wait for a cut that is due, with longhaul_wait()
 * between them, and ask again. Cost: a few loads. */
LONGHAUL_API int longhaul_lease(struct longhaul *c, struct longhaul_unit *out);
/* The unit is trained up to this token by the steps until the next boundary. It is credited with
 * the cut that holds those steps, exactly once; training that no cut holds is leased again.
 * LONGHAUL_E_AGAIN: too many notes are queued for the worker. Cost: a few stores. */
LONGHAUL_API int longhaul_trained(struct longhaul *c, uint64_t unit, uint64_t upto);
/* This process's tokens of a leased unit differ from the run's (the sha256 of units.json): it won't
 * train the unit, and asks for another one. The run leases the unit to a region with an intact
 * copy; if there is none, the run ends without the unit and names it. */
LONGHAUL_API int longhaul_damaged(struct longhaul *c, uint64_t unit);

/* ---- the end */

/* The loop is over (LONGHAUL_DRAIN, or its own decision): gives the worker a last cut, waits for
 * the end of the run, and writes the run's final parameters over yours.
 * LONGHAUL_E_TIMEOUT: not over yet, call it again. Cost: up to timeout_ms, and three copies. */
LONGHAUL_API int longhaul_finish(struct longhaul *c, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
