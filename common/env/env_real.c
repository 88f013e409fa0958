// The real env: one loop thread, one thread per lane, the machine's clock, random and files.
//
// Threads. The loop is the thread that calls lh_env_real_run(). Other threads use the env only
// through post(), now_ns(), wall_s(), random() and lh_env_real_stop(). `lock` guards the posted
// tasks and `sleeping`; `random_lock` guards the random numbers, because jobs draw nonces too.
// Timers and work() belong to the loop and take no lock. No lock is held while a caller's function
// runs.
//
// 1. Posted functions run in the order of posting, timers in the order of their due times (equal
//    ones in the order of arming). A round runs the due timers, then the functions posted before
//    it.
// 2. A wake-up is never lost: the loop sets `sleeping` under the lock only when nothing is posted,
//    and a post to a sleeping loop writes the eventfd, whose count stays until it is read.
// 3. stop() is an atomic store and one write(): safe in a signal handler. run() may be called again
//    and continues where it stopped. destroy() drops pending work.
// 4. A lane runs one job at a time and stays occupied for the job's minimum duration, so an
//    emulated slow device also delays the jobs behind it. `done` is called in job order.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env_real_files.h"

enum { RANDOM_BYTES = 1024 }; // refill size: few system calls, little to wipe
// Niceness of long copies: hashing and sealing a checkpoint uses every processor for a second, and
// a fold of 50 ms took up to 300 ms beside it.
enum { COPY_NICE = 10 };

struct task {
    lh_fn fn;
    void *arg;
};
struct tasks {
    struct task *task;
    size_t len, cap;
};

struct timer {
    int64_t due_ns;
    uint64_t order; // arming number: timers due at one time run in this order
    lh_fn fn;
    void *arg;
    size_t heap_at;      // its heap index while armed
    uint32_t generation; // rises when it fires or is cancelled: old ids no longer match
    uint32_t next_free;  // next free slot + 1, 0: none
};

struct job {
    lh_job run;
    lh_fn done;
    void *arg;
    struct lh_err_said said; // the job's error, for `done` on the loop's thread
    struct job *next;
};

struct lane {
    struct env_real *env;
    pthread_t thread;
    bool started, quit;
    pthread_mutex_t lock; // guards quit and the queues
    pthread_cond_t changed;
    struct job *first, **last;     // waiting
    struct job *over, **over_last; // ended on the lane, `done` not called yet
};

struct env_real {
    struct lh_env env;
    atomic_bool stop;
    int wake_fd;
    pthread_mutex_t lock;
    struct tasks posted;
    bool sleeping;
    // owned by the loop
    struct tasks batch; // taken from `posted`; [batch_at, len) is pending
    size_t batch_at;
    struct timer *timer;
    uint32_t timers, free_timer;
    uint32_t *heap; // slots, the earliest first
    size_t heap_len;
    uint64_t armed;
    // Longest time that one function blocked the loop since lh_env_real_longest_ns().
    int64_t longest_ns;
    struct lane lane[LH_LANE_COUNT];
    pthread_mutex_t random_lock;
    uint8_t random[RANDOM_BYTES]; // the next key, then bytes to give out
    size_t random_at;
};

static struct env_real *real(struct lh_env *env)
{
    return (struct env_real *)env;
}

// ---------------------------------------------------------------- clock

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * LH_SECOND + t.tv_nsec;
}

static int64_t real_now_ns(struct lh_env *env)
{
    (void)env;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t real_wall_s(struct lh_env *env)
{
    (void)env;
    return clock_ns(CLOCK_REALTIME) / LH_SECOND;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / LH_SECOND, .tv_nsec = ns % LH_SECOND};
}

// ---------------------------------------------------------------- posted functions

static void wake(struct env_real *e)
{
    uint64_t one = 1;
    ssize_t n = write(e->wake_fd, &one, sizeof one);
    (void)n; // fails only when the count is full; then the loop is awake
}

static void push_task(struct tasks *list, lh_fn fn, void *arg)
{
    if (list->len == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 64;
        list->task = realloc(list->task, list->cap * sizeof *list->task);
        LH_ASSERT(list->task); // a post cannot fail; its callers have the limits
    }
    list->task[list->len++] = (struct task){fn, arg};
}

