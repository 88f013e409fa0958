// The cache of units. See cache.h.
//
// The index lives in memory, under a lock that is not held across reads and writes of files: an
// entry that goes meanwhile reads as absent, one that is written twice is renamed over itself.
#include "worker/data/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"

enum { HEAD_BYTES = 16, TAIL_BYTES = 4, VERSION = 1, PATH_BYTES = 4096 };
static const uint32_t MAGIC = 0x4355484c; // "LHUC"
static const char SUFFIX[] = ".unit", FRESH[] = ".fresh";

struct entry {
    char name[WK_CACHE_NAME];
    uint64_t bytes; // the file's size
    uint64_t used;  // rises with every use: the lowest goes first
};

struct wk_cache {
    char *dir;
    uint64_t bytes_max, bytes, uses;
    pthread_mutex_t lock;
    struct entry *entry;
    size_t entries, cap;
    unsigned writes; // names files that are being written
};

// ---------------------------------------------------------------- index (lock held)

static struct entry *find(struct wk_cache *c, const char *name)
{
    for (size_t i = 0; i < c->entries; i++)
        if (!strcmp(c->entry[i].name, name)) return &c->entry[i];
    return NULL;
}

static void forget(struct wk_cache *c, struct entry *e)
{
    c->bytes -= e->bytes;
    *e = c->entry[--c->entries];
}

static bool add(struct wk_cache *c, const char *name, uint64_t bytes)
{
    struct entry *e = find(c, name);
    if (e) forget(c, e);
    if (c->entries == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 64;
        struct entry *more = realloc(c->entry, cap * sizeof *more);
        if (!more) return false;
        c->entry = more;
        c->cap = cap;
    }
    e = &c->entry[c->entries++];
    *e = (struct entry){.bytes = bytes, .used = ++c->uses};
    snprintf(e->name, sizeof e->name, "%s", name);
    c->bytes += bytes;
    return true;
}

static bool path_of(const struct wk_cache *c, const char *name, const char *suffix,
                    char out[PATH_BYTES])
{
    int n = snprintf(out, PATH_BYTES, "%s/%s%s", c->dir, name, suffix);
    return n > 0 && n < PATH_BYTES;
}

static void remove_entry(struct wk_cache *c, struct entry *e)
{
    char path[PATH_BYTES];
    if (path_of(c, e->name, SUFFIX, path)) unlink(path);
    forget(c, e);
}

static bool make_room(struct wk_cache *c, uint64_t bytes)
{
    if (bytes > c->bytes_max) return false;
    while (c->bytes > c->bytes_max - bytes) {
        struct entry *oldest = NULL;
        for (size_t i = 0; i < c->entries; i++)
            if (!oldest || c->entry[i].used < oldest->used) oldest = &c->entry[i];
        if (!oldest) return false;
        remove_entry(c, oldest);
    }
    return true;
}

// ---------------------------------------------------------------- files (no lock held)

static bool transfer(int fd, bool out, void *bytes, size_t n, off_t at)
{
    for (uint8_t *p = bytes; n;) {
        ssize_t is = out ? pwrite(fd, p, n, at) : pread(fd, p, n, at);
        if (is < 0 && errno == EINTR) continue;
        if (is <= 0) return false;
        p += is;
        at += is;
        n -= (size_t)is;
    }
    return true;
}

static uint32_t sum_of(const uint8_t *head, const void *bytes, size_t n)
{
    return lh_crc32c(lh_crc32c(0, head, HEAD_BYTES), bytes, n);
}

static void make_head(uint8_t out[HEAD_BYTES], uint64_t n)
{
    struct lh_buf b = lh_buf(HEAD_BYTES);
    lh_put_u32(&b, MAGIC);
    lh_put_u32(&b, VERSION);
    lh_put_u64(&b, n);
    if (b.len == HEAD_BYTES) memcpy(out, b.data, HEAD_BYTES);
    lh_buf_free(&b);
}

static bool read_entry(int fd, void *out, size_t n)
{
    uint8_t head[HEAD_BYTES], want[HEAD_BYTES] = {0}, tail[TAIL_BYTES];
    make_head(want, n);
    if (!transfer(fd, false, head, HEAD_BYTES, 0) || memcmp(head, want, HEAD_BYTES) != 0)
        return false;
    if (!transfer(fd, false, out, n, HEAD_BYTES) ||
        !transfer(fd, false, tail, TAIL_BYTES, (off_t)(HEAD_BYTES + n)))
        return false;
    struct lh_cursor c = lh_cursor(lh_span(tail, TAIL_BYTES));
    return lh_get_u32(&c) == sum_of(head, out, n);
}

static bool write_entry(int fd, const void *bytes, size_t n)
{
    uint8_t head[HEAD_BYTES] = {0}, tail[TAIL_BYTES] = {0};
    make_head(head, n);
    uint32_t sum = sum_of(head, bytes, n);
    for (int i = 0; i < TAIL_BYTES; i++) tail[i] = (uint8_t)(sum >> 8 * i);
    return transfer(fd, true, head, HEAD_BYTES, 0) &&
           transfer(fd, true, (void *)(uintptr_t)bytes, n, HEAD_BYTES) &&
           transfer(fd, true, tail, TAIL_BYTES, (off_t)(HEAD_BYTES + n));
}

