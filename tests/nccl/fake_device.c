// A CUDA plugin with made-up devices: memory is the host's, and a stream is a thread that runs
// queued work, late. There are copies and collectives only, no kernels.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/plugin.h"
#include "tests/nccl/fake.h"

enum { DEVICES = 8, LATE_US = 300 };

struct work {
    struct work *next;
    void (*run)(void *arg);
    void *arg;
};

struct fake_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct work *first, **last;
    bool running, quit;
    unsigned seed;
};

struct event {
    pthread_mutex_t lock;
    unsigned recorded, reached;
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct mark {
    struct event *event;
    unsigned number;
};

static atomic_int held;
static atomic_int used = -1;

__attribute__((visibility("default"))) int fake_held(void)
{
    return atomic_load(&held);
}

__attribute__((visibility("default"))) int fake_used(void)
{
    return atomic_load(&used);
}

// ---------------------------------------------------------------- streams

static void *run_stream(void *arg)
{
    struct fake_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->quit || s->first) {
        struct work *w = s->first;
        if (!w) {
            pthread_cond_wait(&s->change, &s->lock);
            continue;
        }
        s->first = w->next;
        if (!s->first) s->last = &s->first;
        s->running = true;
        s->seed = s->seed * 1103515245u + 12345u;
        useconds_t late = s->seed >> 16 & 1 ? s->seed >> 8 & (LATE_US - 1) : 0;
        pthread_mutex_unlock(&s->lock);
        if (late) usleep(late); // the host must not rely on work being done at once
        w->run(w->arg);
        free(w);
        pthread_mutex_lock(&s->lock);
        s->running = false;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->change);
    free(s);
    return NULL;
}

void fake_stream_queue(struct fake_stream *s, void (*run)(void *arg), void *arg)
{
    struct work *w = malloc(sizeof *w);
    if (!w) abort();
    *w = (struct work){NULL, run, arg};
    pthread_mutex_lock(&s->lock);
    *s->last = w;
    s->last = &w->next;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

void fake_stream_outside(struct fake_stream *s, void (*run)(void *arg), void *arg)
{
    fake_stream_queue(s, run, arg);
}

static int stream_create(lk_gpu_stream *out)
{
    struct fake_stream *s = calloc(1, sizeof *s);
    if (!s) return 2;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    if (pthread_create(&s->thread, NULL, run_stream, s)) abort();
    held++;
    *out = s;
    return 0;
}

// As with CUDA, queued work still runs.
static void stream_destroy(lk_gpu_stream stream)
{
    struct fake_stream *s = stream;
    pthread_t thread = s->thread;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(thread, NULL);
    held--;
}

static int stream_wait(lk_gpu_stream stream)
{
    struct fake_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    while (s->first || s->running) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

// ---------------------------------------------------------------- events

static int event_create(lk_gpu_event *out)
{
    struct event *e = calloc(1, sizeof *e);
    if (!e) return 2;
    pthread_mutex_init(&e->lock, NULL);
    held++;
    *out = e;
    return 0;
}

static void event_destroy(lk_gpu_event event)
{
    pthread_mutex_destroy(&((struct event *)event)->lock);
    free(event);
    held--;
}

static void reach(void *arg)
{
    struct mark *m = arg;
    pthread_mutex_lock(&m->event->lock);
    m->event->reached = m->number;
    pthread_mutex_unlock(&m->event->lock);
    free(m);
}

static int event_record(lk_gpu_event event, lk_gpu_stream stream)
{
    struct event *e = event;
    struct mark *m = malloc(sizeof *m);
    if (!m) return 2;
    pthread_mutex_lock(&e->lock);
    *m = (struct mark){e, ++e->recorded};
    pthread_mutex_unlock(&e->lock);
    fake_stream_queue(stream, reach, m);
    return 0;
}

static int event_follow(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream;
    (void)event;
    return 3; // no user of this device needs it
}

static int event_done(lk_gpu_event event, int *done)
{
    struct event *e = event;
    pthread_mutex_lock(&e->lock);
    *done = e->reached == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return 0;
}

static int event_wait(lk_gpu_event event)
{
    int done = 0, err = 0;
    while (!err && !done) err = event_done(event, &done);
    return err;
}

// ---------------------------------------------------------------- memory

static int alloc(void **out, size_t bytes)
{
    *out = malloc(bytes);
    if (!*out) return 2;
    memset(*out, 0xff, bytes); // NaNs
    held++;
    return 0;
}

static void release(void *memory)
{
    free(memory);
    held--;
}

static void run_copy(void *arg)
{
    struct copy *c = arg;
    memcpy(c->to, c->from, c->bytes);
    free(c);
}

static int copy(void *to, const void *from, size_t bytes, lk_gpu_stream stream)
{
    struct copy *c = malloc(sizeof *c);
    if (!c) return 2;
    *c = (struct copy){to, from, bytes};
    fake_stream_queue(stream, run_copy, c);
    return 0;
}

// ---------------------------------------------------------------- the table

// As many as CUDA_VISIBLE_DEVICES names, if it is set.
static int devices(int *count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible ? 1 : DEVICES;
    for (; visible && *visible; visible++) *count += *visible == ',';
    return 0;
}

static const char *error_text(int err)
{
    return err == 2 ? "out of memory" : "not made up";
}

static void versions(struct lk_gpu_versions *out)
{
    *out = (struct lk_gpu_versions){13000, 13000};
}

static int device(int index, struct lk_gpu_device *out)
{
    if (index < 0 || index >= DEVICES) return 3;
    *out = (struct lk_gpu_device){.bytes = 1 << 30, .free_bytes = 1 << 30, .major = 9};
    snprintf(out->name, sizeof out->name, "a made-up device");
    snprintf(out->bus, sizeof out->bus, "0000:%02x:00.0", (unsigned)index);
    return 0;
}

static int use(int index)
{
    if (index < 0 || index >= DEVICES) return 3;
    atomic_store(&used, index);
    return 0;
}

__attribute__((visibility("default"))) const struct lk_gpu_backend *lk_gpu_query(uint32_t abi)
{
    static const struct lk_gpu_memory memory = {alloc, release, alloc, release, copy, copy, copy};
    static const struct lk_gpu_streams streams = {
        stream_create, stream_destroy, stream_wait, event_create, event_destroy,
        event_record,  event_follow,   event_done,  event_wait,
    };
    static const struct lk_gpu_backend table = {
        .abi = LK_GPU_ABI,
        .bytes = sizeof table,
        .name = "made-up",
        .devices = devices,
        .error_text = error_text,
        .memory = &memory,
        .streams = &streams,
        .versions = versions,
        .device = device,
        .use = use,
    };
    return abi == LK_GPU_ABI ? &table : NULL;
}
