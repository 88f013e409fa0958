// server/coordinator/store.c: commits are whole, survive every crash, and the file stays small.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_fake.h"
#include "common/limits.h"
#include "server/coordinator/store.h"

static const char *const file_path = "state/store";

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct ps_store *store;
};

static lh_err open_store(struct rig *r)
{
    ps_store_close(r->store);
    r->store = NULL;
    return ps_store_open(r->env, "state", &r->store);
}

static struct rig start(uint64_t seed)
{
    struct rig r = {.world = lh_fake_world_create(seed)};
    r.env = lh_fake_node(r.world, NULL, NULL);
    lh_fake_boot(r.env);
    assert_int_equal(open_store(&r), LH_OK);
    return r;
}

static void finish(struct rig *r)
{
    ps_store_close(r->store);
    lh_fake_world_destroy(r->world);
}

static void crash(struct rig *r, bool power)
{
    if (lh_fake_alive(r->env)) lh_fake_kill(r->env, power);
    ps_store_close(r->store);
    r->store = NULL;
    lh_fake_boot(r->env);
    assert_int_equal(open_store(r), LH_OK);
}

static void put(struct rig *r, const char *key, const char *value)
{
    assert_int_equal(ps_store_put(r->store, key, lh_span_str(value)), LH_OK);
}

static lh_err try_to_commit(struct ps_store *s)
{
    bool begun;
    LH_TRY(ps_store_begin(s, &begun));
    if (!begun) return LH_OK;
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    return err;
}

static void commit(struct rig *r)
{
    assert_int_equal(try_to_commit(r->store), LH_OK);
}

static void drop(struct rig *r, const char *key)
{
    assert_int_equal(ps_store_remove(r->store, key), LH_OK);
}

// `value` NULL: the key is absent.
static bool holds(const struct rig *r, const char *key, const char *value)
{
    struct lh_span got;
    if (!ps_store_get(r->store, key, &got)) return !value;
    return value && lh_span_equal(got, lh_span_str(value));
}

static size_t file_bytes(struct rig *r)
{
    struct lh_buf bytes = lh_buf(1 << 24);
    assert_int_equal(lh_file_load(r->env, file_path, &bytes), LH_OK);
    size_t n = bytes.len;
    lh_buf_free(&bytes);
    return n;
}

// ---------------------------------------------------------------- use

static void what_was_committed_is_there_after_a_reopen(void **state)
{
    (void)state;
    struct rig r = start(1);
    assert_true(holds(&r, "a", NULL));
    put(&r, "a", "one");
    put(&r, "b", "");
    put(&r, "c", "three");
    assert_true(holds(&r, "a", "one")); // before the commit too
    commit(&r);
    put(&r, "a", "another, longer one");
    drop(&r, "c");
    drop(&r, "never put");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "another, longer one"));
    assert_true(holds(&r, "b", ""));
    assert_true(holds(&r, "c", NULL));
    put(&r, "c", "again");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "c", "again"));
    finish(&r);
}

static void what_was_not_committed_is_lost(void **state)
{
    (void)state;
    struct rig r = start(2);
    put(&r, "a", "one");
    commit(&r);
    put(&r, "a", "two");
    put(&r, "b", "new");
    drop(&r, "a");
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "one"));
    assert_true(holds(&r, "b", NULL));
    finish(&r);
}

static void join(void *arg, const char *key, struct lh_span value)
{
    char *out = arg;
    size_t n = strlen(out);
    snprintf(out + n, 200 - n, "%s=%.*s ", key, (int)value.len, (const char *)value.data);
}

static void each_gives_the_keys_of_a_prefix_in_order(void **state)
{
    (void)state;
    struct rig r = start(3);
    put(&r, "shard/2", "y");
    put(&r, "server/1", "s");
    put(&r, "shard/1", "x");
    put(&r, "shard/10", "z");
    put(&r, "shards", "no");
    commit(&r);
    for (int again = 0; again < 2; again++) {
        char all[200] = "", none[200] = "", every[200] = "";
        ps_store_each(r.store, "shard/", join, all);
        assert_string_equal(all, "shard/1=x shard/10=z shard/2=y ");
        ps_store_each(r.store, "t", join, none);
        assert_string_equal(none, "");
        ps_store_each(r.store, "", join, every);
        assert_string_equal(every, "server/1=s shard/1=x shard/10=z shard/2=y shards=no ");
        assert_int_equal(open_store(&r), LH_OK);
    }
    finish(&r);
}

