// Fills a coordinator's store like a run at its limits, for bench/limits.py: `bench_limits_fill DIR
// UNITS WORKERS RUN` leases every unit of the run, RUN neighbours at a time to one of the workers.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/report.h"
#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/env/env.h"
#include "server/coordinator/core.h"

enum { RANGE = 64, RUN_BYTES = 18 };

static void commit(struct ps_store *s)
{
    bool begun;
    BENCH_MUST(ps_store_begin(s, &begun));
    if (!begun) return;
    lh_err err = ps_store_write(s);
    ps_store_end(s, err);
    BENCH_MUST(err);
}

static void put(struct ps_store *s, const char *key, struct lh_buf *row)
{
    BENCH_MUST(lh_buf_err(row));
    BENCH_MUST(ps_store_put(s, key, lh_buf_span(row)));
    lh_buf_clear(row);
}

// A row as server/coordinator/member.c writes it.
static void put_worker(struct ps_store *s, uint64_t id, struct lh_buf *row)
{
    char key[40], name[24];
    snprintf(key, sizeof key, "worker/%016" PRIx64, id);
    snprintf(name, sizeof name, "w-%" PRIu64, id);
    lh_put_u64(row, id);
    lh_put_u32(row, 1);
    lh_put_str(row, "asia");
    lh_put_str(row, name);
    // The last fresh start that was granted, tokens that it leased, and tokens that it trained.
    for (int i = 0; i < 3; i++) lh_put_u64(row, 0);
    put(s, key, row);
}

// Rows as server/coordinator/balance/lease.c writes them.
static void put_range(struct ps_store *s, uint64_t first, uint64_t end, uint64_t workers,
                      uint64_t run, struct lh_buf *row)
{
    char key[40];
    snprintf(key, sizeof key, "lease/%010" PRIu64, first);
    for (uint64_t u = first, next; u < end; u = next) {
        next = u - u % run + run < end ? u - u % run + run : end;
        lh_put_u8(row, (uint8_t)(u - first));
        lh_put_u8(row, (uint8_t)(next - u));
        lh_put_u64(row, 1 + u / run % workers);
        lh_put_u32(row, 1700000000);
        lh_put_u32(row, (uint32_t)u + 1);
    }
    put(s, key, row);
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    uint64_t units = strtoull(argv[2], NULL, 10), workers = strtoull(argv[3], NULL, 10);
    uint64_t run = strtoull(argv[4], NULL, 10);
    if (!units || !workers || !run || workers > LH_WORKERS_MAX) return 2;
    struct lh_env *env;
    struct ps_store *s;
    struct lh_buf row = lh_buf(RANGE * RUN_BYTES);
    BENCH_MUST(lh_env_real_create(&env));
    BENCH_MUST(ps_store_open(env, argv[1], &s));
    for (uint64_t w = 1; w <= workers; w++) put_worker(s, w, &row);
    for (uint64_t u = 0; u < units; u += RANGE) {
        put_range(s, u, u + RANGE < units ? u + RANGE : units, workers, run, &row);
        if (u % (1 << 16) == 0) commit(s);
    }
    commit(s);
    ps_store_close(s);
    lh_env_real_destroy(env);
    lh_buf_free(&row);
    return 0;
}
