// The cache of units. See cache.h.
//
// The index is in memory, under a lock that is not held while files are read or written: an entry
// removed meanwhile reads as absent, one written twice is renamed over itself.
//
// A separate thread takes over a folder of many entries: a start waits only for SCAN_FIRST names.
// Until that thread is done, an entry missing from the index is looked up in the folder, and
// nothing is put, because the total size is not known yet.
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
#include "common/base/regular.h"

enum {
    HEAD_BYTES = 16,
    TAIL_BYTES = 4,
    VERSION = 1,
    PATH_BYTES = 4096,
    SCAN_FIRST = 1 << 14, // names read by the start
    AT_ONCE = 1 << 10,    // entries that the thread changes per lock
    CHAINS_MIN = 64
};
static const uint32_t MAGIC = 0x4355484c; // "LHUC"
static const char SUFFIX[] = ".unit", FRESH[] = ".fresh";

struct entry {
    struct entry *behind;        // next entry of its chain
    struct entry *older, *newer; // neighbours by use; the oldest is removed first
    uint64_t bytes;              // size of the file
    char name[];
};

struct found { // a file of the folder
    struct entry *entry;
    struct timespec written;
};

struct wk_cache {
    char *dir;
    uint64_t bytes_max, bytes;
    pthread_mutex_t lock;
    struct entry **chain, *oldest, *newest;
    size_t chains, entries;
    unsigned writes; // numbers temporary files
    // The scan of the folder: only its thread uses it while that runs, except the flags.
    DIR *folder;
    struct found *found;
    size_t found_count, found_cap;
    pthread_t thread;
    bool threaded, scanning, stop;
};

// ---------------------------------------------------------------- index (lock held)

// FNV-1a (Fowler, Noll, Vo).
static struct entry **chain_of(struct wk_cache *c, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return &c->chain[(h ^ h >> 32) & (c->chains - 1)];
}

static struct entry *find(struct wk_cache *c, const char *name)
{
    struct entry *e = c->chains ? *chain_of(c, name) : NULL;
    while (e && strcmp(e->name, name) != 0) e = e->behind;
    return e;
}

static void take_out(struct wk_cache *c, struct entry *e)
{
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
}

