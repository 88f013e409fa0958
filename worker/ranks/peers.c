// A process of a region of peers. See peers.h.
//
// Invariants: 1. Only the region's thread uses the state machine and the channel. 2. The compute
// lane owns the trainer's arrays from COMPUTE to computed(), except values it reported as final.
// Otherwise the region owns them while a step is wanted (leader) or always (member). 3. Nothing
// happens after ENDED.
#include "worker/ranks/peers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/ranks/peers_wire.h"
#include "worker/train/device.h"

enum { TICK_MS = 20 };

struct wk_peers {
    struct wk_peers_conf conf;
    struct wk_region *region;
    struct wk_wire *channel;
    int bell; // an eventfd that wakes the thread
    pthread_t thread;
    uint64_t step;        // leader: counted steps
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t come;
    bool wanted, changed; // leader: a step that the thread has not taken yet
    uint64_t number;
    struct lh_buf wish; // payload of the wanted step
    uint64_t final;     // final values at the gradient's end in the current task
    bool task, computing, fine, stepped, ended, quit, over;
    struct wk_peers_task now;
    struct lh_buf payload; // payload of the task
    struct wk_peers_status status;
};

static void ring(struct wk_peers *p)
{
    uint64_t one = 1;
    ssize_t n = write(p->bell, &one, sizeof one);
    (void)n; // it fails only if the bell is already rung
}

// ---------------------------------------------------------------- digests

uint64_t wk_peers_digest(uint64_t before, const void *data, size_t bytes)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t lane[4] = {before, before ^ odd, before + odd, ~before}, word;
    const uint8_t *at = data;
    size_t i = 0;
    for (; i + sizeof lane <= bytes; i += sizeof lane)
        for (size_t k = 0; k < LH_COUNT(lane); k++) {
            memcpy(&word, at + i + k * sizeof word, sizeof word);
            lane[k] = (lane[k] ^ word) * odd;
            lane[k] ^= lane[k] >> 29;
        }
    for (; i < bytes; i++) lane[0] = (lane[0] ^ at[i]) * odd;
    for (size_t k = 1; k < LH_COUNT(lane); k++) {
        lane[0] = (lane[0] ^ lane[k]) * odd;
        lane[0] ^= lane[0] >> 32;
    }
    return lane[0];
}

uint64_t wk_peers_digest_of(const struct wk_reduce_state *s)
{
    uint64_t is = 1;
    if (!s->device) return wk_peers_digest(1, s->value, s->values * sizeof *s->value);
    return wk_device_digest(s->device, false, &is) ? 0 : is;
}

static uint64_t digest_parameters(void *arg)
{
    return wk_peers_digest_of(&((struct wk_peers *)arg)->conf.state);
}

static uint64_t digest_state(void *arg)
{
    const struct wk_reduce_state *s = &((struct wk_peers *)arg)->conf.state;
    uint64_t is = 1;
    if (s->device) return wk_device_digest(s->device, true, &is) ? 0 : is;
    is = digest_parameters(arg);
    is = wk_peers_digest(is, s->m, s->values * sizeof *s->m);
    return wk_peers_digest(is, s->v, s->values * sizeof *s->v);
}

// ---------------------------------------------------------------- what the state machine asks for

static void compute(void *arg, uint64_t step, uint32_t part, uint32_t parts, struct lh_span payload)
{
    struct wk_peers *p = arg;
    (void)step;
    pthread_mutex_lock(&p->lock);
    LH_ASSERT(!p->task && !p->computing);
    lh_buf_clear(&p->payload);
    lh_put(&p->payload, payload.data, payload.len);
    p->now = (struct wk_peers_task){.part = part, .parts = parts};
    p->final = 0;
    p->task = p->computing = true;
    p->fine = !lh_buf_err(&p->payload);
    pthread_cond_broadcast(&p->come);
    pthread_mutex_unlock(&p->lock);
}

static enum wk_region_progress computed(void *arg)
{
    struct wk_peers *p = arg;
    pthread_mutex_lock(&p->lock);
    enum wk_region_progress is = p->computing ? WK_REGION_BUSY
                                 : p->fine    ? WK_REGION_OK
                                              : WK_REGION_WRONG;
    pthread_mutex_unlock(&p->lock);
    return is;
}

