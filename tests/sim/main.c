// sim: runs seeds of the simulated cluster.
//
//   sim [--from N] [--seeds N] [--faults all|base|honest|none|LIST] [--bsp] [--stagger] [--trace]
//   sim --exact ...          in fixed point: mass is conserved bit for bit
//   sim --pair ...           two coordinators on one store, in every run
//   sim --device ...         half of the workers keep their state on an emulated device
//   sim --crash-steps N ...  2 N runs of one seed: the first worker crashes at the 1st, 2nd, ...
//                            file operation, killed and by a power cut
//   sim --tight-disks ...    with two checkpoints, a server's disk has no space for a
//                            segment: only trimming the log lets it go on
//   sim --bugs[=NAME] [--from N] [--seeds N] [--trace]    every planted bug, or this one, must be
//                                                         found (builds with LH_BUGS only)
//
// Exit status 1 after a violation; the printed seed replays it.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/cluster.h"

static const struct {
    const char *name;
    size_t at;
    bool base, all; // part of "base", of "all"
} fault_names[] = {
#define FAULT(field, base, all) {#field, offsetof(struct sim_faults, field), base, all},
#define BASE(field) FAULT(field, true, true)
#define OWN(field) FAULT(field, false, true)
#define APART(field) FAULT(field, false, false)
    SIM_FAULTS(BASE, OWN, APART, APART)
#undef APART
#undef OWN
#undef BASE
#undef FAULT
};

static bool is_lie(size_t fault)
{
    return fault == SIM_FAULT_liar || fault == SIM_FAULT_impostor || fault == SIM_FAULT_flood;
}

static bool set_faults(struct sim_faults *f, const char *list)
{
    memset(f, 0, sizeof *f);
    if (strcmp(list, "none") == 0) return true;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", list);
    for (char *save, *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        bool found = false;
        for (size_t i = 0; i < LH_COUNT(fault_names); i++) {
            bool meant = strcmp(word, fault_names[i].name) == 0;
            meant |= fault_names[i].all && strcmp(word, "all") == 0;
            meant |= fault_names[i].base && strcmp(word, "base") == 0;
            meant |= fault_names[i].all && strcmp(word, "honest") == 0 && !is_lie(i);
            if (!meant) continue;
            *(bool *)((char *)f + fault_names[i].at) = true;
            found = true;
        }
        if (!found) {
            fprintf(stderr, "sim: no fault \"%s\"\n", word);
            return false;
        }
    }
    return true;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Prints how often each fault occurred.
static void print_happened(const struct sim_tally *met)
{
    printf("faults:");
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++)
        if (met->happened[i])
            printf(" %s %llu", fault_names[i].name, (unsigned long long)met->happened[i]);
    printf("\n");
}

static void tell_judged(const struct sim_tally *met)
{
    uint64_t exempt = 0;
    for (int i = 1; i < SIM_LOSSES; i++) exempt += met->exempt[i];
    printf("%llu pushes were acknowledged, %llu of them exempt:",
           (unsigned long long)met->acknowledged, (unsigned long long)exempt);
    for (int i = 1; i < SIM_LOSSES; i++)
        printf(" %llu %s%s", (unsigned long long)met->exempt[i], sim_loss_name[i],
               i + 1 < SIM_LOSSES ? "," : "\n");
    printf("%llu worker-shards balanced, %llu losses of workers measured; %llu answers of the "
           "coordinator were on its disk; %llu silences of owners, the longest %.1f s\n",
           (unsigned long long)met->balanced, (unsigned long long)met->mass_losses,
           (unsigned long long)met->answers, (unsigned long long)met->silences,
           (double)met->silence_ns / LH_SECOND);
    if (met->given_up)
        printf("%llu workers on long paths were given up, after the bound that was printed\n",
               (unsigned long long)met->given_up);
}

