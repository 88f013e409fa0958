// bench_sim: one run of a simulated cluster; prints one line of JSON. bench/sim.py calls it.
//
// `bench_sim --help` lists the flags; scene.h explains them. Exit status 1: the run did not end.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench/sim/cluster.h"
#include "common/base/check.h"

static void tell_decided(const struct run_figures *f)
{
    printf(", \"decided\": {");
    for (int r = PS_BALANCE_HOME; r < RUN_REASONS; r++)
        printf("%s\"%s\": %llu", r > PS_BALANCE_HOME ? ", " : "",
               ps_balance_reason_name((enum ps_balance_reason)r),
               (unsigned long long)f->decided[r]);
    printf("}");
}

static void tell(const struct scene *s, const struct run_figures *f)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"workers\": %u, \"shards\": %u, \"seed\": %llu, \"rule\": \"%s\", \"tokens\": %.0f",
           s->flags.workers, s->flags.shards, (unsigned long long)s->flags.seed,
           scene_rule(&s->flags), s->tokens);
    printf(", \"makespan_s\": %.9g, \"bound_s\": %.9g, \"began_s\": %.9g", f->makespan_s,
           s->bound_s, f->began_s);
    printf(", \"units\": %llu, \"credited\": %llu, \"claimed_again\": %llu",
           (unsigned long long)f->units, (unsigned long long)f->credited,
           (unsigned long long)f->claimed_again);
    printf(", \"trained\": %.0f, \"busy_s\": %.9g, \"admitted\": %llu, \"refused\": %llu",
           f->trained, f->busy_s, (unsigned long long)f->admitted, (unsigned long long)f->refused);
    printf(", \"staleness\": %.9g, \"staleness_p95\": %.9g", f->staleness, f->staleness_p95);
    printf(", \"up\": %.0f, \"down\": %.0f, \"snapshots\": %.0f, \"lost\": %.9g", f->up, f->down,
           f->snapshots, f->lost);
    printf(", \"ready_s\": %.9g, \"trained_before\": %.0f", f->ready_s, f->trained_before);
    printf(", \"failures\": %llu, \"events\": %llu", (unsigned long long)f->failures,
           (unsigned long long)f->events);
    printf(", \"own\": %.9g, \"peak_up\": %.0f", f->own, f->peak_up);
    tell_decided(f);
    printf(", \"wall_s\": %.3f, \"memory\": %lld}\n", f->wall_s, (long long)used.ru_maxrss * 1024);
}

int main(int argc, char **argv)
{
    struct scene_flags flags = scene_read(argc, argv);
    struct scene *s = calloc(1, sizeof *s);
    struct run_figures figures;
    char why[256];
    LH_ASSERT(s);
    scene_draw(s, &flags);
    bool ok = run_scene(s, &figures, why);
    if (ok)
        tell(s, &figures);
    else
        fprintf(stderr, "bench_sim: %u workers, %s, seed %llu: %s\n", flags.workers,
                scene_rule(&flags), (unsigned long long)flags.seed, why);
    free(s);
    return ok ? 0 : 1;
}
