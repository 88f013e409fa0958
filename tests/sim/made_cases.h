// A cluster that does not run, and a hand-made log: the start of the judge's cases.
#ifndef SIM_MADE_CASES_H
#define SIM_MADE_CASES_H

#include "tests/sim/judge.h"
#include "tests/test.h"

enum { SERVER = 1, WORKER = 1 + SIM_SERVERS, STANDBY = SIM_FIRST_STANDBY };
enum { INCARNATION = 1, RANDOM = 77, IDENTITY = 500 };

struct made { // one shard, served by SERVER; every delta is a multiple of the quantum
    struct sim *sim;
    struct lh_hash chain;
    uint64_t version, epoch, step;
    uint8_t digest[16]; // the newest push's
};

#define MADE_TEST(name, parameter) TEST_WITH(name, parameter, made_set_up, made_tear_down)
int made_set_up(void **state);
int made_tear_down(void **state);

void made_found(const struct sim *s, const char *words); // the first violation contains them
void made_clean(const struct sim *s);

// Appends a record, durable at this server, with the next version, epoch and chain.
void made_record(struct made *m, struct sim_node *server, struct lh_record r);
void made_fence(struct made *m); // worker 0's incarnation
// Begins an epoch at version `base`: later records belong to no log any more.
void made_epoch(struct made *m, struct sim_node *server, uint64_t base);
// Worker 0 cuts and commits its next push, which moves each value by `by`. Its record becomes
// durable if `server` is not NULL.
void made_push(struct made *m, struct sim_node *server, float by);
void made_acknowledged(struct made *m); // a fence, a push of 1 and its answer

#endif
