// server/coordinator/store/store.c: commits survive a reopen, the file stays small, and a full disk
// is reported.
#include <stdio.h>
#include <string.h>

#include "tests/unit/server/coordinator/store_rig.h"

// ---------------------------------------------------------------- use

TEST(committed_rows_survive_a_reopen)
{
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

TEST(uncommitted_rows_are_lost)
{
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

TEST(each_gives_the_keys_of_a_prefix_in_order)
{
    struct rig r = start(3);
    put(&r, "shard/2", "y");
    put(&r, "server/1", "s");
    put(&r, "shard/1", "x");
    put(&r, "shard/10", "z");
    put(&r, "shards", "no");
    commit(&r);
    for (int again = 0; again < 2; again++) {
        char all[200] = "", none[200] = "", every[200] = "";
        assert_int_equal(ps_store_each(r.store, "shard/", join, all), LH_OK);
        assert_string_equal(all, "shard/1=x shard/10=z shard/2=y ");
        assert_int_equal(ps_store_each(r.store, "t", join, none), LH_OK);
        assert_string_equal(none, "");
        assert_int_equal(ps_store_each(r.store, "", join, every), LH_OK);
        assert_string_equal(every, "server/1=s shard/1=x shard/10=z shard/2=y shards=no ");
        assert_int_equal(open_store(&r), LH_OK);
    }
    finish(&r);
}

TEST(the_file_is_rewritten_when_it_has_grown)
{
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
    assert_in_range(most, 60000, 70000); // COPY_MIN is 65536
    lh_fake_kill(r.env, true);
    lh_fake_boot(r.env);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "key", value));
    assert_true(holds(&r, "stays", "here"));
    assert_true(file_bytes(&r) < 70000);
    finish(&r);
}

TEST(a_file_of_just_the_least_size_is_rewritten)
{
    enum { LEAST = 1 << 16, VALUE = 1000 };
    for (size_t less = 0; less < 2; less++) {
        struct rig r = start(5);
        static char value[8 * VALUE];
        memset(value, 'v', sizeof value);
        size_t n = file_bytes(&r), more = 0;
        while (LEAST - less - n > 4 * VALUE) {
            assert_int_equal(ps_store_put(r.store, "key", lh_span(value, VALUE)), LH_OK);
            commit(&r);
            more = file_bytes(&r) - n;
            n += more;
        }
        size_t rest = LEAST - less - n - (more - VALUE);
        assert_int_equal(ps_store_put(r.store, "key", lh_span(value, rest)), LH_OK);
        commit(&r);
        assert_int_equal(file_bytes(&r), LEAST - less);
        put(&r, "key", "one");
        commit(&r);
        assert_int_equal(file_bytes(&r) < LEAST - less, !less);
        finish(&r);
    }
}

TEST(a_full_disk_is_told_and_the_commit_is_taken_back)
{
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

// A change made while a commit is being written belongs to the next one. If the write fails, that
// change is lost with the commit.
TEST(a_commit_has_what_was_put_before_it_began)
{
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

TEST(a_full_disk_does_not_keep_a_store_from_being_opened)
{
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
    crash(&r, true); // the start has made durable whatever it read
    assert_true(holds(&r, "a", two ? "two" : "one"));
    put(&r, "b", "after");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "b", "after"));
    finish(&r);
}

// The commit is durable even though the rewrite fails; the file is rewritten after it has grown
// further.
TEST(a_rewrite_that_finds_no_room_is_put_off)
{
    struct rig r = start(18);
    char value[1001] = {0}, large[15001] = {0}; // a rewritten file has space for the large value
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
