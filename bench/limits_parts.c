// The parts of bench/limits.py that need no process: the real code at the sizes of
// common/base/limits.h, each figure beside its bound:
//
//   limits.store.answer_ms      rows of 4,096 leases anywhere among all units, without a sync
//   limits.store.start_s        a start of the coordinator's store on these rows
//   limits.store.bytes          memory of the process's own for each unit of it
//   limits.units.open_s         the data's manifest of a million units, its index made before
//   limits.units.bytes          memory of the process's own for each unit of it
//   limits.cache.open_s         a start of a worker's cache of that many sparse files
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/app/units_file.h"
#include "common/base/limits.h"
#include "common/env/env.h"
#include "server/coordinator/store.h"
#include "worker/data/cache.h"

enum { ANSWER = 4096, ANSWERS = 32, MILLION_UNITS = 1 << 20, UNIT_BYTES = 128 << 10 };

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static double own_memory(void) // bytes
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kb = strtod(line + 8, NULL);
    if (f) fclose(f);
    return kb * 1024;
}

// ---------------------------------------------------------------- the coordinator's store

// The row of the unit's range, as server/coordinator/balance/lease.c writes it at worst: each unit
// is a run of its own.
static void lease(struct ps_store *s, uint64_t unit)
{
    enum { RANGE = 64, RUN_BYTES = 18 };
    char key[32];
    uint8_t row[RANGE * RUN_BYTES];
    for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)(unit + i);
    snprintf(key, sizeof key, "lease/%010" PRIu64, unit - unit % RANGE);
    BENCH_MUST(ps_store_put(s, key, lh_span(row, sizeof row)));
}

static void commit(struct ps_store *s)
{
    bool begun;
    BENCH_MUST(ps_store_begin(s, &begun));
    if (!begun) return;
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    BENCH_MUST(err);
}

static void measure_store(struct bench_report *r, uint64_t units)
{
    struct bench_samples answer = {0}, start = {0}, bytes = {0};
    struct lh_env *env;
    struct ps_store *s;
    uint64_t next = 7;
    BENCH_MUST(lh_env_real_create(&env));
    BENCH_MUST(ps_store_open(env, dir, &s));
    for (uint64_t u = 0; u < units; u += 64) {
        lease(s, u);
        if (u % (1 << 16) == 0) commit(s);
    }
    commit(s);
    for (int i = 0; i < ANSWERS; i++) {
        double from = bench_now_s();
        for (int k = 0; k < ANSWER; k++) {
            next = next * 6364136223846793005u + 1442695040888963407u;
            lease(s, (next >> 33) % units);
        }
        bench_sample(&answer, 1e3 * (bench_now_s() - from));
        commit(s);
    }
    for (int i = 0; i < 3; i++) {
        ps_store_close(s);
        double before = own_memory(), from = bench_now_s();
        BENCH_MUST(ps_store_open(env, dir, &s));
        bench_sample(&start, bench_now_s() - from);
        bench_sample(&bytes, (own_memory() - before) / (double)units);
    }
    ps_store_close(s);
    lh_env_real_destroy(env);
    bench_row(r, "limits.store.answer_ms", "ms", &answer, "the bound", 5);
    bench_row(r, "limits.store.start_s", "s", &start, "the bound", 2);
    bench_row(r, "limits.store.bytes", "bytes", &bytes, "the bound", 64);
}

// ---------------------------------------------------------------- the data's manifest

static void write_units(uint64_t count)
{
    FILE *f = fopen(in_dir("units.json"), "w");
    if (!f) exit(1);
    fprintf(f, "{\"schema\": \"longhaul.units/1\", \"vocabulary\": 256, \"dtype\": \"u16\", "
               "\"unit_tokens\": 8, \"units\": [");
    for (uint64_t i = 0; i < count; i++)
        fprintf(f,
                "%s\n{\"id\": %" PRIu64 ", \"file\": \"f.bin\", \"from\": %" PRIu64
                ", \"tokens\": 8, \"language\": \"l\", \"home\": \"r\", \"sha256\": \"%064" PRIx64
                "\", \"may_leave\": true}",
                i ? "," : "", i, 8 * i, i);
    fprintf(f, "], \"heldout\": []}\n");
    if (fclose(f)) exit(1);
}

static void measure_units(struct bench_report *r, uint64_t count)
{
    struct bench_samples open = {0}, bytes = {0};
    struct lh_units u;
    write_units(count);
    BENCH_MUST(lh_units_open(in_dir("units.json"), &u)); // makes the index
    lh_units_close(&u);
    for (int i = 0; i < 3; i++) {
        double before = own_memory(), from = bench_now_s();
        BENCH_MUST(lh_units_open(in_dir("units.json"), &u));
        bench_sample(&open, bench_now_s() - from);
        double more = own_memory() - before;
        bench_sample(&bytes, more > 0 ? more / (double)count : 0);
        lh_units_close(&u);
    }
    bench_row(r, "limits.units.open_s", "s", &open, NULL, 0);
    bench_row(r, "limits.units.bytes", "bytes", &bytes, "the bound", 64);
}

// ---------------------------------------------------------------- a worker's cache

static void measure_cache(struct bench_report *r, uint64_t files)
{
    struct bench_samples open_s = {0};
    char folder[128], path[256];
    snprintf(folder, sizeof folder, "%s", in_dir("cache"));
    struct wk_cache *c;
    BENCH_MUST(wk_cache_open(folder, 1, &c));
    wk_cache_close(c);
    for (uint64_t i = 0; i < files; i++) {
        snprintf(path, sizeof path, "%s/%064" PRIx64 ".unit", folder, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || ftruncate(fd, UNIT_BYTES) || close(fd)) exit(1);
    }
    for (int i = 0; i < 3; i++) {
        double from = bench_now_s();
        BENCH_MUST(wk_cache_open(folder, (files + 1) * UNIT_BYTES, &c));
        bench_sample(&open_s, bench_now_s() - from);
        wk_cache_settle(c);
        if (wk_cache_bytes(c) != files * UNIT_BYTES) exit(1);
        wk_cache_close(c);
    }
    BENCH_MUST(wk_cache_open(folder, 0, &c)); // no space: every file is removed
    wk_cache_settle(c);
    wk_cache_close(c);
    rmdir(folder);
    bench_row(r, "limits.cache.open_s", "s", &open_s, "the bound", 1);
}

int main(int argc, char **argv)
{
    struct bench_flag flags[] = {{"rows", "leased units of the store", LH_UNITS_MAX, NULL},
                                 {"units", "of the data", MILLION_UNITS, NULL},
                                 {"files", "of 128 KiB in the cache", 800000, NULL},
                                 {NULL, NULL, 0, NULL}};
    struct bench_report r = bench_start_with("limits_parts", argc, argv, flags);
    snprintf(dir, sizeof dir, "/tmp/lh-limits-XXXXXX");
    if (!mkdtemp(dir) || !flags[0].value || !flags[1].value) return 2;
    bench_condition(&r, "store", "%" PRIu64 " leased units, none beside its like", flags[0].value);
    bench_condition(&r, "data", "%" PRIu64 " units", flags[1].value);
    bench_condition(&r, "cache", "%" PRIu64 " sparse files of %d KiB", flags[2].value,
                    UNIT_BYTES >> 10);
    measure_store(&r, flags[0].value);
    measure_units(&r, flags[1].value);
    measure_cache(&r, flags[2].value);
    static const char *const left[] = {"store", "store.lock", "units.json", "units.json.index"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) unlink(in_dir(left[i]));
    rmdir(dir);
    return bench_finish(&r);
}
