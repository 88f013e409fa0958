// Uploader: copies a server's newest checkpoints into an object store. See uploader.h.
//
//  1. Only the uploader's thread calls the store. The lock guards the fields that status() reads.
//  2. Only the newest checkpoint of each shard and channel is uploaded, so a store that was
//     unreachable gets one file and none of those before it.
#include "server/state/uploader.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/text.h"
#include "kernels/storage/checkpoint_read.h"
#include "kernels/storage/stored.h"

enum { CHANNELS = 2 };

struct channel {
    uint64_t stored;  // version in the store, as far as this process knows; 0: none
    int64_t since_ns; // when a newer version was first seen; 0: none is newer
};

struct ps_uploader {
    struct ps_uploader_conf conf;
    struct lh_objects *store;
    pthread_t thread;
    int wake, ended; // eventfd(2): wakes the thread; says that it has ended
    atomic_bool closing, stop, serves;
    struct channel *channel; // CHANNELS for each shard; owned by the thread
    bool *tidied;            // one for each shard; owned by the thread
    uint32_t turn;           // the next pass begins with this file; owned by the thread
    pthread_mutex_t lock;
    bool away;
    int64_t since_ns; // the oldest since_ns of all channels; 0: the store is up to date
    uint64_t uploads, bytes, failures;
};

static bool wait_for(int fd, int64_t ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, (int)(ns / LH_MS)) > 0;
}

static void signal_to(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n; // a full counter has woken the thread already
}

// ---------------------------------------------------------------- one look

static LH_MUST lh_err newest(struct ps_uploader *u, uint32_t shard, bool weights, uint64_t *version)
{
    const struct lk_checkpoint_conf conf = {.env = u->conf.env, .dir = u->conf.dir};
    uint64_t *versions;
    size_t count;
    *version = 0;
    lh_err err = lk_checkpoint_versions(&conf, shard, weights, &versions, &count);
    if (err == LH_ERR_NOT_FOUND) return LH_OK; // no folder yet
    if (!err && count) *version = versions[count - 1];
    if (!err) free(versions);
    return err;
}

static LH_MUST lh_err tidy(struct ps_uploader *u, uint32_t i)
{
    char prefix[8];
    if (u->tidied[i]) return LH_OK;
    snprintf(prefix, sizeof prefix, "%04x-", u->conf.shards[i] & 0xffff);
    lh_err err = u->store->ops->tidy(u->store, prefix);
    if (err == LH_ERR_UNAVAILABLE || err == LH_ERR_CANCELLED) return err;
    if (err) // some stores list no uploads; unfinished ones only take space
        lh_logf(u->conf.log, LH_WARN, "checkpoint.store_untidy", "%s", lh_err_text(err));
    u->tidied[i] = true;
    return LH_OK;
}

// Tells whether the checkpoint's file exists: LH_ERR_NOT_FOUND of an upload may be about the file
// or about the store. Keeps the thread's current error.
static bool is_here(struct ps_uploader *u, const struct lk_checkpoint_name *name)
{
    char path[LH_PATH_BYTES];
    struct lk_checkpoint_info info;
    struct lh_err_said said;
    lh_err_take(&said);
    lh_err err = lk_checkpoint_path(u->conf.dir, name, path);
    if (!err) err = lk_checkpoint_peek(u->conf.env, path, &info);
    lh_err_give(&said);
    return err != LH_ERR_NOT_FOUND;
}

static LH_MUST lh_err upload(struct ps_uploader *u, uint32_t i, bool weights, uint64_t version)
{
    const struct lk_checkpoint_name name = {u->conf.shards[i], version, weights};
    uint64_t bytes = 0;
    LH_TRY(tidy(u, i));
    lh_err err = lk_stored_put(u->store, u->conf.env, u->conf.dir, &name, &bytes);
    if (err == LH_ERR_NOT_FOUND && !is_here(u, &name))
        return LH_OK; // pruned: a newer checkpoint exists
    if (err) return err;
    u->channel[i * CHANNELS + weights].stored = version;
    pthread_mutex_lock(&u->lock);
    u->uploads += bytes > 0;
    u->bytes += bytes;
    pthread_mutex_unlock(&u->lock);
    if (!bytes) return LH_OK;
    lh_logf(u->conf.log, weights ? LH_DEBUG : LH_INFO, "checkpoint.stored",
            "shard %u version %llu%s: %llu bytes to %s", name.shard, (unsigned long long)version,
            weights ? ", weights only" : "", (unsigned long long)bytes, u->conf.store.address);
    return lk_stored_prune(u->store, name.shard, weights, u->conf.keep, NULL, NULL);
}

