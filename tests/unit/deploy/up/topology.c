// Topologies: the example, lists and their owners, and every refusal with its line.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/up/topology.h"
#include "deploy/up/topology_rows.h"
#include "server/settings.h"
#include "tests/test.h"
#include "worker/ranks/reduce.h"
#include "worker/settings.h"

#define TOP "run: demo\nbudget_tokens: 1000\ncoordinator: {region: eu}\n"
#define SERVERS                                                                                    \
    "servers:\n  - {name: s0, region: eu, shards: [0, 2]}\n  - {name: s1, region: us, shards: "    \
    "[1]}\n"
#define REGIONS "regions:\n  eu: {speed: 2, workers: 3}\n  us:\n  ap:\n"

TEST(the_example)
{
    struct dp_topology *t;
    assert_int_equal(dp_topology_load("deploy/examples/three-regions.yaml", &t), LH_OK);
    assert_string_equal(t->run->run, "three-regions");
    assert_int_equal(t->run->budget_tokens, 4000000);
    assert_int_equal(t->regions, 3);
    assert_int_equal(t->workers, 3);
    assert_int_equal(t->shards, 2);
    assert_int_equal(t->links, 3);
    assert_string_equal(t->region[t->coordinator].name, "europe");
    for (unsigned i = 0; i < 3; i++) {
        assert_true(t->link[i].shape.rtt_ms >= 150 && t->link[i].shape.rtt_ms <= 200);
        assert_true(t->link[i].shape.mbit == 100);
    }
    assert_true(t->region[0].speed == 4 && ps_settings_h(t->server_base, "america") == 2);
    assert_true(t->server_base->update.eta == 1.4 && t->worker_base->codec.density == 0);
    dp_topology_free(t);
}

TEST(defaults_and_default_links)
{
    struct dp_topology *t;
    const char *text = TOP "link: {rtt_ms: 90}\n" SERVERS REGIONS
                           "links:\n  - {from: us, to: eu, rtt_ms: 10, mbit: unlimited}\n";
    assert_int_equal(dp_topology_parse("t", lh_span_str(text), &t), LH_OK);
    assert_int_equal(t->workers, 5);
    assert_int_equal(t->shards, 3);
    assert_int_equal(t->links, 3);
    for (unsigned i = 0; i < t->links; i++) {
        const struct dp_link *l = &t->link[i];
        assert_true(l->a < l->b);
        bool named = l->a == 0 && l->b == 1;
        assert_true(l->shape.rtt_ms == (named ? 10 : 90) && l->shape.mbit == (named ? 0 : 100));
    }
    assert_true(t->region[1].speed == 1 && t->region[1].workers == 1);
    assert_int_equal(t->server[1].region, 1);
    dp_topology_free(t);
}

// Each GPU has a rank. The number of GPUs and hosts decides how gradients are reduced, unless the
// file says so.
TEST(gpus_have_ranks)
{
    struct dp_topology *t;
    const char *text = TOP SERVERS "regions:\n  eu: {gpus: 8, workers: 2}\n  us: {ranks: 3}\n"
                                   "  ap: {ranks: 2}\n"
                                   "  af: {gpus: 4, ranks: 4, hosts: 2}\n"
                                   "  sa: {ranks: 5, hosts: 2}\n";
    assert_int_equal(dp_topology_parse("t", lh_span_str(text), &t), LH_OK);
    assert_int_equal(t->region[0].ranks, 8);
    assert_int_equal(t->region[0].reduce, WK_REDUCE_NCCL);
    assert_int_equal(t->region[1].reduce, WK_REDUCE_SHM);
    assert_int_equal(t->region[2].reduce, WK_REDUCE_SHM);
    assert_int_equal(t->region[3].ranks, 4);
    assert_int_equal(t->region[3].reduce, WK_REDUCE_NCCL);
    assert_int_equal(t->region[3].hosts, 2);
    assert_int_equal(t->region[0].hosts, 1);
    assert_int_equal(t->region[4].reduce, WK_REDUCE_TCP);
    static const unsigned host[] = {0, 0, 0, 1, 1}; // neighbouring ranks share a host
    for (unsigned rank = 0; rank < LH_COUNT(host); rank++)
        assert_int_equal(dp_region_host(&t->region[4], rank), host[rank]);
    assert_int_equal(t->helpers, 2 * 7 + 2 + 1 + 3 + 4);
    dp_topology_free(t);
}