static void real_post(struct lh_env *env, lh_fn fn, void *arg)
{
    struct env_real *e = real(env);
    pthread_mutex_lock(&e->lock);
    push_task(&e->posted, fn, arg);
    bool asleep = e->sleeping;
    e->sleeping = false;
    pthread_mutex_unlock(&e->lock);
    if (asleep) wake(e);
}

// Swaps in the posted tasks; if there are none, the loop counts as asleep from here on.
static void take_posted(struct env_real *e)
{
    LH_ASSERT(e->batch_at == e->batch.len);
    e->batch.len = e->batch_at = 0;
    pthread_mutex_lock(&e->lock);
    struct tasks taken = e->posted;
    e->posted = e->batch;
    e->batch = taken;
    e->sleeping = taken.len == 0;
    pthread_mutex_unlock(&e->lock);
}

// ---------------------------------------------------------------- timers: a heap of slots

static bool earlier(const struct env_real *e, uint32_t a, uint32_t b)
{
    const struct timer *x = &e->timer[a], *y = &e->timer[b];
    return x->due_ns != y->due_ns ? x->due_ns < y->due_ns : x->order < y->order;
}

static void heap_set(struct env_real *e, size_t at, uint32_t slot)
{
    e->heap[at] = slot;
    e->timer[slot].heap_at = at;
}

// Moves `slot` from index `at` up or down to its place in the heap.
static void heap_settle(struct env_real *e, size_t at, uint32_t slot)
{
    for (; at > 0 && earlier(e, slot, e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_set(e, at, e->heap[(at - 1) / 2]);
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= e->heap_len) break;
        if (child + 1 < e->heap_len && earlier(e, e->heap[child + 1], e->heap[child])) child++;
        if (!earlier(e, e->heap[child], slot)) break;
        heap_set(e, at, e->heap[child]);
        at = child;
    }
    heap_set(e, at, slot);
}

static void grow_timers(struct env_real *e)
{
    uint32_t cap = e->timers ? e->timers * 2 : 64;
    e->timer = realloc(e->timer, cap * sizeof *e->timer);
    e->heap = realloc(e->heap, cap * sizeof *e->heap);
    LH_ASSERT(e->timer && e->heap);
    for (uint32_t slot = e->timers; slot < cap; slot++)
        e->timer[slot] =
            (struct timer){.generation = 1, .next_free = slot + 1 < cap ? slot + 2 : 0};
    e->free_timer = e->timers + 1;
    e->timers = cap;
}

static uint64_t real_after(struct lh_env *env, int64_t delay_ns, lh_fn fn, void *arg)
{
    struct env_real *e = real(env);
    if (!e->free_timer) grow_timers(e);
    uint32_t slot = e->free_timer - 1;
    struct timer *t = &e->timer[slot];
    e->free_timer = t->next_free;
    int64_t now = real_now_ns(env);
    if (delay_ns < 0) delay_ns = 0;
    t->due_ns = delay_ns < INT64_MAX - now ? now + delay_ns : INT64_MAX;
    t->order = e->armed++;
    t->fn = fn;
    t->arg = arg;
    heap_settle(e, e->heap_len++, slot);
    return (uint64_t)t->generation << 32 | (slot + 1);
}

static void disarm(struct env_real *e, uint32_t slot)
{
    struct timer *t = &e->timer[slot];
    size_t at = t->heap_at;
    uint32_t moved = e->heap[--e->heap_len];
    if (moved != slot) heap_settle(e, at, moved);
    t->generation++;
    t->fn = NULL;
    t->next_free = e->free_timer;
    e->free_timer = slot + 1;
}

static void real_cancel(struct lh_env *env, uint64_t id)
{
    struct env_real *e = real(env);
    uint32_t slot = (uint32_t)id - 1;
    if (!id || slot >= e->timers) return;
    const struct timer *t = &e->timer[slot];
    if (t->fn && t->generation == (uint32_t)(id >> 32)) disarm(e, slot);
}

static void run_task(struct env_real *e, lh_fn fn, void *arg)
{
    int64_t start = real_now_ns(&e->env);
    fn(arg);
    int64_t took = real_now_ns(&e->env) - start;
    if (took > e->longest_ns) e->longest_ns = took;
}

static void run_due_timers(struct env_real *e)
{
    int64_t now =
        e->heap_len ? real_now_ns(&e->env) : 0; // timers armed meanwhile wait for the next round
    while (e->heap_len && !atomic_load(&e->stop)) {
        struct timer due = e->timer[e->heap[0]];
        if (due.due_ns > now) return;
        disarm(e, e->heap[0]);
        run_task(e, due.fn, due.arg);
    }
}

