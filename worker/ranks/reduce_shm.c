// Reduce in shared memory. See reduce_shm.h.
//
// Layout of the segment (mode 0600): struct segment; ids of a step, u32 [sequences][length + 1];
// parameters, fp32 [values]; one gradient, fp32 or bf16 [values], for each rank except the leader.
// With bf16 a rank computes in private memory and converts the result.
//
//  1. A live rank holds a robust mutex: when its process dies, the kernel releases the mutex and
//     reports it. So liveness is never guessed from time or process numbers.
//  2. `life` of a seat is odd while it is taken and changes at every arrival and departure, so a
//     rank that restarted between two looks is still seen as lost.
//  3. A seat has one task at a time: the leader writes it and raises `task`; the rank computes it
//     and sets `done` to that number. A seat with done != task gets no part: a rank that was too
//     slow for a step still writes into its own gradient, which is not read.
//  4. Sleepers use futexes, not condition variables, which do not survive a dead waiter.
#include "worker/ranks/reduce_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"
#include "kernels/convert.h"

enum { LOOK_MS = 100, PAGE = 4096, VERSION = 2 };
static const uint32_t MAGIC = 0x534d524c; // "LRMS", stored last

struct seat {
    pthread_mutex_t alive; // held by the seated rank
    _Atomic uint32_t life, task, done;
    struct wk_reduce_step step; // its ids pointer is private to the reader
    struct wk_part part;
    struct wk_share share; // valid once `done` equals `task`
    bool failed;
};

struct segment {
    _Atomic uint32_t ready; // MAGIC
    uint32_t version, ranks, sequences, length;
    uint32_t sum; // enum wk_sum_type
    uint64_t values;
    struct lh_hash manifest;
    pthread_mutex_t leader; // held by the leader
    _Atomic uint32_t bell;  // rises with every `done` and arrival: the leader sleeps on it
    _Atomic uint32_t over;  // 1: the run is over
    struct seat seat[WK_RANKS_MAX];
};

// ---------------------------------------------------------------- places

static size_t paged(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t ids_bytes(const struct wk_shm_conf *c)
{
    return (size_t)c->sequences * ((size_t)c->length + 1) * sizeof(uint32_t);
}

static size_t ids_at(void)
{
    return paged(sizeof(struct segment));
}

static size_t parameters_at(const struct wk_shm_conf *c)
{
    return ids_at() + paged(ids_bytes(c));
}

// Offset of the gradient of `rank`, from 1; rank c->ranks: the end of the segment.
static size_t gradient_at(const struct wk_shm_conf *c, uint32_t rank)
{
    size_t first = parameters_at(c) + paged(c->values * sizeof(float));
    return first + (rank - 1) * paged(c->values * wk_sum_bytes(c->sum));
}

static void *at(struct segment *g, size_t offset)
{
    return (uint8_t *)g + offset;
}

void wk_shm_name(const char *place, char out[WK_SHM_NAME_BYTES])
{
    char hex[2 * LH_HASH_BYTES + 1];
    struct lh_span part = lh_span_str(place);
    struct lh_hash hash = lh_hash_of(lh_span_str("longhaul ranks 1"), &part, 1);
    lh_hash_hex(&hash, hex);
    snprintf(out, WK_SHM_NAME_BYTES, "/longhaul-%.32s", hex);
}

void wk_shm_remove(const char *name)
{
    shm_unlink(name);
}

// ---------------------------------------------------------------- sleeping, living

// True: woken, or the word has already changed; false: timeout.
static bool futex_wait(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    return !syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0) || errno != ETIMEDOUT;
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void ring(struct segment *g)
{
    atomic_fetch_add(&g->bell, 1);
    futex_wake(&g->bell);
}

static LH_MUST lh_err mutex_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    int failed = pthread_mutexattr_init(&a);
    if (!failed) failed = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (!failed) failed = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (!failed) failed = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    return failed ? lh_fail_errno(failed, "a mutex between processes") : LH_OK;
}

