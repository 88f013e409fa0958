// An operator's request is answered only once its audit line is on the disk, whether it was taken
// or refused; a disk that hangs delays nobody else (server/docs/0000-protocol.md#rule-26).
#include <stdio.h>
#include <string.h>

#include "server/audit.h"
#include "server/coordinator/commit.h"
#include "tests/cores/rig.h"

enum { BOSS = 1 }; // the node of an operator

static void path_of(struct rig *r, char path[64])
{
    snprintf(path, 64, "%s/audit.jsonl", r->c.dir);
}

static bool is_durable(struct rig *r, const char *text)
{
    struct lh_span bytes;
    char path[64];
    path_of(r, path);
    if (!lh_fake_durable(r->c.env, path, &bytes)) return false;
    return memmem(bytes.data, bytes.len, text, strlen(text)) != NULL;
}

static void begin(struct rig *r)
{
    rig_start_coordinator(r);
    rig_kill_worker(r, BOSS, false);
    r->w[BOSS].self.role = LH_A;
    rig_boot_worker(r, BOSS);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1);
    rig_run(r, 2 * LH_SECOND);
    rig_settle(r);
    char path[64];
    path_of(r, path);
    lh_err err = lh_log_open_audit(&r->coordinator->conf.audit, r->c.env, "c", path);
    assert_int_equal(err, LH_OK);
}

static void end(struct rig *r)
{
    lh_log_close(r->coordinator->conf.audit);
    r->coordinator->conf.audit = NULL;
}

struct wish {
    Longhaul__V1__ExpelRequest m;
    bool over;
    lh_err status;
};

static void heard(void *self, lh_err err, const ProtobufCMessage *m)
{
    struct wish *w = self;
    (void)m;
    w->over = true;
    w->status = err;
}

static void ask(struct rig *r, struct wish *w, const char *region, const char *name, bool retire)
{
    *w = (struct wish){.m = LONGHAUL__V1__EXPEL_REQUEST__INIT};
    w->m.region = (char *)(uintptr_t)region; // only read
    w->m.name = (char *)(uintptr_t)name;
    w->m.retire = retire;
    assert_int_equal(pb_ask(r->to_c[BOSS], LH_RPC_EXPEL, 600 * LH_SECOND, &w->m.base,
                            &longhaul__v1__expel_reply__descriptor, heard, w),
                     LH_OK);
}

static void status_is_answered(struct rig *r)
{
    Longhaul__V1__StatusRequest m = LONGHAUL__V1__STATUS_REQUEST__INIT;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_STATUS, &m.base), LH_OK);
}

// A refusal changes nothing, but has its audit line all the same.
RIG_TEST(a_refusal_waits_for_its_line, struct rig *r)
{
    struct wish w;
    begin(r);
    lh_fake_hang(r->c.env, 600 * LH_SECOND);
    ask(r, &w, "", "nobody", true);
    rig_run(r, 20 * LH_SECOND);
    assert_true(ps_co_settled(r->coordinator));
    assert_false(w.over);
    assert_true(ps_co_commit_age_s(r->coordinator) > 10); // the wait is reported
    status_is_answered(r);
    assert_false(is_durable(r, "audit.retire"));
    lh_fake_hang(r->c.env, 0);
    for (int i = 0; i < 1000 && !w.over; i++) {
        rig_run(r, LH_MS);
        assert_false(w.over && !is_durable(r, "audit.retire"));
    }
    assert_int_equal(w.status, LH_ERR_NOT_FOUND);
    assert_true(is_durable(r, "/admin/"));
    end(r);
}

RIG_TEST(accepted_orders_wait_for_their_audit_lines, struct rig *r)
{
    struct wish first, second;
    begin(r);
    lh_fake_hang(r->c.env, 600 * LH_SECOND);
    ask(r, &first, "far", "one", false);
    rig_run(r, LH_SECOND); // the second comes while the first one's commit hangs
    ask(r, &second, "far", "two", false);
    rig_run(r, 20 * LH_SECOND);
    assert_false(ps_co_settled(r->coordinator));
    assert_false(first.over || second.over);
    lh_fake_hang(r->c.env, 0);
    for (int i = 0; i < 1000 && !(first.over && second.over); i++) {
        rig_run(r, LH_MS);
        assert_false(first.over && !is_durable(r, "far/one: taken"));
        assert_false(second.over && !is_durable(r, "far/two: taken"));
    }
    assert_true(first.status == LH_OK && second.status == LH_OK);
    end(r);
    rig_kill_coordinator(r);
}

// A commit that has no room answers "busy". Its audit line is lost too, and is counted in the log
// once there is room.
RIG_TEST(a_full_disk_answers_busy, struct rig *r)
{
    struct wish w;
    begin(r);
    lh_fake_disk_limit(r->c.env, 1);
    ask(r, &w, "far", "one", false);
    for (int i = 0; i < 1000 && !w.over; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(w.status, LH_ERR_BUSY);
    lh_fake_disk_limit(r->c.env, 0);
    rig_run(r, 5 * LH_SECOND);
    ask(r, &w, "far", "one", false);
    for (int i = 0; i < 1000 && !w.over; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(w.status, LH_OK);
    assert_true(is_durable(r, "log.lost"));
    assert_true(is_durable(r, "far/one: taken"));
    assert_int_equal(r->fatal_count, 0);
    end(r);
}