// Notes new versions of every channel, so that the age is right while the store is unreachable.
static LH_MUST lh_err look(struct ps_uploader *u, uint64_t *version, bool *any)
{
    int64_t oldest = 0, now = lh_now(u->conf.env);
    *any = false;
    for (uint32_t k = 0; k < u->conf.shard_count * CHANNELS; k++) {
        struct channel *c = &u->channel[k];
        LH_TRY(newest(u, u->conf.shards[k / CHANNELS], k % CHANNELS, &version[k]));
        bool is_new = version[k] && version[k] != c->stored;
        if (!is_new) c->since_ns = 0;
        if (is_new && !c->since_ns) c->since_ns = now;
        if (is_new && (!oldest || c->since_ns < oldest)) oldest = c->since_ns;
        *any |= is_new;
    }
    pthread_mutex_lock(&u->lock);
    u->since_ns = oldest;
    pthread_mutex_unlock(&u->lock);
    return LH_OK;
}

// Uploads full checkpoints first, because a run recovers from them. A file that can't be uploaded
// keeps no other one waiting. While the store is away, each pass tries one file, the next one: what
// looks like that may be due to the file.
static LH_MUST lh_err store_all(struct ps_uploader *u, const uint64_t *version)
{
    struct lh_err_said said;
    lh_err first = LH_OK;
    uint32_t shards = u->conf.shard_count, files = shards * CHANNELS;
    for (uint32_t n = 0; n < files; n++) {
        uint32_t at = (u->turn + n) % files, i = at % shards, weights = at / shards;
        uint32_t k = i * CHANNELS + weights;
        if (!version[k] || version[k] == u->channel[k].stored) continue;
        lh_err err = upload(u, i, weights, version[k]);
        if (err == LH_ERR_UNAVAILABLE || err == LH_ERR_CANCELLED) {
            u->turn = (at + 1) % files;
            return err;
        }
        if (err && !first) lh_err_take(&said);
        if (!first) first = err;
    }
    u->turn = 0;
    if (first) lh_err_give(&said);
    return first;
}

static void tell(struct ps_uploader *u, lh_err err)
{
    pthread_mutex_lock(&u->lock);
    bool was_away = u->away;
    u->failures += err != LH_OK;
    u->away = err != LH_OK;
    pthread_mutex_unlock(&u->lock);
    if (err && !was_away)
        lh_logf(u->conf.log, LH_WARN, "checkpoint.store_away",
                "%s; training goes on, and the checkpoints are kept on this disk; trying again",
                lh_err_text(err));
    if (!err && was_away)
        lh_logf(u->conf.log, LH_INFO, "checkpoint.store_back",
                "%s has the newest checkpoints again", u->conf.store.address);
}

// Gives true if the store is up to date.
static bool pass(struct ps_uploader *u, uint64_t *version)
{
    bool any = false;
    if (!atomic_load(&u->serves)) return true;
    lh_err err = look(u, version, &any);
    if (!err && !any) return true;
    if (!err) err = store_all(u, version);
    if (err == LH_ERR_CANCELLED) return false; // the process stops
    tell(u, err);
    if (!err) err = look(u, version, &any);
    return !err;
}

