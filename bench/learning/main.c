// bench/learning: runs arms, each in a process of its own, and reports on all results so far.
//
// Results are appended to a file after each arm, so that nothing is lost when it is stopped; arms
// that stand there already are not run again.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/learning/learning.h"
#include "bench/report.h"

enum { ROUNDS = 400, ROUNDS_SHORT = 100, ARMS_MAX = 64 };

static const char usage[] =
    "usage: bench_learning [--json FILE] [flags]\n"
    "Loss per token of asynchronous, compressed training against synchronous, dense training.\n"
    "\n"
    "  --data DIR       tokens of `longhaul data prepare --unit-tokens 2048` (data/tokens)\n"
    "  --results FILE   a line an arm and seed is appended here (run/bench-learning.jsonl)\n"
    "  --pictures DIR   where the loss curves go as SVG (none are drawn without)\n"
    "  --tokens N       tokens of all regions together, rounded down to 14336 (400 rounds)\n"
    "  --seeds A-B      paired seeds (1-5)\n"
    "  --arms A,B,...   only these arms; `--arms list` names all\n"
    "  --jobs N         arms at once (2); every one takes a core\n"
    "  --eval-bytes N   of each held-out text, at the end (65536); a curve's points take 4096\n"
    "  --short          100 rounds, the main arms, 3 seeds: under 40 minutes on two cores\n"
    "  --report         runs nothing, reports on what FILE has\n";

struct options {
    const char *json, *data, *results, *pictures, *arms;
    uint64_t tokens, first, last, eval_bytes;
    int jobs;
    bool report;
};

static const char *const short_arms =
    "sync-sgd-0.7,sync-sgd-1,sync-sgd-1.4,ours,ours-p64,ours-dense-sign,single";

// ---------------------------------------------------------------- one arm

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static json_t *line_of(const struct learn_arm *arm, const struct learn_conf *conf,
                       const struct learn_result *r)
{
    json_t *language = json_object(), *averaged = json_object(), *curve = json_array();
    for (uint32_t i = 0; i < r->rows; i++) {
        json_object_set_new(language, r->row[i].language, json_real(r->row[i].nats));
        json_object_set_new(averaged, r->row[i].language, json_real(r->averaged[i].nats));
    }
    for (uint32_t i = 0; i < r->points; i++) {
        const struct learn_point *p = &r->point[i];
        json_array_append_new(curve, json_pack("[I,I,I,f]", (json_int_t)p->tokens,
                                               (json_int_t)p->up, (json_int_t)p->down, p->nats));
    }
    uint64_t rounds = conf->tokens / LEARN_ROUND_TOKENS;
    char commit[64];
    bench_commit(commit, sizeof commit);
    double load[1] = {0};
    if (getloadavg(load, 1) != 1) load[0] = -1;
    return json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
                     "s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:o, s:o, s:o}",
                     "arm", arm->name, "commit", commit, "mode",
                     arm->mode == LH_MODE_BSP ? "bsp" : "async", "stagger", learn_staggered(arm),
                     "parameters", (json_int_t)r->parameters, "seed", (json_int_t)conf->seed,
                     "tokens", (json_int_t)conf->tokens, "density",
                     (double)learn_density(arm, rounds), "kappa", (double)arm->kappa, "eta",
                     (double)learn_eta(arm, rounds), "beta", (double)learn_beta(arm, rounds),
                     "rate", (double)learn_rate(arm), "floor", (double)learn_floor(arm), "warmup",
                     learn_warmup(rounds), "up_bytes", (json_int_t)r->up, "down_bytes",
                     (json_int_t)r->down, "admitted", (json_int_t)r->admitted, "refused",
                     (json_int_t)r->refused, "trained", (json_int_t)r->tokens, "staleness",
                     r->admitted ? (double)r->staleness / (double)r->admitted : 0, "cpu_s",
                     cpu_seconds(), "load", load[0], "digest", r->digest, "language", language,
                     "averaged", averaged, "curve", curve);
}

static int run_arm(const struct options *o, const struct learn_arm *arm, uint64_t seed)
{
    struct learn_conf conf = {.data = o->data,
                              .tokens = o->tokens,
                              .seed = seed,
                              .curve_bytes = o->eval_bytes < 4096 ? o->eval_bytes : 4096,
                              .final_bytes = o->eval_bytes};
    struct learn_result *r = calloc(1, sizeof *r);
    lh_err err = r ? learn_run(arm, &conf, r) : LH_ERR_NO_MEMORY;
    if (err) {
        fprintf(stderr, "bench_learning: %s\n", lh_err_text(err));
        free(r);
        return 1;
    }
    json_t *line = line_of(arm, &conf, r);
    FILE *f = fopen(o->results, "a");
    int failed = !line || !f || json_dumpf(line, f, JSON_COMPACT) || fputc('\n', f) == EOF;
    if (f && fclose(f)) failed = 1;
    if (failed) fprintf(stderr, "bench_learning: cannot write %s\n", o->results);
    printf("%s, seed %llu: %.4f nats per byte (4 KiB of each text), %.0f s of processor\n",
           arm->name, (unsigned long long)seed, r->point[r->points - 1].nats, cpu_seconds());
    json_decref(line);
    free(r);
    return failed;
}