static uint64_t final(void *arg)
{
    struct wk_peers *p = arg;
    pthread_mutex_lock(&p->lock);
    uint64_t values = p->final;
    pthread_mutex_unlock(&p->lock);
    return values;
}

static lh_err apply(void *arg)
{
    struct wk_peers *p = arg;
    if (p->conf.rank) return p->conf.apply(p->conf.arg);
    p->step++; // the trainer increments it when it gets STEPPED
    return LH_OK;
}

static uint64_t step_of(void *arg)
{
    const struct wk_peers *p = arg;
    return p->conf.rank ? *p->conf.state.steps : p->step;
}

static void stepped(void *arg)
{
    struct wk_peers *p = arg;
    pthread_mutex_lock(&p->lock);
    p->stepped = true;
    pthread_cond_broadcast(&p->come);
    pthread_mutex_unlock(&p->lock);
}

static void changed(void *arg, uint64_t members)
{
    struct wk_peers *p = arg;
    pthread_mutex_lock(&p->lock);
    if (members) p->status.members = members;
    p->status.epochs += members != 0;
    pthread_mutex_unlock(&p->lock);
}

static void failed(void *arg, const char *cause)
{
    struct wk_peers *p = arg;
    lh_logf(p->conf.log, LH_WARN, "region.failed", "%s; training the step again", cause);
    pthread_mutex_lock(&p->lock);
    p->status.failures++;
    snprintf(p->status.cause, sizeof p->status.cause, "%s", cause);
    pthread_mutex_unlock(&p->lock);
}

static void ended(void *arg, lh_err err, const char *text)
{
    struct wk_peers *p = arg;
    pthread_mutex_lock(&p->lock);
    if (!p->ended) {
        p->now.err = err;
        snprintf(p->now.text, sizeof p->now.text, "%s", text);
    }
    p->ended = true;
    pthread_cond_broadcast(&p->come);
    pthread_mutex_unlock(&p->lock);
}

static void send_to(void *arg, uint32_t rank, struct lh_span bytes)
{
    wk_wire_send(((struct wk_peers *)arg)->channel, rank, bytes);
}

static void message(void *arg, uint32_t rank, struct lh_span bytes)
{
    struct wk_peers *p = arg;
    lh_err err = wk_region_receive(p->region, rank, bytes, lh_now(p->conf.env));
    if (err) lh_log_peer(p->conf.log, LH_WARN, "region.message", "%s", lh_err_text(err));
}

static void lost(void *arg, uint32_t rank)
{
    struct wk_peers *p = arg;
    wk_region_lost(p->region, rank, lh_now(p->conf.env));
}

static void refused(void *arg, const char *why)
{
    lh_log_peer(((struct wk_peers *)arg)->conf.log, LH_WARN, "region.refused", "%s", why);
}

// ---------------------------------------------------------------- the thread

static void take_wish(struct wk_peers *p)
{
    pthread_mutex_lock(&p->lock);
    bool wanted = p->wanted;
    p->wanted = false;
    if (wanted) p->step = p->number;
    lh_err err = wanted ? wk_region_want(p->region, lh_buf_span(&p->wish), p->changed) : LH_OK;
    p->status.bytes_per_s = wk_region_bandwidth(p->region);
    pthread_mutex_unlock(&p->lock);
    if (err) ended(p, err, lh_err_text(err));
}

static bool is_over(struct wk_peers *p, bool *over)
{
    pthread_mutex_lock(&p->lock);
    bool quit = p->quit;
    *over = p->over;
    pthread_mutex_unlock(&p->lock);
    return quit;
}

static void *run(void *arg)
{
    struct wk_peers *p = arg;
    struct pollfd polls[WK_WIRE_POLLS + 1];
    bool over = false;
    while (!is_over(p, &over)) {
        uint64_t count;
        take_wish(p);
        wk_region_tick(p->region, lh_now(p->conf.env));
        nfds_t n = wk_wire_polls(p->channel, polls);
        polls[n++] = (struct pollfd){p->bell, POLLIN, 0};
        poll(polls, n, TICK_MS);
        if (polls[n - 1].revents && read(p->bell, &count, sizeof count) < 0) continue;
        wk_wire_look(p->channel, lh_now(p->conf.env));
    }
    if (over && !p->conf.rank) wk_region_over(p->region);
    return NULL;
}