static void put_newest(struct wk_cache *c, struct entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void put_oldest(struct wk_cache *c, struct entry *e)
{
    e->older = NULL;
    e->newer = c->oldest;
    *(c->oldest ? &c->oldest->older : &c->newest) = e;
    c->oldest = e;
}

static void use(struct wk_cache *c, struct entry *e)
{
    take_out(c, e);
    put_newest(c, e);
}

static void forget(struct wk_cache *c, struct entry *e)
{
    struct entry **at = chain_of(c, e->name);
    while (*at != e) at = &(*at)->behind;
    *at = e->behind;
    take_out(c, e);
    c->bytes -= e->bytes;
    c->entries--;
    free(e);
}

static bool grow(struct wk_cache *c)
{
    if (c->entries < c->chains) return true;
    size_t was = c->chains, chains = was ? 2 * was : CHAINS_MIN;
    struct entry **old = c->chain, **larger = calloc(chains, sizeof *larger);
    if (!larger) return was > 0; // chains become longer
    c->chain = larger;
    c->chains = chains;
    for (size_t i = 0; i < was; i++)
        for (struct entry *e = old[i], *behind; e; e = behind) {
            struct entry **head = chain_of(c, e->name);
            behind = e->behind;
            e->behind = *head;
            *head = e;
        }
    free(old);
    return true;
}

static struct entry *make_entry(const char *name, size_t length, uint64_t bytes)
{
    struct entry *e = malloc(sizeof *e + length + 1);
    if (!e) return NULL;
    *e = (struct entry){.bytes = bytes};
    memcpy(e->name, name, length);
    e->name[length] = 0;
    return e;
}

// Takes `e`, which is not in the list by use yet. False: no memory, or the name exists; `e` is
// freed.
static bool add(struct wk_cache *c, struct entry *e)
{
    if (!grow(c) || find(c, e->name)) {
        free(e);
        return false;
    }
    struct entry **head = chain_of(c, e->name);
    e->behind = *head;
    *head = e;
    c->bytes += e->bytes;
    c->entries++;
    return true;
}

static bool add_newest(struct wk_cache *c, const char *name, uint64_t bytes)
{
    struct entry *e = find(c, name);
    if (e) forget(c, e);
    e = make_entry(name, strlen(name), bytes);
    if (!e || !add(c, e)) return false;
    put_newest(c, e);
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
        if (!c->oldest) return false;
        remove_entry(c, c->oldest);
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

// ---------------------------------------------------------------- the folder's entries

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->written;
    const struct timespec *y = &((const struct found *)b)->written;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

// Handles one name of the folder. Removes a leftover; ignores files other than entries. False: no
// memory.
static bool take_name(struct wk_cache *c, const char *file)
{
    struct stat is;
    size_t len = strlen(file), suffix = sizeof SUFFIX - 1;
    if (strstr(file, FRESH)) unlinkat(dirfd(c->folder), file, 0);
    if (len <= suffix || strcmp(file + len - suffix, SUFFIX) != 0 || len - suffix >= WK_CACHE_NAME)
        return true;
    if (fstatat(dirfd(c->folder), file, &is, 0) || !S_ISREG(is.st_mode)) return true;
    if (c->found_count == c->found_cap) {
        size_t cap = 2 * c->found_cap + 64;
        struct found *more = realloc(c->found, cap * sizeof *more);
        if (!more) return false;
        c->found = more;
        c->found_cap = cap;
    }
    struct entry *e = make_entry(file, len - suffix, (uint64_t)is.st_size);
    if (e) c->found[c->found_count++] = (struct found){e, is.st_mtim};
    return e != NULL;
}

static bool is_stopped(struct wk_cache *c)
{
    pthread_mutex_lock(&c->lock);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

// Reads at most this many names. *more: names are left.
static bool scan(struct wk_cache *c, size_t names, bool *more)
{
    *more = true;
    for (struct dirent *d; names; names--) {
        *more = (d = readdir(c->folder)) != NULL;
        if (!*more) return true;
        if (!take_name(c, d->d_name)) return false;
    }
    return true;
}

// Ranks the found entries below those used since, youngest first, and removes entries beyond the
// limit.
static void take_over(struct wk_cache *c)
{
    if (c->found_count) qsort(c->found, c->found_count, sizeof *c->found, by_age);
    while (c->found_count) {
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < AT_ONCE && c->found_count; i++) {
            struct entry *e = c->found[--c->found_count].entry;
            if (add(c, e)) put_oldest(c, e);
        }
        pthread_mutex_unlock(&c->lock);
    }
    for (bool over = true; over;) {
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < AT_ONCE && c->oldest && c->bytes > c->bytes_max; i++)
            remove_entry(c, c->oldest);
        over = c->oldest && c->bytes > c->bytes_max;
        c->scanning = over;
        pthread_mutex_unlock(&c->lock);
    }
}

static void *scan_rest(void *arg)
{
    struct wk_cache *c = arg;
    bool more = true;
    while (more && !is_stopped(c) && scan(c, SCAN_FIRST, &more)) continue;
    if (!more) take_over(c);
    return NULL;
}

// ---------------------------------------------------------------- life

static bool begin(struct wk_cache *c)
{
    bool more;
    c->scanning = true;
    if (!scan(c, SCAN_FIRST, &more)) return false;
    if (!more) take_over(c);
    c->threaded = more && !pthread_create(&c->thread, NULL, scan_rest, c);
    return !more || c->threaded;
}

lh_err wk_cache_open(const char *dir, uint64_t bytes_max, struct wk_cache **out)
{
    if (mkdir(dir, 0777) && errno != EEXIST)
        return lh_fail_errno(errno, "data.cache_bytes: %s", dir);
    DIR *folder = opendir(dir);
    if (!folder) return lh_fail_errno(errno, "data.cache_bytes: %s", dir);
    struct wk_cache *c = calloc(1, sizeof *c);
    if (!c) {
        closedir(folder);
        return lh_fail(LH_ERR_NO_MEMORY, "data.cache_bytes: %s", dir);
    }
    pthread_mutex_init(&c->lock, NULL);
    c->dir = strdup(dir);
    c->bytes_max = bytes_max;
    c->folder = folder;
    if (!c->dir || !begin(c)) {
        wk_cache_close(c);
        return lh_fail(LH_ERR_NO_MEMORY, "data.cache_bytes: %s", dir);
    }
    *out = c;
    return LH_OK;
}

void wk_cache_settle(struct wk_cache *c)
{
    if (c->threaded) pthread_join(c->thread, NULL);
    c->threaded = false;
}

void wk_cache_close(struct wk_cache *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    wk_cache_settle(c);
    pthread_mutex_destroy(&c->lock);
    closedir(c->folder);
    while (c->oldest) forget(c, c->oldest);
    while (c->found_count) free(c->found[--c->found_count].entry);
    free(c->found);
    free(c->chain);
    free(c->dir);
    free(c);
}

// ---------------------------------------------------------------- use

bool wk_cache_get(struct wk_cache *c, const char *name, void *out, size_t n)
{
    char path[PATH_BYTES];
    pthread_mutex_lock(&c->lock);
    struct entry *e = find(c, name);
    bool there = e || c->scanning;
    if (e) use(c, e);
    pthread_mutex_unlock(&c->lock);
    if (!there || !path_of(c, name, SUFFIX, path)) return false;
    int fd;
    bool whole = !lh_regular_open(path, O_RDONLY, 0, &fd) && read_entry(fd, out, n);
    if (fd >= 0) close(fd);
    pthread_mutex_lock(&c->lock);
    e = find(c, name);
    if (whole && !e && c->scanning) (void)add_newest(c, name, HEAD_BYTES + n + TAIL_BYTES);
    if (!whole && e) remove_entry(c, e);
    pthread_mutex_unlock(&c->lock);
    return whole;
}

bool wk_cache_put(struct wk_cache *c, const char *name, const void *bytes, size_t n)
{
    char path[PATH_BYTES], fresh[PATH_BYTES], suffix[32];
    uint64_t size = HEAD_BYTES + n + TAIL_BYTES;
    pthread_mutex_lock(&c->lock);
    snprintf(suffix, sizeof suffix, "%s%u", FRESH, ++c->writes);
    bool room = !c->scanning && make_room(c, size);
    pthread_mutex_unlock(&c->lock);
    if (!room || strlen(name) >= WK_CACHE_NAME || !path_of(c, name, SUFFIX, path) ||
        !path_of(c, name, suffix, fresh))
        return false;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) return false;
    bool written = write_entry(fd, bytes, n);
    written = !close(fd) && written;
    pthread_mutex_lock(&c->lock);
    bool kept = written && make_room(c, size) && !rename(fresh, path) && add_newest(c, name, size);
    pthread_mutex_unlock(&c->lock);
    if (!kept) unlink(fresh);
    return kept;
}

bool wk_cache_has(struct wk_cache *c, const char *name)
{
    char path[PATH_BYTES];
    pthread_mutex_lock(&c->lock);
    bool has = find(c, name) != NULL, look = !has && c->scanning;
    pthread_mutex_unlock(&c->lock);
    return has || (look && path_of(c, name, SUFFIX, path) && !access(path, F_OK));
}

bool wk_cache_ready(struct wk_cache *c)
{
    pthread_mutex_lock(&c->lock);
    bool ready = !c->scanning;
    pthread_mutex_unlock(&c->lock);
    return ready;
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