// ---------------------------------------------------------------- the loop

static void run_batch(struct env_real *e)
{
    while (e->batch_at < e->batch.len && !atomic_load(&e->stop)) {
        struct task t = e->batch.task[e->batch_at++];
        run_task(e, t.fn, t.arg);
    }
}

// Sleeps until a post, a stop or the next timer; called only when nothing is posted.
static void nap(struct env_real *e)
{
    struct timespec wait, *timeout = NULL;
    if (e->heap_len) {
        int64_t left = e->timer[e->heap[0]].due_ns - real_now_ns(&e->env);
        wait = timespec_of(left > 0 ? left : 0);
        timeout = &wait;
    }
    struct pollfd fd = {.fd = e->wake_fd, .events = POLLIN};
    uint64_t count;
    if (ppoll(&fd, 1, timeout, NULL) > 0 && read(e->wake_fd, &count, sizeof count) < 0)
        LH_ASSERT(errno == EAGAIN || errno == EINTR);
}

void lh_env_real_run(struct lh_env *env)
{
    struct env_real *e = real(env);
    while (!atomic_load(&e->stop)) {
        run_due_timers(e);
        run_batch(e); // tasks that a stop left
        if (atomic_load(&e->stop)) break;
        take_posted(e);
        if (e->batch.len)
            run_batch(e);
        else
            nap(e);
    }
    atomic_store(&e->stop, false);
}

int64_t lh_env_real_longest_ns(struct lh_env *env)
{
    struct env_real *e = real(env);
    int64_t longest = e->longest_ns;
    e->longest_ns = 0;
    return longest;
}

void lh_env_real_stop(struct lh_env *env)
{
    struct env_real *e = real(env);
    int saved = errno; // may run in a signal handler
    atomic_store(&e->stop, true);
    wake(e);
    errno = saved;
}

// ---------------------------------------------------------------- lanes

static struct job *next_job(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->first && !l->quit) pthread_cond_wait(&l->changed, &l->lock);
    struct job *j = l->quit ? NULL : l->first;
    if (j) {
        l->first = j->next;
        if (!l->first) l->last = &l->first;
    }
    pthread_mutex_unlock(&l->lock);
    return j;
}

// Sleeps until `due_ns`, or until the lane must quit.
static void stay_occupied(struct lane *l, int64_t due_ns)
{
    struct timespec due = timespec_of(due_ns);
    int rc = 0;
    pthread_mutex_lock(&l->lock);
    while (!l->quit && rc != ETIMEDOUT) rc = pthread_cond_timedwait(&l->changed, &l->lock, &due);
    pthread_mutex_unlock(&l->lock);
}

// On the loop's thread, once for each job, in job order.
static void tell_done(void *arg)
{
    struct lane *l = arg;
    pthread_mutex_lock(&l->lock);
    struct job *j = l->over;
    l->over = j->next;
    if (!l->over) l->over_last = &l->over;
    pthread_mutex_unlock(&l->lock);
    lh_err_give(&j->said);
    lh_fn done = j->done;
    void *of = j->arg;
    free(j);
    done(of);
}

static void job_over(struct lane *l, struct job *j)
{
    j->next = NULL;
    lh_err_take(&j->said);
    pthread_mutex_lock(&l->lock);
    *l->over_last = j;
    l->over_last = &j->next;
    pthread_mutex_unlock(&l->lock);
    real_post(&l->env->env, tell_done, l);
}

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    struct lh_env *env = &l->env->env;
    // On Linux the niceness is this thread's and that of threads it starts (parallel.h). A failure
    // does not matter.
    if (l == &l->env->lane[LH_LANE_COPY]) (void)setpriority(PRIO_PROCESS, 0, COPY_NICE);
    for (struct job *j; (j = next_job(l)) != NULL;) {
        int64_t start = real_now_ns(env), least = j->run(j->arg);
        if (least > 0 && start + least > real_now_ns(env)) stay_occupied(l, start + least);
        job_over(l, j);
    }
    return NULL;
}