// ---------------------------------------------------------------- start, stop

static int64_t within(int64_t ns, int64_t least_s, int64_t most_s)
{
    return ns < least_s * LH_SECOND  ? least_s * LH_SECOND
           : ns > most_s * LH_SECOND ? most_s * LH_SECOND
                                     : ns;
}

static struct wk_region_conf region_conf(struct wk_peers *p)
{
    static const struct wk_region_ops ops = {send_to, compute, final,        computed,
                                             apply,   step_of, digest_state, digest_parameters,
                                             stepped, changed, failed,       ended};
    uint64_t bytes = p->conf.state.values * sizeof(float);
    int64_t patience = p->conf.patience_ns;
    return (struct wk_region_conf){
        .rank = p->conf.rank,
        .ranks = p->conf.ranks,
        .life = lh_random_u64(p->conf.env) | 1,
        .share_bytes = 3 * bytes,
        .reduce_bytes = p->conf.state.values * wk_sum_bytes(p->conf.sum),
        .cuda = p->conf.state.device != NULL,
        .sum = p->conf.sum,
        .bucket_bytes = p->conf.bucket_bytes,
        .gather_ns = p->conf.gather_ns,
        .hello_ns = 200 * LH_MS,
        .beat_ns = 500 * LH_MS,
        .silence_ns = within(patience, 2, 15),
        .init_ns = within(2 * patience, 10, 60),
        .compute_ns = p->conf.patience_ns,
        .op_ns = 10 * LH_SECOND,
        .op_factor = 20,
        .bytes_per_s = 100e6,
        .abort_ns = 15 * LH_SECOND,
        .comm = &wk_comm_region,
        .comm_arg = p->conf.comm,
        .ops = &ops,
        .arg = p,
    };
}

// False: the communicator's thread is hung. The memory it may use is leaked on purpose: its own
// struct, and the bell, whose descriptor number could be reused.
static bool free_peers(struct wk_peers *p)
{
    wk_wire_close(p->channel);
    bool gone = wk_comm_destroy(p->conf.comm);
    if (!gone)
        lh_logf(p->conf.log, LH_ERROR, "region.hangs",
                "the communicator's thread does not end: its abort hangs; its memory is kept until "
                "this process ends");
    wk_region_destroy(p->region);
    lh_buf_free(&p->wish);
    lh_buf_free(&p->payload);
    if (gone && p->bell >= 0) close(p->bell);
    pthread_cond_destroy(&p->come);
    pthread_mutex_destroy(&p->lock);
    if (gone) free(p);
    return gone;
}

// Replaces the host's arrays by the device's; the step count and the figures stay on the host.
static void on_device(const struct wk_peers *p, struct wk_comm_arrays *out,
                      struct wk_comm_device *device)
{
    const struct wk_device_lent is = wk_device_lend(p->conf.state.device);
    LH_ASSERT(is.values == p->conf.state.values);
    *device = (struct wk_comm_device){is.gpu, is.index, is.ready};
    out->part[0].data = is.value;
    out->part[2].data = is.m;
    out->part[3].data = is.v;
    out->there = 1 | 1 << 2 | 1 << 3;
    out->sum = is.gradient;
    out->last = wk_reduce_figures(&p->conf.state);
    out->device = device;
}

