// The campaign over a region's state machine.
//
//     region [--from SEED] [--seeds N] [--seed SEED] [--bugs]
//
// Every seed must end as world.h says; with --bugs each planted bug must be found.
#include "tests/region/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

static const char *const fault_names[WORLD_FAULT_KINDS] = {"kill",  "power",     "pause", "cut",
                                                           "init",  "operation", "hang",  "sticky",
                                                           "abort", "slow",      "point", "flip"};

#ifdef LH_PLANTED_BUGS
static const char *const bugs[] = {
    "region_no_share",    "region_stale_lane",   "region_abort_for_ever", "region_no_deadlines",
    "region_no_silence",  "region_any_version",  "region_step_again",     "region_deaf_to_abort",
    "region_step_lost",   "region_own_gradient", "region_tries_for_ever", "region_any_parameters",
    "region_any_sum",     "region_any_bucket",   "region_bucket_early",   "region_given_kept",
    "region_any_backend",
};

static int hunt(const char *bug, uint64_t seeds)
{
    lh_bug_plant(bug);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct world_outcome out = world_play(seed, false);
        if (out.ok) continue;
        printf("%-22s found by seed %" PRIu64 ": %s\n", bug, seed, out.text);
        fflush(stdout);
        return 1;
    }
    return 0;
}

static int find_bugs(uint64_t seeds)
{
    int missed = 0;
    for (size_t b = 0; b < LH_COUNT(bugs); b++) {
        fflush(stdout);
        int status = 0;
        pid_t child = fork(); // an assertion of the product ends the process
        if (child == 0) _exit(hunt(bugs[b], seeds));
        LH_ASSERT(child > 0 && waitpid(child, &status, 0) == child);
        bool asserted = WIFSIGNALED(status), found = asserted || WEXITSTATUS(status) == 1;
        missed += !found;
        if (!found || asserted)
            printf("%-22s %s\n", bugs[b], found ? "found by an assertion" : "NOT FOUND");
    }
    return missed ? 1 : 0;
}
#endif

static int campaign(uint64_t from, uint64_t seeds)
{
    struct world_outcome sum = {.ok = true};
    uint64_t failed = 0;
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        struct world_outcome out = world_play(seed, false);
        if (!out.ok && ++failed <= 20) printf("seed %" PRIu64 ": %s\n", seed, out.text);
        sum.steps += out.steps;
        sum.shares += out.shares;
        sum.ends += out.ends;
        sum.early += out.early;
        for (int i = 0; i < WORLD_FAULT_KINDS; i++) sum.faults[i] += out.faults[i];
    }
    printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " steps, %" PRIu64
           " states shared, %" PRIu64 " processes ended with a word; %" PRIu64
           " buckets summed before the backward pass had ended; faults:",
           seeds, failed, sum.steps, sum.shares, sum.ends, sum.early);
    bool idle = seeds >= 100 && !sum.early;
    for (int i = 0; i < WORLD_FAULT_KINDS; i++) {
        printf(" %s %" PRIu64, fault_names[i], sum.faults[i]);
        idle |= seeds >= 100 && !sum.faults[i]; // without it the campaign would prove nothing
    }
    printf("\n");
    return failed || idle ? 1 : 0;
}

int main(int argc, char **argv)
{
    uint64_t from = 1, seeds = 1000, one = 0;
    bool find = false;
    for (int i = 1; i < argc; i++) {
        uint64_t *to = !strcmp(argv[i], "--from")    ? &from
                       : !strcmp(argv[i], "--seeds") ? &seeds
                       : !strcmp(argv[i], "--seed")  ? &one
                                                     : NULL;
        if (!strcmp(argv[i], "--bugs"))
            find = true;
        else if (to && i + 1 < argc)
            *to = strtoull(argv[++i], NULL, 10);
        else {
            fprintf(stderr, "usage: region [--from SEED] [--seeds N] [--seed SEED] [--bugs]\n");
            return 2;
        }
    }
#ifdef LH_PLANTED_BUGS
    if (find) return find_bugs(seeds);
#else
    if (find) {
        fprintf(stderr, "region: this build has no planted bugs\n");
        return 2;
    }
#endif
    if (!one) return campaign(from, seeds);
    struct world_outcome out = world_play(one, true);
    printf("seed %" PRIu64 ": %s\n", one, out.ok ? "ok" : out.text);
    return out.ok ? 0 : 1;
}
