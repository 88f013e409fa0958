// A communicator's thread. See comm.h.
//
// Invariants: 1. `order` is set only while it is NONE, except ABORT and QUIT, which replace any
// order.
// 2. `stop` is set from abort() until the thread has freed everything. 3. A bucket begins only when
// all of its values are final. 4. `arrays` alone determines the buckets and their order.
#include "worker/ranks/comm/comm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/ranks/comm/comm_host.h"

enum { IDLE_MS = 100 };

static struct wk_comm *comm_of(void *arg)
{
    return (struct wk_comm *)arg;
}

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = fd >= 0 ? write(fd, &one, sizeof one) : 0;
    (void)n; // it fails only if the bell is already rung
}

static void silence(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; // an empty counter is fine
}

void wk_comm_slept(struct wk_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->counts.sleeps++;
    pthread_mutex_unlock(&c->lock);
}

lh_err wk_comm_leaves(void)
{
    return lh_fail(LH_ERR_CANCELLED, "the communicator is aborted");
}

// ---------------------------------------------------------------- the thread

// True, and counts a bucket, once its values up to the `needed`th in summing order are final.
static bool is_final(struct wk_comm *c, uint64_t needed)
{
    pthread_mutex_lock(&c->lock);
    bool is = c->final >= needed;
    c->counts.buckets += is;
    c->counts.early += is && c->final != UINT64_MAX;
    pthread_mutex_unlock(&c->lock);
    return is;
}

// Waits while the backward pass goes on; the communicator may break meanwhile.
static LH_MUST lh_err wait_final(struct wk_comm *c, uint64_t needed)
{
    while (!is_final(c, needed)) {
        struct pollfd p[] = {{c->bell, POLLIN, 0}, {c->wake, POLLIN, 0}};
        int events = poll(p, LH_COUNT(p), c->ops->idle ? IDLE_MS : -1);
        if (wk_comm_stopped(c)) return wk_comm_leaves();
        silence(c->wake);
        if (!events) LH_TRY(c->ops->idle(c));
    }
    return LH_OK;
}

// Sums a bucket: of host memory, of device memory in place, or of device memory through the host.
static LH_MUST lh_err sum_bucket(struct wk_comm *c, uint64_t from, uint64_t values, bool last)
{
    float *at = c->arrays.sum + from;
    if (!c->arrays.device) return c->ops->reduce(c, at, values, last);
    if (c->ops->reduce_there) return c->ops->reduce_there(c, at, values);
    float *here;
    LH_TRY(wk_comm_host_fetch(c, from, values, &here));
    return c->ops->reduce(c, here, values, false);
}

static LH_MUST lh_err sum_behind(struct wk_comm *c)
{
    const struct wk_comm_arrays *a = &c->arrays;
    uint64_t most = wk_comm_bucket_values(a);
    float *at = a->last ? a->last : a->sum + (a->sums - a->behind);
    for (uint64_t done = 0; done < a->behind;) {
        uint64_t left = a->behind - done, n = left < most ? left : most;
        LH_TRY(wait_final(c, UINT64_MAX));
        LH_TRY(c->ops->reduce(c, at + done, n, n == left));
        done += n;
    }
    bool crossed = a->device && !c->ops->reduce_there;
    return crossed ? wk_comm_host_return(c, 0, a->sums - a->behind) : LH_OK; // back to the device
}

static lh_err reduce_buckets(struct wk_comm *c)
{
    const struct wk_comm_arrays *a = &c->arrays;
    uint64_t end = a->sums - a->behind, most = wk_comm_bucket_values(a);
    while (end) {
        uint64_t n = end < most ? end : most;
        end -= n;
        bool last = !end && !a->behind;
        LH_TRY(wait_final(c, last ? UINT64_MAX : wk_comm_needed(a, end)));
        LH_TRY(sum_bucket(c, end, n, last));
    }
    return sum_behind(c);
}

