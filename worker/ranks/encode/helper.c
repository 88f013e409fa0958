// A rank encodes portions of the leader's pushes. See helper.h.
//
// Invariants: 1. asks and answers wait in places of which there are WAITING each, in order; 2. an
// answer is taken before its ask's place is free again, so there is always room for one.
#include "worker/ranks/encode/helper.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "worker/ranks/encode/encoding.h"
#include "worker/ranks/encode/portion_gpu.h"
#include "worker/ranks/encode/portions.h"

enum {
    WAITING = 2 * WK_PORTIONS_AHEAD
}; // A leader's that comes anew, beside those of the one before.
enum { ASK_BYTES = 64 + 4 * WK_ENCODING_CHUNKS + 4 * WK_ENCODING_VALUES };

struct place {
    struct lh_buf ask, answer;
    uint64_t asker;
    bool encoded;
};

struct wk_helper {
    struct wk_helper_conf conf;
    struct wk_portion_gpu *gpu; // The thread's; NULL: it encodes on the CPU.
    bool runs;                  // The region's thread's: there is a thread.
    pthread_t thread;
    struct wk_encoding_ask ask; // The thread's.
    struct lh_buf payload;      // The thread's.
    pthread_mutex_t lock;       // guards what follows
    pthread_cond_t come;
    struct place place[WAITING];
    uint32_t first, count, encoded; // Places in use, and how many of them have an answer.
    bool quit;
    uint64_t total, there;
};

// An ask that is none gets no answer: the leader does without.
static void encode(struct wk_helper *h, struct place *p, bool *there)
{
    struct wk_encoding_ask *ask = &h->ask;
    lh_err err = wk_encoding_ask_get(lh_buf_span(&p->ask), ask);
    bool known = !err;
    lh_buf_free(&h->payload);
    if (!err) {
        h->payload = lh_buf(lk_payload_max(&ask->codec, &ask->layout));
        err = h->gpu
                  ? wk_portion_gpu_encode(h->gpu, &ask->codec, &ask->layout, ask->values,
                                          &h->payload, there)
                  : lk_encode(&ask->codec, &ask->layout, 1, NULL, ask->values, &h->payload, NULL);
    }
    *there &= !err;
    if (err) lh_log_peer(h->conf.log, LH_WARN, "compress.portion", "%s", lh_err_text(err));
    lh_buf_clear(&p->answer);
    if (!known) return;
    struct wk_encoding_answer answer = {.push = ask->push, .portion = ask->portion, .fine = !err};
    if (!err) answer.payload = lh_buf_span(&h->payload);
    wk_encoding_answer_put(&p->answer, &answer);
}

static void *run(void *arg)
{
    struct wk_helper *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->quit && h->encoded == h->count) pthread_cond_wait(&h->come, &h->lock);
        if (h->quit) break;
        struct place *p = &h->place[(h->first + h->encoded) % WAITING];
        bool there = false;
        pthread_mutex_unlock(&h->lock);
        encode(h, p, &there);
        pthread_mutex_lock(&h->lock);
        h->encoded++;
        h->total += p->answer.len > 0;
        h->there += there;
        h->conf.ring(h->conf.arg);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

lh_err wk_helper_create(const struct wk_helper_conf *conf, struct wk_helper **out)
{
    struct wk_helper *h = calloc(1, sizeof *h);
    *out = h;
    if (!h) return lh_fail(LH_ERR_NO_MEMORY, "a rank's encoder");
    h->conf = *conf;
    lh_err err =
        conf->gpu ? wk_portion_gpu_create(conf->gpu, conf->index, conf->log, &h->gpu) : LH_OK;
    if (err) {
        free(h);
        *out = NULL;
        return err;
    }
    for (uint32_t i = 0; i < WAITING; i++)
        h->place[i] = (struct place){.ask = lh_buf(ASK_BYTES), .answer = lh_buf(2 * ASK_BYTES)};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->come, NULL);
    return LH_OK;
}

void wk_helper_destroy(struct wk_helper *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->quit = true;
    pthread_cond_broadcast(&h->come);
    pthread_mutex_unlock(&h->lock);
    if (h->runs) pthread_join(h->thread, NULL);
    for (uint32_t i = 0; i < WAITING; i++) {
        lh_buf_free(&h->place[i].ask);
        lh_buf_free(&h->place[i].answer);
    }
    wk_portion_gpu_destroy(h->gpu);
    wk_encoding_ask_free(&h->ask);
    lh_buf_free(&h->payload);
    pthread_cond_destroy(&h->come);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

void wk_helper_ask(struct wk_helper *h, uint64_t asker, struct lh_span ask)
{
    if (!h->runs) h->runs = !pthread_create(&h->thread, NULL, run, h);
    pthread_mutex_lock(&h->lock);
    if (h->runs && h->count < WAITING) {
        struct place *p = &h->place[(h->first + h->count) % WAITING];
        struct lh_buf *to = &p->ask;
        p->asker = asker;
        lh_buf_free(to);
        *to = lh_buf(ASK_BYTES);
        lh_put(to, ask.data, ask.len);
        h->count += lh_buf_err(to) == LH_OK;
        pthread_cond_broadcast(&h->come);
    }
    pthread_mutex_unlock(&h->lock);
}

bool wk_helper_answer(struct wk_helper *h, uint64_t *asker, struct lh_buf *out)
{
    pthread_mutex_lock(&h->lock);
    bool is = false;
    while (!is && h->encoded) {
        struct place *p = &h->place[h->first];
        is = p->answer.len > 0;
        if (is) lh_put(out, p->answer.data, p->answer.len);
        *asker = p->asker;
        h->first = (h->first + 1) % WAITING;
        h->count--;
        h->encoded--;
    }
    pthread_mutex_unlock(&h->lock);
    return is;
}

uint64_t wk_helper_count(struct wk_helper *h, uint64_t *there)
{
    pthread_mutex_lock(&h->lock);
    uint64_t n = h->total;
    *there = h->there;
    pthread_mutex_unlock(&h->lock);
    return n;
}
