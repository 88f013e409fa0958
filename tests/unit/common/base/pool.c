// The pool of large blobs reuses released blobs within its bounds; a blob may outlive the pool.
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/pool.h"
#include "tests/test.h"

enum { MIB = 1 << 20 };

TEST(released_memory_is_given_again)
{
    struct lh_pool *p = lh_pool_create(8 * MIB);
    struct lh_blob *a = lh_pool_blob(p, 3 * MIB + 5), *first = a;
    assert_int_equal(a->len, 3 * MIB + 5);
    struct lh_blob *other = lh_blob_share(a);
    lh_blob_release(a);
    struct lh_blob *b = lh_pool_blob(p, 3 * MIB);
    assert_ptr_not_equal(b, first); // still referenced by `other`
    lh_blob_release(other);
    struct lh_blob *c = lh_pool_blob(p, 4 * MIB); // another length, same capacity
    assert_ptr_equal(c, first);
    assert_int_equal(c->len, 4 * MIB);
    lh_blob_release(b);
    lh_blob_release(c);
    lh_pool_destroy(p);
}

TEST(a_much_smaller_blob_takes_no_large_one)
{
    struct lh_pool *p = lh_pool_create(64 * MIB);
    struct lh_blob *large = lh_pool_blob(p, 32 * MIB), *first = large;
    lh_blob_release(large);
    struct lh_blob *small = lh_pool_blob(p, 2 * MIB);
    assert_ptr_not_equal(small, first);
    struct lh_blob *again = lh_pool_blob(p, 32 * MIB);
    assert_ptr_equal(again, first);
    lh_blob_release(small);
    lh_blob_release(again);
    lh_pool_destroy(p);
}

TEST(kept_blobs_have_a_byte_limit)
{
    struct lh_pool *p = lh_pool_create(8 * MIB);
    struct lh_blob *out[4];
    for (size_t i = 0; i < 4; i++) out[i] = lh_pool_blob(p, 4 * MIB); // never refused
    assert_int_equal(lh_pool_bytes(p), 16 * MIB);
    for (size_t i = 0; i < 4; i++) lh_blob_release(out[i]);
    assert_int_equal(lh_pool_bytes(p), 8 * MIB); // the other two were freed on release
    // neither kept blob is large enough, and the bound allows no third one: both are freed
    struct lh_blob *b = lh_pool_blob(p, 7 * MIB);
    assert_int_equal(lh_pool_bytes(p), 7 * MIB);
    lh_blob_release(b);
    assert_int_equal(lh_pool_bytes(p), 7 * MIB);
    lh_pool_keep(p, 7 * MIB);
    assert_int_equal(lh_pool_bytes(p), 7 * MIB);
    lh_pool_keep(p, 7 * MIB - 1);
    assert_int_equal(lh_pool_bytes(p), 0);
    lh_pool_keep(p, 8 * MIB);
    lh_blob_release(lh_pool_blob(p, 7 * MIB));
    assert_int_equal(lh_pool_bytes(p), 7 * MIB);
    lh_pool_trim(p);
    assert_int_equal(lh_pool_bytes(p), 0);
    lh_pool_destroy(p);
}

// When small blobs fill every place of the pool, a released large one still displaces one of them.
TEST(small_ones_give_way_to_a_large_one)
{
    struct lh_pool *p = lh_pool_create(64 * MIB);
    struct lh_blob *small[32], *large = lh_pool_blob(p, 32 * MIB), *first = large;
    for (size_t i = 0; i < 32; i++) small[i] = lh_pool_blob(p, MIB);
    for (size_t i = 0; i < 32; i++) lh_blob_release(small[i]);
    size_t places = lh_pool_bytes(p) / MIB - 32;
    assert_in_range(places, 2, 31); // otherwise 32 of them do not fill the pool
    lh_blob_release(large);
    assert_int_equal(lh_pool_bytes(p), (32 + places - 1) * MIB);
    large = lh_pool_blob(p, 32 * MIB);
    assert_ptr_equal(large, first);
    // With `over` the pool would exceed its bound.
    struct lh_blob *over = lh_pool_blob(p, 33 * MIB), *kept = over;
    lh_blob_release(large);
    lh_blob_release(over);
    assert_int_equal(lh_pool_bytes(p), kept->cap);
    lh_pool_destroy(p);
}

TEST(small_ones_are_not_the_pools)
{
    struct lh_pool *p = lh_pool_create(8 * MIB);
    struct lh_blob *b = lh_pool_blob(p, MIB - 1);
    assert_int_equal(lh_pool_bytes(p), 0);
    lh_pool_destroy(p);
    lh_blob_release(b);
}

// Run under ASan, which reports a use after free and a leak.
TEST(a_blob_may_outlive_its_pool)
{
    struct lh_pool *p = lh_pool_create(MIB);
    struct lh_blob *out = lh_pool_blob(p, 2 * MIB), *over = lh_pool_blob(p, 3 * MIB);
    lh_blob_release(over); // larger than the bound: freed at once
    lh_pool_destroy(p);
    out->data[2 * MIB - 1] = 1;
    lh_blob_release(out);
}

static size_t resident(void *page, size_t bytes)
{
    unsigned char there[16 * MIB / 4096] = {0};
    size_t n = 0;
    assert_int_equal(mincore(page, bytes, there), 0);
    for (size_t i = 0; i < bytes / 4096; i++) n += there[i] & 1;
    return n;
}

TEST(populated_memory_is_there_and_keeps_what_it_held)
{
    uint8_t *p = lh_zeros(16 * MIB, 1), *page = p + (4096 - (uintptr_t)p % 4096) % 4096;
    assert_non_null(p);
    page[5 * MIB] = 7;
    assert_true(resident(page, 15 * MIB) < 15 * MIB / 4096);
    assert_true(lh_populate(p, 16 * MIB));
    assert_int_equal(resident(page, 15 * MIB), 15 * MIB / 4096);
    assert_int_equal(page[5 * MIB], 7);
    assert_int_equal(page[6 * MIB], 0);
    assert_true(lh_populate(NULL, MIB));
    free(p);
}

// This alignment lets a log write them without a copy (server/wal/wal.c).
TEST(large_ones_lie_as_a_logs_first_body)
{
    struct lh_pool *p = lh_pool_create(64 * MIB);
    for (size_t len = MIB; len <= 40 * MIB; len += 13 * MIB + 5) {
        struct lh_blob *a = lh_pool_blob(p, len), *b = lh_blob_new(len);
        assert_true(a && b);
        assert_int_equal((uintptr_t)a->data % LH_BLOCK, LH_BLOB_PHASE);
        assert_int_equal((uintptr_t)b->data % LH_BLOCK, LH_BLOB_PHASE);
        a->data[len - 1] = b->data[len - 1] = 1; // writable to the end
        lh_blob_release(a);
        lh_blob_release(b);
    }
    lh_pool_destroy(p);
    assert_null(lh_blob_new(SIZE_MAX - 8));
}
