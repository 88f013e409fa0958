// The outbox: memory holds only frames of unsettled pushes, a full disk stores no entry, and a file
// that opens but cannot be read counts as damaged.
#include "tests/unit/worker/push/outbox_rig.h"

// ---------------------------------------------------------------- frames in memory

// Also if the file is already complete, and if the process then dies.
ON_MACHINE(an_entry_that_found_no_room_leaves_nothing, struct machine *m)
{
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

ON_MACHINE(removals_that_found_no_room_come_again_in_order, struct machine *m)
{
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

ON_MACHINE(one_that_is_set_aside_is_not_told_of_again, struct machine *m)
{
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

// A power cut does not bring the old name back.
ON_MACHINE(one_that_is_set_aside_stays_so, struct machine *m)
{
    struct wk_entry *e;
    char path[96];
    for (uint64_t step = 1; step <= 8; step++) {
        assert_int_equal(keep(m, 1, step, &e), LH_OK);
        snprintf(path, sizeof path, "outbox/0003-0000000000000001-%016x", (unsigned)step);
        assert_int_equal(lh_fake_flip(m->env, path, 9, 1), LH_OK);
        restart(m, false);
        assert_int_equal(m->bad, 1);
        assert_int_equal(wk_outbox_set_aside(&m->box, m->bad_file), LH_OK);
        restart(m, true);
        assert_int_equal(m->bad, 0);
        assert_int_equal(m->box.entries, 0);
    }
}

ON_MACHINE(a_frame_is_in_memory_until_it_is_admitted_and_folded, struct machine *m)
{
    struct wk_entry *e[2];
    for (uint64_t i = 0; i < 2; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    uint64_t each = e[0]->bytes;
    assert_int_equal(m->box.held_bytes, 2 * each);
    wk_outbox_admitted(&m->box, e[0]);
    assert_int_equal(m->box.held_bytes, 2 * each); // a fold may still need it
    wk_outbox_folded(&m->box, e[0], 7);
    assert_int_equal(m->box.held_bytes, each);
    assert_null(e[0]->frame);
    assert_int_equal(e[0]->version, 7);
    wk_outbox_folded(&m->box, e[1], 8); // the record may arrive before the answer
    assert_int_equal(m->box.held_bytes, each);
    wk_outbox_admitted(&m->box, e[1]);
    assert_int_equal(m->box.held_bytes, 0);
    assert_int_equal(m->box.bytes, 2 * each); // the files are still there
    wk_outbox_leave(&m->box, e[0]);
    assert_int_equal(wk_outbox_drop(&m->box, e[1]), LH_OK);
    assert_int_equal(m->box.held_bytes, 0);
    assert_int_equal(m->box.bytes, 0);
    assert_true(wk_outbox_begin_removal(&m->box));
    wk_outbox_end_removal(&m->box, true);
}

ON_MACHINE(the_payload_goes_with_the_fold, struct machine *m)
{
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    e->plain = lh_buf(16);
    lh_put_u32(&e->plain, 1);
    wk_outbox_folded(&m->box, e, 0); // a state without this push
    assert_int_equal(e->plain.len, 4);
    wk_outbox_folded(&m->box, e, 3);
    assert_int_equal(e->plain.len, 0);
}

ON_MACHINE(a_start_holds_no_frame_but_the_one_that_is_sent, struct machine *m)
{
    struct wk_entry *e;
    struct lh_blob *frame;
    for (uint64_t step = 1; step <= 9; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    restart(m, true);
    assert_int_equal(m->box.held_bytes, 0);
    assert_int_equal(m->box.entries, 9);
    for (e = m->box.first; e->next; e = e->next) wk_outbox_admitted(&m->box, e);
    assert_int_equal(wk_outbox_frame(&m->box, m->box.first, &frame), LH_OK);
    assert_int_equal(m->box.held_bytes, 0);
    lh_blob_release(frame);
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_OK);
    assert_int_equal(m->box.held_bytes, e->bytes);
    assert_ptr_equal(e->frame, frame);
    lh_blob_release(frame);
    wk_outbox_folded(&m->box, e, 1);
    wk_outbox_admitted(&m->box, e);
    assert_int_equal(m->box.held_bytes, 0);
}

static void assert_unreadable(struct machine *m, struct wk_entry *e)
{
    struct lh_blob *frame = (struct lh_blob *)m;
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "0003-0000000000000001-0000000000000001"));
    assert_null(frame);
    assert_null(e->frame);
    assert_int_equal(m->box.held_bytes, 0);
    assert_int_equal(m->box.entries, 2); // the caller reports the loss
}

ON_MACHINE(a_file_that_was_damaged_since_is_told_of_and_its_entry_stays, struct machine *m)
{
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
    assert_int_equal(lh_file_load(m->env, other, &b), LH_OK); // intact, but of another push
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

// A transient error is retried. A lasting error on open may be this process's own, e.g. too many
// open files.
ON_MACHINE(a_failed_disk_operation_is_retried_once, struct machine *m)
{
    struct wk_entry *e;
    int failed = 0;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    for (int operation = 0; operation < 4; operation++) {
        restart(m, false);
        lh_fake_fail_at(m->env, operation, LH_ERR_IO);
        assert_entry(m, m->box.first, 1, 1);
        failed += lh_fake_failed(m->env);
        lh_fake_fail_at(m->env, -1, LH_OK);
    }
    assert_true(failed > 0);
}

static lh_err never_opens(struct lh_env *env, const char *path, unsigned flags,
                          struct lh_file **out)
{
    (void)env;
    (void)flags;
    (void)out;
    return lh_fail(LH_ERR_IO, "cannot open %s: too many open files", path);
}

ON_MACHINE(one_that_cant_be_opened_is_not_taken_for_damaged, struct machine *m)
{
    const struct lh_env_ops *ops = m->env->ops;
    struct lh_env_ops others = *ops;
    struct lh_files_ops files = *ops->files;
    struct lh_blob *frame;
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    restart(m, false);
    files.open = never_opens;
    others.files = &files;
    m->env->ops = &others;
    assert_int_equal(wk_outbox_frame(&m->box, m->box.first, &frame), LH_ERR_IO);
    wk_outbox_free(&m->box);
    m->bad = 0;
    assert_int_equal(wk_outbox_load(&m->box, note_bad, m), LH_ERR_IO);
    assert_int_equal(m->bad, 0);
    m->env->ops = ops;
    restart(m, false);
    assert_entry(m, m->box.first, 1, 1);
}

ON_MACHINE(one_that_cant_be_read_is_a_damaged_one, struct machine *m)
{
    static const char path[] = "outbox/0003-0000000000000001-0000000000000001";
    struct wk_entry *e;
    for (uint64_t step = 1; step <= 2; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    restart(m, false);
    assert_int_equal(lh_fake_unreadable(m->env, path), LH_OK);
    struct lh_blob *frame = (struct lh_blob *)m;
    e = m->box.first;
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_ERR_CORRUPT);
    assert_null(frame);
    assert_int_equal(m->box.entries, 2);
    restart(m, false);
    assert_int_equal(m->bad, 1);
    assert_int_equal(m->bad_err, LH_ERR_CORRUPT);
    assert_int_equal(wk_outbox_set_aside(&m->box, m->bad_file), LH_OK);
    restart(m, false);
    assert_int_equal(m->bad, 0);
    assert_int_equal(m->box.entries, 1);
}
