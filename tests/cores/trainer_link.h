// Between a trainer and its worker: what trainer.c asks of the link. See trainer_link.c.
#ifndef TESTS_CORES_TRAINER_LINK_H
#define TESTS_CORES_TRAINER_LINK_H

#include "tests/cores/trainer.h"

// Puts b->link there, and into b->conf how the worker's core opens and closes its end.
void beside_link_open(struct beside *b);
void beside_link_close(struct beside *b); // both processes are gone

#endif
