// Files of the real env on this machine's disk, and the whole-file helpers of env.c over them.
// labels: tsan
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env_real_files.h"
#include "tests/test.h"

enum { SIZE_CACHED = 4 << 20 };

struct disk {
    struct lh_env *env;
    const struct lh_files_ops *files;
    char dir[64], path[128];
};

static int make_disk(void **state)
{
    struct disk *d = test_calloc(1, sizeof *d);
    if (lh_env_real_create(&d->env)) return -1;
    d->files = d->env->ops->files;
    snprintf(d->dir, sizeof d->dir, "/tmp/lh_env_real.XXXXXX");
    if (!mkdtemp(d->dir)) return -1;
    snprintf(d->path, sizeof d->path, "%s/file", d->dir);
    *state = d;
    return 0;
}

static void forget(void *arg, const char *name)
{
    struct disk *d = arg;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    assert_int_equal(d->files->remove(d->env, path), LH_OK);
}

static int drop_disk(void **state)
{
    struct disk *d = *state;
    assert_int_equal(d->files->list(d->env, d->dir, forget, d), LH_OK);
    assert_int_equal(rmdir(d->dir), 0);
    lh_env_real_destroy(d->env);
    test_free(d);
    return 0;
}

static struct lh_file *opened(struct disk *d, unsigned flags)
{
    struct lh_file *f = NULL;
    assert_int_equal(d->files->open(d->env, d->path, flags, &f), LH_OK);
    return f;
}

#define ON_DISK(name, parameter) TEST_WITH(name, parameter, make_disk, drop_disk)

// Large direct writes with any start and end, and small writes in the same blocks.
ON_DISK(direct_writes_come_back, struct disk *d)
{
    enum { SIZE = 12 << 20, LARGE = (5 << 20) + 123 };
    uint8_t *want = test_calloc(1, SIZE), *out = test_calloc(1, SIZE);
    size_t got, at[] = {0, LARGE + 7, 4096, 777};
    struct lh_file *f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_DIRECT);
    assert_int_equal(d->files->resize(f, SIZE), LH_OK);
    for (size_t i = 0; i < LH_COUNT(at); i++) {
        for (size_t k = 0; k < LARGE; k++) want[at[i] + k] = (uint8_t)(k * 31 + k / 4096 + i);
        memcpy(want + at[i] + LARGE, "end", 3);
        assert_int_equal(d->files->write(f, at[i], lh_span(want + at[i], LARGE)), LH_OK);
        assert_int_equal(d->files->write(f, at[i] + LARGE, lh_span_str("end")), LH_OK);
        assert_int_equal(d->files->sync(f), LH_OK);
        assert_int_equal(d->files->read(f, 0, out, SIZE, &got), LH_OK);
        assert_int_equal(got, SIZE);
        assert_memory_equal(out, want, SIZE);
    }
    d->files->close(f);
    test_free(want);
    test_free(out);
}

// Number of pages among a file's first `size` bytes that are in the page cache.
static size_t cached_pages(const char *path, size_t size)
{
    unsigned char resident[SIZE_CACHED / 4096];
    size_t n = 0;
    assert_true(size <= SIZE_CACHED);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(fd >= 0 && map != MAP_FAILED);
    assert_int_equal(mincore(map, size, resident), 0);
    for (size_t i = 0; i < size / 4096; i++) n += resident[i] & 1;
    munmap(map, size);
    close(fd);
    return n;
}

// Writes past the page cache with O_DIRECT; false where the file system cannot.
static bool round_the_cache(const char *path, const void *aligned, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    bool done = fd >= 0 && pwrite(fd, aligned, size, 0) == (ssize_t)size;
    if (fd >= 0) close(fd);
    return done && cached_pages(path, size) < size / 4096 / 2;
}

// A large direct write leaves no pages in the cache if the file system allows it; elsewhere the
// bytes are written as usual.
ON_DISK(direct_writes_go_round_the_page_cache, struct disk *d)
{
    char plain[160];
    uint8_t *bytes = aligned_alloc(4096, SIZE_CACHED), *out = malloc(SIZE_CACHED);
    size_t got;
    assert_true(bytes && out);
    memset(bytes, 7, SIZE_CACHED);
    snprintf(plain, sizeof plain, "%s.plain", d->path);
    bool can = round_the_cache(plain, bytes, SIZE_CACHED);
    memset(bytes, 8, SIZE_CACHED);
    for (unsigned i = 0; i < 4; i++) {
        bool direct = i % 2;
        size_t at = i < 2 ? 0 : 1000; // a block's edge; a place inside a block
        unsigned flags = LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE;
        struct lh_file *f = opened(d, flags | (direct ? LH_OPEN_DIRECT : 0));
        assert_int_equal(d->files->write(f, at, lh_span(bytes, SIZE_CACHED)), LH_OK);
        size_t pages = cached_pages(d->path, SIZE_CACHED);
        if (direct && can) assert_true(pages < SIZE_CACHED / 4096 / 2);
        // Checks that `pages` does count a write through the cache.
        if (!direct) assert_true(pages > SIZE_CACHED / 4096 / 2);
        assert_int_equal(d->files->read(f, at, out, SIZE_CACHED, &got), LH_OK);
        assert_int_equal(got, SIZE_CACHED);
        assert_memory_equal(out, bytes, SIZE_CACHED);
        d->files->close(f);
    }
    free(bytes);
    free(out);
}