static int run_seeds(struct sim_conf conf, uint64_t from, uint64_t seeds)
{
    uint64_t failed = 0;
    struct sim_tally met = {0};
    double start = seconds();
    for (uint64_t i = from; i < from + seeds; i++) {
        char why[512];
        conf.seed = i;
        if (!sim_run(&conf, why, &met)) {
            printf("seed %llu: %s\n", (unsigned long long)i, why);
            failed++;
        }
    }
    printf("%llu seeds, %llu events, pushes %llu admitted (%llu clipped) %llu refused, "
           "%llu outer steps; %llu violations, %.1f s\n",
           (unsigned long long)seeds, (unsigned long long)met.events,
           (unsigned long long)met.admitted, (unsigned long long)met.clipped,
           (unsigned long long)met.refused, (unsigned long long)met.outer_steps,
           (unsigned long long)failed, seconds() - start);
    print_happened(&met);
    tell_judged(&met);
    if (conf.faults.disk_loss || conf.faults.damage)
        printf("%llu disks lost, %llu damaged; %llu shards came back from a follower's state\n",
               (unsigned long long)met.disks, (unsigned long long)met.damaged,
               (unsigned long long)met.rebuilt);
    if (met.lied)
        printf("partners lied in %llu runs: %llu of their pushes were admitted, and %llu units "
               "credited that they had leases of\n",
               (unsigned long long)met.lied, (unsigned long long)met.lies_admitted,
               (unsigned long long)met.lies_credited);
    if (conf.faults.standby)
        printf("%llu shards ended with a server that had taken them over\n",
               (unsigned long long)met.taken_over);
    if (conf.faults.move)
        printf("%llu shards went to another server that lived\n", (unsigned long long)met.moved);
    bool steps = conf.optimizer != LH_OPT_SGD;
    if (seeds >= 100 && steps && !met.outer_steps) {
        printf("sim: no outer optimizer took a step in all these seeds\n");
        failed++;
    }
    if (conf.faults.ahead)
        printf("%llu answers recalled leases, %llu took some back\n",
               (unsigned long long)met.recalls, (unsigned long long)met.returns);
    bool open = seeds >= 100 && conf.faults.records && conf.mode != LH_MODE_BSP &&
                !met.happened[SIM_FAULT_records] && !conf.faults.travel && !conf.faults.balance &&
                !conf.faults.budget && !conf.faults.links;
    if (open) printf("sim: no run had a private region in all these seeds\n");
    bool once = seeds >= 100 && conf.faults.epochs && !met.happened[SIM_FAULT_epochs];
    if (once) printf("sim: no run had several epochs in all these seeds\n");
    if (conf.faults.balance)
        printf("%llu units went to another region by the plan, %llu were recalled for one that "
               "ended them earlier, %llu ran twice\n",
               (unsigned long long)met.planned, (unsigned long long)met.stolen,
               (unsigned long long)met.run_twice);
    bool still = seeds >= 100 && conf.faults.balance && !(met.stolen && met.run_twice);
    if (still) printf("sim: no unit was recalled, or none ran twice, in all these seeds\n");
    if (conf.faults.travel)
        printf(
            "%llu units travelled, %llu were refused to a worker alone, %llu that were begun were "
            "given back\n",
            (unsigned long long)met.travelled, (unsigned long long)met.refused_units,
            (unsigned long long)met.begun_back);
    if (conf.faults.links)
        printf("%llu bytes crossed links with a cap, %llu of them had no room for another unit\n",
               (unsigned long long)met.crossed, (unsigned long long)met.full_links);
    bool uncrossed = conf.faults.links && (!conf.faults.travel || seeds >= 100) &&
                     !(met.crossed && met.full_links);
    if (uncrossed) printf("sim: no link with a cap was full in all these seeds; is travel on?\n");
    if (conf.faults.budget)
        printf("%llu runs ended before all was trained, as their budgets say\n",
               (unsigned long long)met.short_runs);
    bool endless = seeds >= 100 && conf.faults.budget && !met.short_runs;
    if (endless) printf("sim: no budget ended a run in all these seeds\n");
    bool untravelled =
        conf.faults.travel && ((seeds >= 100 && !(met.travelled && met.refused_units)) ||
                               (seeds >= 300 && !met.begun_back)); // one in twenty seeds
    if (untravelled)
        printf("sim: no unit travelled, was refused, or was given back, in all these seeds\n");
    bool kept = seeds >= 100 && conf.faults.ahead && !met.returns;
    if (kept) printf("sim: no lease was given back in all these seeds\n");
    bool blind = seeds >= 100 && (!met.admitted || !met.clipped);
    if (blind) printf("sim: no push was clipped in all these seeds: the norm gate was not tried\n");
    if (met.pairs)
        printf("%llu pairs of coordinators had %llu leaders; their store refused %llu changes; "
               "%llu steps while nobody led\n",
               (unsigned long long)met.pairs, (unsigned long long)met.leaders,
               (unsigned long long)met.refused_changes, (unsigned long long)met.leaderless_steps);
    bool untold = met.pairs >= 100 && !met.leaderless_steps; // fewer pairs may have none
    bool alone = seeds >= 100 && conf.faults.pair && !conf.faults.rollback_store &&
                 (untold || met.leaders <= 2 * met.pairs || !met.refused_changes);
    if (alone) printf("sim: no pair of coordinators was tried in all these seeds\n");
    if (conf.exact)
        printf("%llu values with the same mass in bits\n", (unsigned long long)met.equal);
    if (conf.tight_disks) printf("%llu groups found no room\n", (unsigned long long)met.full);
    bool roomy = conf.tight_disks && !met.full;
    if (roomy) printf("sim: there was room for everything: nothing was tried\n");
    if (conf.device)
        printf("%llu digests agreed with a device\n", (unsigned long long)met.compared);
    bool away = conf.device && !met.compared;
    if (away) printf("sim: nothing was compared with a device\n");
    bool vacant = conf.exact && !met.equal;
    if (vacant) printf("sim: every worker lost something: nothing was compared in bits\n");
    bool idle = seeds >= 100 && conf.faults.disk_loss && !met.rebuilt;
    if (idle) printf("sim: no shard was rebuilt in all these seeds\n");
    bool unused = seeds >= 100 && conf.faults.standby && conf.faults.kill && !met.taken_over;
    if (unused) printf("sim: no shard was taken over in all these seeds\n");
    bool stayed = seeds >= 100 && conf.faults.move && !met.moved;
    if (stayed) printf("sim: no shard was moved in all these seeds\n");
    bool believed = seeds >= 100 && conf.faults.liar && !met.lies_admitted;
    if (believed) printf("sim: no push of a liar was admitted in all these seeds\n");
    bool none = believed || blind || idle || unused || stayed || kept || once || open || vacant ||
                roomy || still || untravelled || uncrossed || endless || away || alone;
    return failed || none ? 1 : 0;
}

