// The outbox: a kept entry survives any crash, a durably dropped one does not return, and a damaged
// file is reported and skipped.
#include "tests/unit/worker/push/outbox_rig.h"

ON_MACHINE(entries_are_kept_in_order, struct machine *m)
{
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
        restart(m, restarted > 0); // kept entries are durable: a power cut loses none
        assert_int_equal(m->bad, 0);
    }
    assert_entry(m, wk_outbox_find(&m->box, 1, 10), 1, 10);
    assert_null(wk_outbox_find(&m->box, 1, 11));
    assert_null(wk_outbox_find(&m->box, 3, 1));
}

ON_MACHINE(the_first_undecided_is_found, struct machine *m)
{
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

ON_MACHINE(a_durable_removal_survives_a_power_cut, struct machine *m)
{
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

ON_MACHINE(a_removal_that_was_not_synced_may_come_back_whole, struct machine *m)
{
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
    // not every drop was durable, so the test above could have failed
    assert_true(back > 0 && back < 20);
}

ON_MACHINE(one_that_leaves_is_off_the_list_before_its_file_is_gone, struct machine *m)
{
    struct wk_entry *e[4];
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    uint64_t rest = m->box.bytes - e[0]->bytes - e[1]->bytes;
    assert_false(wk_outbox_begin_removal(&m->box));
    wk_outbox_leave(&m->box, e[0]);
    assert_true(wk_outbox_begin_removal(&m->box));
    wk_outbox_leave(&m->box, e[1]);
    assert_false(wk_outbox_begin_removal(&m->box)); // a removal is under way
    assert_int_equal(wk_outbox_remove(&m->box), LH_OK);
    assert_ptr_equal(m->box.first, e[2]);
    assert_int_equal(m->box.entries, 2);
    assert_int_equal(m->box.bytes, rest);
    restart(m, false); // finds the entries whose files were not removed yet
    assert_int_equal(m->box.entries, 3);
    assert_entry(m, m->box.first, 1, 2);
    assert_false(wk_outbox_begin_removal(&m->box));
}

// Only the newest entries may be left: a server omits the payloads of a push that the outbox holds
// and of all later pushes.
ON_MACHINE(a_crash_in_a_removal_leaves_no_hole, struct machine *m)
{
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

ON_MACHINE(a_middle_entry_is_dropped_and_the_rest_stays, struct machine *m)
{
    struct wk_entry *e[3];
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(keep(m, 1, i + 1, &e[i]), LH_OK);
    assert_int_equal(wk_outbox_drop(&m->box, e[1]), LH_OK);
    assert_ptr_equal(m->box.first, e[0]);
    assert_ptr_equal(e[0]->next, e[2]);
    // If its file is already gone, the entry is dropped all the same.
    assert_int_equal(m->env->ops->files->remove(m->env, "outbox/0003-0000000000000001-"
                                                        "0000000000000003"),
                     LH_OK);
    assert_int_equal(wk_outbox_drop(&m->box, e[2]), LH_OK);
    restart(m, false);
    assert_int_equal(m->box.entries, 1);
    assert_entry(m, m->box.first, 1, 1);
}

ON_MACHINE(a_damaged_file_is_told_of_and_left_out, struct machine *m)
{
    struct wk_entry *e;
    static const char two[] = "0003-0000000000000001-0000000000000002";
    static const char path[] = "outbox/0003-0000000000000001-0000000000000002";
    for (uint64_t step = 1; step <= 3; step++) assert_int_equal(keep(m, 1, step, &e), LH_OK);
    size_t bytes = e->bytes + 4;
    for (size_t at = 0; at < bytes; at++) { // each byte, including the checksum
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
        restart(m, false);
        assert_int_equal(m->bad, 1);
        assert_int_equal(m->bad_err, LH_ERR_CORRUPT);
        assert_string_equal(m->bad_file, two);
        assert_int_equal(m->box.entries, 2);
        assert_null(wk_outbox_find(&m->box, 1, 2));
        assert_int_equal(lh_fake_flip(m->env, path, at, 0x10), LH_OK);
    }
    write_file(m, path, lh_span("abc", 3)); // truncated
    restart(m, false);
    assert_int_equal(m->bad, 1);
    struct lh_buf b = lh_buf(16); // a valid checksum over bytes that are not a frame
    lh_put_u32(&b, 5);
    lh_put_u32(&b, lh_crc32c(0, b.data, 4));
    write_file(m, path, lh_buf_span(&b));
    lh_buf_free(&b);
    restart(m, false);
    assert_int_equal(m->bad, 1);
    assert_int_equal(m->bad_err, LH_ERR_MALFORMED);
    assert_int_equal(m->box.entries, 2);
}

ON_MACHINE(files_of_others_are_left_alone, struct machine *m)
{
    struct wk_entry *e;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    write_file(m, "outbox/0004-0000000000000001-0000000000000001", lh_span("x", 1));
    write_file(m, "outbox/0003-0000000000000001-0000000000000002.tmp", lh_span("x", 1));
    write_file(m, "outbox/notes", lh_span("x", 1));
    restart(m, false);
    assert_int_equal(m->bad, 0);
    assert_int_equal(m->box.entries, 1);
}

// Crashes at every file operation of keep(), on a disk that loses sectors within a write: an entry
// is listed only when it is durable, and only a complete file has its name.
ON_MACHINE(a_crash_while_keeping_leaves_no_half_entry, struct machine *m)
{
    int crashes = 0;
    lh_fake_harm(m->env, &(struct lh_fake_harm){.seed = 5, .torn = true});
    lh_fake_folders_apart(m->env);
    for (int round = 0; round < 160; round++) {
        struct wk_entry *e = NULL;
        uint64_t step = 1 + (uint64_t)round;
        bool power = round % 2;
        lh_fake_crash_at(m->env, round / 2 % 8, power);
        lh_err err = keep(m, 1, step, &e);
        lh_fake_crash_at(m->env, -1, false);
        restart(m, power);
        assert_int_equal(m->bad, 0);
        e = wk_outbox_find(&m->box, 1, step);
        if (err == LH_OK) assert_non_null(e);
        if (e) assert_entry(m, e, 1, step);
        crashes += err != LH_OK;
    }
    assert_true(crashes >= 80 && crashes < 160); // before, during and after keep()
}

static struct {
    const struct lh_files_ops *files; // the fake disk's operations
    int file, folder;
} syncs;

static lh_err count_sync(struct lh_file *f)
{
    syncs.file++;
    return syncs.files->sync(f);
}

static lh_err count_sync_dir(struct lh_env *env, const char *path)
{
    syncs.folder++;
    return syncs.files->sync_dir(env, path);
}

// Each push waits for two syncs: one of its bytes, and one of the folder for both names.
ON_MACHINE(an_entry_costs_two_syncs, struct machine *m)
{
    const struct lh_env_ops *ops = m->env->ops;
    struct lh_env_ops counting = *ops;
    struct lh_files_ops files = *ops->files;
    struct wk_entry *e;
    syncs.files = ops->files;
    syncs.file = syncs.folder = 0;
    files.sync = count_sync;
    files.sync_dir = count_sync_dir;
    counting.files = &files;
    m->env->ops = &counting;
    assert_int_equal(keep(m, 1, 1, &e), LH_OK);
    m->env->ops = ops;
    assert_int_equal(syncs.file, 1);
    assert_int_equal(syncs.folder, 1);
}

ON_MACHINE(a_full_disk_keeps_nothing, struct machine *m)
{
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