static void the_file_is_rewritten_when_it_has_grown(void **state)
{
    (void)state;
    struct rig r = start(4);
    char value[1001];
    memset(value, 'v', sizeof value - 1);
    value[1000] = 0;
    put(&r, "stays", "here");
    commit(&r);
    size_t most = 0;
    for (int i = 0; i < 300; i++) { // 300 kB of entries for 1 kB of values
        value[0] = (char)('a' + i % 26);
        put(&r, "key", value);
        commit(&r);
        size_t n = file_bytes(&r);
        if (n > most) most = n;
    }
    assert_in_range(most, 60000, 70000); // REWRITE_MIN is 65536
    lh_fake_kill(r.env, true);
    lh_fake_boot(r.env);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "key", value));
    assert_true(holds(&r, "stays", "here"));
    assert_in_range(file_bytes(&r), 1000, 2000);
    finish(&r);
}

// ---------------------------------------------------------------- crashes and damage

static void a_power_cut_takes_nothing_that_was_committed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct rig r = start(seed);
        put(&r, "a", "one");
        put(&r, "b", "two");
        commit(&r);
        drop(&r, "b");
        commit(&r);
        put(&r, "a", "lost");
        crash(&r, true);
        assert_true(holds(&r, "a", "one"));
        assert_true(holds(&r, "b", NULL));
        finish(&r);
    }
}

// Two keys that each commit sets to the same value: no crash shows one without the other.
static void a_crash_inside_a_commit_leaves_it_whole_or_absent(void **state)
{
    (void)state;
    for (int64_t when = 0; when < 12; when++) {
        struct rig r = start((uint64_t)when + 50);
        char value[16];
        int done = 0;
        lh_fake_crash_at(r.env, when, when % 2 == 1);
        for (int i = 1; i <= 4; i++) {
            snprintf(value, sizeof value, "v%d", i);
            put(&r, "left", value);
            put(&r, "right", value);
            if (try_to_commit(r.store)) break;
            done = i;
        }
        crash(&r, true);
        int found = -1;
        for (int i = done; i <= done + 1; i++) {
            snprintf(value, sizeof value, "v%d", i);
            const char *want = i ? value : NULL;
            if (holds(&r, "left", want) && holds(&r, "right", want)) found = i;
        }
        assert_in_range(found, done, done + 1);
        finish(&r);
    }
}

static void the_last_commit_is_cut_where_it_is_torn(void **state)
{
    (void)state;
    struct rig r = start(6);
    put(&r, "a", "one");
    commit(&r);
    size_t first = file_bytes(&r);
    put(&r, "a", "two");
    put(&r, "b", "two");
    commit(&r);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    for (size_t cut = first; cut <= whole.len; cut++) {
        ps_store_close(r.store);
        r.store = NULL;
        assert_int_equal(lh_file_replace(r.env, file_path, lh_span(whole.data, cut)), LH_OK);
        assert_int_equal(open_store(&r), LH_OK);
        bool all = cut == whole.len;
        assert_true(holds(&r, "a", all ? "two" : "one"));
        assert_true(holds(&r, "b", all ? "two" : NULL));
        put(&r, "c", "after"); // goes on behind what was kept
        commit(&r);
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "c", "after"));
        assert_true(holds(&r, "b", all ? "two" : NULL));
    }
    lh_buf_free(&whole);
    finish(&r);
}

static void a_flipped_byte_of_the_last_commit_cuts_it_whole(void **state)
{
    (void)state;
    struct rig r = start(7);
    put(&r, "a", "one");
    commit(&r);
    size_t first = file_bytes(&r);
    put(&r, "a", "two");
    put(&r, "b", "two");
    commit(&r);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    for (size_t at = first; at < whole.len; at++) {
        ps_store_close(r.store);
        r.store = NULL;
        assert_int_equal(lh_file_replace(r.env, file_path, lh_buf_span(&whole)), LH_OK);
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x40), LH_OK);
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "a", "one"));
        assert_true(holds(&r, "b", NULL));
    }
    lh_buf_free(&whole);
    finish(&r);
}

