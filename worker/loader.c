// The loader: one background thread reads announced units ahead, read() copies from memory.
//
// Invariants (all under `lock`, held for a copy at most, never across a read of the disk):
//   1. A unit is in one slot at most. A slot's bytes change only while it is READING, and then by
//      the background thread alone, which owns them until it says READY or FAILED.
//   2. An announcement never pushes out what is still needed: not the unit read last, and not one
//      that was announced but not read yet. With no other slot it waits in the queue, and the next
//      read() of another unit makes room.
//   3. read() of a unit that is nowhere is a demand: served before announcements, and it may push
//      out anything. Only then, and when prefetch is not done yet, does it wait, and counts it.
//   4. What read() gives was checked: the file's header, the unit's sha256, every id below the
//      vocabulary.
#include "worker/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/check.h"
#include "common/tokens.h"

enum { DEPTH_MAX = 1024, PATH_BYTES = 4096 };
#define NO_UNIT UINT64_MAX

enum slot_state { EMPTY, READING, READY, FAILED };

struct slot {
    enum slot_state state;
    bool read; // by the trainer, at least once since it was loaded
    uint64_t unit;
    uint64_t used;  // rises with every use: the lowest is the oldest
    uint8_t *bytes; // unit's tokens and the one after them
    lh_err err;     // FAILED: why
    char text[400];
};

struct wk_loader {
    const struct lh_units *units;
    char *dir;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done; // something to load; something was loaded
    bool stop;
    uint64_t demand;  // the unit read() waits for, or NO_UNIT
    uint64_t last;    // the unit read last, or NO_UNIT
    uint64_t uses;    // source of slot.used
    uint64_t *wanted; // announced, not loaded yet, oldest first; at most depth of them
    uint32_t wanted_count;
    uint32_t depth;
    struct slot *slot; // depth of them
    _Atomic int64_t waited_ns;
};

// ---------------------------------------------------------------- reading a unit (no lock held)

static lh_err bad_unit(const struct lh_unit *u, const char *path, const char *what)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "loader: unit %" PRIu64 " of %s: %s; restore the file or run `longhaul data "
                   "prepare` again",
                   u->id, path, what);
}