// True: this process holds it now, because no live process did.
static bool take_over(pthread_mutex_t *m)
{
    int is = pthread_mutex_trylock(m);
    if (is == EOWNERDEAD) pthread_mutex_consistent(m);
    return is == 0 || is == EOWNERDEAD;
}

// Empties the seat of a rank that died or left.
static void look(struct seat *s)
{
    if (!take_over(&s->alive)) return;
    if (atomic_load(&s->life) % 2) atomic_fetch_add(&s->life, 1);
    pthread_mutex_unlock(&s->alive);
}

static bool is_alive(pthread_mutex_t *m)
{
    if (!take_over(m)) return true;
    pthread_mutex_unlock(m);
    return false;
}

// ---------------------------------------------------------------- the leader

struct leader {
    struct wk_reduce base; // first
    struct wk_shm_conf conf;
    struct segment *g;
    struct wk_reduce_step step;
    struct {
        bool dealt;
        uint32_t life, seen; // when its part was dealt; at the last watch()
    } rank[WK_RANKS_MAX];
    struct wk_part lost[WK_RANKS_MAX]; // parts of lost ranks
    uint32_t lost_count;
};

static struct leader *leader_of(struct wk_reduce *r)
{
    return (struct leader *)r;
}

static float *parameters(struct wk_reduce *r)
{
    return at(leader_of(r)->g, parameters_at(&leader_of(r)->conf));
}

static bool is_free(const struct seat *s)
{
    return atomic_load(&s->life) % 2 && atomic_load(&s->done) == atomic_load(&s->task);
}

static void hand_out(struct leader *l, uint32_t rank, struct wk_part part)
{
    struct seat *s = &l->g->seat[rank];
    l->rank[rank].dealt = true;
    l->rank[rank].life = atomic_load(&s->life);
    s->step = l->step;
    s->part = part;
    s->failed = false;
    atomic_fetch_add(&s->task, 1);
    futex_wake(&s->task);
}

// Deals this part of the step among the leader and all free ranks, as evenly as possible.
static void deal_part(struct leader *l, struct wk_part all, struct wk_part *own)
{
    uint32_t free_rank[WK_RANKS_MAX], shares = 1;
    for (uint32_t rank = 1; rank < l->conf.ranks; rank++)
        if (is_free(&l->g->seat[rank])) free_rank[shares++] = rank;
    for (uint32_t i = 0; i < shares; i++) {
        struct wk_part part = wk_reduce_part(all.count, i, shares);
        part.from += all.from;
        if (i == 0)
            *own = part;
        else if (part.count)
            hand_out(l, free_rank[i], part);
    }
}

static void deal(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own)
{
    struct leader *l = leader_of(r);
    LH_ASSERT(step->sequences <= l->conf.sequences && step->length <= l->conf.length);
    l->step = *step;
    l->lost_count = 0;
    memcpy(at(l->g, ids_at()), step->ids,
           (size_t)step->sequences * ((size_t)step->length + 1) * sizeof *step->ids);
    deal_part(l, (struct wk_part){0, step->sequences}, own);
}

// True: the rank gave its part; false: it is lost, or too slow.
static bool wait_for(struct leader *l, uint32_t rank)
{
    struct seat *s = &l->g->seat[rank];
    for (int64_t quiet_ms = 0;;) {
        uint32_t bell = atomic_load(&l->g->bell);
        bool done = atomic_load(&s->done) == atomic_load(&s->task); // read before life: see 2
        if (atomic_load(&s->life) != l->rank[rank].life) return false;
        if (done) return !s->failed;
        if (quiet_ms >= l->conf.patience_ms) return false;
        if (futex_wait(&l->g->bell, bell, LOOK_MS)) continue;
        quiet_ms += LOOK_MS;
        look(s);
    }
}

static void add_up(struct leader *l, uint32_t rank, float *gradient, struct wk_gathered *sum)
{
    const struct wk_share *share = &l->g->seat[rank].share;
    const void *theirs = at(l->g, gradient_at(&l->conf, rank));
    const float *wide = theirs;
    if (l->conf.sum == WK_SUM_BF16)
        lk_bf16_add(theirs, gradient, l->conf.values);
    else
        for (uint64_t i = 0; i < l->conf.values; i++) gradient[i] += wide[i];
    sum->nll += share->nll;
    if (share->first && sum->samples < WK_SAMPLES_MAX) sum->sample[sum->samples++] = *share;
}