static void write_file(struct rig *r, struct lh_span bytes)
{
    ps_store_close(r->store);
    r->store = NULL;
    assert_int_equal(lh_file_replace(r->env, file_path, bytes), LH_OK);
}

// Refused with the file's name and the place of the damage, and the file is left as it was.
static void refused_at(struct rig *r, struct lh_span bytes, size_t entry)
{
    char place[40];
    struct lh_buf after = lh_buf(1 << 16);
    write_file(r, bytes);
    assert_int_equal(open_store(r), LH_ERR_CORRUPT);
    snprintf(place, sizeof place, "store: damaged at byte %zu,", entry);
    if (!strstr(lh_err_text(LH_ERR_CORRUPT), place))
        fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CORRUPT), place);
    assert_int_equal(lh_file_load(r->env, file_path, &after), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&after), bytes));
    lh_buf_free(&after);
}

// Four commits of two entries each, behind the one of an empty store. Gives where commits end.
static struct lh_buf four_commits(struct rig *r, size_t end[5])
{
    char value[8];
    struct lh_buf whole = lh_buf(1 << 16);
    end[0] = file_bytes(r);
    for (int i = 1; i <= 4; i++) {
        snprintf(value, sizeof value, "v%d", i);
        put(r, "left", value);
        put(r, "right", value);
        commit(r);
        end[i] = file_bytes(r);
    }
    assert_int_equal(lh_file_load(r->env, file_path, &whole), LH_OK);
    return whole;
}

static void a_flipped_byte_below_a_later_commit_is_refused(void **state)
{
    (void)state;
    struct rig r = start(10);
    size_t end[5];
    struct lh_buf whole = four_commits(&r, end);
    assert_int_equal((end[1] - end[0] - 22) % 2, 1); // an end has 22 bytes, "right" one more
    for (size_t at = 8; at < end[3]; at++) {
        size_t k = 0;
        while (at >= end[k]) k++;
        size_t left = k ? end[k - 1] : 8, right = left + (end[k] - left - 22) / 2,
               last = end[k] - 22,
               entry = at >= last         ? last
                       : k && at >= right ? right
                                          : left;
        whole.data[at] ^= 0x40;
        refused_at(&r, lh_buf_span(&whole), entry);
        whole.data[at] ^= 0x40;
    }
    write_file(&r, lh_buf_span(&whole));
    assert_int_equal(open_store(&r), LH_OK); // the copy that the message asks for
    assert_true(holds(&r, "left", "v4"));
    lh_buf_free(&whole);
    finish(&r);
}

// A power cut may leave any pages of the commit that was not synced, also its end alone.
static void a_torn_commit_whose_end_is_there_is_cut(void **state)
{
    (void)state;
    struct rig r = start(11);
    size_t end[5];
    struct lh_buf whole = four_commits(&r, end);
    for (size_t hole = 1; hole <= end[4] - end[3]; hole++) {
        struct lh_buf torn = lh_buf(1 << 16);
        lh_put(&torn, whole.data, end[3]);
        lh_put_zeros(&torn, hole);
        lh_put(&torn, whole.data + end[3] + hole, end[4] - end[3] - hole);
        write_file(&r, lh_buf_span(&torn));
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "left", "v3") && holds(&r, "right", "v3"));
        lh_buf_free(&torn);
    }
    lh_buf_free(&whole);
    finish(&r);
}

static void a_file_without_a_whole_commit_is_refused(void **state)
{
    (void)state;
    struct rig r = start(12);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    for (size_t cut = 8; cut < whole.len; cut++) refused_at(&r, lh_span(whole.data, cut), 8);
    lh_buf_free(&whole);
    finish(&r);
}

static void a_commit_is_not_taken_out_of_the_middle(void **state)
{
    (void)state;
    struct rig r = start(13);
    size_t end[5];
    struct lh_buf whole = four_commits(&r, end), less = lh_buf(1 << 16);
    lh_put(&less, whole.data, end[1]);
    lh_put(&less, whole.data + end[2], end[4] - end[2]);
    write_file(&r, lh_buf_span(&less));
    assert_int_equal(open_store(&r), LH_ERR_CORRUPT);
    lh_buf_free(&whole);
    lh_buf_free(&less);
    finish(&r);
}

