// The outbox: what was kept is there after any crash, what was durably dropped is not, a damaged
// file is told of and left out, and memory has only the frames that are not settled.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/env_fake.h"
#include "tests/unit/frame_case.h"
#include "worker/outbox.h"

enum { BOXES_SHARD = 3 };

struct machine {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct wk_outbox box;
    int bad;
    char bad_file[64];
    lh_err bad_err;
};

static int make_machine(void **state)
{
    struct machine *m = calloc(1, sizeof *m);
    if (!m) return -1;
    m->world = lh_fake_world_create(11);
    m->env = lh_fake_node(m->world, NULL, NULL);
    lh_fake_boot(m->env);
    m->box = (struct wk_outbox){.env = m->env, .dir = "outbox", .shard = BOXES_SHARD};
    *state = m;
    return 0;
}

static int free_machine(void **state)
{
    struct machine *m = *state;
    wk_outbox_free(&m->box);
    lh_fake_world_destroy(m->world);
    free(m);
    return 0;
}

static lh_err keep(struct machine *m, uint64_t incarnation, uint64_t step, struct wk_entry **out)
{
    struct lh_frame f = case_frame();
    f.shard = BOXES_SHARD;
    f.incarnation.number = incarnation;
    f.step = step;
    struct lh_buf b = case_bytes(&f);
    struct lh_blob *frame = lh_blob_copy(lh_buf_span(&b));
    assert_non_null(frame);
    lh_err err = wk_outbox_write(&m->box, frame, out);
    if (!err) wk_outbox_insert(&m->box, *out);
    lh_blob_release(frame);
    lh_buf_free(&b);
    return err;
}

static void note_bad(void *arg, const char *file, lh_err e)
{
    struct machine *m = arg;
    m->bad++;
    m->bad_err = e;
    snprintf(m->bad_file, sizeof m->bad_file, "%s", file);
}

// What a fresh process finds after a kill or a power cut.
static void restart(struct machine *m, bool power)
{
    wk_outbox_free(&m->box);
    lh_fake_kill(m->env, power);
    lh_fake_boot(m->env);
    m->bad = 0;
    assert_int_equal(wk_outbox_load(&m->box, note_bad, m), LH_OK);
}

// Its bytes are there, wherever they are; memory has as much of them afterwards as before.
static void assert_entry(struct machine *m, struct wk_entry *e, uint64_t incarnation, uint64_t step)
{
    struct lh_blob *frame;
    assert_non_null(e);
    assert_int_equal(e->head.incarnation.number, incarnation);
    assert_int_equal(e->head.step, step);
    assert_int_equal(e->status, WK_UNDECIDED);
    bool held = e->frame != NULL;
    if (!held) e->status = WK_ADMITTED; // so that it is read, and not kept
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_OK);
    e->status = WK_UNDECIDED;
    assert_int_equal(e->frame != NULL, held);
    assert_int_equal(frame->len, e->bytes);
    struct lh_digest d = lh_frame_digest(lh_blob_span(frame), &e->head);
    assert_true(lh_digest_equal(&d, &e->digest));
    lh_blob_release(frame);
}

static void entries_are_kept_in_order(void **state)
{
    struct machine *m = *state;
    static const uint64_t name[][2] = {{2, 1}, {1, 9}, {1, 10}, {2, 300}, {1, 2}, {16, 1}};
    static const uint64_t sorted[][2] = {{1, 2}, {1, 9}, {1, 10}, {2, 1}, {2, 300}, {16, 1}};
    struct wk_entry *e;
    for (size_t i = 0; i < LH_COUNT(name); i++)
        assert_int_equal(keep(m, name[i][0], name[i][1], &e), LH_OK);
    for (int restarted = 0; restarted < 3; restarted++) {
        assert_int_equal(m->box.entries, LH_COUNT(sorted));
        assert_int_equal(m->box.bytes, LH_COUNT(sorted) * m->box.first->bytes);
        e = m->box.first;
        for (size_t i = 0; i < LH_COUNT(sorted); i++, e = e->next)
            assert_entry(m, e, sorted[i][0], sorted[i][1]);
        assert_null(e);
        restart(m, restarted > 0); // kept means durable: a power cut loses none
        assert_int_equal(m->bad, 0);
    }
    assert_entry(m, wk_outbox_find(&m->box, 1, 10), 1, 10);
    assert_null(wk_outbox_find(&m->box, 1, 11));
    assert_null(wk_outbox_find(&m->box, 3, 1));
}

