// Tables and documents of benches. See report.h.
#include "bench/report.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"

static _Noreturn void usage(const char *program, const struct bench_flag *flag, bool asked)
{
    FILE *out = asked ? stdout : stderr;
    fprintf(out, "usage: %s [--json FILE]%s\n", program, flag && flag->name ? " [flags]" : "");
    for (; flag && flag->name; flag++)
        if (flag->words)
            fprintf(out, "  --%s %s   %s\n", flag->name, flag->words, flag->help);
        else
            fprintf(out, "  --%s N   %s (%llu)\n", flag->name, flag->help,
                    (unsigned long long)flag->value);
    exit(asked ? 0 : 2);
}

static bool read_word(struct bench_flag *flag, const char *text)
{
    size_t length = strlen(text);
    uint64_t place = 0;
    for (const char *at = flag->words;; at += strcspn(at, "|") + 1, place++) {
        size_t here = strcspn(at, "|");
        if (here == length && !strncmp(at, text, here)) {
            flag->value = place;
            return true;
        }
        if (!at[here]) return false;
    }
}

static bool read_flag(struct bench_flag *flag, const char *name, const char *text)
{
    while (flag && flag->name && strcmp(flag->name, name)) flag++;
    if (flag && flag->name && flag->words) return read_word(flag, text);
    if (!flag || !flag->name || !*text || strspn(text, "0123456789") != strlen(text)) return false;
    flag->value = strtoull(text, NULL, 10);
    return true;
}

static void note_load(struct bench_report *r, const char *name)
{
    double load[3];
    if (getloadavg(load, 3) == 3)
        bench_condition(r, name, "%.2f %.2f %.2f", load[0], load[1], load[2]);
}

struct bench_report bench_start_with(const char *bench, int argc, char **argv,
                                     struct bench_flag *flag)
{
    struct bench_report r = {.bench = bench};
    for (int i = 1; i < argc; i += 2) {
        if (!strcmp(argv[i], "--help")) usage(argv[0], flag, true);
        if (i + 1 == argc || strncmp(argv[i], "--", 2)) usage(argv[0], flag, false);
        if (!strcmp(argv[i], "--json"))
            r.json = argv[i + 1];
        else if (!read_flag(flag, argv[i] + 2, argv[i + 1]))
            usage(argv[0], flag, false);
    }
    note_load(&r, "load average");
    return r;
}

struct bench_report bench_start(const char *bench, int argc, char **argv)
{
    return bench_start_with(bench, argc, argv, NULL);
}

void bench_condition(struct bench_report *r, const char *name, const char *format, ...)
{
    LH_ASSERT(r->condition_count < LH_COUNT(r->condition));
    size_t at = r->condition_count++;
    va_list args;
    snprintf(r->condition[at].name, sizeof r->condition[at].name, "%s", name);
    va_start(args, format);
    vsnprintf(r->condition[at].value, sizeof r->condition[at].value, format, args);
    va_end(args);
}

void bench_size(uint64_t values, char out[BENCH_SIZE_BYTES])
{
    bool millions = values % 1000000 == 0;
    snprintf(out, BENCH_SIZE_BYTES, millions ? "%llum" : "%llu",
             (unsigned long long)(millions ? values / 1000000 : values));
}