// ---------------------------------------------------------------- all of them

static bool have(const struct options *o, const char *arm, uint64_t seed)
{
    bool found = false;
    FILE *f = fopen(o->results, "r");
    char line[16384];
    while (f && !found && fgets(line, sizeof line, f)) {
        json_t *j = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(j, "arm"));
        found = name && !strcmp(name, arm) &&
                json_integer_value(json_object_get(j, "seed")) == (json_int_t)seed &&
                learn_line_of(j, o->tokens);
        json_decref(j);
    }
    if (f) fclose(f);
    return found;
}

static int reap(int *running)
{
    int status = 0;
    if (wait(&status) < 0) return 1;
    --*running;
    return status != 0;
}

static int run_all(const struct options *o, const struct learn_arm *const *arm, size_t arms)
{
    int running = 0, failed = 0;
    for (uint64_t seed = o->first; seed <= o->last; seed++)
        for (size_t i = 0; i < arms && !failed; i++) {
            if (have(o, arm[i]->name, seed)) continue;
            if (running == o->jobs) failed |= reap(&running);
            fflush(NULL);
            pid_t child = failed ? -1 : fork();
            if (child == 0) exit(run_arm(o, arm[i], seed));
            if (child < 0)
                failed = 1;
            else
                running++;
        }
    while (running) failed |= reap(&running);
    return failed;
}

static size_t choose(const char *list, const struct learn_arm **out)
{
    char copy[1024];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *save, *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        const struct learn_arm *arm = learn_arm_find(word);
        if (!arm || n == ARMS_MAX) {
            fprintf(stderr, "bench_learning: no arm \"%s\"; --arms list names them\n", word);
            exit(2);
        }
        out[n++] = arm;
    }
    return n;
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    if (*end || end == text || !n) {
        fprintf(stderr, "bench_learning: \"%s\" is no number above 0\n", text);
        exit(2);
    }
    return n;
}

static void read_seeds(struct options *o, const char *text)
{
    char first[32];
    const char *dash = strchr(text, '-');
    snprintf(first, sizeof first, "%.*s", (int)(dash ? dash - text : 31), text);
    o->first = number(first);
    o->last = dash ? number(dash + 1) : o->first;
}

static void read_options(int argc, char **argv, struct options *o)
{
    static const struct option flags[] = {
        {"json", 1, NULL, 'j'},   {"data", 1, NULL, 'd'},  {"results", 1, NULL, 'r'},
        {"tokens", 1, NULL, 't'}, {"seeds", 1, NULL, 's'}, {"arms", 1, NULL, 'a'},
        {"jobs", 1, NULL, 'n'},   {"short", 0, NULL, 'q'}, {"eval-bytes", 1, NULL, 'e'},
        {"report", 0, NULL, 'o'}, {"help", 0, NULL, 'h'},  {"pictures", 1, NULL, 'p'},
        {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", flags, NULL)) != -1;) switch (c) {
        case 'j': o->json = optarg; break;
        case 'd': o->data = optarg; break;
        case 'r': o->results = optarg; break;
        case 'p': o->pictures = optarg; break;
        case 'a': o->arms = optarg; break;
        case 't': o->tokens = number(optarg); break;
        case 'e': o->eval_bytes = number(optarg); break;
        case 'n': o->jobs = (int)number(optarg); break;
        case 's': read_seeds(o, optarg); break;
        case 'o': o->report = true; break;
        case 'q':
            o->tokens = (uint64_t)ROUNDS_SHORT * LEARN_ROUND_TOKENS;
            o->last = 3;
            o->arms = short_arms;
            break;
        default: fputs(usage, c == 'h' ? stdout : stderr); exit(c == 'h' ? 0 : 2);
        }
    if (optind < argc) {
        fputs(usage, stderr);
        exit(2);
    }
    o->tokens -= o->tokens % (2 * LEARN_ROUND_TOKENS);
}

int main(int argc, char **argv)
{
    struct options o = {.data = "data/tokens",
                        .results = "run/bench-learning.jsonl",
                        .tokens = (uint64_t)ROUNDS * LEARN_ROUND_TOKENS,
                        .first = 1,
                        .last = 5,
                        .eval_bytes = 65536,
                        .jobs = 2};
    const struct learn_arm *arm[ARMS_MAX];
    size_t arms = 0;
    read_options(argc, argv, &o);
    if (o.arms && !strcmp(o.arms, "list")) {
        for (size_t i = 0; i < learn_arm_count; i++) puts(learn_arms[i].name);
        return 0;
    }
    if (o.arms)
        arms = choose(o.arms, arm);
    else
        while (arms < learn_arm_count) {
            arm[arms] = &learn_arms[arms];
            arms++;
        }
    if (!o.report && run_all(&o, arm, arms)) return 1;
    return learn_report(o.results, o.tokens, o.json, o.pictures);
}
