// server.yaml: a valid file for each role, and the conditions that join several rows.
#include <string.h>

#include "common/base/check.h"
#include "common/format/plan.h"
#include "server/settings.h"
#include "tests/test.h"

static const char node[] = "tls: {ca: a, cert: b, key: c}\n"
                           "model.manifest: m.json\ndir: d\nlisten: 127.0.0.1:0\n";
static const char shard[] = "role: shard\ncoordinator: c.example:7000\nshards: [0, 1]\n"
                            "seal.keys: k\nmodel.weights: w\n";
static const char standby[] = "role: standby\ncoordinator: c.example:7000\nshards: [0]\n"
                              "seal.keys: k\nmodel.weights: w\n";
static const char coordinator[] = "role: coordinator\ndata.units: u.json\n"
                                  "run.budget_tokens: 3_000_000\n";
static const char level[] = "role: coordinator\ndata.units: u.json\n"
                            "run.budget_tokens: 3_000_000\ncoordinator: {balance: level}\n";

// Finishes a file of two parts and assignments; `set` ends with NULL.
static lh_err finish(const char *part, const char *const *set, struct lh_config **out)
{
    struct lh_config *c;
    assert_int_equal(lh_config_create(&ps_settings_table, &c), LH_OK);
    assert_int_equal(lh_config_text(c, "node", lh_span_str(node)), LH_OK);
    assert_int_equal(lh_config_text(c, "part", lh_span_str(part)), LH_OK);
    for (; *set; set++) assert_int_equal(lh_config_set(c, *set), LH_OK);
    lh_err err = lh_config_finish(c);
    if (out)
        *out = c;
    else
        lh_config_destroy(c);
    return err;
}

TEST(good_files)
{
    const char *const none[] = {NULL};
    struct lh_config *c;
    assert_int_equal(finish(shard, none, &c), LH_OK);
    const struct ps_settings *s = lh_config_settings(c);
    assert_true(ps_is_shard(s) && !ps_is_coordinator(s));
    assert_int_equal(s->shards.count, 2);
    assert_string_equal(s->node.coordinator, "c.example:7000");
    assert_int_equal(s->checkpoint.every_versions, 500);
    assert_true(s->update.eta == 0);
    lh_config_destroy(c);
    assert_int_equal(finish(coordinator, none, &c), LH_OK);
    s = lh_config_settings(c);
    assert_true(!ps_is_shard(s) && ps_is_coordinator(s));
    assert_int_equal(s->node.run.budget_tokens, 3000000);
    assert_int_equal(ps_settings_h_base(s), 8);
    assert_int_equal(ps_settings_data(s, "asia"), LH_DATA_LEASED);
    assert_false(ps_settings_has_data(s, LH_DATA_OWN));
    lh_config_destroy(c);
    const char *const both[] = {"role=both", "data.units=u", "run.budget_tokens=1",
                                "coordinator=", NULL};
    assert_int_equal(finish(shard, both, NULL), LH_OK);
}

TEST(an_outer_optimizer_and_its_momentum)
{
    const char *const delayed[] = {"update.optimizer=delayed-nesterov", NULL};
    const char *const still[] = {"update.eta=2", NULL};
    const char *const hot[] = {"update.optimizer=delayed-nesterov", "update.eta=2", NULL};
    struct lh_config *c;
    assert_int_equal(finish(shard, delayed, &c), LH_OK);
    const struct ps_settings *s = lh_config_settings(c);
    assert_int_equal(s->update.optimizer, LH_OPT_DELAYED_NESTEROV);
    assert_true(ps_momentum(s) == 0.6);
    lh_config_destroy(c);
    assert_int_equal(finish(shard, still, &c), LH_OK);
    assert_true(ps_momentum(lh_config_settings(c)) == 0);
    lh_config_destroy(c);
    assert_int_equal(finish(shard, hot, NULL), LH_ERR_CONFIG);
    assert_non_null(
        strstr(lh_err_text(LH_ERR_CONFIG), "above 1.5, the bound of the effective step"));
}