static lh_err read_all(int fd, uint64_t at, uint8_t *out, uint64_t n, const struct lh_unit *u,
                       const char *path)
{
    while (n) {
        ssize_t got = pread(fd, out, n < (1u << 30) ? n : 1u << 30, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return lh_fail_errno(errno, "loader: cannot read unit %" PRIu64 " of %s", u->id, path);
        if (got == 0) return bad_unit(u, path, "the file ends too early");
        at += (uint64_t)got;
        out += got;
        n -= (uint64_t)got;
    }
    return LH_OK;
}

static lh_err check_hash(const struct lh_unit *u, const char *path, const uint8_t *bytes, size_t n)
{
    uint8_t is[EVP_MAX_MD_SIZE];
    if (EVP_Digest(bytes, n, is, NULL, EVP_sha256(), NULL) != 1)
        return lh_fail(LH_ERR_INTERNAL, "loader: sha256 of unit %" PRIu64 " of %s failed", u->id,
                       path);
    if (memcmp(is, u->sha256, sizeof u->sha256) != 0)
        return bad_unit(u, path, "sha256 is not the manifest's, the tokens changed");
    return LH_OK;
}

static lh_err check_ids(const struct lh_units *units, const struct lh_unit *u, const char *path,
                        const uint8_t *bytes)
{
    uint64_t beyond = lh_tokens_beyond(bytes, units->token_bytes, u->tokens + 1, units->vocabulary);
    if (beyond > u->tokens) return LH_OK;
    char what[96];
    snprintf(what, sizeof what, "token %" PRIu64 " is not below the vocabulary of %u", beyond,
             units->vocabulary);
    return bad_unit(u, path, what);
}

// The unit's tokens and the one after them, or at the file's end its last token again.
static lh_err read_open(const struct lh_units *units, const struct lh_unit *u, const char *path,
                        int fd, uint8_t *bytes)
{
    uint8_t head[LH_TOKENS_HEADER];
    uint64_t count, width = units->token_bytes, end = u->from + u->tokens;
    LH_TRY(read_all(fd, 0, head, sizeof head, u, path));
    lh_err err = lh_tokens_header(lh_span(head, sizeof head), units->token_bytes, &count);
    if (err) {
        char what[256];
        snprintf(what, sizeof what, "%s", lh_err_text(err));
        return bad_unit(u, path, what);
    }
    if (end > count) return bad_unit(u, path, "the file has fewer tokens than the manifest says");
    uint64_t more = end < count; // reads on into the next unit
    LH_TRY(read_all(fd, LH_TOKENS_HEADER + u->from * width, bytes, (u->tokens + more) * width, u,
                    path));
    if (!more) memcpy(bytes + u->tokens * width, bytes + (u->tokens - 1) * width, width);
    LH_TRY(check_hash(u, path, bytes, u->tokens * width));
    return check_ids(units, u, path, bytes);
}

static lh_err read_unit(const struct wk_loader *l, const struct lh_unit *u, uint8_t *bytes)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", l->dir, u->file);
    if (n < 0 || (size_t)n >= sizeof path)
        return lh_fail(LH_ERR_TOO_LARGE, "loader: path of %s is longer than %d bytes", u->file,
                       PATH_BYTES - 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return lh_fail(LH_ERR_NOT_FOUND,
                       "loader: unit %" PRIu64 ": there is no %s; restore the file or run "
                       "`longhaul data prepare` again",
                       u->id, path);
    if (fd < 0)
        return lh_fail_errno(errno, "loader: unit %" PRIu64 ": cannot open %s", u->id, path);
    lh_err err = read_open(l->units, u, path, fd, bytes);
    close(fd);
    return err;
}

// ---------------------------------------------------------------- slots (lock held)

static struct slot *find(struct wk_loader *l, uint64_t unit)
{
    for (uint32_t i = 0; i < l->depth; i++)
        if (l->slot[i].state != EMPTY && l->slot[i].unit == unit) return &l->slot[i];
    return NULL;
}

// May an announcement push this one out? See invariant 2.
static bool is_spent(const struct wk_loader *l, const struct slot *s)
{
    return s->state == FAILED || (s->state == READY && s->read && s->unit != l->last);
}

static struct slot *choose_victim(struct wk_loader *l, bool demanded)
{
    struct slot *oldest = NULL;
    for (uint32_t i = 0; i < l->depth; i++) {
        struct slot *s = &l->slot[i];
        if (s->state == EMPTY) return s;
        if (is_spent(l, s) && (!oldest || s->used < oldest->used)) oldest = s;
    }
    if (oldest || !demanded) return oldest;
    for (uint32_t i = 0; i < l->depth; i++)
        if (!oldest || l->slot[i].used < oldest->used) oldest = &l->slot[i];
    return oldest; // the thread that reads is the one that asks: no slot is READING
}

static void forget_wanted(struct wk_loader *l, uint64_t unit)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->wanted_count; i++)
        if (l->wanted[i] != unit) l->wanted[kept++] = l->wanted[i];
    l->wanted_count = kept;
}

// The next unit to load and where to, or NULL: nothing to do now.
static struct slot *next_job(struct wk_loader *l)
{
    bool demanded = l->demand != NO_UNIT;
    if (!demanded && !l->wanted_count) return NULL;
    uint64_t unit = demanded ? l->demand : l->wanted[0];
    struct slot *s = choose_victim(l, demanded);
    if (!s) return NULL;
    forget_wanted(l, unit);
    if (demanded) l->demand = NO_UNIT;
    s->state = READING;
    s->read = false;
    s->unit = unit;
    s->used = ++l->uses;
    return s;
}

// Called without the lock: the slot is READING, so nobody else touches its bytes.
static lh_err load(const struct wk_loader *l, struct slot *s)
{
    const struct lh_unit *u = &l->units->unit[s->unit];
    free(s->bytes);
    s->bytes = malloc((u->tokens + 1) * l->units->token_bytes);
    if (!s->bytes)
        return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory for unit %" PRIu64 " of %s", u->id,
                       u->file);
    return read_unit(l, u, s->bytes);
}