// Says which shard's newest checkpoint lies on this disk alone when the process ends.
static void say_missing(struct ps_uploader *u, uint64_t *version)
{
    bool any;
    uint32_t missing = 0, first = 0;
    if (!atomic_load(&u->serves) || look(u, version, &any)) return;
    for (uint32_t i = u->conf.shard_count; i-- > 0;) {
        uint32_t k = i * CHANNELS;
        if (!version[k] || version[k] == u->channel[k].stored) continue;
        missing++;
        first = i;
    }
    if (missing)
        lh_logf(
            u->conf.log, LH_WARN, "checkpoint.store_lacks",
            "%s lacks the newest checkpoints of %u shard%s (shard %u: version %llu): they are on "
            "this disk alone. Start this server again when the store answers, and it stores "
            "them",
            u->conf.store.address, missing, lh_s(missing), u->conf.shards[first],
            (unsigned long long)version[first * CHANNELS]);
}

static void *run(void *arg)
{
    struct ps_uploader *u = arg;
    uint64_t *version = calloc((size_t)u->conf.shard_count * CHANNELS, sizeof *version);
    bool fine = true;
    while (version && !atomic_load(&u->closing)) {
        fine = pass(u, version);
        int64_t again = u->conf.again_ns / 2 + lh_random_below(u->conf.env, u->conf.again_ns);
        (void)wait_for(u->wake, fine ? u->conf.look_ns : again);
    }
    if (version && fine)
        (void)pass(u, version); // uploads checkpoints that the end of the run has written
    if (version) say_missing(u, version);
    free(version);
    signal_to(u->ended);
    return NULL;
}

// ---------------------------------------------------------------- start, stop

void ps_uploader_serve(struct ps_uploader *u, bool serves)
{
    atomic_store(&u->serves, serves);
}

json_t *ps_uploader_status(struct ps_uploader *u)
{
    pthread_mutex_lock(&u->lock);
    double age = u->since_ns ? (double)(lh_now(u->conf.env) - u->since_ns) / LH_SECOND : 0;
    json_t *out = json_pack("{s:f s:b s:I s:I s:I}", "age_s", age, "away", u->away, "uploads",
                            (json_int_t)u->uploads, "bytes", (json_int_t)u->bytes, "failures",
                            (json_int_t)u->failures);
    pthread_mutex_unlock(&u->lock);
    return out;
}

static void destroy(struct ps_uploader *u)
{
    lh_objects_close(u->store);
    if (u->wake >= 0) close(u->wake);
    if (u->ended >= 0) close(u->ended);
    pthread_mutex_destroy(&u->lock);
    free(u->channel);
    free(u->tidied);
    free(u);
}

lh_err ps_uploader_start(const struct ps_uploader_conf *conf, struct ps_uploader **out)
{
    struct ps_uploader *u = calloc(1, sizeof *u);
    if (!u) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the uploader");
    u->conf = *conf;
    u->conf.store.env = conf->env;
    u->conf.store.stop = &u->stop;
    if (!conf->look_ns) u->conf.look_ns = 2 * LH_SECOND;
    if (!conf->again_ns) u->conf.again_ns = 10 * LH_SECOND;
    pthread_mutex_init(&u->lock, NULL);
    u->wake = eventfd(0, EFD_CLOEXEC);
    u->ended = eventfd(0, EFD_CLOEXEC);
    u->channel = calloc((size_t)conf->shard_count * CHANNELS, sizeof *u->channel);
    u->tidied = calloc(conf->shard_count, sizeof *u->tidied);
    lh_err err = u->wake < 0 || u->ended < 0 || !u->channel || !u->tidied
                     ? lh_fail(LH_ERR_NO_MEMORY, "no memory for the uploader")
                     : lh_objects_open(&u->conf.store, &u->store);
    if (!err && pthread_create(&u->thread, NULL, run, u))
        err = lh_fail(LH_ERR_NO_MEMORY, "cannot start the uploader's thread");
    if (err)
        destroy(u);
    else
        *out = u;
    return err;
}

void ps_uploader_stop(struct ps_uploader *u)
{
    if (!u) return;
    atomic_store(&u->closing, true);
    signal_to(u->wake);
    (void)wait_for(u->ended, PS_UPLOADER_END_S * LH_SECOND);
    atomic_store(&u->stop, true);
    pthread_join(u->thread, NULL);
    destroy(u);
}
