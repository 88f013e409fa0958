// Audit: a line for an operator's action is durable, lines that peers cause are rate-limited, and
// the file has a maximum size.
#include <string.h>

#include "server/audit.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static const struct lh_peer BOSS = {LH_A, "example.org", "demo", "eu", "boss"};
static const struct lh_peer WORKER = {LH_W, "example.org", "demo", "eu", "w1"};

static bool has(struct lh_env *env, const char *path, const char *text)
{
    struct lh_span found;
    if (!lh_fake_durable(env, path, &found)) return false;
    return memmem(found.data, found.len, text, strlen(text)) != NULL;
}

static struct lh_log *open_audit(struct lh_env *env)
{
    struct lh_log *audit;
    lh_fake_boot(env);
    assert_int_equal(env->ops->files->make_dir(env, "d"), LH_OK);
    assert_int_equal(lh_log_open_audit(&audit, env, "server/eu/s", "d/audit.jsonl"), LH_OK);
    return audit;
}

TEST(an_operators_word_outlives_a_power_cut)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct lh_fake_world *w = lh_fake_world_create(seed);
        struct lh_env *env = lh_fake_node(w, NULL, NULL);
        lh_fake_folders_apart(env);
        struct lh_log *audit = open_audit(env);
        ps_audit(audit, "audit.join", &WORKER, "incarnation %u", 1);
        ps_audit_admin(audit, "audit.expel", &BOSS, "worker \"w1\": taken");
        lh_log_sync(audit);
        lh_fake_kill(env, true);
        lh_fake_boot(env);
        assert_true(has(env, "d/audit.jsonl", "\"event\":\"audit.expel\""));
        assert_true(has(env, "d/audit.jsonl",
                        "spiffe://example.org/longhaul/demo/admin/eu/boss: worker \\\"w1\\\""));
        lh_log_close(audit);
        lh_fake_world_destroy(w);
    }
}

TEST(the_file_is_bounded_and_a_peer_fills_it_slowly)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct lh_env *env = lh_fake_node(w, NULL, NULL);
    struct lh_log *audit = open_audit(env);
    for (int i = 0; i < 1000; i++) ps_audit(audit, "audit.refused", &WORKER, "flood");
    assert_true(lh_fake_disk_used(env) < LH_LOG_AUDIT_BURST * 256);
    char text[500];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int i = 0; i < 3 * LH_LOG_AUDIT_BYTES / 500; i++)
        lh_logf(audit, LH_INFO, "audit.move", "%s", text);
    assert_true(lh_fake_disk_used(env) <= 2 * LH_LOG_AUDIT_BYTES + 8192);
    ps_audit_admin(audit, "audit.expel", &BOSS, "the last one");
    lh_log_sync(audit);
    assert_true(has(env, "d/audit.jsonl", "the last one"));
    ps_audit(NULL, "audit.join", &WORKER, "nobody keeps it");
    ps_audit_admin(NULL, "audit.join", &WORKER, "nobody keeps it");
    lh_log_close(audit);
    lh_fake_world_destroy(w);
}

static void nothing(void *arg)
{
    (void)arg;
}

// A peer joins again and again for a day. The audit file still holds the operator's earlier actions
// and each of the joins with which the run began.
TEST(a_day_of_joins_pushes_nothing_out)
{
    enum { WORKERS = 256, DAY_S = 86400 };
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct lh_env *env = lh_fake_node(w, NULL, NULL);
    struct lh_log *audit = open_audit(env);
    ps_audit_admin(audit, "audit.expel", &BOSS, "before");
    for (unsigned i = 1; i <= WORKERS; i++)
        ps_audit(audit, "audit.join", &WORKER, "incarnation %u", i);
    lh_log_sync(audit);
    assert_true(has(env, "d/audit.jsonl", "incarnation 256"));
    lh_fake_at(w, (DAY_S + 1) * LH_SECOND, nothing, NULL); // keeps virtual time running until then
    for (int64_t s = 0; s < DAY_S; s++) {
        lh_fake_run(w, s * LH_SECOND);
        for (int i = 0; i < 2; i++) ps_audit(audit, "audit.join", &WORKER, "again");
        lh_log_look(audit);
    }
    lh_log_sync(audit);
    assert_true(lh_fake_disk_used(env) < LH_LOG_AUDIT_BYTES / 4);
    assert_true(has(env, "d/audit.jsonl", "before"));
    assert_true(has(env, "d/audit.jsonl", "more lines of this event were suppressed"));
    lh_log_close(audit);
    lh_fake_world_destroy(w);
}
