// server/coordinator/store/rows.c: a table of rows agrees with a plain list, in order too, while it
// grows and shrinks; and a walk visits every row that stays.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/store/rows.h"
#include "tests/test.h"

enum { NAMES = 6000 };

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void name_of(char out[40], uint64_t i)
{
    unsigned long long n = i / 4 * 7919;
    if (i % 4 == 0) snprintf(out, 40, "lease/%010llu", n);
    if (i % 4 == 1) snprintf(out, 40, "member/%016llx", n);
    if (i % 4 == 2) snprintf(out, 40, "plan%llu", n);
    if (i % 4 == 3) snprintf(out, 40, "x/y/%llu", n);
}

// A value longer than those that the table swaps in place repeats the number.
enum { LONG_BYTES = 72 };

static struct lh_span value_of(uint64_t value, unsigned bytes)
{
    static uint64_t v[LONG_BYTES / 8];
    for (size_t i = 0; i < LONG_BYTES / 8; i++) v[i] = value;
    return lh_span(v, bytes);
}

static void put(struct ps_rows *t, const char *key, uint64_t value, unsigned bytes)
{
    struct ps_row *row;
    assert_int_equal(ps_rows_make(t, key, value_of(value, bytes), &row), LH_OK);
    free(ps_rows_put(t, row));
}

static bool holds(const struct ps_rows *t, const char *key, uint64_t value, unsigned bytes)
{
    const struct ps_row *row = ps_rows_find(t, key);
    return row && lh_span_equal(ps_row_value(row), value_of(value, bytes));
}

struct seen {
    char last[40];
    uint64_t count;
};

static void in_order(void *arg, const char *key, struct lh_span value)
{
    struct seen *s = arg;
    (void)value;
    assert_true(!s->count || strcmp(s->last, key) < 0);
    snprintf(s->last, sizeof s->last, "%s", key);
    s->count++;
}

TEST(a_table_is_a_list)
{
    static struct {
        uint64_t value;
        unsigned bytes; // 0: absent
    } is[NAMES];
    uint64_t seed = 5, there = 0;
    struct ps_rows *t = ps_rows_create(0);
    assert_non_null(t);
    for (int step = 0; step < 60000; step++) {
        uint64_t i = draw(&seed) % NAMES;
        char key[40];
        name_of(key, i);
        if (draw(&seed) % 3) {
            there += !is[i].bytes;
            is[i].value = draw(&seed);
            const unsigned bytes[] = {4, 8, LONG_BYTES}; // the same length as before, or another
            is[i].bytes = bytes[draw(&seed) % 3];
            put(t, key, is[i].value, is[i].bytes);
        } else {
            struct ps_row *was = ps_rows_take(t, key);
            assert_int_equal(was != NULL, is[i].bytes != 0);
            there -= was != NULL;
            is[i].bytes = 0;
            free(was);
        }
        assert_int_equal(ps_rows_count(t), there);
    }
    struct seen all = {0}, leases = {0}, none = {0};
    for (uint64_t i = 0, n = 0; i < NAMES; i++) {
        char key[40];
        name_of(key, i);
        if (!is[i].bytes) assert_null(ps_rows_find(t, key));
        if (is[i].bytes) assert_true(holds(t, key, is[i].value, is[i].bytes));
        n += is[i].bytes && i % 4 == 0;
        if (i == NAMES - 1) {
            assert_int_equal(ps_rows_each(t, "lease/", in_order, &leases), LH_OK);
            assert_int_equal(leases.count, n);
        }
    }
    assert_int_equal(ps_rows_each(t, "", in_order, &all), LH_OK);
    assert_int_equal(all.count, there);
    assert_int_equal(ps_rows_each(t, "lease/9999999999", in_order, &none), LH_OK);
    assert_int_equal(none.count, 0);
    ps_rows_destroy(t);
}

TEST(a_walk_meets_every_row_that_stays)
{
    enum { ROWS = 3000 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static bool stays[ROWS], met[ROWS];
        uint64_t s = seed;
        struct ps_rows *t = ps_rows_create(0);
        memset(met, 0, sizeof met);
        for (uint64_t i = 0; i < ROWS; i++) {
            char key[40];
            name_of(key, i);
            put(t, key, i, 8);
            stays[i] = true;
        }
        struct ps_rows_walk w = ps_rows_walk(t);
        const struct ps_row *row;
        for (uint64_t more = ROWS; (row = ps_rows_next(t, &w));) {
            char key[40];
            uint64_t i;
            memcpy(&i, ps_row_value(row).data, sizeof i);
            if (i < ROWS) met[i] = true;
            uint64_t gone = draw(&s) % ROWS;
            if (draw(&s) % 2) {
                name_of(key, gone);
                free(ps_rows_take(t, key));
                stays[gone] = false;
            } else {
                name_of(key, more);
                put(t, key, more++, 8);
            }
            assert_true(more < 3 * ROWS); // the walk ends
        }
        for (uint64_t i = 0; i < ROWS; i++) assert_true(met[i] || !stays[i]);
        ps_rows_destroy(t);
    }
}

// A row of leases covers 64 units. When the hash followed the number, 63 of 64 chains were empty,
// and each look-up walked past 64 rows.
TEST(rows_of_ranges_have_short_chains)
{
    struct ps_rows *t = ps_rows_create(0);
    char key[40];
    unsigned longest = 0;
    assert_non_null(t);
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(key, sizeof key, "lease/%010u", 64 * i);
        put(t, key, i, sizeof(uint64_t));
    }
    for (unsigned i = 0; i < NAMES; i++) {
        unsigned n = 0;
        snprintf(key, sizeof key, "lease/%010u", 64 * i);
        for (const struct ps_row *row = ps_rows_find(t, key); row; row = row->behind) n++;
        if (n > longest) longest = n;
    }
    assert_in_range(longest, 1, 8);
    ps_rows_destroy(t);
}