static void the_first_undecided_is_found(void **state)
{
    struct machine *m = *state;
    struct wk_entry *first, *second;
    assert_null(wk_outbox_undecided(&m->box));
    assert_int_equal(keep(m, 1, 1, &first), LH_OK);
    assert_int_equal(keep(m, 1, 2, &second), LH_OK);
    assert_ptr_equal(wk_outbox_undecided(&m->box), first);
    first->status = WK_ADMITTED;
    assert_ptr_equal(wk_outbox_undecided(&m->box), second);
    second->status = WK_ADMITTED;
    assert_null(wk_outbox_undecided(&m->box));
    assert_true(wk_entry_compare(first, 1, 1) == 0);
    assert_true(wk_entry_compare(first, 1, 2) < 0);
    assert_true(wk_entry_compare(second, 1, 1) > 0);
    assert_true(wk_entry_compare(second, 2, 1) < 0);
}

static void a_durable_removal_survives_a_power_cut(void **state)
{
    struct machine *m = *state;
    for (uint64_t step = 1; step <= 20; step++) {
        struct wk_entry *e;
        assert_int_equal(keep(m, 1, step, &e), LH_OK);
        assert_int_equal(wk_outbox_drop(&m->box, e), LH_OK);
        assert_int_equal(m->box.entries, 0);
        assert_int_equal(m->box.bytes, 0);
        restart(m, true);
        assert_null(m->box.first);
    }
}

static void remove_later(struct machine *m, struct wk_entry *e)
{
    wk_outbox_leave(&m->box, e);
    assert_true(wk_outbox_begin_removal(&m->box));
    assert_int_equal(wk_outbox_remove(&m->box), LH_OK);
    wk_outbox_end_removal(&m->box, true);
}

static void a_removal_that_was_not_synced_may_come_back_whole(void **state)
{
    struct machine *m = *state;
    int back = 0;
    for (uint64_t step = 1; step <= 20; step++) {
        struct wk_entry *e;
        assert_int_equal(keep(m, 1, step, &e), LH_OK);
        remove_later(m, e);
        restart(m, true);
        assert_int_equal(m->bad, 0);
        e = wk_outbox_find(&m->box, 1, step);
        if (!e) continue;
        assert_entry(m, e, 1, step);
        back++;
        assert_int_equal(wk_outbox_drop(&m->box, e), LH_OK);
    }
    assert_true(back > 0 && back < 20); // so the durable test above could have failed
}

static void one_that_leaves_is_off_the_list_before_its_file_is_gone(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e[4];
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    uint64_t rest = m->box.bytes - e[0]->bytes - e[1]->bytes;
    assert_false(wk_outbox_begin_removal(&m->box));
    wk_outbox_leave(&m->box, e[0]);
    assert_true(wk_outbox_begin_removal(&m->box));
    wk_outbox_leave(&m->box, e[1]);
    assert_false(wk_outbox_begin_removal(&m->box)); // one is under way
    assert_int_equal(wk_outbox_remove(&m->box), LH_OK);
    assert_ptr_equal(m->box.first, e[2]);
    assert_int_equal(m->box.entries, 2);
    assert_int_equal(m->box.bytes, rest);
    restart(m, false); // which finds what nobody has removed yet
    assert_int_equal(m->box.entries, 3);
    assert_entry(m, m->box.first, 1, 2);
    assert_false(wk_outbox_begin_removal(&m->box));
}

// What is left is what is newest: a server leaves out the payloads that the outbox says it holds,
// of one push and all after it.
static void a_crash_in_a_removal_leaves_no_hole(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e[3];
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    for (uint64_t i = 0; i < 2; i++) wk_outbox_leave(&m->box, e[i]);
    assert_true(wk_outbox_begin_removal(&m->box));
    lh_fake_crash_at(m->env, 1, false);
    assert_int_equal(wk_outbox_remove(&m->box), LH_ERR_KILLED);
    restart(m, false);
    assert_int_equal(m->box.entries, 2);
    assert_entry(m, m->box.first, 1, 2);
}

