// server/coordinator/store/store.c: commits are atomic and survive every crash; a damaged file is
// refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/server/coordinator/store_rig.h"

// ---------------------------------------------------------------- crashes and damage

TEST(a_power_cut_takes_nothing_that_was_committed)
{
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

// Each commit sets two keys to the same value: no crash shows one without the other.
TEST(a_crash_inside_a_commit_leaves_it_whole_or_absent)
{
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

// Makes two commits: a = one; then a = two, b = two. Returns the file's size after the first one.
static size_t two_commits(struct rig *r, struct lh_buf *whole)
{
    put(r, "a", "one");
    commit(r);
    size_t first = file_bytes(r);
    put(r, "a", "two");
    put(r, "b", "two");
    commit(r);
    assert_int_equal(lh_file_load(r->env, file_path, whole), LH_OK);
    return first;
}

// Replaces the file by these bytes while no store is open.
static void lay_down(struct rig *r, struct lh_span bytes)
{
    ps_store_close(r->store);
    r->store = NULL;
    assert_int_equal(lh_file_replace(r->env, file_path, bytes), LH_OK);
}

TEST(the_last_commit_is_cut_where_it_is_torn)
{
    struct rig r = start(6);
    struct lh_buf whole = lh_buf(1 << 16);
    size_t first = two_commits(&r, &whole);
    for (size_t cut = first; cut <= whole.len; cut++) {
        lay_down(&r, lh_span(whole.data, cut));
        assert_int_equal(open_store(&r), LH_OK);
        bool all = cut == whole.len;
        assert_true(holds(&r, "a", all ? "two" : "one"));
        assert_true(holds(&r, "b", all ? "two" : NULL));
        put(&r, "c", "after"); // appends behind what was kept
        commit(&r);
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "c", "after"));
        assert_true(holds(&r, "b", all ? "two" : NULL));
    }
    lh_buf_free(&whole);
    finish(&r);
}

TEST(a_flipped_byte_of_the_last_commit_cuts_it_whole)
{
    struct rig r = start(7);
    struct lh_buf whole = lh_buf(1 << 16);
    size_t first = two_commits(&r, &whole);
    for (size_t at = first; at < whole.len; at++) {
        lay_down(&r, lh_buf_span(&whole));
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x40), LH_OK);
        assert_int_equal(open_store(&r), LH_OK);
        assert_true(holds(&r, "a", "one"));
        assert_true(holds(&r, "b", NULL));
    }
    lh_buf_free(&whole);
    finish(&r);
}

// A mark behind the last commit says that this commit is durable and may have been answered, so
// damage in it is refused. Damage of the mark itself loses nothing.
TEST(a_flipped_byte_of_the_last_commit_is_refused_under_a_mark)
{
    for (int closed = 0; closed < 2; closed++) { // 0: an empty commit marks; 1: a stop does
        struct rig r = start(19);
        struct lh_buf whole = lh_buf(1 << 16);
        size_t first = two_commits(&r, &whole), last = whole.len;
        if (!closed) commit(&r);
        ps_store_close(r.store);
        r.store = NULL;
        assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
        assert_true(whole.len > last);
        for (size_t at = first; at < whole.len; at++)
            for (int bit = 0; bit < 8; bit++) {
                lay_down(&r, lh_buf_span(&whole));
                assert_int_equal(lh_fake_flip(r.env, file_path, at, (uint8_t)(1 << bit)), LH_OK);
                lh_err err = open_store(&r);
                assert_int_equal(err, at < last ? LH_ERR_CORRUPT : LH_OK);
                if (err) continue;
                assert_true(holds(&r, "a", "two") && holds(&r, "b", "two"));
            }
        lh_buf_free(&whole);
        finish(&r);
    }
}

TEST(a_mark_is_written_once)
{
    struct rig r = start(20);
    put(&r, "a", "one");
    commit(&r);
    commit(&r);
    size_t marked = file_bytes(&r);
    bool begun;
    assert_int_equal(ps_store_begin(r.store, &begun), LH_OK);
    assert_false(begun);
    assert_int_equal(open_store(&r), LH_OK);
    assert_int_equal(file_bytes(&r), marked);
    lh_fake_disk_limit(r.env, 1);
    put(&r, "a", "two");
    assert_int_equal(try_to_commit(r.store), LH_ERR_DISK_FULL);
    lh_fake_disk_limit(r.env, 0);
    put(&r, "a", "six");
    commit(&r);
    lh_fake_disk_limit(r.env, 1);
    commit(&r); // a mark that finds no space is put off
    assert_int_equal(ps_store_begin(r.store, &begun), LH_OK);
    assert_false(begun);
    lh_fake_disk_limit(r.env, 0);
    put(&r, "b", "two");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "six") && holds(&r, "b", "two"));
    finish(&r);
}

