// A cluster that does not run, and a log that is written by hand: what the judge's cases begin
// with.
#ifndef SIM_MADE_CASES_H
#define SIM_MADE_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/judge.h"

enum { SERVER = 1, WORKER = 1 + SIM_SERVERS, STANDBY = SIM_FIRST_STANDBY };
enum { INCARNATION = 1, RANDOM = 77, IDENTITY = 500 };

struct made { // one shard, served by SERVER; every delta is a multiple of the quantum
    struct sim *sim;
    struct lh_hash chain;
    uint64_t version, epoch, step;
    uint8_t digest[16]; // the newest push's
};

#define MADE_TEST(f) cmocka_unit_test_setup_teardown(f, made_set_up, made_tear_down)
int made_set_up(void **state);
int made_tear_down(void **state);

void made_found(const struct sim *s, const char *words); // looks for them in the first violation
void made_clean(const struct sim *s);

// The next record of the log, durable at this server: version, epoch and chain are filled in.
void made_record(struct made *m, struct sim_node *server, struct lh_record r);
void made_fence(struct made *m); // worker 0's incarnation
// An epoch that begins at version `base`: what was above belongs to no log.
void made_epoch(struct made *m, struct sim_node *server, uint64_t base);
// Worker 0's next push, each value moved by `by`, is cut and committed; its record becomes durable
// if `server` is not NULL.
void made_push(struct made *m, struct sim_node *server, float by);
void made_acknowledged(struct made *m); // a fence, a push of 1, its answer

#endif