// Each run crashes at another operation. A run that ends before its operation would prove nothing,
// so it fails the command.
static int run_steps(struct sim_conf conf, uint64_t seed, int64_t steps)
{
    uint64_t failed = 0;
    struct sim_tally met = {0};
    double start = seconds();
    conf.seed = seed;
    for (int64_t at = 0; at < steps; at++) {
        char why[512];
        conf.crash_at = at;
        for (int power = 0; power < 2; power++) {
            conf.crash_power = power;
            if (sim_run(&conf, why, &met)) continue;
            printf("seed %llu, %s at operation %lld: %s\n", (unsigned long long)seed,
                   power ? "power cut" : "killed", (long long)at, why);
            failed++;
        }
    }
    printf("%llu crashes in %lld runs of seed %llu, %llu values with the same mass in bits; %llu "
           "violations, %.1f s\n",
           (unsigned long long)met.struck, (long long)(2 * steps), (unsigned long long)seed,
           (unsigned long long)met.equal, (unsigned long long)failed, seconds() - start);
    bool idle = met.struck < (uint64_t)(2 * steps) || (conf.exact && !met.equal);
    if (idle) printf("sim: not every run crashed, or nothing was compared\n");
    return failed || idle ? 1 : 0;
}

#ifdef LH_PLANTED_BUGS
enum { CONTROLS = 10 }; // control runs without the bug, besides the tests of each mix

