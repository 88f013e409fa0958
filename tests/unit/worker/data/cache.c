// worker/data/cache.c: entries survive a restart, the size stays within its limit, and a damaged or
// torn entry counts as missing.
// labels: tsan
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker/data/cache.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

enum { BYTES = 1000, FILE_BYTES = BYTES + 20 };

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/lh-cache-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree(dir);
}

static struct wk_cache *open_cache(uint64_t entries)
{
    struct wk_cache *c;
    lh_err err = wk_cache_open(dir, entries * FILE_BYTES, &c);
    if (err) fail_msg("%s", lh_err_text(err));
    return c;
}

static const uint8_t *bytes_of(int entry)
{
    static _Thread_local uint8_t b[BYTES];
    for (int i = 0; i < BYTES; i++) b[i] = (uint8_t)(entry * 31 + i * 7);
    return b;
}

static const char *name_of(int entry)
{
    static _Thread_local char name[32];
    snprintf(name, sizeof name, "unit-%d", entry);
    return name;
}

static void put(struct wk_cache *c, int entry)
{
    assert_true(wk_cache_put(c, name_of(entry), bytes_of(entry), BYTES));
}

static bool get(struct wk_cache *c, int entry)
{
    uint8_t is[BYTES] = {0};
    if (!wk_cache_get(c, name_of(entry), is, BYTES)) return false;
    assert_memory_equal(is, bytes_of(entry), BYTES);
    return true;
}

#define IN_DIR(name) TEST_WITH(name, void *unused, setup, teardown)

IN_DIR(entries_survive_a_restart)
{
    struct wk_cache *c = open_cache(10);
    assert_false(get(c, 1));
    put(c, 1);
    put(c, 2);
    put(c, 2); // the same entry again
    assert_true(get(c, 1) && get(c, 2) && wk_cache_has(c, "unit-2") && !wk_cache_has(c, "unit-3"));
    assert_int_equal(wk_cache_bytes(c), 2 * FILE_BYTES);
    assert_int_equal(wk_cache_room(c), 8 * FILE_BYTES);
    wk_cache_close(c);
    c = open_cache(10);
    assert_int_equal(wk_cache_bytes(c), 2 * FILE_BYTES);
    assert_true(get(c, 1) && get(c, 2));
    uint8_t other[BYTES - 1];
    assert_false(wk_cache_get(c, "unit-1", other, sizeof other)); // a different size does not match
    wk_cache_close(c);
}

