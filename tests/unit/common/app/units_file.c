// common/app/units_file.c: the mapped index agrees with units.json, is rebuilt where it is missing,
// stale or damaged, and uses no heap memory for each unit.
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/app/units_file.h"
#include "common/base/sanitizer.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

static char dir[64], path[128], index_path[128];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/lh-units-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/units.json", dir);
    snprintf(index_path, sizeof index_path, "%s/units.json.index", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree(dir);
}

static void write_file(const char *name, struct lh_span bytes)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.data, 1, bytes.len, f), bytes.len);
    assert_int_equal(fclose(f), 0);
}

static struct lh_buf read_file(const char *name)
{
    struct lh_buf b = lh_buf(1 << 24);
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    uint8_t bytes[4096];
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, f));) lh_put(&b, bytes, n);
    assert_int_equal(fclose(f), 0);
    return b;
}

// Writes a manifest of `count` units and returns it as parsed.
static struct lh_units write_units(uint64_t count)
{
    struct lh_unit *unit = calloc(count, sizeof *unit);
    struct lh_heldout heldout = {.language = "ja", .file = "h.bin", .tokens = 5, .bytes = 9};
    struct lh_units u = {.unit = unit,
                         .count = count,
                         .heldout = &heldout,
                         .heldout_count = 1,
                         .vocabulary = 256,
                         .token_bytes = 2};
    struct lh_buf json = lh_buf(64 << 20);
    assert_non_null(unit);
    for (uint64_t i = 0; i < count; i++) {
        unit[i] = (struct lh_unit){.id = i, .from = 8 * i, .tokens = 8, .may_leave = i % 3 != 0};
        snprintf(unit[i].file, sizeof unit[i].file, "f%d.bin", (int)(i % 5));
        snprintf(unit[i].home, sizeof unit[i].home, "%s", i % 2 ? "asia" : "europe");
        snprintf(unit[i].language, sizeof unit[i].language, "l%d", (int)(i % 7));
        memset(unit[i].sha256, (int)i, sizeof unit[i].sha256);
    }
    assert_int_equal(lh_units_write(&u, &json), LH_OK);
    write_file(path, lh_buf_span(&json));
    struct lh_units parsed;
    assert_int_equal(lh_units_parse(&parsed, lh_buf_span(&json)), LH_OK);
    lh_buf_free(&json);
    free(unit);
    return parsed;
}

static void same(const struct lh_units *a, const struct lh_units *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->vocabulary, b->vocabulary);
    assert_int_equal(a->token_bytes, b->token_bytes);
    assert_int_equal(a->heldout_count, b->heldout_count);
    assert_true(lh_hash_equal(&a->hash, &b->hash));
    assert_memory_equal(a->unit, b->unit, a->count * sizeof *a->unit);
    assert_memory_equal(a->heldout, b->heldout, a->heldout_count * sizeof *a->heldout);
}

static void opens_as(const struct lh_units *want)
{
    struct lh_units u;
    lh_err err = lh_units_open(path, &u);
    if (err) fail_msg("%s", lh_err_text(err));
    same(&u, want);
    lh_units_close(&u);
}

static ino_t file_of(const char *name)
{
    struct stat is;
    return stat(name, &is) ? 0 : is.st_ino;
}

#define IN_DIR(name) TEST_WITH(name, void *unused, setup, teardown)

IN_DIR(it_is_made_once_and_anew_for_another_manifest)
{
    struct lh_units first = write_units(2000), other;
    opens_as(&first);
    ino_t made = file_of(index_path);
    assert_true(made != 0);
    opens_as(&first);
    assert_int_equal(file_of(index_path), made);
    other = write_units(2001);
    opens_as(&other);
    opens_as(&other);
    lh_units_free(&first);
    lh_units_free(&other);
}

IN_DIR(a_damaged_one_is_made_anew)
{
    struct lh_units want = write_units(2);
    opens_as(&want);
    struct lh_buf whole = read_file(index_path);
    assert_int_equal(whole.len, 128 + 2 * 272 + 192);
    for (size_t at = 0; at < whole.len; at++) {
        whole.data[at] ^= 0x10;
        write_file(index_path, lh_buf_span(&whole));
        whole.data[at] ^= 0x10;
        opens_as(&want);
        struct lh_buf again = read_file(index_path);
        assert_true(lh_span_equal(lh_buf_span(&again), lh_buf_span(&whole)));
        lh_buf_free(&again);
    }
    for (size_t cut = 0; cut < whole.len; cut += 7) {
        write_file(index_path, lh_span(whole.data, cut));
        opens_as(&want);
    }
    lh_buf_free(&whole);
    lh_units_free(&want);
}