ON_DISK(bytes_come_back, struct disk *d)
{
    struct lh_file *f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_EXCLUSIVE);
    uint8_t out[16];
    size_t got;
    uint64_t size;
    assert_int_equal(d->files->write(f, 3, lh_span_str("hello")), LH_OK);
    assert_int_equal(d->files->sync(f), LH_OK);
    assert_int_equal(d->files->size(f, &size), LH_OK);
    assert_int_equal(size, 8);
    assert_int_equal(d->files->read(f, 4, out, sizeof out, &got), LH_OK);
    assert_int_equal(got, 4); // short read at the end
    assert_memory_equal(out, "ello", 4);
    assert_int_equal(d->files->read(f, 100, out, sizeof out, &got), LH_OK);
    assert_int_equal(got, 0);
    d->files->close(f);
    f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE); // an existing file is kept
    assert_int_equal(d->files->size(f, &size), LH_OK);
    assert_int_equal(size, 8);
    d->files->close(f);
    f = opened(d, LH_OPEN_WRITE | LH_OPEN_TRUNCATE);
    assert_int_equal(d->files->size(f, &size), LH_OK);
    assert_int_equal(size, 0);
    d->files->close(f);
}

ON_DISK(growth_is_allocated_zeros, struct disk *d)
{
    struct lh_file *f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE);
    uint8_t out[100];
    size_t got;
    uint64_t size;
    assert_int_equal(d->files->write(f, 0, lh_span_str("0123456789")), LH_OK);
    assert_int_equal(d->files->resize(f, 4), LH_OK);
    assert_int_equal(d->files->resize(f, 1 << 20), LH_OK);
    assert_int_equal(d->files->size(f, &size), LH_OK);
    assert_int_equal(size, 1 << 20);
    assert_int_equal(d->files->read(f, 0, out, sizeof out, &got), LH_OK);
    assert_int_equal(got, sizeof out);
    assert_memory_equal(out, "0123", 4);
    for (size_t i = 4; i < sizeof out; i++) assert_int_equal(out[i], 0); // not the old tail
    d->files->close(f);
}

ON_DISK(open_says_what_is_wrong, struct disk *d)
{
    struct lh_file *f = NULL, *g;
    assert_int_equal(d->files->open(d->env, d->path, LH_OPEN_READ, &f), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), d->path));
    assert_int_equal(d->files->open(d->env, d->dir, LH_OPEN_READ, &f), LH_ERR_INVALID);
    g = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK);
    assert_int_equal(d->files->write(g, 0, lh_span_str("mine")), LH_OK);
    unsigned flags = LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_EXCLUSIVE;
    assert_int_equal(d->files->open(d->env, d->path, flags, &f), LH_ERR_EXISTS);
    flags = LH_OPEN_WRITE | LH_OPEN_LOCK | LH_OPEN_TRUNCATE;
    assert_int_equal(d->files->open(d->env, d->path, flags, &f), LH_ERR_BUSY);
    uint64_t size;
    assert_int_equal(d->files->size(g, &size), LH_OK);
    assert_int_equal(size, 4); // the open that failed did not truncate the file
    d->files->close(g);
    g = opened(d, LH_OPEN_WRITE | LH_OPEN_LOCK); // the lock is free again
    d->files->close(g);
}

// Opens a file, then puts a device behind its descriptor; the env refuses to open a device by name.
static struct lh_file *opened_device(struct disk *d, const char *name)
{
    int device = open(name, O_RDWR | O_CLOEXEC), next = dup(device);
    assert_true(device >= 0 && next >= 0);
    close(next); // the lowest free descriptor
    struct lh_file *f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE);
    assert_int_equal(dup2(device, next), next);
    close(device);
    return f;
}

ON_DISK(a_failed_sync_is_final_and_a_full_disk_is_not, struct disk *d)
{
    struct lh_file *f;
    f = opened_device(d, "/dev/null"); // it fails to sync, as a failing disk does
    assert_int_equal(d->files->write(f, 0, lh_span_str("x")), LH_OK);
    assert_int_equal(d->files->sync(f), LH_ERR_IO);
    assert_int_equal(d->files->write(f, 0, lh_span_str("x")), LH_ERR_IO);
    assert_int_equal(d->files->resize(f, 10), LH_ERR_IO);
    assert_int_equal(d->files->sync(f), LH_ERR_IO);
    d->files->close(f);
    f = opened_device(d, "/dev/full");
    assert_int_equal(d->files->write(f, 0, lh_span_str("x")), LH_ERR_DISK_FULL);
    d->files->close(f);
}

