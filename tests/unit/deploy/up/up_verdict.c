// The verdict on a run, with each of its parts failing alone; and summary.json satisfies its
// contract.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_faults.h"
#include "deploy/up/up_report.h"
#include "deploy/up/up_summary.h"
#include "deploy/up/up_watch.h"
#include "tests/test.h"

// Returns a run that ended well: the example's nodes, all with the same status.
static struct dp_up *good_run(void)
{
    struct dp_up *up = calloc(1, sizeof *up);
    assert_non_null(up);
    assert_int_equal(dp_topology_load("deploy/examples/three-regions.yaml", &up->t), LH_OK);
    assert_int_equal(dp_dir_model(up), LH_OK);
    up->flags.with_faults = true;
    up->started_ns = dp_now_ns() - INT64_C(5000000000);
    up->trained_s = 4;
    up->nodes = 6;
    up->node[0] = (struct dp_node){.kind = DP_COORDINATOR, .name = "coordinator"};
    up->node[0].status = (struct dp_status){.seen = true, .credited = 30, .units = 40};
    up->units.count = 40;
    up->units.heldout_count = 2;
    for (unsigned i = 1; i < up->nodes; i++) {
        struct dp_node *n = &up->node[i];
        *n = (struct dp_node){.kind = i < 3 ? DP_SERVER : DP_WORKER, .region = i < 3 ? i : i - 3};
        snprintf(n->name, sizeof n->name, "n%u", i);
        n->total =
            (struct dp_counts){.steps = 100, .rounds = 10, .payload_up = 10000, .plain_up = 9000};
        for (uint32_t shard = 0; shard < 2; shard++) {
            if (i < 3 && shard != i - 1) continue;
            struct dp_holding *h = &n->status.shard[n->status.shards++];
            *h = (struct dp_holding){
                .shard = shard, .version = 50 + shard, .credited = 15, .staleness_p99 = shard};
            snprintf(h->digest, sizeof h->digest, "digest%u", shard);
        }
    }
    for (int i = 0; i < 2; i++) {
        up->heldout[i].before = (struct dp_eval_row){.language = "aa", .nats = 5.5, .bigram = 2.5};
        up->heldout[i].after = (struct dp_eval_row){.language = "aa", .nats = 2.1, .bigram = 2.5};
        up->heldout[i].after.language[1] = (char)('a' + i);
    }
    up->faults = dp_faults_planned(up);
    for (unsigned i = 0; i < up->faults; i++)
        up->fault[i] = (struct dp_fault){.what = "x", .target = "y", .t_s = i, .recovered_s = 1};
    return up;
}

static struct dp_verdict judge(struct dp_up *up)
{
    struct dp_verdict v;
    dp_verdict_of(up, &v);
    lh_manifest_free(&up->manifest);
    dp_topology_free(up->t);
    free(up);
    return v;
}

TEST(a_good_run)
{
    struct dp_verdict v = judge(good_run());
    assert_true(dp_verdict_ok(&v) && v.below_bigram);
    assert_int_equal(v.compared, 4); // a server and three workers
}

TEST(replicas)
{
    for (int what = 0; what < 6; what++) {
        struct dp_up *up = good_run();
        struct dp_holding *h = &up->node[4].status.shard[1];
        if (what == 0) h->digest[0] = 'x';
        if (what == 1) h->version--;
        if (what == 2) up->node[4].status.shards = 1; // has no status of one shard
        if (what == 3) h->digest[0] = up->node[2].status.shard[0].digest[0] = 0; // no digest
        if (what == 4) up->node[1].status.shards = 0; // the server reports no shards
        if (what == 5) h->epoch = 1;
        struct dp_verdict v = judge(up);
        assert_false(v.replicas_equal);
        assert_false(dp_verdict_ok(&v));
        assert_true(v.learned && v.drill && v.credited_once == (what != 4));
    }
}

// One worker's replica is behind; whether the worker counts depends on why.
TEST(workers_that_the_run_went_on_without)
{
    static const struct {
        const char *what, *why;
    } kinds[] = {{"runs", NULL},           {"ended", "somebody else had ended"},
                 {"done", NULL},           {"stopped", NULL},
                 {"expelled", "expelled"}, {"left", "had not drained in time"}};
    for (size_t i = 0; i < LH_COUNT(kinds); i++) {
        struct dp_up *up = good_run();
        struct dp_proc proc = {.state = DP_PROC_ENDED};
        struct dp_node *n = &up->node[4];
        struct dp_status *c = &up->node[0].status;
        const char *what = kinds[i].what;
        n->proc = &proc;
        n->status.shard[1].version--;
        snprintf(n->status.state, sizeof n->status.state, "training");
        if (!strcmp(what, "runs")) proc.state = DP_PROC_RUNNING;
        if (!strcmp(what, "done")) snprintf(n->status.state, sizeof n->status.state, "done");
        if (!strcmp(what, "stopped")) proc.stopping = true; // we stopped it
        if (!strcmp(what, "expelled")) {
            proc.state = DP_PROC_WAITING;
            snprintf(c->expelled[c->expelleds++], sizeof c->expelled[0], "n4");
        }
        if (!strcmp(what, "left")) snprintf(c->left_out[c->left_outs++], sizeof n->name, "n4");
        const char *why = dp_watch_left(up, n);
        assert_true(why ? kinds[i].why && strstr(why, kinds[i].why) : !kinds[i].why);
        assert_null(dp_watch_left(up, &up->node[3]));
        struct dp_verdict v = judge(up);
        assert_int_equal(v.replicas_equal, kinds[i].why != NULL);
        assert_int_equal(v.compared, kinds[i].why ? 3 : 4);
    }
}