static LH_MUST lh_err make(struct wk_peers *p)
{
    const struct wk_reduce_state *s = &p->conf.state;
    const struct wk_wire_conf wire = {.name = p->conf.name,
                                      .rank = p->conf.rank,
                                      .ranks = p->conf.ranks,
                                      .address = p->conf.address,
                                      .tls = p->conf.tls,
                                      .hooks = {message, lost, refused, p}};
    struct wk_comm_arrays arrays = {
        .part = {{s->value, s->values * sizeof(float)},
                 {s->steps, sizeof *s->steps},
                 {s->m, s->values * sizeof(float)},
                 {s->v, s->values * sizeof(float)}},
        .parts = 4,
        .sum = s->gradient,
        .sums = s->values + WK_FIGURES,
        .behind = WK_FIGURES,
        .bucket_bytes = p->conf.bucket_bytes,
        .type = p->conf.sum,
    };
    struct wk_comm_device device;
    if (s->device) on_device(p, &arrays, &device);
    p->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->bell < 0) return lh_fail_errno(errno, "a bell");
    wk_comm_bind(p->conf.comm, &arrays, p->bell);
    const struct wk_region_conf region = region_conf(p);
    LH_TRY(wk_region_create(&region, lh_now(p->conf.env), &p->region));
    LH_TRY(wk_wire_open(&wire, &p->channel));
    int failed = pthread_create(&p->thread, NULL, run, p);
    return failed ? lh_fail_errno(failed, "the region's thread") : LH_OK;
}

lh_err wk_peers_start(const struct wk_peers_conf *conf, struct wk_peers **out)
{
    struct wk_peers *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) {
        wk_comm_destroy(conf->comm);
        return lh_fail(LH_ERR_NO_MEMORY, "a region of ranks");
    }
    p->conf = *conf;
    if (!p->conf.bucket_bytes) p->conf.bucket_bytes = WK_COMM_BUCKET_BYTES;
    p->bell = -1;
    p->wish = p->payload = lh_buf(WK_REGION_PAYLOAD_BYTES);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->come, NULL);
    lh_err err = make(p);
    if (!err) return LH_OK;
    free_peers(p);
    *out = NULL;
    return err;
}

bool wk_peers_stop(struct wk_peers *p, bool over)
{
    if (!p) return true;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    p->over = over;
    pthread_mutex_unlock(&p->lock);
    ring(p);
    pthread_join(p->thread, NULL);
    return free_peers(p);
}

void wk_peers_status(struct wk_peers *p, struct wk_peers_status *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->status;
    pthread_mutex_unlock(&p->lock);
    out->counts = wk_comm_counts(p->conf.comm);
}

// ---------------------------------------------------------------- the compute lane

void wk_peers_want(struct wk_peers *p, uint64_t number, struct lh_span payload, bool changed)
{
    pthread_mutex_lock(&p->lock);
    lh_buf_clear(&p->wish);
    lh_put(&p->wish, payload.data, payload.len);
    p->number = number;
    p->changed = changed;
    bool fits = !lh_buf_err(&p->wish);
    p->wanted = fits; // after the unlock the region's thread may take it
    p->stepped = false;
    pthread_mutex_unlock(&p->lock);
    if (!fits) ended(p, LH_ERR_TOO_LARGE, "a step's sequences are larger than a message");
    ring(p);
}

static enum wk_peers_what what_is_there(struct wk_peers *p)
{
    if (p->ended) return WK_PEERS_ENDED;
    if (p->stepped) return WK_PEERS_STEPPED;
    return p->task ? WK_PEERS_COMPUTE : WK_PEERS_NOTHING;
}

enum wk_peers_what wk_peers_wait(struct wk_peers *p, struct wk_peers_task *out)
{
    enum wk_peers_what is;
    pthread_mutex_lock(&p->lock);
    while ((is = what_is_there(p)) == WK_PEERS_NOTHING) pthread_cond_wait(&p->come, &p->lock);
    *out = p->now;
    out->payload = lh_buf_span(&p->payload);
    if (is == WK_PEERS_COMPUTE) p->task = false;
    if (is == WK_PEERS_STEPPED) p->stepped = false;
    pthread_mutex_unlock(&p->lock);
    return is;
}

void wk_peers_computed(struct wk_peers *p, bool fine)
{
    pthread_mutex_lock(&p->lock);
    p->fine &= fine;
    p->computing = false;
    pthread_mutex_unlock(&p->lock);
    ring(p);
}

void wk_peers_final(struct wk_peers *p, uint64_t from)
{
    pthread_mutex_lock(&p->lock);
    LH_ASSERT(p->computing && from <= p->conf.state.values);
    p->final = p->conf.state.values - from;
    pthread_mutex_unlock(&p->lock);
    ring(p);
}

void wk_peers_leave(struct wk_peers *p)
{
    ended(p, LH_ERR_CANCELLED, "this process ends");
}
