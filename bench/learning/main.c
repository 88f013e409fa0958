// bench/learning: runs arms, each in a process of its own, and reports on all results so far.
//
// Results are appended to a file after each arm, so that nothing is lost when it is stopped; arms
// that are in the file are not run again.
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
#include "kernels/blas.h"

enum { ROUNDS = 400, ROUNDS_SHORT = 100, ARMS_MAX = 64 };

static const char usage[] =
    "usage: bench_learning [--json FILE] [flags]\n"
    "Loss per token of asynchronous, compressed training against synchronous, dense training.\n"
    "\n"
    "  --data DIR       tokens of `longhaul data prepare --unit-tokens 2048` (data/tokens)\n"
    "  --results FILE   a line an arm and seed is appended here (run/bench-learning.jsonl)\n"
    "  --pictures DIR   where the loss curves go as SVG (none are drawn without)\n"
    "  --tokens N       tokens of all regions together, rounded down to 14336 (400 rounds)\n"
    "  --rounds N       the same, in rounds\n"
    "  --h N            local steps of a round in the fastest region, a multiple of 4 (8); the\n"
    "                   others do a half and a quarter\n"
    "  --dim N          of the model, a multiple of 8 (96: 0.43 M parameters; 48: 0.11 M)\n"
    "  --rate X         peak of the learning rate of arms that name none (0.006)\n"
    "  --decay X        part of the tokens, at the end, in which the learning rate falls; before\n"
    "                   it stays at its peak (all after the warm-up)\n"
    "  --step-tokens N  of a local step: 128, 256, 512 or 1024 (512)\n"
    "  --seeds A-B      paired seeds (1-5)\n"
    "  --arms A,B,...   only these arms; `--arms list` names all\n"
    "  --jobs N         arms at once (2); every one takes a core\n"
    "  --eval-bytes N   of each held-out text, at the end (65536)\n"
    "  --curve-bytes N  of each held-out text, at a point of the curve (4096)\n"
    "  --points N       of the curve, at most 96 (12)\n"
    "  --short          100 rounds, the main arms, 3 seeds: under 40 minutes on two cores\n"
    "  --report         runs nothing, reports on what FILE has\n";

struct options {
    const char *json, *results, *pictures, *arms;
    uint64_t first, last, rounds;
    struct learn_conf conf; // conditions of every arm; the seed is the arm's
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

// The folder's commit, with "-dirty" if a tracked file outside results/ differs from it.
static void commit_of_tree(char *out, size_t size)
{
    bench_commit(out, size);
    FILE *f = popen("git status --porcelain --untracked-files=no -- ':/' "
                    "':(exclude,top)bench/results' 2>/dev/null",
                    "r");
    bool dirty = f && fgetc(f) != EOF;
    if (f) pclose(f);
    size_t used = strlen(out);
    if (dirty) snprintf(out + used, size - used, "-dirty");
}

// If the folder changed while an arm ran, its commit is unknown.
static void commit_after(char *before, size_t size)
{
    char after[64];
    commit_of_tree(after, sizeof after);
    size_t used = strlen(before);
    if (strcmp(after, before) != 0 && !strstr(before, "-dirty"))
        snprintf(before + used, size - used, "-dirty");
}

static json_t *line_of(const struct learn_arm *arm, const struct learn_conf *conf,
                       const struct learn_result *r, const char *commit)
{
    json_t *language = json_object(), *averaged = json_object(), *curve = json_array();
    for (uint32_t i = 0; i < r->rows; i++) {
        json_object_set_new(language, r->row[i].language, json_real(r->row[i].nats));
        json_object_set_new(averaged, r->row[i].language, json_real(r->averaged[i].nats));
    }
    for (uint32_t i = 0; i < r->points; i++) {
        const struct learn_point *p = &r->point[i];
        json_array_append_new(curve,
                              json_pack("[I,I,I,f,f]", (json_int_t)p->tokens, (json_int_t)p->up,
                                        (json_int_t)p->down, p->nats, p->virtual_s));
    }
    uint64_t rounds = learn_arm_rounds(arm, conf);
    double load[1] = {0};
    if (getloadavg(load, 1) != 1) load[0] = -1;
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:o, s:o, s:o, s:I, s:I, s:I, "
        "s:I, s:I, s:f, s:f, s:f, s:s*, s:s*, s:f, s:I, s:f, s:b, s:s, s:s, s:I, s:I}",
        "arm", arm->name, "commit", commit, "mode", arm->mode == LH_MODE_BSP ? "bsp" : "async",
        "stagger", learn_staggered(arm), "parameters", (json_int_t)r->parameters, "seed",
        (json_int_t)conf->seed, "tokens", (json_int_t)conf->tokens, "density",
        (double)learn_density(arm, rounds), "kappa", (double)arm->kappa, "eta",
        (double)learn_eta(arm, rounds), "beta", (double)learn_beta(arm, rounds), "rate",
        (double)learn_rate(arm, conf), "floor", (double)learn_floor(arm), "warmup",
        learn_warmup(learn_rounds(conf)), "up_bytes", (json_int_t)r->up, "down_bytes",
        (json_int_t)r->down, "admitted", (json_int_t)r->admitted, "refused", (json_int_t)r->refused,
        "trained", (json_int_t)r->tokens, "staleness",
        r->admitted ? (double)r->staleness / (double)r->admitted : 0, "cpu_s", cpu_seconds(),
        "load", load[0], "digest", r->digest, "language", language, "averaged", averaged, "curve",
        curve, "dim", (json_int_t)conf->dim, "step_tokens", (json_int_t)conf->step_tokens, "rounds",
        (json_int_t)learn_rounds(conf), "curve_bytes", (json_int_t)conf->curve_bytes, "eval_bytes",
        (json_int_t)conf->final_bytes, "virtual_s", r->virtual_s, "round_trips",
        arm->round_trips > 0 ? (double)arm->round_trips : 1.0, "jitter", (double)arm->jitter,
        "slow", arm->slow, "cut", arm->cut, "base_rate", (double)conf->rate, "h",
        (json_int_t)conf->h, "decay", (double)conf->decay, "equal_h", arm->equal, "blas",
        lk_blas_core(), "codec", arm->codec, "copies", (json_int_t)learn_copies(arm), "batch",
        (json_int_t)(arm->batch ? arm->batch : 1));
}