TEST(refusals)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {SERVERS REGIONS, "f:1: run is missing"},
        {TOP SERVERS, "f: regions is missing"},
        {TOP REGIONS, "f: servers is missing"},
        {TOP "regions: [eu]\n" SERVERS, "f:4: regions: expected a map by name"},
        {TOP "servers: {}\n" REGIONS, "f:4: servers: expected a list of maps"},
        {TOP "regions: {EU: }\n", "f:4: \"EU\" is not a valid name"},
        {"budget_tokens: 1\nrun: A b\ncoordinator: {region: eu}\n" SERVERS REGIONS,
         "f:2: \"A b\" is not a valid name"},
        {TOP "regions: {eu: {sped: 1}}\n", "f:4: no setting sped of a region; did you mean speed?"},
        {TOP SERVERS "region: {eu: }\n", "no setting region of a topology; did you mean regions?"},
        {TOP "regions: {eu: {utterly: 1}}\n", "f:4: no setting utterly of a region (`longhaul "
                                              "config explain --kind topology` lists all)"},
        {TOP "regions: {eu: {speed: -1}}\n", "f:4: speed: \"-1\" is not valid"},
        {TOP "regions: {eu: {workers: 40}, us: {workers: 40}}\n", "more than 64 workers"},
        {TOP "regions: {eu: {gpus: 8, ranks: 4}}\n", "f:4: eu: 8 gpus and 4 ranks: each GPU has"},
        {TOP "regions: {eu: {ranks: 2, hosts: 3}}\n",
         "f:4: eu: 2 ranks on 3 hosts: each host needs"},
        {TOP "regions: {eu: {hosts: 2}}\n", "f:4: eu: 1 ranks on 2 hosts"},
        {TOP "regions: {eu: {ranks: 2, hosts: 2, command: train}}\n", "hosts are for the built-in"},
        {TOP REGIONS "servers:\n  - {name: s, region: ue, shards: [0]}\n",
         "f:9: no region ue; did you mean eu?"},
        {TOP REGIONS "servers:\n  - {name: eu, region: eu, shards: [0]}\n",
         "f:9: the name eu is taken by a region"},
        {TOP REGIONS "servers:\n  - {name: coordinator, region: eu, shards: [0]}\n",
         "a server can't be named coordinator"},
        {TOP REGIONS "servers:\n  - {name: s, region: eu}\n", "f:9: server s owns no shards"},
        {TOP REGIONS "servers:\n  - {region: eu, shards: [0]}\n", "f:9: name is missing"},
        {TOP REGIONS "servers:\n  - {name: s, region: eu, shards: [1]}\n", "there are 1 shards"},
        {TOP REGIONS "servers:\n  - {name: s, region: eu, shards: [0]}\n"
                     "  - {name: s2, region: eu, shards: [0]}\n",
         "server s2: shard 0 has an owner already"},
        {TOP SERVERS REGIONS "links:\n  - {from: eu, to: eu}\n", "f:12: a link from eu to itself"},
        {TOP SERVERS REGIONS "links:\n  - {from: eu, to: us}\n  - {from: us, to: eu}\n",
         "f:13: the link of us and eu is given twice"},
        {TOP SERVERS REGIONS "server: {update: {eta: 99}}\n",
         "f:11: update.eta: \"99\" is not valid, expected a number from 0 to 10"},
        {TOP SERVERS REGIONS "worker:\n  codec.denisty: 1\n",
         "f:12: no setting codec.denisty of a worker; did you mean codec.density?"},
        {"run: d\nbudget_tokens: 1\ncoordinator.region: as\n" SERVERS REGIONS, "no region as"},
        {TOP "modle: {dim: 3}\n" SERVERS REGIONS, "f:4: no setting modle"},
        {TOP SERVERS REGIONS "command: python 'train.py\n", "f:11: command: a quote ' is not"},
        {TOP SERVERS REGIONS "command: python train.py > log\n", "f:11: command: > is special"},
        {TOP SERVERS REGIONS "command: a {wroker}\n", "did you mean {worker}?"},
        {TOP SERVERS REGIONS "command: []\n", "f:11: command: no program is given"},
        {TOP SERVERS REGIONS "command: {a: b}\n", "command"},
        {TOP SERVERS "regions:\n  us:\n    command: [[a]]\n", "f:9: command: expected a list of"},
        {TOP SERVERS "regions:\n  us:\n    comand: a\n", "did you mean command?"},
        {TOP SERVERS REGIONS "command: a\ntokens_per_s: 9\n", "f:12: tokens_per_s throttles the"},
        {TOP SERVERS REGIONS "links:\n  - {from: eu, rtt_ms: 1}\n", "f:12: to is missing"},
        {TOP SERVERS REGIONS "link: {from: eu, to: us}\n", "f:11: link: it applies to all pairs"},
        {TOP SERVERS REGIONS "link: {rtt_m: 9}\n", "did you mean rtt_ms?"},
        {TOP SERVERS REGIONS "lnk: {}\n", "did you mean link?"},
        {TOP SERVERS "regions:\n  eu: {data: /d, command: a}\n",
         "f:8: eu: data: units travel to the built-in trainer only"},
        {TOP SERVERS "regions:\n  eu: {data: /d}\nworker: {trainer: {kind: external}}\n",
         "f:8: eu: data: no units travel with worker: trainer.kind: external"},
        {TOP SERVERS "regions: {eu: {command: a}, us: }\nserver: {coordinator.data: own}\n",
         "region us has no command"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct dp_topology *t;
        lh_err err = dp_topology_parse("f", lh_span_str(row[i].text), &t);
        assert_int_equal(err, LH_ERR_CONFIG);
        if (!strstr(lh_err_text(err), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(err), row[i].says);
    }
}