static void write_file(struct rig *r, struct lh_span bytes)
{
    ps_store_close(r->store);
    r->store = NULL;
    assert_int_equal(lh_file_replace(r->env, file_path, bytes), LH_OK);
}

// The start refuses the file, names it and the place of the damage, and leaves the file as it was.
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

// Makes four commits of two entries each, behind the one of an empty store. Gives the end of each
// commit.
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

TEST(a_flipped_byte_below_a_later_commit_is_refused)
{
    struct rig r = start(10);
    size_t end[5];
    struct lh_buf whole = four_commits(&r, end);
    enum { HEAD = 28, LEFT = 24, RIGHT = 25 };
    assert_int_equal(end[1] - end[0], HEAD + LEFT + RIGHT);
    for (size_t at = 8; at < end[3]; at++) {
        size_t k = 0;
        while (at >= end[k]) k++;
        size_t head = k ? end[k - 1] : 8, left = head + HEAD, right = left + LEFT,
               entry = at < left    ? head
                       : at < right ? left
                                    : right;
        whole.data[at] ^= 0x40;
        refused_at(&r, lh_buf_span(&whole), entry);
        whole.data[at] ^= 0x40;
    }
    write_file(&r, lh_buf_span(&whole));
    assert_int_equal(open_store(&r), LH_OK); // restoring a copy, as the message asks
    assert_true(holds(&r, "left", "v4"));
    lh_buf_free(&whole);
    finish(&r);
}

// A power cut may keep any pages of a commit that was not synced, even its last ones alone.
TEST(a_torn_commit_with_its_end_on_disk_is_cut)
{
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

TEST(a_file_without_a_whole_commit_is_refused)
{
    struct rig r = start(12);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    for (size_t cut = 8; cut < whole.len; cut++) refused_at(&r, lh_span(whole.data, cut), 8);
    lh_buf_free(&whole);
    finish(&r);
}

TEST(a_commit_is_not_taken_out_of_the_middle)
{
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

TEST(a_second_process_is_told_and_changes_nothing)
{
    struct rig r = start(14);
    struct ps_store *second = NULL;
    put(&r, "a", "one");
    commit(&r);
    struct lh_buf before = lh_buf(1 << 16), after = lh_buf(1 << 16);
    drop(&r, "a"); // would be seen if the file were rewritten
    commit(&r);
    assert_int_equal(lh_file_load(r.env, file_path, &before), LH_OK);
    assert_int_equal(ps_store_open(r.env, "state", &second), LH_ERR_BUSY);
    assert_int_equal(lh_file_load(r.env, file_path, &after), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&before), lh_buf_span(&after)));
    lh_buf_free(&before);
    lh_buf_free(&after);
    put(&r, "b", "two");
    commit(&r);
    assert_int_equal(open_store(&r), LH_OK); // closing the store releases its lock
    assert_true(holds(&r, "b", "two") && holds(&r, "a", NULL));
    finish(&r);
}

TEST(a_file_that_is_no_store_is_refused)
{
    struct rig r = start(8);
    for (uint64_t at = 0; at < 6; at++) { // the bytes of magic and version
        lh_err want = at < 4 ? LH_ERR_CORRUPT : LH_ERR_VERSION;
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x04), LH_OK);
        assert_int_equal(open_store(&r), want);
        assert_non_null(strstr(lh_err_text(want), file_path));
        assert_int_equal(lh_fake_flip(r.env, file_path, at, 0x04), LH_OK);
    }
    assert_int_equal(open_store(&r), LH_OK);
    finish(&r);
}

// The disk takes a whole commit and reports only at the sync that it is full, as some file systems
// do. A shorter commit follows in its place, and its end is torn off.
TEST(a_failed_commits_rest_is_no_part_of_the_next)
{
    struct rig r = start(16);
    put(&r, "a", "one");
    commit(&r);
    put(&r, "a", "two");
    put(&r, "b", "two");
    lh_fake_fail_at(r.env, 1, LH_ERR_DISK_FULL); // the write is done, the sync is not
    assert_int_equal(try_to_commit(r.store), LH_ERR_DISK_FULL);
    assert_true(lh_fake_failed(r.env));
    size_t before = file_bytes(&r);
    put(&r, "a", "six"); // as long as the failed value
    commit(&r);
    assert_true(file_bytes(&r) < before);
    struct lh_buf whole = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(r.env, file_path, &whole), LH_OK);
    write_file(&r, lh_span(whole.data, whole.len - 22)); // the last commit without its end
    assert_int_equal(open_store(&r), LH_OK);
    assert_true(holds(&r, "a", "one") && holds(&r, "b", NULL));
    lh_buf_free(&whole);
    finish(&r);
}