static void collect(void *arg, const char *name)
{
    char *all = arg;
    size_t used = strlen(all);
    snprintf(all + used, 256 - used, "%s ", name);
}

ON_DISK(names_are_made_listed_and_removed, struct disk *d)
{
    char sub[128], deep[192], all[256] = "";
    snprintf(sub, sizeof sub, "%s/a", d->dir);
    snprintf(deep, sizeof deep, "%s/b//c", sub);
    assert_int_equal(d->files->make_dir(d->env, deep), LH_OK);
    assert_int_equal(d->files->make_dir(d->env, deep), LH_OK);
    assert_int_equal(d->files->sync_dir(d->env, deep), LH_OK);
    const char *name[] = {"zz", "a10", "a9", "B", ".hidden"};
    for (size_t i = 0; i < LH_COUNT(name); i++) {
        char path[256];
        assert_int_equal(lh_path(path, sizeof path, d->dir, "%s", name[i]), LH_OK);
        assert_int_equal(lh_file_replace(d->env, path, lh_span_str("x")), LH_OK);
    }
    assert_int_equal(d->files->list(d->env, d->dir, collect, all), LH_OK);
    assert_string_equal(all, ".hidden B a10 a9 zz "); // no folders; sorted by bytes
    snprintf(d->path, sizeof d->path, "%s/zz", d->dir);
    snprintf(deep, sizeof deep, "%s/zz/below", d->dir);
    assert_int_equal(d->files->make_dir(d->env, d->path), LH_ERR_EXISTS);
    assert_int_equal(d->files->make_dir(d->env, deep), LH_ERR_EXISTS);
    assert_int_equal(d->files->remove(d->env, d->path), LH_OK);
    assert_int_equal(d->files->remove(d->env, d->path), LH_ERR_NOT_FOUND);
    assert_int_equal(d->files->rename(d->env, d->path, deep), LH_ERR_NOT_FOUND);
    assert_int_equal(d->files->list(d->env, d->path, collect, all), LH_ERR_NOT_FOUND);
    assert_int_equal(d->files->sync_dir(d->env, d->path), LH_ERR_NOT_FOUND);
    char cut[256];
    snprintf(cut, sizeof cut, "%s/b/c", sub);
    assert_int_equal(rmdir(cut), 0);
    snprintf(cut, sizeof cut, "%s/b", sub);
    assert_int_equal(rmdir(cut), 0);
    assert_int_equal(rmdir(sub), 0);
}

ON_DISK(whole_files_are_replaced_and_loaded, struct disk *d)
{
    struct lh_buf out = lh_buf(10);
    char tmp[160];
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_ERR_NOT_FOUND);
    assert_int_equal(lh_file_replace(d->env, d->path, lh_span_str("0123456789")), LH_OK);
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_OK);
    assert_int_equal(out.len, 10);
    assert_int_equal(lh_file_replace(d->env, d->path, lh_span_str("short")), LH_OK);
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_span_str("short")));
    assert_int_equal(lh_file_replace(d->env, d->path, lh_span_str("")), LH_OK);
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_OK);
    assert_int_equal(out.len, 0);
    assert_int_equal(lh_file_replace(d->env, d->path, lh_span_str("0123456789a")), LH_OK);
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_ERR_TOO_LARGE);
    assert_int_equal(out.len, 0);
    snprintf(tmp, sizeof tmp, "%s.tmp", d->path);
    // the temporary file is gone
    assert_int_equal(lh_file_load(d->env, tmp, &out), LH_ERR_NOT_FOUND);
    lh_buf_free(&out);
}

static lh_err no_room_half_way(void *arg, struct lh_file *file)
{
    struct disk *d = arg;
    lh_err err = d->files->write(file, 0, lh_span_str("0123456789"));
    return err ? err : lh_fail(LH_ERR_DISK_FULL, "no room for the rest");
}

// If the disk fills up while a file is written, its partial bytes must not keep space.
ON_DISK(a_file_without_room_leaves_nothing, struct disk *d)
{
    char tmp[160];
    struct lh_buf out = lh_buf(10);
    snprintf(tmp, sizeof tmp, "%s.tmp", d->path);
    assert_int_equal(lh_file_replace(d->env, d->path, lh_span_str("before")), LH_OK);
    assert_int_equal(lh_file_replace_by(d->env, d->path, no_room_half_way, d), LH_ERR_DISK_FULL);
    assert_int_equal(lh_file_load(d->env, tmp, &out), LH_ERR_NOT_FOUND);
    assert_int_equal(lh_file_load(d->env, d->path, &out), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_span_str("before")));
    lh_buf_free(&out);
}