static lh_err gather(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                     struct wk_part *missing)
{
    struct leader *l = leader_of(r);
    (void)fine; // only the leader takes steps
    for (uint32_t rank = 1; rank < l->conf.ranks; rank++) {
        if (!l->rank[rank].dealt) continue;
        l->rank[rank].dealt = false;
        if (wait_for(l, rank))
            add_up(l, rank, gradient, sum);
        else
            l->lost[l->lost_count++] = l->g->seat[rank].part;
    }
    *missing = (struct wk_part){0};
    if (l->lost_count) deal_part(l, l->lost[--l->lost_count], missing);
    return LH_OK;
}

static uint32_t watch(struct wk_reduce *r, struct lh_log *log)
{
    struct leader *l = leader_of(r);
    uint32_t here = 1;
    for (uint32_t rank = 1; rank < l->conf.ranks; rank++) {
        look(&l->g->seat[rank]);
        uint32_t life = atomic_load(&l->g->seat[rank].life), seen = l->rank[rank].seen;
        here += life % 2;
        l->rank[rank].seen = life;
        if (life == seen) continue;
        if (seen % 2) lh_logf(log, LH_WARN, "rank.lost", "rank %u; the others go on", rank);
        if (life % 2) lh_logf(log, LH_INFO, "rank.joined", "rank %u", rank);
    }
    return here;
}

static bool close_leader(struct wk_reduce *r, bool done)
{
    struct leader *l = leader_of(r);
    if (done) atomic_store(&l->g->over, 1);
    for (uint32_t rank = 1; rank < l->conf.ranks; rank++) futex_wake(&l->g->seat[rank].task);
    pthread_mutex_unlock(&l->g->leader);
    munmap(l->g, gradient_at(&l->conf, l->conf.ranks));
    shm_unlink(l->conf.name);
    free(l);
    return true;
}

// The other ranks read the parameters in place, and gather() is bounded by its patience.
static const struct wk_reduce_ops ops = {
    .parameters = parameters,
    .deal = deal,
    .gather = gather,
    .watch = watch,
    .close = close_leader,
};

// ---------------------------------------------------------------- the segment

static LH_MUST lh_err map(int fd, size_t bytes, const char *name, struct segment **out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return lh_fail_errno(errno, "shared memory %s of %zu bytes", name, bytes);
    *out = p;
    return LH_OK;
}

// Finds the leader of this name. LH_ERR_UNAVAILABLE: no live leader; LH_ERR_NOT_FOUND: no segment.
static LH_MUST lh_err open_segment(const char *name, int *fd, size_t *bytes)
{
    struct stat is;
    *fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (*fd < 0 && errno == ENOENT) return LH_ERR_NOT_FOUND;
    if (*fd < 0) return lh_fail_errno(errno, "shared memory %s", name);
    lh_err err = fstat(*fd, &is) ? lh_fail_errno(errno, "shared memory %s", name) : LH_OK;
    if (!err && is.st_uid != geteuid())
        err = lh_fail(LH_ERR_DENIED,
                      "shared memory %s belongs to user %u; another run has the same name", name,
                      (unsigned)is.st_uid);
    *bytes = (size_t)is.st_size;
    if (!err && *bytes < sizeof(struct segment)) err = LH_ERR_UNAVAILABLE; // unfinished or damaged
    if (err) close(*fd);
    return err;
}

// Removes a dead leader's segment. LH_ERR_BUSY: it is alive.
static LH_MUST lh_err clear_name(const char *name)
{
    int fd;
    size_t bytes;
    struct segment *g = NULL;
    lh_err err = open_segment(name, &fd, &bytes);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    if (!err) {
        err = map(fd, sizeof *g, name, &g);
        close(fd);
        LH_TRY(err);
        bool alive = atomic_load(&g->ready) == MAGIC && is_alive(&g->leader);
        munmap(g, sizeof *g);
        if (alive)
            return lh_fail(
                LH_ERR_BUSY,
                "another process leads the ranks of %s; each worker needs its own certificate",
                name);
    } else if (err != LH_ERR_UNAVAILABLE) {
        return err;
    }
    shm_unlink(name);
    return LH_OK;
}