TEST(refused_together)
{
    static const struct {
        const char *part, *set, *says;
    } row[] = {
        {shard, "shards=", "shards is empty"},
        {shard, "shards=1,2,1", "shards: 1 is given twice"},
        {shard, "seal.keys=", "seal.keys is missing: a server of shards needs it"},
        {shard, "model.weights=", "model.weights is missing"},
        {shard, "coordinator=", "coordinator is missing: a server of role shard needs it"},
        {standby, "coordinator=", "coordinator is missing: a standby needs it"},
        {shard, "coordinator=nowhere", "coordinator: \"nowhere\" is not valid, expected host:port"},
        {shard, "coordinator=host:0", "expected host:port"},
        {shard, "coordinator=host:70000", "expected host:port"},
        {shard, "coordinator=a:b:1", "expected host:port"},
        {shard, "listen=:1", "listen: \":1\""},
        {shard, "advertise=host:0", "advertise"},
        {shard, "tls.key=", "tls.key is missing: every node needs it"},
        {coordinator, "data.units=", "data.units is missing: a coordinator needs it"},
        {coordinator, "run.budget_tokens=0", "run.budget_tokens is missing"},
        {coordinator, "coordinator.h_base=asia", "coordinator.h_base: \"asia\" is not valid"},
        {coordinator, "coordinator.h_base=8,asia=8,eu=0", "coordinator.h_base"},
        {coordinator, "coordinator.h_base=301", "coordinator.h_base"},
        {coordinator, "coordinator.h_base=asia=8,=4", "coordinator.h_base"},
        {coordinator, "coordinator.data=mine", "coordinator.data: \"mine\" is not valid"},
        {coordinator, "coordinator.data=own,asia", "coordinator.data"},
        {coordinator, "coordinator.scale=25:00=3", "coordinator.scale: \"25:00=3\" is not valid"},
        {coordinator, "coordinator.scale_command=a | b", "coordinator.scale_command: | is special"},
        {coordinator, "coordinator.scale_command=a", "scale_command needs coordinator.scale"},
        {coordinator, "coordinator.hook_command=a > b", "coordinator.hook_command: > is special"},
        {coordinator, "coordinator.hook_secret=a", "hook_secret needs coordinator.hook_command"},
        {coordinator, "coordinator.hook_url=ftp://a/b", "expected https://HOST/PATH"},
        {coordinator, "coordinator.hook_url=https://", "expected https://HOST/PATH"},
        {coordinator, "coordinator.hook_url=https://a:b@c/", "no names and passwords in the URL"},
        {coordinator, "coordinator.rules=a: los > 9", "coordinator.rules, line 1: \"los\""},
        {level, "coordinator.links=a>b=1GiB", "links needs coordinator.balance: finish"},
        {coordinator, "coordinator.links=a>b", "coordinator.links: \"a>b\" is not valid"},
        {level, "coordinator.affinity=0.1", "affinity needs coordinator.balance: finish"},
        {shard, "data.dir=s3://bucket/units", "data.dir is a store"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        const char *const set[] = {row[i].set, NULL};
        assert_int_equal(finish(row[i].part, set, NULL), LH_ERR_CONFIG);
        if (!strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
    }
}

TEST(ipv6_and_any_port)
{
    const char *const set[] = {"listen=[::1]:0", "advertise=[2001:db8::1]:443", NULL};
    assert_int_equal(finish(shard, set, NULL), LH_OK);
}

TEST(the_plan_of_named_regions)
{
    const char *const set[] = {"coordinator.h_base=6, asia=8, europe=4,america=300",
                               "coordinator.data=own,asia=leased,europe=private",
                               "privacy.level=region",
                               "privacy.sigma=33.8",
                               "privacy.clip=1",
                               "privacy.epsilon=4",
                               "privacy.delta=1e-6",
                               "privacy.steps=200",
                               "coordinator.cadence=fixed",
                               "coordinator.step_tokens=4096",
                               NULL};
    struct lh_config *c;
    assert_int_equal(finish(coordinator, set, &c), LH_OK);
    const struct ps_settings *s = lh_config_settings(c);
    assert_int_equal(ps_settings_h(s, "asia"), 8);
    assert_int_equal(ps_settings_h(s, "europe"), 4);
    assert_int_equal(ps_settings_h(s, "america"), 300);
    assert_int_equal(ps_settings_h(s, "africa"), 0);
    assert_int_equal(ps_settings_h_base(s), 6);
    assert_int_equal(ps_settings_data(s, "asia"), LH_DATA_LEASED);
    assert_int_equal(ps_settings_data(s, "europe"), LH_DATA_PRIVATE);
    assert_int_equal(ps_settings_data(s, "africa"), LH_DATA_OWN);
    assert_true(ps_settings_has_data(s, LH_DATA_LEASED));
    lh_config_destroy(c);
}

// `coordinator` is both an address and the name of a section: a file may use one of them or both.
TEST(a_section_may_bear_a_settings_name)
{
    const char *const none[] = {NULL};
    struct lh_config *c;
    static const char sections[] =
        "role: both\nshards: [0]\nseal.keys: k\nmodel.weights: w\n"
        "coordinator: {workers: 7}\ndata.units: u\nrun.budget_tokens: 1\n";
    assert_int_equal(finish(sections, none, &c), LH_OK);
    const struct ps_settings *s = lh_config_settings(c);
    assert_int_equal(s->coordinator.workers, 7);
    assert_string_equal(s->node.coordinator, "");
    lh_config_destroy(c);
}

TEST(a_job_is_its_domain_and_run)
{
    uint8_t a[LH_JOB_BYTES], b[LH_JOB_BYTES];
    lh_job_id("d", "run", a);
    lh_job_id("d", "run", b);
    assert_memory_equal(a, b, LH_JOB_BYTES);
    lh_job_id("d", "run2", b);
    assert_memory_not_equal(a, b, LH_JOB_BYTES);
    lh_job_id("e", "run", b);
    assert_memory_not_equal(a, b, LH_JOB_BYTES);
}
