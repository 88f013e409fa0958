// The link between a trainer and its worker, for trainer.c. See trainer_link.c.
#ifndef TESTS_CORES_TRAINER_LINK_H
#define TESTS_CORES_TRAINER_LINK_H

#include "tests/cores/trainer.h"

// Sets b->link, and in b->conf the functions by which the worker's core opens and closes its end.
void beside_link_open(struct beside *b);
void beside_link_close(struct beside *b); // after both processes ended

#endif
