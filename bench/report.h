// Output of every bench: a table for people, and with --json FILE the document of
// tests/contracts/bench.schema.json.
#ifndef LH_BENCH_REPORT_H
#define LH_BENCH_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/err.h"

enum { BENCH_ROWS_MAX = 2048, BENCH_SAMPLES_MAX = 64 };

struct bench_samples {
    double value[BENCH_SAMPLES_MAX];
    size_t n;
};

struct bench_row {
    char name[64], unit[16], against[64];
    double median, min, max, against_value; // against_value 0: nothing to compare with
    size_t n;
};

struct bench_report {
    const char *bench, *json; // its name; the file, NULL: none
    struct bench_row row[BENCH_ROWS_MAX];
    size_t rows;
    struct {
        char name[32], value[480];
    } condition[16];
    size_t condition_count;
};

// A flag of one bench: `--name NUMBER`, an integer from 0 on, or one of some words.
struct bench_flag {
    const char *name, *help;
    uint64_t value;    // the default, until it is parsed
    const char *words; // "cpu|cuda": `value` is the index of one, from 0 on; NULL: a number
};

// Reads --json FILE and the bench's own flags (until one without a name; NULL: none); other
// arguments end the program with a usage line. The load average becomes a condition, now and at the
// end.
struct bench_report bench_start(const char *bench, int argc, char **argv);
struct bench_report bench_start_with(const char *bench, int argc, char **argv,
                                     struct bench_flag *flag);
void bench_condition(struct bench_report *r, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum { BENCH_SIZE_BYTES = 24 };
void bench_size(uint64_t values, char out[BENCH_SIZE_BYTES]); // "10m"; others in full: "1500"
double bench_now_s(void);                                     // a monotonic clock
void bench_sample(struct bench_samples *s, double value);
double bench_median(const struct bench_samples *s);
// `against` NULL: no ceiling and no peer.
void bench_row(struct bench_report *r, const char *name, const char *unit,
               const struct bench_samples *s, const char *against, double against_value);
// The same for a figure that is not a median of repetitions: an estimate with the ends of its
// interval, from `n` repetitions. A `low` above `high`: there is no interval.
void bench_estimate(struct bench_report *r, const char *name, const char *unit, double value,
                    double low, double high, size_t n, const char *against, double against_value);
void bench_commit(char *out,
                  size_t size);           // the commit of its folder; "unknown": none
int bench_finish(struct bench_report *r); // prints and writes; the program's exit code

// Ends the bench with the error's text if the expression fails.
#define BENCH_MUST(expression)                                                                     \
    do {                                                                                           \
        lh_err must_ = (expression);                                                               \
        if (must_) {                                                                               \
            fprintf(stderr, "%s: %s\n", #expression, lh_err_text(must_));                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