static void *loader_thread(void *arg)
{
    struct wk_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct slot *s = next_job(l);
        if (!s) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        lh_err err = load(l, s);
        pthread_mutex_lock(&l->lock);
        s->state = err ? FAILED : READY;
        s->err = err;
        if (err) snprintf(s->text, sizeof s->text, "%s", lh_err_text(err));
        pthread_cond_broadcast(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---------------------------------------------------------------- the owner's side

static int64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void free_loader(struct wk_loader *l)
{
    for (uint32_t i = 0; l->slot && i < l->depth; i++) free(l->slot[i].bytes);
    free(l->slot);
    free(l->wanted);
    free(l->dir);
    free(l);
}

lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out)
{
    *out = NULL;
    if (conf->depth < 2 || conf->depth > DEPTH_MAX)
        return lh_fail(LH_ERR_CONFIG, "loader: a depth of %u units; 2 to %d", conf->depth,
                       DEPTH_MAX);
    struct wk_loader *l = calloc(1, sizeof *l);
    if (!l) return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory");
    l->units = conf->units;
    l->depth = conf->depth;
    l->demand = l->last = NO_UNIT;
    l->dir = strdup(conf->dir);
    l->slot = calloc(conf->depth, sizeof *l->slot);
    l->wanted = calloc(conf->depth, sizeof *l->wanted);
    if (!l->dir || !l->slot || !l->wanted) {
        free_loader(l);
        return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory for %u slots", conf->depth);
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    int failed = pthread_create(&l->thread, NULL, loader_thread, l);
    if (failed) {
        free_loader(l);
        return lh_fail_errno(failed, "loader: cannot start its thread");
    }
    *out = l;
    return LH_OK;
}

void wk_loader_close(struct wk_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free_loader(l);
}

void wk_loader_announce(struct wk_loader *l, uint64_t unit)
{
    if (unit >= l->units->count) return; // read() of it tells
    pthread_mutex_lock(&l->lock);
    struct slot *s = find(l, unit);
    if (s && s->state == READY) {
        s->read = false; // it comes again: keep it
        s->used = ++l->uses;
    } else if (!s) {
        forget_wanted(l, unit);
        if (l->wanted_count == l->depth) forget_wanted(l, l->wanted[0]);
        l->wanted[l->wanted_count++] = unit;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}

// The slot that holds the unit, READY or FAILED; waits for it (lock held).
static struct slot *wait_for(struct wk_loader *l, uint64_t unit)
{
    struct slot *s = find(l, unit);
    if (s && s->state != READING) return s;
    int64_t since = monotonic_ns();
    while (!(s = find(l, unit)) || s->state == READING) {
        if (!s) {
            l->demand = unit;
            pthread_cond_signal(&l->work);
        }
        pthread_cond_wait(&l->done, &l->lock);
    }
    atomic_fetch_add(&l->waited_ns, monotonic_ns() - since);
    return s;
}

lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                      uint32_t *ids)
{
    if (unit >= l->units->count)
        return lh_fail(LH_ERR_INVALID, "loader: unit %" PRIu64 "; the manifest has %" PRIu64, unit,
                       l->units->count);
    const struct lh_unit *u = &l->units->unit[unit];
    if (tokens < 1 || tokens > u->tokens || offset > u->tokens - tokens)
        return lh_fail(LH_ERR_INVALID,
                       "loader: %" PRIu64 " tokens from %" PRIu64 " of unit %" PRIu64
                       ", which has %" PRIu64,
                       tokens, offset, unit, u->tokens);
    lh_err err = LH_OK;
    pthread_mutex_lock(&l->lock);
    struct slot *s = wait_for(l, unit);
    if (s->state == FAILED) {
        err = lh_fail(s->err, "%s", s->text);
        s->state = EMPTY; // the next read tries again: the file may be back
    } else {
        uint32_t width = l->units->token_bytes;
        lh_tokens_decode(s->bytes + offset * width, width, tokens + 1, ids);
        s->read = true;
        s->used = ++l->uses;
        l->last = unit;
    }
    pthread_cond_signal(&l->work); // what was read before may make room now
    pthread_mutex_unlock(&l->lock);
    return err;
}

int64_t wk_loader_waited_ns(const struct wk_loader *l)
{
    return atomic_load(&l->waited_ns);
}