static LH_MUST lh_err fill(struct segment *g, const struct wk_shm_conf *c)
{
    g->version = VERSION;
    g->ranks = c->ranks;
    g->sequences = c->sequences;
    g->length = c->length;
    g->values = c->values;
    g->sum = c->sum;
    g->manifest = c->manifest;
    LH_TRY(mutex_init(&g->leader));
    for (uint32_t rank = 0; rank < c->ranks; rank++) LH_TRY(mutex_init(&g->seat[rank].alive));
    if (!take_over(&g->leader))
        return lh_fail(LH_ERR_INTERNAL, "a mutex that nobody knows is held");
    atomic_store(&g->ready, MAGIC);
    return LH_OK;
}

static LH_MUST lh_err make_segment(const struct wk_shm_conf *c, struct segment **out)
{
    size_t bytes = gradient_at(c, c->ranks);
    LH_TRY(clear_name(c->name));
    int fd = shm_open(c->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return lh_fail_errno(errno, "shared memory %s", c->name);
    // Allocate all of it now: missing memory would cause a SIGBUS during a step.
    int failed = posix_fallocate(fd, 0, (off_t)bytes);
    lh_err err = LH_OK;
    if (failed)
        err = lh_fail(LH_ERR_NO_MEMORY,
                      "%u ranks need %zu MiB of shared memory (%s): enlarge /dev/shm, or set "
                      "ranks.count lower",
                      c->ranks, (bytes >> 20) + 1, strerror(failed));
    if (!err) err = map(fd, bytes, c->name, out);
    close(fd);
    if (!err) {
        err = fill(*out, c);
        if (err) munmap(*out, bytes);
    }
    if (err) shm_unlink(c->name);
    return err;
}

lh_err wk_shm_lead(const struct wk_shm_conf *conf, struct wk_reduce **out)
{
    LH_ASSERT(conf->ranks >= 2 && conf->ranks <= WK_RANKS_MAX);
    struct leader *l = calloc(1, sizeof *l);
    if (!l) return lh_fail(LH_ERR_NO_MEMORY, "ranks");
    l->base.ops = &ops;
    l->conf = *conf;
    lh_err err = make_segment(conf, &l->g);
    if (err) {
        free(l);
        return err;
    }
    *out = &l->base;
    return LH_OK;
}

// ---------------------------------------------------------------- the other ranks

struct wk_seat {
    struct wk_shm_conf conf;
    struct segment *g;
    struct seat *seat;
    uint32_t rank, task; // task: the last one taken
    float *gradient;     // private, in fp32; NULL: the segment's gradient is fp32
};

static LH_MUST lh_err attach(const struct wk_shm_conf *c, struct segment **out)
{
    int fd;
    size_t bytes, want = gradient_at(c, c->ranks);
    lh_err err = open_segment(c->name, &fd, &bytes);
    if (err == LH_ERR_NOT_FOUND) return lh_fail(LH_ERR_UNAVAILABLE, "nobody leads %s", c->name);
    LH_TRY(err);
    struct segment *g = NULL;
    err = map(fd, bytes < want ? bytes : want, c->name, &g);
    close(fd);
    LH_TRY(err);
    size_t mapped = bytes < want ? bytes : want;
    bool alive = atomic_load(&g->ready) == MAGIC && is_alive(&g->leader);
    bool same = g->version == VERSION && g->ranks == c->ranks && g->sequences == c->sequences &&
                g->length == c->length && g->values == c->values &&
                lh_hash_equal(&g->manifest, &c->manifest);
    enum wk_sum_type sum = g->sum == WK_SUM_BF16 ? WK_SUM_BF16 : WK_SUM_FP32;
    if (alive && same && sum == c->sum && bytes == want) {
        *out = g;
        return LH_OK;
    }
    munmap(g, mapped);
    if (!alive) return lh_fail(LH_ERR_UNAVAILABLE, "the leader of %s is gone", c->name);
    if (same && sum != c->sum)
        return lh_fail(LH_ERR_CONFIG,
                       "ranks.wire is %s here, but the leader of %s has %s: give all ranks of a "
                       "region the same",
                       wk_sum_word(c->sum), c->name, wk_sum_word(sum));
    return lh_fail(LH_ERR_CONFIG,
                   "the leader of %s has another model, batch or ranks.count: give all ranks of a "
                   "region the same settings",
                   c->name);
}

static LH_MUST lh_err sit_down(struct wk_seat *s)
{
    s->seat = &s->g->seat[s->rank];
    bool narrow = s->conf.sum == WK_SUM_BF16;
    if (narrow) s->gradient = lh_zeros(s->conf.values, sizeof *s->gradient);
    if (narrow && !s->gradient)
        return lh_fail(LH_ERR_NO_MEMORY, "rank %u: a gradient of %llu values", s->rank,
                       (unsigned long long)s->conf.values);
    if (take_over(&s->seat->alive)) return LH_OK;
    return lh_fail(LH_ERR_BUSY, "rank %u of %s is another process", s->rank, s->conf.name);
}

lh_err wk_seat_take(const struct wk_shm_conf *conf, uint32_t rank, struct wk_seat **out)
{
    LH_ASSERT(rank >= 1 && rank < conf->ranks);
    struct wk_seat *s = calloc(1, sizeof *s);
    if (!s) return lh_fail(LH_ERR_NO_MEMORY, "rank %u", rank);
    s->conf = *conf;
    s->rank = rank;
    lh_err err = attach(conf, &s->g);
    if (!err) {
        err = sit_down(s);
        if (err) munmap(s->g, gradient_at(conf, conf->ranks));
    }
    if (err) {
        free(s->gradient);
        free(s);
        return err;
    }
    // First the new life, then the predecessor's task is marked done: a reader that sees the second
    // also sees the first, and treats the rank as lost.
    uint32_t life = atomic_load(&s->seat->life);
    atomic_store(&s->seat->life, life + (life % 2 ? 2 : 1));
    s->task = atomic_load(&s->seat->task);
    atomic_store(&s->seat->done, s->task);
    ring(s->g);
    *out = s;
    return LH_OK;
}

lh_err wk_seat_wait(struct wk_seat *s, struct wk_task *task)
{
    if (atomic_load(&s->g->over)) return LH_ERR_CANCELLED;
    if (atomic_load(&s->seat->task) == s->task) {
        bool woken = futex_wait(&s->seat->task, s->task, LOOK_MS);
        if (atomic_load(&s->seat->task) == s->task) {
            bool gone = !woken && !is_alive(&s->g->leader);
            if (gone && !atomic_load(&s->g->over)) return LH_ERR_UNAVAILABLE;
            return LH_ERR_DEADLINE;
        }
    }
    s->task = atomic_load(&s->seat->task);
    *task = (struct wk_task){
        .step = s->seat->step,
        .part = s->seat->part,
        .params = at(s->g, parameters_at(&s->conf)),
        .gradient = s->gradient ? s->gradient : at(s->g, gradient_at(&s->conf, s->rank)),
    };
    task->step.ids = at(s->g, ids_at());
    return LH_OK;
}

void wk_seat_give(struct wk_seat *s, const struct wk_share *share)
{
    s->seat->failed = !share;
    if (share) s->seat->share = *share;
    if (share && s->gradient)
        lk_bf16_of_fp32(s->gradient, at(s->g, gradient_at(&s->conf, s->rank)), s->conf.values);
    atomic_store(&s->seat->done, s->task);
    ring(s->g);
}

void wk_seat_leave(struct wk_seat *s)
{
    atomic_fetch_add(&s->seat->life, 1);
    pthread_mutex_unlock(&s->seat->alive);
    ring(s->g);
    munmap(s->g, gradient_at(&s->conf, s->conf.ranks));
    free(s->gradient);
    free(s);
}