static void a_second_process_is_told_and_changes_nothing(void **state)
{
    (void)state;
    struct rig r = start(14);
    struct ps_store *second = NULL;
    put(&r, "a", "one");
    commit(&r);
    struct lh_buf before = lh_buf(1 << 16), after = lh_buf(1 << 16);
    drop(&r, "a"); // so that a rewrite would show
    commit(&r);
    assert_int_equal(lh_file_load(r.env, file_path, &before), LH_OK);
    assert_int_equal(ps_store_open(r.env, "state", &second), LH_ERR_BUSY);
    assert_int_equal(lh_file_load(r.env, file_path, &after), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&before), lh_buf_span(&after)));
    lh_buf_free(&before);
    lh_buf_free(&after);
    put(&r, "b", "two");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK); // its own lock is gone with it
    assert_true(holds(&r, "b", "two") && holds(&r, "a", NULL));
    finish(&r);
}

static void a_file_that_is_no_store_is_refused(void **state)
{
    (void)state;
    struct rig r = start(8);
    for (uint64_t at = 0; at < 6; at++) { // magic and version
        lh_err want = at < 4 ? LH_ERR_CORRUPT : LH_ERR_VERSION;
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x04), LH_OK);
        assert_int_equal(open_store(&r), want);
        assert_non_null(strstr(lh_err_text(want), file_path));
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x04), LH_OK);
    }
    assert_int_equal(open_store(&r), LH_OK);
    finish(&r);
}

static void a_full_disk_is_told_and_the_commit_is_taken_back(void **state)
{
    (void)state;
    struct rig r = start(9);
    put(&r, "a", "one");
    put(&r, "b", "stays");
    commit(&r);
    uint64_t durable = ps_store_durable(r.store);
    assert_int_equal(durable, 2);
    lh_fake_disk_limit(r.env, 1);
    put(&r, "a", "two");
    put(&r, "a", "three");
    drop(&r, "b");
    put(&r, "c", "new");
    assert_true(holds(&r, "a", "three") && holds(&r, "b", NULL) && holds(&r, "c", "new"));
    assert_int_equal(ps_store_changed(r.store), durable + 4);
    assert_int_equal(try_to_commit(r.store), LH_ERR_DISK_FULL);
    assert_true(holds(&r, "a", "one") && holds(&r, "b", "stays") && holds(&r, "c", NULL));
    assert_int_equal(ps_store_changed(r.store), durable);
    lh_fake_disk_limit(r.env, 0);
    put(&r, "c", "later");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "one") && holds(&r, "b", "stays") && holds(&r, "c", "later"));
    finish(&r);
}

// Changes made while a commit is written belong to the next one, and fall with this one.
static void a_commit_has_what_was_put_before_it_began(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct rig r = start(15);
        bool begun;
        put(&r, "a", "one");
        assert_int_equal(ps_store_begin(r.store, &begun), LH_OK);
        assert_true(begun);
        put(&r, "a", "two");
        put(&r, "b", "two");
        if (fails) lh_fake_disk_limit(r.env, 1);
        lh_err err = ps_store_write(r.store);
        assert_int_equal(err, fails ? LH_ERR_DISK_FULL : LH_OK);
        assert_int_equal(ps_store_durable(r.store), 0);
        ps_store_end(r.store, err);
        lh_fake_disk_limit(r.env, 0);
        assert_int_equal(ps_store_durable(r.store), fails ? 0 : 1);
        assert_int_equal(ps_store_changed(r.store), fails ? 0 : 3);
        assert_true(holds(&r, "a", fails ? NULL : "two"));
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "a", fails ? NULL : "one"));
        assert_true(holds(&r, "b", NULL));
        finish(&r);
    }
}