static void a_middle_entry_is_dropped_and_the_rest_stays(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e[3];
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    assert_int_equal(wk_outbox_drop(&m->box, e[1]), LH_OK);
    assert_ptr_equal(m->box.first, e[0]);
    assert_ptr_equal(e[0]->next, e[2]);
    // A file that is gone already does not keep its entry.
    assert_int_equal(m->env->ops->files->remove(m->env, "outbox/0003-0000000000000001-"
                                                        "0000000000000003"),
                     LH_OK);
    assert_int_equal(wk_outbox_drop(&m->box, e[2]), LH_OK);
    restart(m, false);
    assert_int_equal(m->box.entries, 1);
    assert_entry(m, m->box.first, 1, 1);
}

static void write_file(struct machine *m, const char *path, struct lh_span bytes)
{
    struct lh_file *file;
    unsigned flags = LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE;
    assert_int_equal(m->env->ops->files->open(m->env, path, flags, &file), LH_OK);
    assert_int_equal(m->env->ops->files->write(file, 0, bytes), LH_OK);
    m->env->ops->files->close(file);
}

static void a_damaged_file_is_told_of_and_left_out(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    static const char two[] = "0003-0000000000000001-0000000000000002";
    static const char path[] = "outbox/0003-0000000000000001-0000000000000002";
    for (uint64_t step = 1; step <= 3; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    size_t bytes = e->bytes + 4;
    for (size_t at = 0; at < bytes; at++) { // any byte, the checksum's too
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
        restart(m, false);
        assert_int_equal(m->bad, 1);
        assert_int_equal(m->bad_err, LH_ERR_CORRUPT);
        assert_string_equal(m->bad_file, two);
        assert_int_equal(m->box.entries, 2);
        assert_null(wk_outbox_find(&m->box, 1, 2));
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
    }
    write_file(m, path, lh_span("abc", 3)); // cut short
    restart(m, false);
    assert_int_equal(m->bad, 1);
    struct lh_buf b = lh_buf(16); // a right checksum of what is no frame
    lh_put_u32(&b, 5);
    lh_put_u32(&b, lh_crc32c(0, b.data, 4));
    write_file(m, path, lh_buf_span(&b));
    lh_buf_free(&b);
    restart(m, false);
    assert_int_equal(m->bad, 1);
    assert_int_equal(m->bad_err, LH_ERR_MALFORMED);
    assert_int_equal(m->box.entries, 2);
}

static void files_of_others_are_left_alone(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    write_file(m, "outbox/0004-0000000000000001-0000000000000001", lh_span("x", 1));
    write_file(m, "outbox/0003-0000000000000001-0000000000000002.tmp", lh_span("x", 1));
    write_file(m, "outbox/notes", lh_span("x", 1));
    restart(m, false);
    assert_int_equal(m->bad, 0);
    assert_int_equal(m->box.entries, 1);
}

// A crash at every file operation of keep(): the entry is listed only when it is durable, and a
// half-written file is never an entry.
static void a_crash_while_keeping_leaves_no_half_entry(void **state)
{
    struct machine *m = *state;
    int crashes = 0;
    for (int operation = 0; operation < 8; operation++)
        for (int power = 0; power < 2; power++) {
            struct wk_entry *e = NULL;
            uint64_t step = 1 + (uint64_t)operation * 2 + (uint64_t)power;
            lh_fake_crash_at(m->env, operation, power);
            lh_err err = keep(m, 1, step, &e);
            lh_fake_crash_at(m->env, -1, false);
            restart(m, power);
            e = wk_outbox_find(&m->box, 1, step);
            if (err == LH_OK) assert_non_null(e);
            if (e) assert_entry(m, e, 1, step);
            crashes += err != LH_OK;
        }
    assert_true(crashes >= 8 && crashes < 16); // struck before, inside and after keep()
}

static void a_full_disk_keeps_nothing(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    lh_fake_disk_limit(m->env, 100);
    assert_int_equal(keep(m, 1, 2, &e), LH_ERR_DISK_FULL);
    assert_int_equal(m->box.entries, 1);
    lh_fake_disk_limit(m->env, 0);
    assert_int_equal(keep(m, 1, 2, &e), LH_OK);
    restart(m, true);
    assert_int_equal(m->box.entries, 2);
}

// ---------------------------------------------------------------- what is in memory

// Also where its file is whole already, and the process dies then.
static void an_entry_that_found_no_room_leaves_nothing(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    lh_err err = LH_ERR_DISK_FULL;
    int64_t at = 0;
    for (; err; at++) {
        lh_fake_fail_at(m->env, at, LH_ERR_DISK_FULL);
        err = keep(m, 1, 1, &e);
        lh_fake_fail_at(m->env, -1, LH_OK);
        if (err) assert_int_equal(err, LH_ERR_DISK_FULL);
        restart(m, false);
        assert_int_equal(m->bad, 0);
        assert_int_equal(m->box.entries, !err);
    }
    assert_true(at > 5);
}

static void removals_that_found_no_room_come_again_in_order(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    for (uint64_t step = 1; step <= 4; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    for (int i = 0; i < 2; i++) wk_outbox_leave(&m->box, m->box.first);
    assert_true(wk_outbox_begin_removal(&m->box));
    wk_outbox_leave(&m->box, m->box.first);
    lh_fake_fail_at(m->env, 1, LH_ERR_DISK_FULL);
    assert_int_equal(wk_outbox_remove(&m->box), LH_ERR_DISK_FULL);
    wk_outbox_end_removal(&m->box, false);
    e = m->box.leaving;
    for (uint64_t step = 1; step <= 3; step++, e = e->next) assert_int_equal(e->head.step, step);
    assert_null(e);
    assert_true(wk_outbox_begin_removal(&m->box));
    assert_int_equal(wk_outbox_remove(&m->box), LH_OK);
    wk_outbox_end_removal(&m->box, true);
    restart(m, false);
    assert_int_equal(m->box.entries, 1);
}

static void one_that_is_set_aside_is_not_told_of_again(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    static const char path[] = "outbox/0003-0000000000000001-0000000000000002";
    for (uint64_t step = 1; step <= 3; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    assert_int_equal(lh_fake_flip(m->env, path, 9, 1), LH_OK);
    restart(m, false);
    assert_int_equal(m->bad, 1);
    assert_int_equal(wk_outbox_set_aside(&m->box, m->bad_file), LH_OK);
    restart(m, false);
    assert_int_equal(m->bad, 0);
    assert_int_equal(m->box.entries, 2);
    struct lh_buf kept = lh_buf(1 << 20);
    char aside[96];
    snprintf(aside, sizeof aside, "%s.damaged", path);
    assert_int_equal(lh_file_load(m->env, aside, &kept), LH_OK);
    assert_int_equal(kept.len, m->box.first->bytes + 4);
    lh_buf_free(&kept);
}

static void a_frame_is_in_memory_until_it_is_admitted_and_folded(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e[2];
    for (uint64_t i = 0; i < 2; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    uint64_t each = e[0]->bytes;
    assert_int_equal(m->box.held, 2 * each);
    wk_outbox_admitted(&m->box, e[0]);
    assert_int_equal(m->box.held, 2 * each); // it may yet be wanted to be folded
    wk_outbox_folded(&m->box, e[0], 7, 2);
    assert_int_equal(m->box.held, each);
    assert_null(e[0]->frame);
    assert_true(e[0]->version == 7 && e[0]->epoch == 2);
    wk_outbox_folded(&m->box, e[1], 8, 2); // its record may be here before its answer
    assert_int_equal(m->box.held, each);
    wk_outbox_admitted(&m->box, e[1]);
    assert_int_equal(m->box.held, 0);
    assert_int_equal(m->box.bytes, 2 * each); // the files are all there
    wk_outbox_leave(&m->box, e[0]);
    assert_int_equal(wk_outbox_drop(&m->box, e[1]), LH_OK);
    assert_int_equal(m->box.held, 0);
    assert_int_equal(m->box.bytes, 0);
    assert_true(wk_outbox_begin_removal(&m->box));
    wk_outbox_end_removal(&m->box, true);
}

static void the_payload_goes_with_the_fold(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    e->plain = lh_buf(16);
    lh_put_u32(&e->plain, 1);
    wk_outbox_folded(&m->box, e, 0, 2); // a state that does not have it
    assert_int_equal(e->plain.len, 4);
    wk_outbox_folded(&m->box, e, 3, 2);
    assert_int_equal(e->plain.len, 0);
}

static void a_start_holds_no_frame_but_the_one_that_is_sent(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    struct lh_blob *frame;
    for (uint64_t step = 1; step <= 9; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    restart(m, true);
    assert_int_equal(m->box.held, 0);
    assert_int_equal(m->box.entries, 9);
    for (e = m->box.first; e->next; e = e->next) wk_outbox_admitted(&m->box, e);
    assert_int_equal(wk_outbox_frame(&m->box, m->box.first, &frame), LH_OK);
    assert_int_equal(m->box.held, 0);
    lh_blob_release(frame);
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_OK);
    assert_int_equal(m->box.held, e->bytes);
    assert_ptr_equal(e->frame, frame);
    lh_blob_release(frame);
    wk_outbox_folded(&m->box, e, 1, 1);
    wk_outbox_admitted(&m->box, e);
    assert_int_equal(m->box.held, 0);
}

static void assert_unreadable(struct machine *m, struct wk_entry *e)
{
    struct lh_blob *frame = (struct lh_blob *)m;
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "0003-0000000000000001-0000000000000001"));
    assert_null(frame);
    assert_null(e->frame);
    assert_int_equal(m->box.held, 0);
    assert_int_equal(m->box.entries, 2); // whose loss it is, the caller says
}

static void a_file_that_was_damaged_since_is_told_of_and_its_entry_stays(void **state)
{
    struct machine *m = *state;
    static const char path[] = "outbox/0003-0000000000000001-0000000000000001";
    static const char other[] = "outbox/0003-0000000000000001-0000000000000002";
    const struct lh_files_ops *files = m->env->ops->files;
    struct lh_buf b = lh_buf(1 << 20);
    struct wk_entry *e;
    for (uint64_t step = 1; step <= 2; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    restart(m, false);
    e = m->box.first;
    for (size_t at = 0; at < e->bytes + 4; at++) {
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
        assert_unreadable(m, e);
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
    }
    assert_entry(m, e, 1, 1);
    assert_int_equal(lh_file_load(m->env, other, &b), LH_OK); // whole, but another push's
    write_file(m, path, lh_buf_span(&b));
    assert_unreadable(m, e);
    write_file(m, path, lh_span(b.data, b.len - 1));
    assert_unreadable(m, e);
    write_file(m, path, lh_span("abc", 3));
    assert_unreadable(m, e);
    assert_int_equal(files->remove(m->env, path), LH_OK);
    assert_unreadable(m, e);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "gone"));
    assert_entry(m, e->next, 1, 2);
    lh_buf_free(&b);
}

static void a_disk_that_fails_is_no_damaged_file(void **state)
{
    struct machine *m = *state;
    struct wk_entry *e;
    struct lh_blob *frame;
    int failed = 0;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    restart(m, false);
    e = m->box.first;
    for (int operation = 0; operation < 4; operation++) {
        lh_fake_fail_at(m->env, operation, LH_ERR_IO);
        lh_err err = wk_outbox_frame(&m->box, e, &frame);
        assert_true(err == LH_ERR_IO || (!err && !lh_fake_failed(m->env)));
        failed += err != LH_OK;
        lh_blob_release(frame);
        lh_fake_fail_at(m->env, -1, LH_OK);
        if (!err) break;
    }
    assert_true(failed > 0);
}

#define ON_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_machine, free_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_MACHINE(entries_are_kept_in_order),
        ON_MACHINE(the_first_undecided_is_found),
        ON_MACHINE(a_durable_removal_survives_a_power_cut),
        ON_MACHINE(a_removal_that_was_not_synced_may_come_back_whole),
        ON_MACHINE(one_that_leaves_is_off_the_list_before_its_file_is_gone),
        ON_MACHINE(a_crash_in_a_removal_leaves_no_hole),
        ON_MACHINE(a_middle_entry_is_dropped_and_the_rest_stays),
        ON_MACHINE(a_damaged_file_is_told_of_and_left_out),
        ON_MACHINE(files_of_others_are_left_alone),
        ON_MACHINE(a_crash_while_keeping_leaves_no_half_entry),
        ON_MACHINE(a_full_disk_keeps_nothing),
        ON_MACHINE(an_entry_that_found_no_room_leaves_nothing),
        ON_MACHINE(removals_that_found_no_room_come_again_in_order),
        ON_MACHINE(one_that_is_set_aside_is_not_told_of_again),
        ON_MACHINE(a_frame_is_in_memory_until_it_is_admitted_and_folded),
        ON_MACHINE(the_payload_goes_with_the_fold),
        ON_MACHINE(a_start_holds_no_frame_but_the_one_that_is_sent),
        ON_MACHINE(a_file_that_was_damaged_since_is_told_of_and_its_entry_stays),
        ON_MACHINE(a_disk_that_fails_is_no_damaged_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