// Writes the file's current bytes to the disk, as a kernel may do by itself.
static void write_back(struct rig *r)
{
    const struct lh_files_ops *files = r->env->ops->files;
    struct lh_buf held = lh_buf(1 << 16);
    struct lh_file *file;
    assert_int_equal(lh_file_load(r->env, file_path, &held), LH_OK);
    assert_int_equal(files->open(r->env, file_path, LH_OPEN_WRITE, &file), LH_OK);
    assert_int_equal(files->write(file, 0, lh_buf_span(&held)), LH_OK);
    assert_int_equal(files->sync(file), LH_OK);
    files->close(file);
    lh_buf_free(&held);
}

// As above, but the power fails at any operation of the shorter commit. Then perhaps only the
// commit's first sector is on the disk, and the file's new length is not. The rest of the failed
// commit must be gone before that.
TEST(a_failed_commits_rest_never_follows_the_next_after_a_power_cut)
{
    // SECTOR is that of the fake disk; ENTRY is an entry's size without its value.
    enum { SECTOR = 512, ENTRY = 15 };
    static char two[SECTOR], six[SECTOR];
    memset(two, '2', SECTOR - ENTRY);
    memset(six, '6', SECTOR - ENTRY);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct rig r = start(seed);
        put(&r, "a", "one");
        commit(&r);
        put(&r, "a", two);
        put(&r, "b", "two");
        lh_fake_fail_at(r.env, 1, LH_ERR_DISK_FULL); // the write is done, the sync is not
        assert_int_equal(try_to_commit(r.store), LH_ERR_DISK_FULL);
        write_back(&r);    // its bytes reach the disk nevertheless
        put(&r, "a", six); // one sector, as the failed commit's first entry
        lh_fake_crash_at(r.env, (int64_t)(seed % 5), true);
        bool done = !try_to_commit(r.store);
        crash(&r, true);
        bool alone = holds(&r, "b", NULL), failed = holds(&r, "a", two) && holds(&r, "b", "two");
        assert_true((alone && holds(&r, "a", six)) ||
                    (!done && (failed || (alone && holds(&r, "a", "one")))));
        finish(&r);
    }
}

// The sync of a commit failed, so its bytes are in the page cache alone, marked as clean, and the
// next start reads them there. The store may report them only once they are on the disk.
TEST(a_commit_that_a_start_takes_up_is_on_the_disk)
{
    struct rig r = start(21);
    struct lh_buf held = lh_buf(1 << 16);
    struct lh_span durable;
    put(&r, "a", "one");
    lh_fake_fail_at(r.env, 1, LH_ERR_IO);
    assert_int_equal(try_to_commit(r.store), LH_ERR_IO);
    assert_true(lh_fake_failed(r.env));
    crash(&r, false);
    assert_true(holds(&r, "a", "one"));
    assert_int_equal(lh_file_load(r.env, file_path, &held), LH_OK);
    assert_true(lh_fake_durable(r.env, file_path, &durable));
    assert_true(lh_span_equal(durable, lh_buf_span(&held)));
    lh_buf_free(&held);
    finish(&r);
}

// Commits cycle through the keys, so that the file is replaced again and again, in parts. The
// process dies at any operation of that.
TEST(a_crash_while_the_file_is_replaced_loses_nothing)
{
    enum { KEYS = 60, WIDTH = 12000, COMMITS = 400 };
    static char value[WIDTH + 1];
    memset(value, 'v', WIDTH);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rig r = start(seed);
        int is[KEYS] = {0}, next[KEYS]; // 0: absent; else the commit that put it
        lh_fake_crash_at(r.env, (int64_t)(seed * 16), seed % 2);
        for (int i = 1; i <= COMMITS; i++) {
            memcpy(next, is, sizeof is);
            for (int k = 0; k < 3; k++) {
                char key[16];
                int n = (i * 7 + k * 13) % KEYS;
                snprintf(key, sizeof key, "k/%d", n);
                snprintf(value, sizeof value, "%d.", i);
                value[strlen(value)] = 'v';
                value[i % 2 ? WIDTH : WIDTH - 1] = 0;
                next[n] = (i + k) % 11 ? i : 0;
                if (next[n]) put(&r, key, value);
                if (!next[n]) drop(&r, key);
                value[WIDTH - 1] = 'v';
            }
            if (try_to_commit(r.store)) break;
            memcpy(is, next, sizeof is);
            if (i % 5 == 0 && try_to_commit(r.store)) break; // a mark
        }
        crash(&r, seed % 2);
        bool old = true, new = true;
        for (int n = 0; n < KEYS; n++) {
            char key[16];
            struct lh_span got = {0};
            snprintf(key, sizeof key, "k/%d", n);
            int found = ps_store_get(r.store, key, &got)
                            ? (int)strtol((const char *)got.data, NULL, 10)
                            : 0;
            old &= found == is[n];
            new &= found == next[n];
        }
        assert_true(old || new);
        finish(&r);
    }
}
