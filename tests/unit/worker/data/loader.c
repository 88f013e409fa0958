// worker/data/loader.c: reads return the checked bytes of the files; prefetching keeps needed
// units; an error names the file, the unit and the remedy. A FIFO in place of a token file shows
// how far the background thread has come.
// labels: tsan
#include <fcntl.h>
#include <sched.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/tokens.h"
#include "tests/test.h"
#include "worker/data/loader.h"

enum { UNITS = 8, TOKENS = 64 };

// Units 0 and 1 share a file; every other unit has its own.
struct fixture {
    char dir[64];
    struct lh_unit unit[UNITS];
    struct lh_units units;
    struct wk_loader *l;
};

static uint32_t id_at(uint64_t unit, uint64_t i)
{
    return (uint32_t)(unit * 1000 + i * 7) % 50000;
}

static const char *path_of(const struct fixture *f, uint64_t unit)
{
    static _Thread_local char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dir, f->unit[unit].file);
    return path;
}

static void put_file(const struct fixture *f, uint64_t first, uint64_t units)
{
    struct lh_buf b = lh_buf(1 << 20);
    lh_tokens_put_header(&b, f->units.token_bytes, units * TOKENS);
    for (uint64_t u = first; u < first + units; u++)
        for (uint64_t i = 0; i < TOKENS; i++) lh_tokens_put(&b, f->units.token_bytes, id_at(u, i));
    FILE *file = fopen(path_of(f, first), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.len, file), b.len);
    assert_int_equal(fclose(file), 0);
    lh_buf_free(&b);
}

static void set_unit(struct fixture *f, uint64_t u)
{
    struct lh_unit *x = &f->unit[u];
    struct lh_buf b = lh_buf(1 << 16);
    *x = (struct lh_unit){.id = u, .from = u == 1 ? TOKENS : 0, .tokens = TOKENS};
    snprintf(x->file, sizeof x->file, "t%d.bin", u == 1 ? 0 : (int)u);
    for (uint64_t i = 0; i < TOKENS; i++) lh_tokens_put(&b, f->units.token_bytes, id_at(u, i));
    assert_int_equal(EVP_Digest(b.data, b.len, x->sha256, NULL, EVP_sha256(), NULL), 1);
    lh_buf_free(&b);
}

static void open_fixture(struct fixture *f, uint32_t token_bytes, uint32_t depth)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/lh-loader-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->units = (struct lh_units){
        .unit = f->unit, .count = UNITS, .vocabulary = 50000, .token_bytes = token_bytes};
    for (uint64_t u = 0; u < UNITS; u++) set_unit(f, u);
    put_file(f, 0, 2);
    for (uint64_t u = 2; u < UNITS; u++) put_file(f, u, 1);
    struct wk_loader_conf conf = {.units = &f->units, .dir = f->dir, .depth = depth};
    assert_int_equal(wk_loader_open(&conf, &f->l), LH_OK);
}

static void close_fixture(struct fixture *f)
{
    wk_loader_close(f->l);
    for (uint64_t u = 0; u < UNITS; u++) remove(path_of(f, u));
    assert_int_equal(rmdir(f->dir), 0);
}

static void expect_read(struct fixture *f, uint64_t unit, uint64_t offset, uint64_t tokens)
{
    uint32_t ids[TOKENS + 1];
    lh_err err = wk_loader_read(f->l, unit, offset, tokens, ids);
    if (err) fail_msg("unit %d: %s", (int)unit, lh_err_text(err));
    for (uint64_t i = 0; i <= tokens; i++) {
        uint64_t at = offset + i;
        uint32_t want = at < TOKENS ? id_at(unit, at)
                        : unit == 0 ? id_at(1, 0)              // the file goes on
                                    : id_at(unit, TOKENS - 1); // the file ends
        assert_int_equal(ids[i], want);
    }
}

TEST(reads_what_was_written)
{
    for (uint32_t width = 2; width <= 4; width += 2) {
        struct fixture f;
        open_fixture(&f, width, 2);
        for (uint64_t u = 0; u < UNITS; u++) {
            wk_loader_announce(f.l, u);
            if (u + 1 < UNITS) wk_loader_announce(f.l, u + 1);
            for (uint64_t at = 0; at < TOKENS; at += 16) expect_read(&f, u, at, 16);
            expect_read(&f, u, 0, TOKENS);
        }
        close_fixture(&f);
    }
}