// Sends the first `parts` of the arrays from rank 0 to all, including those of a device.
static LH_MUST lh_err share_parts(struct wk_comm *c, uint32_t parts)
{
    const struct wk_comm_arrays *a = &c->arrays;
    if (!a->device) return c->ops->share(c, a->part, parts);
    for (uint32_t i = 0; i < parts; i++) {
        const struct wk_comm_part *part = &a->part[i];
        if (!(a->there >> i & 1))
            LH_TRY(c->ops->share(c, part, 1));
        else if (c->ops->share_there)
            LH_TRY(c->ops->share_there(c, part));
        else
            LH_TRY(wk_comm_host_share(c, part));
    }
    return LH_OK;
}

static lh_err carry_out(struct wk_comm *c, enum wk_comm_order order)
{
    const struct wk_comm_arrays *a = &c->arrays;
    if (order == WK_COMM_INIT) return c->ops->init(c, &c->id, c->ranks, c->rank);
    bool all = c->what == WK_REGION_SHARE_ALL;
    return order == WK_COMM_REDUCE ? reduce_buckets(c) : share_parts(c, all ? a->parts : 1);
}

// Call it with the lock held.
static void finish(struct wk_comm *c, enum wk_comm_order order, lh_err err)
{
    if (c->order == order) c->order = WK_COMM_NONE;
    c->stands |= order == WK_COMM_INIT && !err;
    if (order == WK_COMM_REDUCE && !err) c->reducing = false;
    c->progress = !err ? WK_REGION_OK : err == LH_ERR_IO ? WK_REGION_STICKY : WK_REGION_WRONG;
    if (err) snprintf(c->why, sizeof c->why, "%s", lh_err_text(err));
}

// Call it with the lock held. False: the thread ends.
static bool serve(struct wk_comm *c)
{
    enum wk_comm_order order = c->order;
    bool idle = order == WK_COMM_NONE;
    if (idle && !(c->stands && c->ops->idle && c->progress == WK_REGION_OK)) return true;
    pthread_mutex_unlock(&c->lock);
    lh_err err = LH_OK;
    if (idle)
        err = c->ops->idle(c);
    else if (order < WK_COMM_ABORT)
        err = carry_out(c, order);
    else
        c->ops->end(c);
    pthread_mutex_lock(&c->lock);
    if (order == WK_COMM_QUIT) return false;
    if (order == WK_COMM_ABORT) {
        if (c->order == order) c->order = WK_COMM_NONE;
        c->stands = false;
        c->aborted = true;
        atomic_store(&c->stop, false);
        silence(c->bell);
    } else if (!idle || err) {
        finish(c, order, err);
    }
    ring(c->told);
    return true;
}

// Waits until there is an order, or it is time to check an idle communicator. Call it with the lock
// held.
static void rest(struct wk_comm *c)
{
    struct pollfd p = {c->wake, POLLIN, 0};
    int look_ms = c->stands && c->ops->idle ? IDLE_MS : -1;
    if (c->order != WK_COMM_NONE) return;
    pthread_mutex_unlock(&c->lock);
    poll(&p, 1, look_ms);
    silence(c->wake);
    pthread_mutex_lock(&c->lock);
}

static void *run(void *arg)
{
    struct wk_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    do rest(c);
    while (serve(c));
    pthread_mutex_unlock(&c->lock);
    ring(c->gone);
    return NULL;
}

static void close_bells(struct wk_comm *c)
{
    if (c->bell >= 0) close(c->bell);
    if (c->wake >= 0) close(c->wake);
    if (c->gone >= 0) close(c->gone);
}

lh_err wk_comm_start(struct wk_comm *c)
{
    c->told = -1;
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->gone = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = c->bell < 0 || c->wake < 0 || c->gone < 0 ? errno : 0;
    pthread_mutex_init(&c->lock, NULL);
    if (!failed) failed = pthread_create(&c->thread, NULL, run, c);
    if (!failed) return LH_OK;
    pthread_mutex_destroy(&c->lock);
    close_bells(c);
    return lh_fail_errno(failed, "a communicator's thread");
}