IN_DIR(a_place_that_takes_none_stops_nobody)
{
    struct lh_units want = write_units(3);
    char inside[160];
    assert_int_equal(mkdir(index_path, 0700), 0);
    snprintf(inside, sizeof inside, "%s/file", index_path);
    write_file(inside, lh_span_str("in the way"));
    opens_as(&want);
    opens_as(&want);
    lh_units_free(&want);
}

IN_DIR(a_bad_manifest_is_refused_and_leaves_no_index)
{
    struct lh_units u = write_units(4);
    struct lh_buf json = read_file(path);
    lh_units_free(&u);
    // the two units now overlap
    memcpy(strstr((char *)json.data, "\"tokens\": 8"), "\"tokens\": 9", 11);
    write_file(path, lh_buf_span(&json));
    assert_int_equal(lh_units_open(path, &u), LH_ERR_INVALID);
    assert_null(u.unit);
    assert_int_equal(file_of(index_path), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(lh_units_open(path, &u), LH_ERR_NOT_FOUND);
    assert_int_equal(rmdir(dir), 0); // the folder is empty
    assert_int_equal(mkdir(dir, 0700), 0);
    lh_buf_free(&json);
}

static long own_memory_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (kb < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kb = strtol(line + 8, NULL, 10);
    assert_int_equal(fclose(f), 0);
    assert_true(kb > 0);
    return kb;
}

IN_DIR(a_unit_takes_no_memory_of_the_programs_own)
{
    enum { UNITS = 60000, BOUND = 64 };
    struct lh_units want = write_units(UNITS), u;
    lh_units_free(&want);
    long before = own_memory_kb();
    for (int again = 0; again < 2; again++) {
        assert_int_equal(lh_units_open(path, &u), LH_OK);
        assert_int_equal(u.count, UNITS);
#ifdef LH_ASAN // ASan keeps freed memory
        long bound = before + LONG_MAX / 2;
#else
        long bound = before + UNITS * BOUND / 1024;
#endif
        assert_true(own_memory_kb() < bound);
        lh_units_close(&u);
    }
}

static bool same_files(const char *a, const char *b)
{
    struct lh_buf x = read_file(a), y = read_file(b);
    bool same = x.len && lh_span_equal(lh_buf_span(&x), lh_buf_span(&y));
    lh_buf_free(&x);
    lh_buf_free(&y);
    return same;
}

IN_DIR(a_manifest_in_a_store_is_fetched_and_its_copy_serves)
{
    char from[200], state_dir[100], found[LH_PATH_BYTES], copy[150];
    struct lh_env *env;
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    struct lh_units u = write_units(4);
    lh_units_free(&u);
    snprintf(state_dir, sizeof state_dir, "%s/state", dir);
    snprintf(copy, sizeof copy, "%s/units-copy.json", state_dir);
    assert_int_equal(mkdir(state_dir, 0700), 0);
    assert_int_equal(lh_units_find(env, NULL, path, state_dir, found), LH_OK);
    assert_string_equal(found, path); // a file is used where it is
    snprintf(from, sizeof from, "file://%s/none.json", dir);
    assert_int_equal(lh_units_find(env, NULL, from, state_dir, found), LH_ERR_NOT_FOUND);
    snprintf(from, sizeof from, "file://%s/units.json", dir);
    assert_int_equal(lh_units_find(env, NULL, from, state_dir, found), LH_OK);
    assert_string_equal(found, copy);
    assert_true(same_files(path, copy));
    u = write_units(5); // a changed manifest in the store is used at the next start
    lh_units_free(&u);
    assert_false(same_files(path, copy));
    assert_int_equal(lh_units_find(env, NULL, from, state_dir, found), LH_OK);
    assert_true(same_files(path, copy));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(lh_units_find(env, NULL, from, state_dir, found), LH_OK);
    assert_string_equal(found, copy);
    assert_int_equal(lh_units_find(env, NULL, "s3://bucket/a b", dir, found), LH_ERR_CONFIG);
    lh_env_real_destroy(env);
}
