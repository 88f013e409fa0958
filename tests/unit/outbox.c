// The outbox: what was kept is there after any crash, what was durably dropped is not, and a
// damaged file is told of and left out.
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

static void assert_entry(const struct wk_entry *e, uint64_t incarnation, uint64_t step)
{
    assert_non_null(e);
    assert_int_equal(e->head.incarnation.number, incarnation);
    assert_int_equal(e->head.step, step);
    struct lh_digest d = lh_frame_digest(lh_blob_span(e->frame), &e->head);
    assert_true(lh_digest_equal(&d, &e->digest));
    assert_int_equal(e->status, WK_UNDECIDED);
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
        assert_int_equal(m->box.bytes, LH_COUNT(sorted) * m->box.first->frame->len);
        e = m->box.first;
        for (size_t i = 0; i < LH_COUNT(sorted); i++, e = e->next)
            assert_entry(e, sorted[i][0], sorted[i][1]);
        assert_null(e);
        restart(m, restarted > 0); // kept means durable: a power cut loses none
        assert_int_equal(m->bad, 0);
    }
    assert_entry(wk_outbox_find(&m->box, 1, 10), 1, 10);
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
    wk_outbox_end_removal(&m->box);
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
        assert_entry(e, 1, step);
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
    uint64_t rest = m->box.bytes - e[0]->frame->len - e[1]->frame->len;
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
    assert_entry(m->box.first, 1, 2);
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
    assert_entry(m->box.first, 1, 2);
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
    assert_entry(m->box.first, 1, 1);
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
    size_t bytes = e->frame->len + 4;
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
            if (e) assert_entry(e, 1, step);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