// ---------------------------------------------------------------- life

struct found {
    struct entry entry;
    struct timespec written;
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->written;
    const struct timespec *y = &((const struct found *)b)->written;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

// One name of the folder: an entry into `out`, a leftover removed, anything else left alone.
static bool take_name(const struct wk_cache *c, const char *file, struct found *out)
{
    char path[PATH_BYTES];
    struct stat is;
    size_t len = strlen(file), suffix = sizeof SUFFIX - 1;
    if (!path_of(c, file, "", path)) return false;
    if (strstr(file, FRESH)) unlink(path);
    if (len <= suffix || strcmp(file + len - suffix, SUFFIX) != 0 || len - suffix >= WK_CACHE_NAME)
        return false;
    if (stat(path, &is) || !S_ISREG(is.st_mode)) return false;
    *out = (struct found){.entry = {.bytes = (uint64_t)is.st_size}, .written = is.st_mtim};
    memcpy(out->entry.name, file, len - suffix);
    return true;
}

static bool take_over(struct wk_cache *c, DIR *dir)
{
    struct found *list = NULL, one;
    size_t n = 0;
    bool ok = true;
    for (struct dirent *d; ok && (d = readdir(dir));) {
        if (!take_name(c, d->d_name, &one)) continue;
        struct found *more = realloc(list, (n + 1) * sizeof *list);
        ok = more != NULL;
        if (ok) list = more;
        if (ok) list[n++] = one;
    }
    if (n) qsort(list, n, sizeof *list, by_age);
    for (size_t i = 0; ok && i < n; i++) ok = add(c, list[i].entry.name, list[i].entry.bytes);
    free(list);
    return ok;
}

lh_err wk_cache_open(const char *dir, uint64_t bytes_max, struct wk_cache **out)
{
    if (mkdir(dir, 0777) && errno != EEXIST) return lh_fail_errno(errno, "data.cache %s", dir);
    DIR *folder = opendir(dir);
    if (!folder) return lh_fail_errno(errno, "data.cache %s", dir);
    struct wk_cache *c = calloc(1, sizeof *c);
    if (c) {
        pthread_mutex_init(&c->lock, NULL);
        c->dir = strdup(dir);
        c->bytes_max = bytes_max;
    }
    bool ok = c && c->dir && take_over(c, folder) && make_room(c, 0);
    closedir(folder);
    if (!ok) {
        wk_cache_close(c);
        return lh_fail(LH_ERR_NO_MEMORY, "data.cache %s", dir);
    }
    *out = c;
    return LH_OK;
}

void wk_cache_close(struct wk_cache *c)
{
    if (!c) return;
    pthread_mutex_destroy(&c->lock);
    free(c->entry);
    free(c->dir);
    free(c);
}

// ---------------------------------------------------------------- use

bool wk_cache_get(struct wk_cache *c, const char *name, void *out, size_t n)
{
    char path[PATH_BYTES];
    pthread_mutex_lock(&c->lock);
    struct entry *e = find(c, name);
    if (e) e->used = ++c->uses;
    pthread_mutex_unlock(&c->lock);
    if (!e || !path_of(c, name, SUFFIX, path)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool whole = fd >= 0 && read_entry(fd, out, n);
    if (fd >= 0) close(fd);
    if (whole) return true;
    pthread_mutex_lock(&c->lock);
    e = find(c, name);
    if (e) remove_entry(c, e);
    pthread_mutex_unlock(&c->lock);
    return false;
}

bool wk_cache_put(struct wk_cache *c, const char *name, const void *bytes, size_t n)
{
    char path[PATH_BYTES], fresh[PATH_BYTES], suffix[32];
    uint64_t size = HEAD_BYTES + n + TAIL_BYTES;
    pthread_mutex_lock(&c->lock);
    snprintf(suffix, sizeof suffix, "%s%u", FRESH, ++c->writes);
    bool room = make_room(c, size);
    pthread_mutex_unlock(&c->lock);
    if (!room || strlen(name) >= WK_CACHE_NAME || !path_of(c, name, SUFFIX, path) ||
        !path_of(c, name, suffix, fresh))
        return false;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool written = write_entry(fd, bytes, n);
    written = !close(fd) && written;
    pthread_mutex_lock(&c->lock);
    bool kept = written && make_room(c, size) && !rename(fresh, path) && add(c, name, size);
    pthread_mutex_unlock(&c->lock);
    if (!kept) unlink(fresh);
    return kept;
}

bool wk_cache_has(struct wk_cache *c, const char *name)
{
    pthread_mutex_lock(&c->lock);
    bool has = find(c, name) != NULL;
    pthread_mutex_unlock(&c->lock);
    return has;
}

uint64_t wk_cache_bytes(struct wk_cache *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t bytes = c->bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

uint64_t wk_cache_room(struct wk_cache *c)
{
    uint64_t bytes = wk_cache_bytes(c);
    return bytes < c->bytes_max ? c->bytes_max - bytes : 0;
}
