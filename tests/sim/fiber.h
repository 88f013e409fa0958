// Fibers: blocking code under a virtual clock.
//
// A fiber has its own thread, which runs only while the simulator's thread waits for it. One of the
// two runs at a time, so a run stays a function of its seed. Code on a fiber waits by handing the
// turn back; an event of the world resumes it.
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <stdbool.h>

struct sim_fiber;

// Creates a fiber that has not begun; sim_fiber_go() lets it run fn(arg).
struct sim_fiber *sim_fiber_start(void (*fn)(void *arg), void *arg);
void sim_fiber_wait(struct sim_fiber *f); // on the fiber: until the next sim_fiber_go()
void sim_fiber_go(struct sim_fiber *f);   // on the simulator's thread: until it waits or has ended
bool sim_fiber_ended(const struct sim_fiber *f);
void sim_fiber_free(struct sim_fiber *f); // it must have ended; NULL is allowed

#endif