double bench_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bench_sample(struct bench_samples *s, double value)
{
    LH_ASSERT(s->n < BENCH_SAMPLES_MAX);
    s->value[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(const struct bench_samples *s, double out[BENCH_SAMPLES_MAX])
{
    LH_ASSERT(s->n > 0);
    memcpy(out, s->value, s->n * sizeof *out);
    qsort(out, s->n, sizeof *out, by_value);
}

double bench_median(const struct bench_samples *s)
{
    double v[BENCH_SAMPLES_MAX];
    sort(s, v);
    return s->n % 2 ? v[s->n / 2] : (v[s->n / 2 - 1] + v[s->n / 2]) / 2;
}

void bench_estimate(struct bench_report *r, const char *name, const char *unit, double value,
                    double low, double high, size_t n, const char *against, double against_value)
{
    LH_ASSERT(r->rows < BENCH_ROWS_MAX && n > 0);
    struct bench_row *row = &r->row[r->rows++];
    *row = (struct bench_row){.median = value, .min = low, .max = high, .n = n};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->unit, sizeof row->unit, "%s", unit);
    snprintf(row->against, sizeof row->against, "%s", against ? against : "");
    row->against_value = against ? against_value : 0;
}

void bench_row(struct bench_report *r, const char *name, const char *unit,
               const struct bench_samples *s, const char *against, double against_value)
{
    double v[BENCH_SAMPLES_MAX];
    sort(s, v);
    bench_estimate(r, name, unit, bench_median(s), v[0], v[s->n - 1], s->n, against, against_value);
}

// ---------------------------------------------------------------- output

static void print(const struct bench_report *r)
{
    printf("%s\n", r->bench);
    for (size_t i = 0; i < r->condition_count; i++)
        printf("  %s: %s\n", r->condition[i].name, r->condition[i].value);
    for (size_t i = 0; i < r->rows; i++) {
        const struct bench_row *x = &r->row[i];
        printf("  %-40s %10.3f %-6s (", x->name, x->median, x->unit);
        if (x->min <= x->max) printf("%.3f to %.3f, ", x->min, x->max);
        printf("n %zu)", x->n);
        if (x->against_value > 0)
            printf("  %.2f of %s (%.3f)", x->median / x->against_value, x->against,
                   x->against_value);
        printf("\n");
    }
}

// First line of a command's output; "unknown" where there is none.
static void first_line(const char *command, char *out, size_t size)
{
    FILE *f = popen(command, "r"); // NOLINT(cert-env33-c): fixed commands of this file
    snprintf(out, size, "unknown");
    if (f && fgets(out, (int)size, f)) out[strcspn(out, "\n")] = 0;
    if (f) pclose(f);
}

void bench_commit(char *out, size_t size)
{
    first_line("git rev-parse --short HEAD 2>/dev/null", out, size);
}

static json_t *host(void)
{
    char cpu[128];
    first_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo", cpu, sizeof cpu);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return json_pack("{s:s, s:I, s:I}", "cpu", cpu, "cores",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                     (json_int_t)pages * (json_int_t)page);
}

static json_t *row_json(const struct bench_row *x)
{
    json_t *row = json_pack("{s:s, s:f, s:s, s:I}", "name", x->name, "value", x->median, "unit",
                            x->unit, "n", (json_int_t)x->n);
    if (row && x->min <= x->max) {
        json_object_set_new(row, "min", json_real(x->min));
        json_object_set_new(row, "max", json_real(x->max));
    }
    if (row && x->against_value > 0) {
        json_object_set_new(row, "against", json_string(x->against));
        json_object_set_new(row, "against_value", json_real(x->against_value));
        json_object_set_new(row, "ratio", json_real(x->median / x->against_value));
    }
    return row;
}

static json_t *document(const struct bench_report *r)
{
    char commit[64], date[64];
    bench_commit(commit, sizeof commit);
    time_t now = time(NULL);
    struct tm parts;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    json_t *rows = json_array(), *conditions = json_object();
    for (size_t i = 0; i < r->rows; i++) json_array_append_new(rows, row_json(&r->row[i]));
    for (size_t i = 0; i < r->condition_count; i++)
        json_object_set_new(conditions, r->condition[i].name, json_string(r->condition[i].value));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "schema", "longhaul.bench/1", "bench",
                     r->bench, "commit", commit, "date", date, "host", host(), "conditions",
                     conditions, "rows", rows);
}

int bench_finish(struct bench_report *r)
{
    note_load(r, "load average after"); // the machine's over 1, 5 and 15 minutes: a run adds 1
    print(r);
    if (!r->json) return 0;
    json_t *all = document(r);
    FILE *f = all ? fopen(r->json, "w") : NULL;
    int failed = !f || json_dumpf(all, f, JSON_INDENT(2)) || fputc('\n', f) == EOF;
    if (f && fclose(f)) failed = 1;
    json_decref(all);
    if (failed) fprintf(stderr, "%s: cannot write %s\n", r->bench, r->json);
    return failed ? 1 : 0;
}