static lh_err no_removal(struct lh_env *env, const char *path)
{
    (void)env;
    return lh_fail(LH_ERR_IO, "%s: no removal", path);
}

ON_DISK(a_file_that_keeps_its_space_is_told, struct disk *d)
{
    struct lh_files_ops files = *d->files;
    struct lh_env_ops ops = {.files = &files};
    struct lh_env env = {.ops = &ops};
    files.remove = no_removal;
    assert_int_equal(lh_file_replace_by(&env, d->path, no_room_half_way, d), LH_ERR_IO);
    assert_int_equal(lh_file_replace(&env, d->path, lh_span_str("whole")), LH_OK);
}

TEST(paths_are_joined)
{
    char out[16];
    assert_int_equal(lh_path(out, sizeof out, "/a", "%s-%d", "b", 7), LH_OK);
    assert_string_equal(out, "/a/b-7");
    assert_int_equal(lh_path(out, sizeof out, "/a/", "b"), LH_OK);
    assert_string_equal(out, "/a/b");
    assert_int_equal(lh_path(out, sizeof out, "/", "b"), LH_OK);
    assert_string_equal(out, "/b");
    assert_int_equal(lh_path(out, sizeof out, "1234567", "%s", "1234567"),
                     LH_OK); // 15 bytes and the terminating zero
    assert_int_equal(lh_path(out, sizeof out, "1234567", "%s", "12345678"), LH_ERR_TOO_LARGE);
    assert_int_equal(lh_path(out, sizeof out, "0123456789abcdef", "b"), LH_ERR_TOO_LARGE);
}

// Memory with the alignment of its place in the file is written without a copy; other memory is
// copied once.
ON_DISK(memory_in_step_with_its_place_goes_uncopied, struct disk *d)
{
    enum { SIZE = 5 << 20, PLACE = 3 * LH_BLOCK + LH_BLOB_PHASE };
    uint8_t *bytes = aligned_alloc(4096, 2 * SIZE), *out = malloc(SIZE);
    size_t got;
    assert_true(bytes && out);
    for (size_t i = 0; i < 2 * SIZE; i++) bytes[i] = (uint8_t)(i * 31 + i / 4096);
    for (int apart = 0; apart < 2; apart++) { // difference of the two alignments, in bytes
        struct lh_file *f = opened(d, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_DIRECT);
        uint8_t *from = bytes + LH_BLOB_PHASE + apart;
        assert_int_equal(d->files->write(f, PLACE, lh_span(from, SIZE)), LH_OK);
        uint64_t copied = lh_env_real_copied(f); // 0 if the file system has no direct writes
        if (apart)
            assert_true(copied == 0 || (copied > SIZE - 2 * 4096 && copied <= SIZE));
        else
            assert_int_equal(copied, 0);
        assert_int_equal(d->files->read(f, PLACE, out, SIZE, &got), LH_OK);
        assert_int_equal(got, SIZE);
        assert_memory_equal(out, from, SIZE);
        d->files->close(f);
    }
    free(bytes);
    free(out);
}

static void put_fifo(struct disk *d)
{
    assert_int_equal(mkfifo(d->path, 0600), 0);
}

static void put_socket(struct disk *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", d->path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

static void put_device(struct disk *d)
{
    assert_int_equal(symlink("/dev/zero", d->path), 0);
}

static void put_folder(struct disk *d)
{
    assert_int_equal(mkdir(d->path, 0700), 0);
}

// Opening a FIFO would block until it has a writer, and reading a device would never end.
ON_DISK(special_files_are_refused_at_once, struct disk *d)
{
    static const struct {
        void (*put)(struct disk *d);
        const char *says;
    } row[] = {{put_fifo, "is a FIFO, not a file"},
               {put_socket, "is a socket, not a file"},
               {put_device, "is a device, not a file"},
               {put_folder, "is a folder, not a file"}};
    static const unsigned how[] = {LH_OPEN_READ, LH_OPEN_WRITE, LH_OPEN_WRITE | LH_OPEN_CREATE,
                                   LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE};
    struct lh_buf text = lh_buf(64);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_file *f;
        row[i].put(d);
        for (size_t k = 0; k < LH_COUNT(how); k++) {
            assert_int_equal(d->files->open(d->env, d->path, how[k], &f), LH_ERR_INVALID);
            assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), row[i].says));
        }
        assert_int_equal(lh_file_load(d->env, d->path, &text), LH_ERR_INVALID);
        if (unlink(d->path)) assert_int_equal(rmdir(d->path), 0);
    }
    lh_buf_free(&text);
}