// The disk takes the whole of a commit and says only at the sync that it has no room for it, as
// some file systems do. A shorter one follows in its place, and its end is torn off.
static void what_a_failed_commit_left_is_not_read_as_part_of_the_next(void **state)
{
    (void)state;
    struct rig r = start(16);
    put(&r, "a", "one");
    commit(&r);
    put(&r, "a", "two");
    put(&r, "b", "two");
    lh_fake_fail_at(r.env, 1, LH_ERR_DISK_FULL); // the write is done, the sync is not
    assert_int_equal(try_to_commit(r.store), LH_ERR_DISK_FULL);
    assert_true(lh_fake_failed(r.env));
    size_t before = file_bytes(&r);
    put(&r, "a", "six"); // as long as what failed
    commit(&r);
    assert_true(file_bytes(&r) < before);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    write_file(&r, lh_span(whole.data, whole.len - 22)); // all but its end
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "one") && holds(&r, "b", NULL));
    lh_buf_free(&whole);
    finish(&r);
}

static void a_full_disk_does_not_keep_a_store_from_being_opened(void **state)
{
    (void)state;
    struct rig r = start(17);
    put(&r, "a", "one");
    commit(&r);
    size_t durable = file_bytes(&r);
    put(&r, "a", "two");
    lh_fake_crash_at(r.env, 1, false); // written, not synced
    assert_int_equal(try_to_commit(r.store), LH_ERR_KILLED);
    lh_fake_disk_limit(r.env, 1);
    crash(&r, false);
    lh_fake_disk_limit(r.env, 0);
    bool two = holds(&r, "a", "two");
    assert_true(two || holds(&r, "a", "one"));
    assert_in_range(file_bytes(&r), durable, durable + (two ? 1000 : 0));
    crash(&r, true); // it made durable what it found
    assert_true(holds(&r, "a", two ? "two" : "one"));
    put(&r, "b", "after");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "b", "after"));
    finish(&r);
}

// The commit is durable all the same; the file is rewritten once it has grown further.
static void a_rewrite_that_finds_no_room_is_put_off(void **state)
{
    (void)state;
    struct rig r = start(18);
    char value[1001] = {0}, large[15001] = {0}; // a rewritten file has room for the large one
    size_t before = 0, most = 0;
    memset(value, 'v', sizeof value - 1);
    memset(large, 'w', sizeof large - 1);
    put(&r, "large", large);
    for (int i = 0; i < 155; i++) {
        put(&r, "key", value);
        commit(&r);
        size_t n = file_bytes(&r);
        if (i == 45) before = n;
        if (i == 45) lh_fake_disk_limit(r.env, lh_fake_disk_used(r.env) + 10100); // ten more
        if (i == 54) assert_true(n > before);
        if (i == 54) lh_fake_disk_limit(r.env, 0);
        if (n > most) most = n;
    }
    assert_in_range(most, 2 * before, 3 * before);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "key", value) && holds(&r, "large", large));
    finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_there_after_a_reopen),
        cmocka_unit_test(what_was_not_committed_is_lost),
        cmocka_unit_test(each_gives_the_keys_of_a_prefix_in_order),
        cmocka_unit_test(the_file_is_rewritten_when_it_has_grown),
        cmocka_unit_test(a_power_cut_takes_nothing_that_was_committed),
        cmocka_unit_test(a_crash_inside_a_commit_leaves_it_whole_or_absent),
        cmocka_unit_test(the_last_commit_is_cut_where_it_is_torn),
        cmocka_unit_test(a_flipped_byte_of_the_last_commit_cuts_it_whole),
        cmocka_unit_test(a_flipped_byte_below_a_later_commit_is_refused),
        cmocka_unit_test(a_torn_commit_whose_end_is_there_is_cut),
        cmocka_unit_test(a_file_without_a_whole_commit_is_refused),
        cmocka_unit_test(a_commit_is_not_taken_out_of_the_middle),
        cmocka_unit_test(a_second_process_is_told_and_changes_nothing),
        cmocka_unit_test(a_file_that_is_no_store_is_refused),
        cmocka_unit_test(a_full_disk_is_told_and_the_commit_is_taken_back),
        cmocka_unit_test(a_commit_has_what_was_put_before_it_began),
        cmocka_unit_test(what_a_failed_commit_left_is_not_read_as_part_of_the_next),
        cmocka_unit_test(a_full_disk_does_not_keep_a_store_from_being_opened),
        cmocka_unit_test(a_rewrite_that_finds_no_room_is_put_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