static int64_t waited_ns(const struct fixture *f)
{
    struct wk_loader_status is;
    wk_loader_status(f->l, &is);
    return is.waited_ns;
}

// Waits until `units` units were fetched.
static void expect_fetched(const struct fixture *f, uint64_t units)
{
    struct wk_loader_status is = {0};
    for (int i = 0; i < 10000000 && is.counts.fetched < units; i++) {
        wk_loader_status(f->l, &is);
        sched_yield();
    }
    assert_int_equal(is.counts.fetched, units);
}

TEST(prefetched_units_cost_no_wait)
{
    struct fixture f;
    open_fixture(&f, 2, 3);
    assert_int_equal(remove(path_of(&f, 4)), 0);
    assert_int_equal(mkfifo(path_of(&f, 4), 0600), 0);
    wk_loader_announce(f.l, 2);
    wk_loader_announce(f.l, 3);
    expect_fetched(&f, 2);
    remove(path_of(&f, 2));
    remove(path_of(&f, 3));
    expect_read(&f, 2, 0, TOKENS);
    expect_read(&f, 3, 0, TOKENS);
    assert_int_equal(waited_ns(&f), 0);
    uint32_t ids[2]; // a FIFO does not block the reader
    assert_int_equal(wk_loader_read(f.l, 4, 0, 1, ids), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "t4.bin is a FIFO, not a file"));
    expect_read(&f, 5, 0, 1); // it was not announced, so the read waits
    assert_true(waited_ns(&f) > 0);
    close_fixture(&f);
}

TEST(oldest_goes_first)
{
    struct fixture f;
    open_fixture(&f, 2, 2);
    expect_read(&f, 2, 0, 1);
    expect_read(&f, 3, 0, 1);
    expect_read(&f, 2, 1, 1);
    expect_read(&f, 4, 0, 1); // evicts 3
    remove(path_of(&f, 2));
    remove(path_of(&f, 3));
    remove(path_of(&f, 4));
    expect_read(&f, 4, 5, 5);
    expect_read(&f, 2, 5, 5);
    uint32_t ids[2];
    assert_int_equal(wk_loader_read(f.l, 3, 0, 1, ids), LH_ERR_NOT_FOUND);
    close_fixture(&f);
}

// If needed units fill every slot, announced ones wait; the unit in use stays.
TEST(announcements_push_out_nothing_needed)
{
    for (int i = 0; i < 20; i++) {
        struct fixture f;
        open_fixture(&f, 2, 2);
        expect_read(&f, 2, 0, 1);
        remove(path_of(&f, 2));
        for (uint64_t u = 3; u < UNITS; u++) wk_loader_announce(f.l, u);
        for (uint64_t at = 0; at < TOKENS; at++) expect_read(&f, 2, at, 1);
        for (uint64_t u = 3; u < UNITS; u++) expect_read(&f, u, 0, TOKENS);
        close_fixture(&f);
    }
}

// Withdrawing an unread unit frees one of the two slots.
TEST(a_withdrawn_unit_makes_room_for_the_next)
{
    struct fixture f;
    open_fixture(&f, 2, 2);
    wk_loader_announce(f.l, 2);
    wk_loader_announce(f.l, 3);
    expect_fetched(&f, 2);
    wk_loader_announce(f.l, 4);
    wk_loader_announce(f.l, 5);
    wk_loader_withdraw(f.l, 4); // waiting
    wk_loader_withdraw(f.l, 2); // already fetched
    wk_loader_withdraw(f.l, 6); // never announced
    wk_loader_withdraw(f.l, UNITS);
    expect_fetched(&f, 3);
    remove(path_of(&f, 3));
    remove(path_of(&f, 5));
    expect_read(&f, 3, 0, TOKENS);
    expect_read(&f, 5, 0, TOKENS);
    assert_int_equal(waited_ns(&f), 0);
    close_fixture(&f);
}