TEST(commands)
{
    struct dp_topology *t;
    const char *text = TOP SERVERS "command: python 'my train.py' --out {dir}/{worker}\n"
                                   "regions:\n  eu: {workers: 3, ranks: 4}\n  us: {command: \"\"}\n"
                                   "  ap: {command: [sh, -c, \"a | b $X\"], ranks: 2}\n";
    lh_err err = dp_topology_parse("t", lh_span_str(text), &t);
    if (err) fail_msg("%s", lh_err_text(err));
    const struct dp_words *eu = t->region[0].command, *ap = t->region[2].command;
    assert_int_equal(eu->count, 4);
    assert_string_equal(eu->at[1], "my train.py");
    assert_string_equal(eu->at[3], "{dir}/{worker}");
    assert_null(t->region[1].command); // the built-in trainer
    assert_int_equal(ap->count, 3);
    assert_string_equal(ap->at[2], "a | b $X"); // a list's words are not parsed as a shell would
    assert_int_equal(t->trainers, 4);
    assert_int_equal(t->helpers, 0); // a command has its own ranks
    dp_topology_free(t);
}

TEST(explain_tells_of_every_table)
{
    FILE *file = tmpfile();
    char text[1 << 16];
    assert_non_null(file);
    assert_int_equal(dp_topology_explain(NULL, true, file), LH_OK);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    assert_non_null(strstr(text, "budget_tokens\n"));
    assert_non_null(strstr(text, "regions.NAME"));
    assert_non_null(strstr(text, "loss_percent\n"));
    assert_non_null(strstr(text, "links: a list of maps"));
    assert_int_equal(dp_topology_explain("model.dmi", false, file), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "did you mean model.dim?"));
    fclose(file);
}