// Each bug with the faults that it needs; control runs without the bug have the same faults.
// `family`: the failpoints (common/base/check.h) at which it does something wrong.
static const struct {
    const char *name, *faults, *family;
    // The run that can find it: any, in fixed point, with tight disks, with two coordinators.
    enum { ANY, EXACT, TIGHT, PAIR } run;
} bugs[] = {
    {"ack_before_sync", "power,crash,network", "group", ANY},
    {"drop_dedupe", "kill,network", NULL, ANY},
    {"no_resync", "kill,power,crash", "wal", ANY},
    {"unlogged_reject", "refuse,network,partition", NULL, ANY},
    {"busy_returns", "disk_full,network", NULL, ANY},
    {"return_twice", "refuse,worker_kill,crash", "push", ANY},
    {"corrupt_burn", "network", NULL, ANY},
    {"resend_all", "worker_kill,crash", "cut", ANY},
    {"esnap_rollback", "worker_power", NULL, ANY},
    {"trim_esnap", "worker_power,crash", NULL, ANY},
    {"same_inc_power", "worker_power", NULL, ANY},
    {"inc_reuse", "worker_lost", NULL, ANY},
    {"fence_no_resolve", "tail,kill,network", NULL, ANY},
    {"fence_resend", "tail,kill,network,worker_kill", NULL, ANY},
    {"base_delta", "network", NULL, ANY},
    {"tail_silent", "tail,kill", "recover", ANY},
    {"no_chain", "tail,kill", NULL, ANY},
    {"no_hello", "tail,kill,refuse,network", NULL, ANY},
    {"elide_own", "worker_kill,worker_power", NULL, ANY},
    {"trim_by_ack", "tail,kill,network,partition", NULL, ANY},
    {"resend_refused", "tail,kill,refuse,network,partition", NULL, ANY},
    {"ledger_sticky", "tail,kill,worker_lost,worker_power", NULL, ANY},
    {"local_stable", "disk_loss,tail,kill,worker_kill", NULL, ANY},
    {"gate_refuses", "partition,worker_kill", NULL, ANY},
    {"rebuild_any_branch", "disk_loss,tail,kill,partition,network", NULL, ANY},
    {"rebuild_no_dedupe", "disk_loss", NULL, ANY},
    {"credit_each", "none", NULL, ANY},
    {"epoch_unit", "epochs", NULL, ANY},
    {"no_rewrite", "io,kill,power", NULL, ANY},
    {"erase_unknown", "io", NULL, ANY},
    {"one_is_enough", "rot,kill", "checkpoint", ANY},
    {"credit_any", "kill,worker_kill,partition,network", NULL, ANY},
    {"hung_talks", "standby,disk_hang", NULL, ANY},
    {"take_any", "standby,kill,partition,network", NULL, ANY},
    {"degrade_local", "standby,kill,partition", NULL, ANY},
    {"promote_unsynced", "standby,power,slow", NULL, ANY},
    {"old_epoch", "standby,kill,partition", NULL, ANY},
    {"take_no_stable", "disk_loss,tail,kill,partition,worker_kill", NULL, ANY},
    {"freeze_mem", "move,kill,partition,network", NULL, ANY},
    {"flip_early", "move,partition,network", NULL, ANY},
    {"move_unsynced", "move,kill,crash,power,network", NULL, ANY},
    {"move_unwritten", "move,full_target,worker_kill,network", NULL, ANY},
    {"file_unsynced", "power,kill", "file", ANY},
    {"store_unsynced", "coordinator,power,tail,kill", "store", ANY},
    {"copy_replaced", "disk_loss,tail,kill,partition,network", "replica", ANY},
    {"flip_first", "worker_kill,crash", NULL, ANY},
    {"fold_lent", "tail,kill,worker_lost,worker_power,network,partition", NULL, ANY},
    {"return_rounds", "refuse,network", NULL, EXACT},
    {"no_relief", "none", NULL, TIGHT},
    {"give_up_early", "far,partition", NULL, ANY},
    {"unit_unchecked", "travel", NULL, ANY},
    {"here_early", "travel", NULL, ANY},
    {"given_up_claimed", "travel,kill,worker_kill", NULL, ANY},
    {"cap_forgets_coming", "travel,links", NULL, ANY},
    {"claim_any", "liar", NULL, ANY},
    {"norm_any", "liar", NULL, ANY},
    {"speaks_any", "impostor", NULL, ANY},
    {"cap_forgets_crossed", "travel,links,coordinator,worker_kill", NULL, ANY},
    {"pause_ignored", "pause", NULL, ANY},
    {"no_fence", "pair", NULL, PAIR},
    {"late_answer", "pair", NULL, PAIR},
    {"lease_from_answer", "pair", NULL, PAIR},
    {"no_number", "pair", NULL, PAIR},
    {"forgets", "pair,kill,worker_kill", NULL, PAIR},
};

// Counts failpoints with no planted bug in their family: deaths there would prove little.
static int bare_failpoints(void)
{
    static const char *const points[] = {
#define NAME(name, role, where) name,
        LH_FAILPOINTS(NAME)
#undef NAME
    };
    int bare = 0;
    for (size_t i = 0; i < LH_COUNT(points); i++) {
        size_t n = strcspn(points[i], "."), b = 0;
        while (b < LH_COUNT(bugs) && !(bugs[b].family && strlen(bugs[b].family) == n &&
                                       strncmp(bugs[b].family, points[i], n) == 0))
            b++;
        if (b == LH_COUNT(bugs))
            printf("failpoint %s: no bug is planted in its family\n", points[i]);
        bare += b == LH_COUNT(bugs);
    }
    return bare;
}

// A seed that found this bug before; tried first where few seeds find it, to save time. 0: none.
static uint64_t known_seed(const char *name)
{
    static const struct {
        const char *name;
        uint64_t seed;
    } known[] = {{"return_twice", 286}, {"inc_reuse", 107},      {"elide_own", 364},
                 {"trim_by_ack", 188},  {"resend_refused", 357}, {"cap_forgets_crossed", 104}};
    for (size_t i = 0; i < LH_COUNT(known); i++)
        if (!strcmp(name, known[i].name)) return known[i].seed;
    return 0;
}