static void order(struct wk_comm *c, enum wk_comm_order what)
{
    pthread_mutex_lock(&c->lock);
    LH_ASSERT(c->order == WK_COMM_NONE || what >= WK_COMM_ABORT);
    c->order = what;
    if (what == WK_COMM_ABORT) c->aborted = false; // aborted() reports the latest abort
    c->progress = WK_REGION_BUSY;
    pthread_mutex_unlock(&c->lock);
    ring(c->wake);
}

void wk_comm_bind(struct wk_comm *c, const struct wk_comm_arrays *arrays, int told)
{
    LH_ASSERT(!arrays->device || (arrays->behind && arrays->last));
    c->arrays = *arrays;
    if (arrays->device) c->device = *arrays->device;
    if (arrays->device) c->arrays.device = &c->device;
    if (!c->arrays.bucket_bytes) c->arrays.bucket_bytes = WK_COMM_BUCKET_BYTES;
    c->told = told;
}

struct wk_comm_counts wk_comm_counts(struct wk_comm *c)
{
    pthread_mutex_lock(&c->lock);
    struct wk_comm_counts counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}

bool wk_comm_destroy(struct wk_comm *c)
{
    if (!c) return true;
    atomic_store(&c->stop, true);
    ring(c->bell);
    order(c, WK_COMM_QUIT);
    struct pollfd p = {c->gone, POLLIN, 0};
    int n, within_ms = c->leave_ms ? c->leave_ms : WK_COMM_LEAVE_MS;
    do n = poll(&p, 1, within_ms);
    while (n < 0 && errno == EINTR);
    if (n < 1) return false;
    pthread_join(c->thread, NULL);
    pthread_mutex_destroy(&c->lock);
    close_bells(c);
    wk_comm_host_free(c);
    c->ops->destroy(c);
    return true;
}

// ---------------------------------------------------------------- the region's table

static uint32_t version(void *arg)
{
    return comm_of(arg)->ops->version(arg);
}

static lh_err unique_id(void *arg, struct wk_nccl_id *out)
{
    return comm_of(arg)->ops->unique_id(arg, out);
}

static void init(void *arg, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    struct wk_comm *c = arg;
    c->id = *id;
    c->ranks = ranks;
    c->rank = rank;
    c->aborted = c->reducing = false;
    order(c, WK_COMM_INIT);
}

static void share(void *arg, enum wk_region_share what)
{
    comm_of(arg)->what = what;
    order(arg, WK_COMM_SHARE);
}

// A failure in the meantime remains for poll() to report.
static void reduce(void *arg, uint64_t final)
{
    struct wk_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    bool first = !c->reducing;
    c->reducing = true;
    c->final = final;
    pthread_mutex_unlock(&c->lock);
    if (first)
        order(c, WK_COMM_REDUCE);
    else
        ring(c->wake);
}

static enum wk_region_progress progress(void *arg)
{
    struct wk_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    enum wk_region_progress is = c->progress;
    pthread_mutex_unlock(&c->lock);
    return is;
}

static void abort_comm(void *arg)
{
    struct wk_comm *c = arg;
    atomic_store(&c->stop, true);
    ring(c->bell);
    order(c, WK_COMM_ABORT);
}

static bool aborted(void *arg)
{
    struct wk_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    bool is = c->aborted;
    pthread_mutex_unlock(&c->lock);
    return is;
}

static const char *why(void *arg)
{
    struct wk_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    memcpy(c->why_out, c->why, sizeof c->why_out);
    pthread_mutex_unlock(&c->lock);
    return c->why_out;
}

const struct wk_region_comm_ops wk_comm_region = {
    version, unique_id, init, share, reduce, progress, abort_comm, aborted, why,
};