static int run_arm(const struct options *o, const struct learn_arm *arm, uint64_t seed)
{
    struct learn_conf conf = o->conf;
    conf.seed = seed;
    char commit[64];
    commit_of_tree(commit, sizeof commit);
    struct learn_result *r = calloc(1, sizeof *r);
    lh_err err = r ? learn_run(arm, &conf, r) : LH_ERR_NO_MEMORY;
    if (err) {
        fprintf(stderr, "bench_learning: %s\n", lh_err_text(err));
        free(r);
        return 1;
    }
    commit_after(commit, sizeof commit);
    json_t *line = line_of(arm, &conf, r, commit);
    FILE *f = fopen(o->results, "a");
    int failed = !line || !f || json_dumpf(line, f, JSON_COMPACT) || fputc('\n', f) == EOF;
    if (f && fclose(f)) failed = 1;
    if (failed) fprintf(stderr, "bench_learning: cannot write %s\n", o->results);
    printf("%s, seed %llu: %.4f nats per byte (%llu bytes of each text), %.0f s of processor\n",
           arm->name, (unsigned long long)seed, r->point[r->points - 1].nats,
           (unsigned long long)conf.curve_bytes, cpu_seconds());
    json_decref(line);
    free(r);
    return failed;
}

// ---------------------------------------------------------------- all arms

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
                learn_line_of(j, &o->conf);
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
    char copy[4096];
    size_t n = 0;
    if (strlen(list) >= sizeof copy) {
        fprintf(stderr, "bench_learning: --arms is longer than %zu characters; run it in parts\n",
                sizeof copy - 1);
        exit(2);
    }
    snprintf(copy, sizeof copy, "%s", list);
    for (char *save, *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        const struct learn_arm *arm = learn_arm_find(word);
        if (!arm || n == ARMS_MAX) {
            fprintf(stderr,
                    "bench_learning: no arm \"%s\"; --arms list names them, and "
                    "bench/learning/README.md their settings\n",
                    word);
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

// Parses an option's number from `least` to `most`, a multiple of `of`.
static uint32_t within(const char *option, const char *text, uint64_t least, uint64_t most,
                       uint64_t of)
{
    uint64_t n = number(text);
    if (n < least || n > most || n % of != 0) {
        fprintf(stderr, "bench_learning: --%s %s: give a multiple of %llu from %llu to %llu\n",
                option, text, (unsigned long long)of, (unsigned long long)least,
                (unsigned long long)most);
        exit(2);
    }
    return (uint32_t)n;
}

static float positive(const char *option, const char *text)
{
    char *end;
    float x = strtof(text, &end);
    if (end == text || *end || !(x > 0) || x > 1) {
        fprintf(stderr, "bench_learning: --%s %s: give a number above 0, at most 1\n", option,
                text);
        exit(2);
    }
    return x;
}

// Sets the tokens to whole shares, computed from rounds if those were given.
static void settle(struct learn_conf *conf, uint64_t rounds)
{
    if (LEARN_UNIT_TOKENS % conf->step_tokens != 0) {
        fprintf(stderr, "bench_learning: --step-tokens %u does not divide a unit's %u tokens\n",
                conf->step_tokens, (unsigned)LEARN_UNIT_TOKENS);
        exit(2);
    }
    if (rounds) conf->tokens = rounds * learn_round_tokens(conf);
    conf->tokens -= conf->tokens % LEARN_SHARE_TOKENS;
    if (conf->curve_bytes > conf->final_bytes) conf->curve_bytes = conf->final_bytes;
}

static void read_options(int argc, char **argv, struct options *o)
{
    static const struct option flags[] = {
        {"json", 1, NULL, 'j'},   {"data", 1, NULL, 'd'},        {"results", 1, NULL, 'r'},
        {"tokens", 1, NULL, 't'}, {"seeds", 1, NULL, 's'},       {"arms", 1, NULL, 'a'},
        {"jobs", 1, NULL, 'n'},   {"short", 0, NULL, 'q'},       {"eval-bytes", 1, NULL, 'e'},
        {"report", 0, NULL, 'o'}, {"help", 0, NULL, 'h'},        {"pictures", 1, NULL, 'p'},
        {"rounds", 1, NULL, 'R'}, {"dim", 1, NULL, 'D'},         {"step-tokens", 1, NULL, 'S'},
        {"points", 1, NULL, 'P'}, {"curve-bytes", 1, NULL, 'c'}, {"rate", 1, NULL, 'L'},
        {"h", 1, NULL, 'H'},      {"decay", 1, NULL, 'W'},       {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", flags, NULL)) != -1;) switch (c) {
        case 'j': o->json = optarg; break;
        case 'd': o->conf.data = optarg; break;
        case 'r': o->results = optarg; break;
        case 'p': o->pictures = optarg; break;
        case 'a': o->arms = optarg; break;
        case 't':
            o->conf.tokens = number(optarg);
            o->rounds = 0;
            break;
        case 'e': o->conf.final_bytes = number(optarg); break;
        case 'c': o->conf.curve_bytes = number(optarg); break;
        case 'R': o->rounds = number(optarg); break;
        case 'D': o->conf.dim = within("dim", optarg, 8, 1024, 8); break;
        case 'S': o->conf.step_tokens = within("step-tokens", optarg, 128, 1024, 128); break;
        case 'L': o->conf.rate = positive("rate", optarg); break;
        case 'W': o->conf.decay = positive("decay", optarg); break;
        case 'H': o->conf.h = within("h", optarg, 4, 1024, 4); break;
        case 'P': o->conf.points = within("points", optarg, 1, LEARN_POINTS_MAX, 1); break;
        case 'n': o->jobs = (int)number(optarg); break;
        case 's': read_seeds(o, optarg); break;
        case 'o': o->report = true; break;
        case 'q':
            o->rounds = ROUNDS_SHORT;
            o->last = 3;
            o->arms = short_arms;
            break;
        default: fputs(usage, c == 'h' ? stdout : stderr); exit(c == 'h' ? 0 : 2);
        }
    if (optind < argc) {
        fputs(usage, stderr);
        exit(2);
    }
    settle(&o->conf, o->rounds);
}

int main(int argc, char **argv)
{
    struct options o = {.results = "run/bench-learning.jsonl",
                        .conf = {.data = "data/tokens",
                                 .curve_bytes = 4096,
                                 .final_bytes = 65536,
                                 .points = LEARN_POINTS,
                                 .rate = 0.006f,
                                 .dim = LEARN_DIM,
                                 .h = LEARN_H,
                                 .step_tokens = LEARN_STEP_TOKENS},
                        .rounds = ROUNDS,
                        .first = 1,
                        .last = 5,
                        .jobs = 2};
    const struct learn_arm *arm[ARMS_MAX];
    size_t arms = 0;
    lk_blas_choose(argv);
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
    return learn_report(o.results, &o.conf, o.json, o.pictures);
}