static void set_age(const char *file, time_t seconds)
{
    char path[128];
    struct timespec times[2];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

IN_DIR(the_least_used_goes_first)
{
    struct wk_cache *c = open_cache(3);
    for (int i = 1; i <= 3; i++) put(c, i);
    assert_true(get(c, 1)); // 2 is now the least recently used entry
    put(c, 4);
    assert_true(get(c, 1) && !get(c, 2) && get(c, 3) && get(c, 4));
    assert_int_equal(wk_cache_room(c), 0);
    wk_cache_close(c);
    set_age("unit-1.unit", 30);
    set_age("unit-3.unit", 20);
    set_age("unit-4.unit", 10);
    c = open_cache(1); // a limit below the present size
    assert_int_equal(wk_cache_bytes(c), FILE_BYTES);
    assert_true(get(c, 4) && !get(c, 1)); // the newest entry stays
    wk_cache_close(c);
    c = open_cache(0);
    assert_false(wk_cache_put(c, "unit-1", bytes_of(1), BYTES)); // no space at all
    wk_cache_close(c);
}

static void change(const char *file, long at, long cut)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (cut >= 0) {
        assert_int_equal(truncate(path, cut), 0);
        return;
    }
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int was = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(was ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

IN_DIR(damage_is_absence)
{
    static const long places[] = {0, 4, 9, 16, 500, FILE_BYTES - 1};
    struct wk_cache *c = open_cache(10);
    for (size_t i = 0; i <= sizeof places / sizeof places[0]; i++) {
        bool cut = i == sizeof places / sizeof places[0];
        put(c, 1);
        change("unit-1.unit", cut ? 0 : places[i], cut ? FILE_BYTES - 1 : -1);
        assert_false(get(c, 1));
        assert_false(wk_cache_has(c, "unit-1")); // removed
        assert_int_equal(wk_cache_bytes(c), 0);
    }
    put(c, 1);
    char path[128];
    snprintf(path, sizeof path, "%s/unit-1.unit", dir);
    assert_int_equal(unlink(path), 0); // removed by another process
    assert_false(get(c, 1));
    wk_cache_close(c);
}

IN_DIR(leftovers_go_and_strangers_stay)
{
    char torn[128], stranger[128];
    snprintf(torn, sizeof torn, "%s/unit-1.fresh7", dir);
    snprintf(stranger, sizeof stranger, "%s/notes.txt", dir);
    fclose(fopen(torn, "w"));
    fclose(fopen(stranger, "w"));
    struct wk_cache *c = open_cache(10);
    assert_int_equal(wk_cache_bytes(c), 0);
    assert_int_not_equal(access(torn, F_OK), 0);
    assert_int_equal(access(stranger, F_OK), 0);
    wk_cache_close(c);
    assert_int_equal(wk_cache_open(stranger, 1, &c), LH_ERR_IO);
    assert_non_null(strstr(lh_err_text(LH_ERR_IO), "data.cache"));
}

// More entries than a start reads: they are available at once. No entry is written until all are
// listed; then the oldest go first, except those used since.
IN_DIR(a_large_folder_is_taken_over_beside)
{
    enum { ENTRIES = 20000 };
    struct wk_cache *c = open_cache(1);
    put(c, 0);
    wk_cache_close(c);
    char first[128], path[128];
    snprintf(first, sizeof first, "%s/%s.unit", dir, name_of(0));
    for (int i = 1; i <= ENTRIES; i++) {
        snprintf(path, sizeof path, "%s/%s.unit", dir, name_of(i));
        assert_int_equal(link(first, path), 0);
    }
    snprintf(path, sizeof path, "%s/%s.unit", dir, name_of(-1));
    assert_int_equal(rename(first, path), 0);
    c = open_cache(ENTRIES);
    for (int i = 0; i < 8; i++) {
        uint8_t is[BYTES] = {0};
        assert_true(wk_cache_has(c, name_of(ENTRIES - i)));
        assert_true(wk_cache_get(c, name_of(ENTRIES - i), is, BYTES));
        assert_memory_equal(is, bytes_of(0), BYTES);
    }
    assert_false(wk_cache_has(c, name_of(0)) && !wk_cache_ready(c));
    if (!wk_cache_ready(c)) assert_false(wk_cache_put(c, name_of(0), bytes_of(0), 2 * BYTES));
    wk_cache_settle(c);
    assert_true(wk_cache_ready(c));
    assert_int_equal(wk_cache_bytes(c), (uint64_t)ENTRIES * FILE_BYTES); // one was evicted
    put(c, 0);
    assert_int_equal(wk_cache_bytes(c), (uint64_t)ENTRIES * FILE_BYTES);
    for (int i = 0; i < 8; i++) assert_true(wk_cache_has(c, name_of(ENTRIES - i)));
    wk_cache_close(c);
}

IN_DIR(a_start_that_ends_early_leaves_the_folder)
{
    char path[128];
    for (int i = 0; i < 20000; i++) {
        snprintf(path, sizeof path, "%s/%s.unit", dir, name_of(i));
        int fd = open(path, O_CREAT | O_WRONLY, 0666);
        assert_true(fd >= 0);
        close(fd);
    }
    struct wk_cache *c = open_cache(1);
    wk_cache_close(c);
    c = open_cache(1);
    wk_cache_settle(c);
    assert_int_equal(wk_cache_bytes(c), 0);
    wk_cache_close(c);
}

static void *use_it(void *arg)
{
    for (int i = 0; i < 300; i++) {
        (void)get(arg, i % 7);
        if (!wk_cache_put(arg, name_of(i % 7), bytes_of(i % 7), BYTES)) return arg;
    }
    return NULL;
}

IN_DIR(threads_do_not_disturb_each_other)
{
    struct wk_cache *c = open_cache(4);
    pthread_t thread[3];
    void *failed;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, use_it, c), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
    assert_true(wk_cache_bytes(c) <= 4 * FILE_BYTES);
    wk_cache_close(c);
}
