// ctest: server_privacy
// The settings privacy.* of a coordinator: an unsound combination is refused, with the reason and
// the nearest sound setting.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/plan.h"
#include "server/privacy.h"
#include "tests/test.h"

static const char file[] = "tls: {ca: ca.pem, cert: c.pem, key: c.key}\n"
                           "model.manifest: model.json\ndir: state\n"
                           "listen: 127.0.0.1:7000\nrole: coordinator\n"
                           "data.units: u.json\nrun.budget_tokens: 3000000\n"
                           "coordinator: {cadence: fixed,\n"
                           "  step_tokens: 4096, data: \"leased,asia=private\"}\n"
                           "privacy: {level: region, sigma: 33.8, clip: 1, epsilon: 4,\n"
                           "  delta: 1e-6, steps: 200}\n";

static lh_err finish(const char *set, struct lh_config **out)
{
    struct lh_config *c;
    assert_int_equal(lh_config_create(&ps_settings_table, &c), LH_OK);
    assert_int_equal(lh_config_text(c, "file", lh_span_str(file)), LH_OK);
    if (set) assert_int_equal(lh_config_set(c, set), LH_OK);
    lh_err err = lh_config_finish(c);
    if (out)
        *out = c;
    else
        lh_config_destroy(c);
    return err;
}

TEST(sound_settings_make_the_terms)
{
    struct lh_config *c;
    assert_int_equal(finish(NULL, &c), LH_OK);
    struct lh_privacy p = ps_privacy_terms(lh_config_settings(c));
    assert_int_equal(p.level, LH_PRIVACY_REGION);
    assert_true(p.sigma == 33.8 && p.rate == 1 && p.clip == 1 && p.epsilon == 4);
    assert_int_equal(p.steps, 200);
    assert_int_equal(p.local_steps, 8);
    assert_int_equal(p.ahead, 64);
    lh_config_destroy(c);
}

TEST(unsound_settings_are_refused_with_a_remedy)
{
    static const struct {
        const char *set, *says;
    } bad[] = {
        {"privacy.level=none", "set it to record, region or reported"},
        {"coordinator.data=leased,asia=own", "no region is private"},
        {"privacy.sigma=0", "longhaul privacy plan"},
        {"privacy.clip=0", "privacy.clip is missing"},
        {"privacy.epsilon=0", "privacy.epsilon is missing"},
        {"privacy.delta=0", "privacy.delta is missing"},
        {"privacy.steps=0", "privacy.steps is missing"},
        {"privacy.rate=0.01", "set 1"},
        {"privacy.delta=1e-10", "set 1e-9"},
        {"privacy.sigma=20", "set privacy.sigma to 33.7"},
        {"privacy.steps=201", "fewer privacy.steps"},
        {"coordinator.cadence=link", "cadence: link sets rounds"},
        {"coordinator.cadence=speed", "cadence: speed sets rounds"},
        {"coordinator.cadence=staged", "cadence: staged sets rounds"},
        {"coordinator.step_tokens=0", "coordinator.step_tokens is missing"},
        {"update.weighting=tokens", "set equal"},
        {"update.mode=bsp", "set async"},
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        lh_err err = finish(bad[i].set, NULL);
        if (err != LH_ERR_CONFIG || !strstr(lh_err_text(err), bad[i].says))
            fail_msg("%s: %s", bad[i].set, lh_err_text(err));
    }
}

// At record level records are sampled, and a neighbour's sum is C away, not 2C.
TEST(at_record_level_a_draw_makes_noise_cheaper)
{
    static const char all[] = "privacy.level=record\nprivacy.rate=0.01\nprivacy.sigma=1\n"
                              "privacy.delta=1e-5\nprivacy.steps=1000\nprivacy.epsilon=";
    static const struct {
        const char *epsilon, *says; // the reference accountant gives 1.828
    } row[] = {{"1.85", NULL}, {"1.82", "set privacy.sigma to 1.00"}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c;
        char text[256];
        snprintf(text, sizeof text, "%s%s", all, row[i].epsilon);
        assert_int_equal(lh_config_create(&ps_settings_table, &c), LH_OK);
        assert_int_equal(lh_config_text(c, "file", lh_span_str(file)), LH_OK);
        for (char *at = text, *line; (line = strtok_r(at, "\n", &at));)
            assert_int_equal(lh_config_set(c, line), LH_OK);
        lh_err err = lh_config_finish(c);
        if (!row[i].says) {
            assert_int_equal(err, LH_OK);
            struct lh_privacy p = ps_privacy_terms(lh_config_settings(c));
            assert_int_equal(p.level, LH_PRIVACY_RECORD);
            assert_true(p.rate == 0.01 && p.ahead == 64 * 8);
        } else if (err != LH_ERR_CONFIG || !strstr(lh_err_text(err), row[i].says)) {
            fail_msg("%s", lh_err_text(err));
        }
        lh_config_destroy(c);
    }
}