TEST(credits)
{
    for (int what = 0; what < 4; what++) {
        struct dp_up *up = good_run();
        if (what == 0) up->node[1].status.shard[0].credited++; // one unit in two logs
        if (what == 1) up->node[0].status.credited = 0;
        if (what == 2) up->units.count = 29;
        if (what == 3) up->node[0].status.seen = false;
        struct dp_verdict v = judge(up);
        assert_false(v.credited_once);
        assert_true(!dp_verdict_ok(&v) && v.replicas_equal);
    }
    struct dp_up *up = good_run(); // the commands left before they trained: nothing counts twice
    for (unsigned i = 0; i < up->nodes; i++)
        for (unsigned s = 0; s < up->node[i].status.shards; s++)
            up->node[i].status.shard[s].credited = 0;
    up->node[0].status.credited = 0;
    assert_true(judge(up).credited_once);
}

TEST(credits_of_several_epochs)
{
    for (int64_t epochs = 1; epochs <= 2; epochs++) {
        struct dp_up *up = good_run();
        struct dp_run_settings run = *up->t->run;
        run.epochs = epochs;
        up->t->run = &run;
        up->units.count = 20; // 30 units are credited
        assert_int_equal(judge(up).credited_once, epochs == 2);
    }
}

TEST(learning)
{
    static const double after[] = {5.5, 5.45, NAN, INFINITY};
    for (size_t i = 0; i < LH_COUNT(after); i++) {
        struct dp_up *up = good_run();
        up->heldout[1].after.nats = after[i];
        struct dp_verdict v = judge(up);
        assert_true(!v.learned && !v.below_bigram && !dp_verdict_ok(&v));
    }
    struct dp_up *up = good_run();
    up->heldout[0].after.nats = 2.6; // learned, but worse than bigrams: reported, no failure
    struct dp_verdict v = judge(up);
    assert_true(v.learned && !v.below_bigram && dp_verdict_ok(&v));
    up = good_run();
    up->units.heldout_count = 0;
    v = judge(up);
    assert_false(v.learned);
}

TEST(the_drill)
{
    struct dp_up *up = good_run();
    up->fault[1].recovered_s = -1;
    assert_false(judge(up).drill);
    up = good_run();
    up->faults--; // one fault never came
    assert_false(judge(up).drill);
    up = good_run();
    up->faults = 0;
    up->flags.with_faults = false;
    assert_true(judge(up).drill);
}

TEST(measured_bits)
{
    struct dp_up *up = good_run();
    struct dp_learning l = dp_learning_of(up);
    assert_true(l.rounds == 10);
    double values = 30.0 * (double)up->manifest.values;
    assert_true(fabs(l.frame_bits - 30000 * 8 / values) < 1e-12);
    assert_true(fabs(l.payload_bits - 27000 * 8 / values) < 1e-12);
    assert_true(fabs(l.density_rounds - 10 * up->plan.density) < 1e-12);
    judge(up);
}

// Adds a command beside the last worker; its losses are unknown.
static struct dp_up *commanded_run(int status)
{
    struct dp_up *up = good_run();
    up->t->trainers = 1;
    up->unjudged = "no losses";
    up->node[up->nodes] = (struct dp_node){.kind = DP_TRAINER, .region = 2, .name = "n5.trainer"};
    struct dp_proc *proc = up->node[up->nodes++].proc = dp_procs_add(&up->procs, "n5.trainer");
    *proc = (struct dp_proc){.state = DP_PROC_ENDED, .last_status = status, .restarts = 2};
    up->faults = dp_faults_planned(up);
    for (unsigned i = 0; i < up->faults; i++)
        up->fault[i] = (struct dp_fault){.what = "x", .target = "y", .recovered_s = 1};
    up->heldout[0].after.nats = 9; // not checked
    return up;
}

TEST(commands)
{
    struct dp_verdict v = judge(commanded_run(0));
    assert_true(dp_verdict_ok(&v) && v.commands && v.compared == 4);
    v = judge(commanded_run(256)); // exit 1
    assert_false(v.commands || dp_verdict_ok(&v));
    struct dp_up *up = commanded_run(0);
    up->node[6].proc = NULL; // the run had ended
    assert_true(judge(up).commands);
    up = commanded_run(15); // it was asked to end because it came after the run's end
    up->node[6].trainer.late = true;
    assert_true(judge(up).commands);
    up = commanded_run(15);
    up->node[6].trainer.late = true;
    up->node[6].proc->fails = 1; // it had only failed before
    assert_false(judge(up).commands);
    up = commanded_run(15);
    up->node[6].trainer.late = up->node[6].trainer.ever = true; // it had trained before
    up->node[6].proc->fails = 1;
    assert_true(judge(up).commands);
    up = commanded_run(0);
    up->faults = 4; // the number of faults in a drill without commands
    assert_false(judge(up).drill);
}

static void hold_contract(struct dp_up *up)
{
    char path[] = "/tmp/longhaul-summary-XXXXXX", command[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct dp_verdict v;
    dp_verdict_of(up, &v);
    up->fault[2].recovered_s = -1;
    assert_int_equal(dp_summary_write(up, &v, "final.bin", path), LH_OK);
    judge(up);
    snprintf(command, sizeof command, "python3 tests/contracts/validate.py summary %s", path);
    assert_int_equal(system(command), 0);
    unlink(path);
}

TEST(the_summary_holds_its_contract)
{
    hold_contract(good_run());
    hold_contract(commanded_run(0));
}
