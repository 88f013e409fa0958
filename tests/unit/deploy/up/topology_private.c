// Private regions of a topology: the coordinator's settings for them, and files that are refused
// before anything starts.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/up/topology_private.h"
#include "tests/test.h"

#define TOP                                                                                        \
    "run: demo\nbudget_tokens: 1000\ncoordinator: {region: eu}\n"                                  \
    "servers: [{name: s0, region: eu, shards: [0]}]\n"
#define COORDINATOR "coordinator: {cadence: fixed, step_tokens: 64}"
#define TERMS "epsilon: 8, delta: 1e-5, steps: 50, clip: 1"
#define SERVER "server: {" COORDINATOR ", privacy: {sigma: 9.4, " TERMS "}}\n"
#define RECORD "{level: record}"

static struct dp_topology *parse(const char *rest)
{
    char text[4096];
    struct dp_topology *t;
    snprintf(text, sizeof text, TOP "%s", rest);
    lh_err err = dp_topology_parse("f", lh_span_str(text), &t);
    if (err) fail_msg("%s", lh_err_text(err));
    return t;
}

static void sets(const char *rest, const char *data, const char *level)
{
    struct dp_topology *t = parse(rest);
    struct lh_config *c;
    char source[256];
    lh_err err = dp_private_check(t, "f");
    if (err) fail_msg("%s", lh_err_text(err));
    assert_int_equal(dp_topology_server(t, &c), LH_OK);
    assert_int_equal(dp_private_coordinator(t, c), LH_OK);
    assert_string_equal(lh_config_value(c, "coordinator.data", source, sizeof source), data);
    assert_string_equal(lh_config_value(c, "privacy.level", source, sizeof source), level);
    lh_config_destroy(c);
    dp_topology_free(t);
}

TEST(the_coordinator_is_told_the_private_regions)
{
    sets("regions: {eu: {data: /r, privacy: " RECORD "}, us: , ap: }\n" SERVER, "eu=private,leased",
         "record");
    sets("regions: {eu: {data: /r, privacy: " RECORD "}, us: {data: /s, privacy: " RECORD
         "}}\n" SERVER,
         "private", "record");
    sets("regions: {eu: {command: a, privacy: {level: region}}, us: {command: b}}\n"
         "server: {coordinator: {data: own, cadence: fixed, step_tokens: 64}, privacy: {sigma: "
         "9.4, " TERMS "}}\n",
         "eu=private,own", "region");
    sets("regions: {eu: {command: a, privacy: {level: reported}}, us: }\n" SERVER,
         "eu=private,leased", "reported");
    sets("regions: {eu: , us: }\n", "leased", "none");
}

TEST(own_data_and_terms_follow_from_the_regions)
{
    struct lh_privacy terms;
    struct dp_topology *t = parse("regions: {eu: {data: /r, privacy: " RECORD "}, us: }\n" SERVER);
    assert_false(dp_topology_own_data(t)); // us leases units
    assert_false(dp_topology_travels(t));  // records do not travel
    assert_int_equal(dp_private_terms(t, &terms), LH_OK);
    assert_true(terms.level == LH_PRIVACY_RECORD && terms.steps == 50 && terms.sigma == 9.4);
    dp_topology_free(t);
    t = parse("regions: {eu: {data: /r, privacy: " RECORD "}}\n" SERVER);
    assert_true(dp_topology_own_data(t));
    dp_topology_free(t);
    t = parse("regions: {eu: , us: }\n");
    assert_int_equal(dp_private_terms(t, &terms), LH_OK);
    assert_int_equal(terms.level, LH_PRIVACY_NONE);
    dp_topology_free(t);
}

TEST(refusals)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"regions: {eu: {data: /r, privacy: " RECORD "}}\nserver: {privacy: {level: record}}\n",
         "f: server.privacy.level: `up` sets it"},
        {"regions: {eu: {command: a}}\nserver: {coordinator: {data: private}}\n",
         "f: server.coordinator.data: `up` sets it: use regions.NAME.privacy.level"},
        {"regions: {eu: {data: /r, privacy: " RECORD "}, us: {command: a, privacy: {level: "
         "region}}}\n",
         "regions.us.privacy.level is region: another private region has another level"},
        {"regions: {eu: {command: a, privacy: " RECORD "}}\n", "leave the command out"},
        {"regions: {eu: {privacy: {level: region}}}\n", "this level needs a command"},
        {"regions: {eu: {privacy: {level: reported}}}\n", "or give the region a command"},
        {"regions: {eu: {workers: 2, data: /r, privacy: " RECORD "}}\n", "two workers on one"},
        {"regions: {eu: {ranks: 2, data: /r, privacy: " RECORD "}}\n", "by one process"},
        {"regions: {eu: {privacy: " RECORD "}}\n", "a folder of their own"},
        {"regions: {eu: {data: /r, privacy: " RECORD "}}\n", "f: server.privacy.sigma is missing"},
        {"regions: {eu: {data: /r, privacy: " RECORD "}}\n"
         "server: {privacy: {sigma: 9.4, " TERMS "}}\n",
         "f: server.coordinator.cadence: speed sets rounds"},
        {"regions: {eu: {data: /r, privacy: " RECORD "}}\n"
         "server: {" COORDINATOR ", privacy: {sigma: 1, " TERMS "}}\n",
         "f: server.privacy.epsilon: 50 steps of sigma 1 cost"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct dp_topology *t = parse(row[i].text);
        assert_int_equal(dp_private_check(t, "f"), LH_ERR_CONFIG);
        if (!strstr(lh_err_text(LH_ERR_CONFIG), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), row[i].says);
        dp_topology_free(t);
    }
}

TEST(the_examples)
{
    static const char *const file[] = {"deploy/examples/private.yaml",
                                       "deploy/examples/private-records.yaml"};
    for (size_t i = 0; i < LH_COUNT(file); i++) {
        struct dp_topology *t;
        lh_err err = dp_topology_load(file[i], &t);
        if (!err) err = dp_private_check(t, file[i]);
        if (err) fail_msg("%s", lh_err_text(err));
        dp_topology_free(t);
    }
}