static int run_bugs(bool trace, uint64_t from, uint64_t seeds, const char *only)
{
    int missed = bare_failpoints();
    for (size_t b = 0; b < LH_COUNT(bugs); b++) {
        if (only && strcmp(only, bugs[b].name) != 0) continue;
        struct sim_conf conf = {.crash_at = -1};
        char why[512] = "";
        uint64_t found = 0, control_bad = 0;
        if (!set_faults(&conf.faults, bugs[b].faults)) return 2;
        lh_bug_plant(bugs[b].name);
        conf.trace = trace;
        conf.exact = bugs[b].run == EXACT;
        conf.tight_disks = bugs[b].run == TIGHT;
        conf.pair = bugs[b].run == PAIR;
        conf.seed = known_seed(bugs[b].name);
        if (conf.seed && !sim_run(&conf, why, NULL)) found = conf.seed;
        for (conf.seed = from; conf.seed < from + seeds && !found; conf.seed++)
            if (!sim_run(&conf, why, NULL)) found = conf.seed;
        lh_bug_plant(NULL);
        conf.trace = false;
        for (conf.seed = 1; found && conf.seed <= found && conf.seed <= CONTROLS; conf.seed++) {
            char control[512];
            control_bad += !sim_run(&conf, control, NULL);
        }
        if (found && !control_bad)
            printf("%-18s found, seed %llu: %s\n", bugs[b].name, (unsigned long long)found, why);
        else if (!found)
            printf("%-18s NOT FOUND in %llu seeds\n", bugs[b].name, (unsigned long long)seeds);
        else
            printf("%-18s the right rules fail too\n", bugs[b].name);
        fflush(stdout);
        missed += !found || control_bad;
    }
    printf("%zu bugs, %d missed\n", LH_COUNT(bugs), missed);
    return missed ? 1 : 0;
}
#endif

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"from", 1, NULL, 'f'},        {"seeds", 1, NULL, 'n'},   {"faults", 1, NULL, 'x'},
        {"bsp", 0, NULL, 'b'},         {"trace", 0, NULL, 't'},   {"bugs", 2, NULL, 'p'},
        {"optimizer", 1, NULL, 'o'},   {"exact", 0, NULL, 'e'},   {"crash-steps", 1, NULL, 'c'},
        {"tight-disks", 0, NULL, 'd'}, {"stagger", 0, NULL, 's'}, {"device", 0, NULL, 'g'},
        {"pair", 0, NULL, 'w'},        {NULL, 0, NULL, 0}};
    struct sim_conf conf = {.optimizer = -1, .crash_at = -1};
    int64_t steps = 0;
    uint64_t from = 1, seeds = 100;
    bool planted = false;
    const char *only = NULL;
    if (!set_faults(&conf.faults, "all")) return 2;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (c) {
        case 'f': from = strtoull(optarg, NULL, 10); break;
        case 'n': seeds = strtoull(optarg, NULL, 10); break;
        case 'x':
            if (!set_faults(&conf.faults, optarg)) return 2;
            break;
        case 'b': conf.mode = LH_MODE_BSP; break;
        case 's': conf.stagger = WK_STAGGER_ON; break;
        case 't': conf.trace = true; break;
        case 'd': conf.tight_disks = true; break;
        case 'e': conf.exact = true; break;
        case 'g': conf.device = true; break;
        case 'w': conf.pair = true; break;
        case 'c': steps = strtoll(optarg, NULL, 10); break;
        case 'o':
            conf.optimizer = LH_OPT_DELAYED_NESTEROV;
            while (conf.optimizer >= 0 && strcmp(lk_outer_name((uint8_t)conf.optimizer), optarg))
                conf.optimizer--;
            if (conf.optimizer < 0) return 2;
            break;
        case 'p':
            planted = true;
            only = optarg;
            break;
        default: return 2;
        }
    conf.faults.pair |= conf.pair;
    if (steps) return run_steps(conf, from, steps);
    if (!planted) return run_seeds(conf, from, seeds);
#ifdef LH_PLANTED_BUGS
    return run_bugs(conf.trace, from, seeds, only);
#else
    (void)only;
    fprintf(stderr, "sim: this build has no planted bugs; configure with -DLH_BUGS=ON\n");
    return 2;
#endif
}
