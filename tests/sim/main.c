// sim: runs seeds of the simulated cluster.
//
//   sim [--from N] [--seeds N] [--faults all|none|LIST] [--bsp] [--trace]
//   sim --bugs[=NAME] [--from N] [--seeds N] [--trace]    every planted bug, or this one, must be
//                                                         found (builds with LH_BUGS only)
//
// Exit status 1 at the first violation; the seed replays it.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/cluster.h"

static const struct {
    const char *name;
    size_t at;
} fault_names[] = {
#define FAULT(field)                                                                               \
    {                                                                                              \
#field, offsetof(struct sim_faults, field)                                                 \
    }
    FAULT(kill),         FAULT(power),       FAULT(crash),       FAULT(worker_kill),
    FAULT(worker_power), FAULT(worker_lost), FAULT(coordinator), FAULT(partition),
    FAULT(network),      FAULT(disk_full),   FAULT(tail),        FAULT(refuse),
    FAULT(drain),        FAULT(io),          FAULT(disk_loss),   FAULT(damage),
    FAULT(standby),      FAULT(rot),
#undef FAULT
};

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
            bool apart = fault_names[i].at == offsetof(struct sim_faults, drain) ||
                         fault_names[i].at == offsetof(struct sim_faults, standby) ||
                         fault_names[i].at == offsetof(struct sim_faults, rot);
            if (!meant && (strcmp(word, "all") != 0 || apart)) continue;
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
    if (conf.faults.disk_loss || conf.faults.damage)
        printf("%llu disks lost, %llu damaged; %llu shards came back from a follower's state\n",
               (unsigned long long)met.disks, (unsigned long long)met.damaged,
               (unsigned long long)met.rebuilt);
    if (conf.faults.standby)
        printf("%llu shards ended with a server that had taken them over\n",
               (unsigned long long)met.taken_over);
    bool steps = conf.optimizer != LH_OPT_SGD;
    if (seeds >= 100 && steps && !met.outer_steps) {
        printf("sim: no outer optimizer took a step in all these seeds\n");
        failed++;
    }
    bool blind = seeds >= 100 && (!met.admitted || !met.clipped);
    if (blind) printf("sim: no push was clipped in all these seeds: the norm gate was not tried\n");
    bool idle = seeds >= 100 && conf.faults.disk_loss && !met.rebuilt;
    if (idle) printf("sim: no shard was rebuilt in all these seeds\n");
    bool unused = seeds >= 100 && conf.faults.standby && conf.faults.kill && !met.taken_over;
    if (unused) printf("sim: no shard was taken over in all these seeds\n");
    return failed || blind || idle || unused ? 1 : 0;
}

#ifdef LH_PLANTED_BUGS
// Each bug under the faults that it needs, after a control run of the right rules under the same.
// `family`: of the failpoints (common/check.h) at which it does something wrong.
static const struct {
    const char *name, *faults, *family;
} bugs[] = {
    {"ack_before_sync", "power,crash,network", "group"},
    {"drop_dedupe", "kill,network", NULL},
    {"no_resync", "kill,power,crash", "wal"},
    {"unlogged_reject", "refuse,network,partition", NULL},
    {"busy_returns", "disk_full,network", NULL},
    {"return_twice", "refuse,worker_kill,crash", "push"},
    {"corrupt_burn", "network", NULL},
    {"resend_all", "worker_kill,crash", "cut"},
    {"esnap_rollback", "worker_power", NULL},
    {"trim_esnap", "worker_power,crash", NULL},
    {"same_inc_power", "worker_power", NULL},
    {"inc_reuse", "worker_lost", NULL},
    {"fence_no_resolve", "tail,kill,network", NULL},
    {"fence_resend", "tail,kill,network,worker_kill", NULL},
    {"base_delta", "network", NULL},
    {"tail_silent", "tail,kill", "recover"},
    {"no_chain", "tail,kill", NULL},
    {"no_hello", "tail,kill,refuse,network", NULL},
    {"elide_own", "worker_kill,worker_power", NULL},
    {"trim_by_ack", "tail,kill,network,partition", NULL},
    {"resend_refused", "tail,kill,refuse,network,partition", NULL},
    {"ledger_sticky", "tail,kill,worker_lost,worker_power", NULL},
    {"local_stable", "disk_loss,tail,kill,worker_kill", NULL},
    {"gate_refuses", "partition,worker_kill", NULL},
    {"rebuild_any_branch", "disk_loss,tail,kill,partition,network", NULL},
    {"rebuild_no_dedupe", "disk_loss", NULL},
    {"credit_each", "none", NULL},
    {"no_rewrite", "io,kill,power", NULL},
    {"erase_unknown", "io", NULL},
    {"one_is_enough", "rot,kill", "checkpoint"},
    {"lease_unheard", "power,kill,worker_kill,worker_power,coordinator", NULL},
    {"credit_any", "kill,worker_kill,partition,network", NULL},
    {"take_any", "standby,kill,partition,network", NULL},
    {"degrade_local", "standby,kill,partition", NULL},
    {"promote_unsynced", "standby,power,crash,partition", NULL},
    {"old_epoch", "standby,kill,partition", NULL},
    {"zombie_stable", "disk_loss,tail,kill,partition,network", NULL},
    {"take_no_stable", "disk_loss,tail,kill,partition,worker_kill", NULL},
    {"file_unsynced", "power,kill", "file"},
    {"store_unsynced", "coordinator,power,tail,kill", "store"},
    {"copy_replaced", "disk_loss,tail,kill,partition,network", "replica"},
};

// Failpoints in whose family nothing is planted: a process that dies there would prove little.
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

static int run_bugs(bool trace, uint64_t from, uint64_t seeds, const char *only)
{
    int missed = bare_failpoints();
    for (size_t b = 0; b < LH_COUNT(bugs); b++) {
        if (only && strcmp(only, bugs[b].name) != 0) continue;
        struct sim_conf conf = {0};
        char why[512] = "";
        uint64_t found = 0, control_bad = 0;
        if (!set_faults(&conf.faults, bugs[b].faults)) return 2;
        lh_bug_plant(bugs[b].name);
        conf.trace = trace;
        for (conf.seed = from; conf.seed < from + seeds && !found; conf.seed++)
            if (!sim_run(&conf, why, NULL)) found = conf.seed;
        lh_bug_plant(NULL);
        conf.trace = false;
        for (conf.seed = 1; found && conf.seed <= found && conf.seed < 50; conf.seed++) {
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
    static const struct option options[] = {{"from", 1, NULL, 'f'},      {"seeds", 1, NULL, 'n'},
                                            {"faults", 1, NULL, 'x'},    {"bsp", 0, NULL, 'b'},
                                            {"trace", 0, NULL, 't'},     {"bugs", 2, NULL, 'p'},
                                            {"optimizer", 1, NULL, 'o'}, {NULL, 0, NULL, 0}};
    struct sim_conf conf = {.optimizer = -1};
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
        case 't': conf.trace = true; break;
        case 'o':
            conf.optimizer = LH_OPT_BUFFERED;
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
    if (!planted) return run_seeds(conf, from, seeds);
#ifdef LH_PLANTED_BUGS
    return run_bugs(conf.trace, from, seeds, only);
#else
    (void)only;
    fprintf(stderr, "sim: this build has no planted bugs; configure with -DLH_BUGS=ON\n");
    return 2;
#endif
}