static void real_work(struct lh_env *env, enum lh_lane lane, lh_job job, lh_fn done, void *arg)
{
    struct env_real *e = real(env);
    LH_ASSERT((unsigned)lane < LH_LANE_COUNT);
    struct lane *l = &e->lane[lane];
    struct job *j = malloc(sizeof *j);
    LH_ASSERT(j); // as in push_task
    *j = (struct job){.run = job, .done = done, .arg = arg};
    if (!l->started) {
        l->started = pthread_create(&l->thread, NULL, run_lane, l) == 0;
        LH_ASSERT(l->started);
    }
    pthread_mutex_lock(&l->lock);
    *l->last = j;
    l->last = &j->next;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void lane_init(struct lane *l, struct env_real *e)
{
    pthread_condattr_t monotonic;
    l->env = e;
    l->last = &l->first;
    l->over_last = &l->over;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void lane_destroy(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->started) pthread_join(l->thread, NULL);
    *l->over_last = l->first;
    for (struct job *j = l->over, *next; j; j = next) {
        next = j->next;
        free(j);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

// ---------------------------------------------------------------- random

// ChaCha20 under a key from the system. Each refill replaces the key with its own output, and bytes
// are wiped once given, so memory does not reveal past numbers ("fast key erasure", D. J.
// Bernstein, 2017). About ten times faster than one system call per number.
static void refill_random(struct env_real *e)
{
    static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES]; // each key is used once
    uint8_t key[crypto_stream_chacha20_KEYBYTES];
    memcpy(key, e->random, sizeof key);
    crypto_stream_chacha20(e->random, sizeof e->random, nonce, key);
    sodium_memzero(key, sizeof key);
    e->random_at = sizeof key;
}

static void real_random(struct lh_env *env, void *out, size_t n)
{
    struct env_real *e = real(env);
    pthread_mutex_lock(&e->random_lock); // two threads never get the same bytes
    for (uint8_t *to = out; n;) {
        if (e->random_at == sizeof e->random) refill_random(e);
        size_t k = sizeof e->random - e->random_at;
        if (k > n) k = n;
        memcpy(to, e->random + e->random_at, k);
        sodium_memzero(e->random + e->random_at, k);
        e->random_at += k;
        to += k;
        n -= k;
    }
    pthread_mutex_unlock(&e->random_lock);
}

// ---------------------------------------------------------------- the machine's start

// Linux gives every boot a random UUID. If it can't be read (a container without /proc), each
// process counts as a boot of its own: unsynced bytes count as lost, which is safe.
static void real_boot_id(struct lh_env *env, uint8_t out[16])
{
    char text[40] = "";
    size_t digits = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    memset(out, 0, 16);
    for (ssize_t i = 0; i < n && digits < 32; i++) {
        const char *all = "0123456789abcdef", *at = strchr(all, text[i]);
        if (!at || !text[i]) continue;
        out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (at - all));
        digits++;
    }
    if (digits < 32) real_random(env, out, 16);
}

// ---------------------------------------------------------------- create, destroy

static const struct lh_env_ops real_ops = {
    .now_ns = real_now_ns,
    .wall_s = real_wall_s,
    .post = real_post,
    .after = real_after,
    .cancel = real_cancel,
    .work = real_work,
    .random = real_random,
    .boot_id = real_boot_id,
    .files = &lh_env_real_files,
};

lh_err lh_env_real_create(struct lh_env **out)
{
    if (sodium_init() < 0)
        return lh_fail(LH_ERR_INTERNAL, "libsodium does not start: no source of randomness");
    struct env_real *e = calloc(1, sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    e->env.ops = &real_ops;
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->wake_fd < 0) {
        lh_err err = lh_fail_errno(errno, "cannot make the loop's eventfd (ulimit -n?)");
        free(e);
        return err;
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->random_lock, NULL);
    for (size_t i = 0; i < LH_LANE_COUNT; i++) lane_init(&e->lane[i], e);
    randombytes_buf(e->random, crypto_stream_chacha20_KEYBYTES);
    e->random_at = sizeof e->random;
    *out = &e->env;
    return LH_OK;
}

void lh_env_real_destroy(struct lh_env *env)
{
    if (!env) return;
    struct env_real *e = real(env);
    for (size_t i = 0; i < LH_LANE_COUNT; i++) lane_destroy(&e->lane[i]);
    close(e->wake_fd);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->random_lock);
    free(e->posted.task);
    free(e->batch.task);
    free(e->timer);
    free(e->heap);
    sodium_memzero(e->random, sizeof e->random);
    free(e);
}