static void rewrite(const struct fixture *f, uint64_t unit, long at, uint8_t with)
{
    FILE *file = fopen(path_of(f, unit), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(with, file), with);
    assert_int_equal(fclose(file), 0);
}

static void expect_error(struct fixture *f, uint64_t unit, lh_err code, const char *says)
{
    uint32_t ids[TOKENS + 1];
    char which[32];
    snprintf(which, sizeof which, "unit %d", (int)unit);
    lh_err err = wk_loader_read(f->l, unit, 0, TOKENS, ids);
    if (err != code || !strstr(lh_err_text(err), says) || !strstr(lh_err_text(err), which) ||
        !strstr(lh_err_text(err), f->unit[unit].file) ||
        !strstr(lh_err_text(err), "longhaul data prepare"))
        fail_msg("unit %d: %s: %s", (int)unit, lh_err_name(err), lh_err_text(err));
}

TEST(damage_is_told)
{
    struct fixture f;
    open_fixture(&f, 2, 2);
    rewrite(&f, 2, LH_TOKENS_HEADER_BYTES + 10, 0xee);
    expect_error(&f, 2, LH_ERR_CORRUPT, "sha256");
    rewrite(&f, 3, 0, 0);
    expect_error(&f, 3, LH_ERR_CORRUPT, "magic");
    rewrite(&f, 4, 8, TOKENS - 1);
    expect_error(&f, 4, LH_ERR_CORRUPT, "fewer tokens");
    assert_int_equal(truncate(path_of(&f, 5), LH_TOKENS_HEADER_BYTES + TOKENS), 0);
    expect_error(&f, 5, LH_ERR_CORRUPT, "too early");
    assert_int_equal(truncate(path_of(&f, 5), 100), 0);
    expect_error(&f, 5, LH_ERR_CORRUPT, "too early");
    remove(path_of(&f, 6));
    expect_error(&f, 6, LH_ERR_NOT_FOUND, "there is no");
    put_file(&f, 6, 1); // repaired: the next read succeeds
    expect_read(&f, 6, 0, TOKENS);
    f.units.vocabulary = id_at(7, TOKENS - 1);
    expect_error(&f, 7, LH_ERR_CORRUPT, "token 63 is not below the vocabulary");
    close_fixture(&f);
}

TEST(wrong_calls_are_refused)
{
    struct fixture f;
    open_fixture(&f, 2, 2);
    uint32_t ids[TOKENS + 1];
    assert_int_equal(wk_loader_read(f.l, UNITS, 0, 1, ids), LH_ERR_INVALID);
    assert_int_equal(wk_loader_read(f.l, 0, 0, 0, ids), LH_ERR_INVALID);
    assert_int_equal(wk_loader_read(f.l, 0, 1, TOKENS, ids), LH_ERR_INVALID);
    assert_int_equal(wk_loader_read(f.l, 0, UINT64_MAX, 2, ids), LH_ERR_INVALID);
    wk_loader_announce(f.l, UNITS); // ignored
    struct wk_loader_conf conf = {.units = &f.units, .dir = f.dir, .depth = 1};
    struct wk_loader *none;
    assert_int_equal(wk_loader_open(&conf, &none), LH_ERR_CONFIG);
    assert_null(none);
    close_fixture(&f);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static void *announce_at_random(void *arg)
{
    struct fixture *f = arg;
    uint64_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        wk_loader_announce(f->l, next_random(&seed) % UNITS);
        if (waited_ns(f) < 0) return arg;
    }
    return NULL;
}

// The loop's thread announces units in random order while the compute lane reads.
TEST(threads_do_not_disturb_each_other)
{
    struct fixture f;
    pthread_t other;
    void *failed;
    uint64_t seed = 2;
    open_fixture(&f, 2, 3);
    assert_int_equal(pthread_create(&other, NULL, announce_at_random, &f), 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t tokens = 1 + next_random(&seed) % TOKENS;
        expect_read(&f, next_random(&seed) % UNITS, next_random(&seed) % (TOKENS - tokens + 1),
                    tokens);
    }
    assert_int_equal(pthread_join(other, &failed), 0);
    assert_null(failed);
    for (uint64_t u = 0; u < UNITS; u++) wk_loader_announce(f.l, u);
    close_fixture(&f); // while announced units are still being fetched
}
