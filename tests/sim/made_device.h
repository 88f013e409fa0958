// A made-up GPU for the simulator (sim --device): its memory is the host's, each call does its work
// at once, by the CPU's functions. So the state of a worker (worker/state/state_device.c) runs
// under crashes, refusals, states that arrive and logs that are rolled back.
#ifndef SIM_MADE_DEVICE_H
#define SIM_MADE_DEVICE_H

#include "worker/worker.h"

struct sim_device;
// The states of a worker whose trainer's parameters are value[manifest's]; sets the conf's
// state_open. Everything is borrowed.
struct sim_device *sim_device_open(struct wk_conf *conf, float *value);
// After the worker's stop. Adds the digest records that the device's parameters were compared with;
// they differed from none. NULL is allowed.
void sim_device_close(struct sim_device *d, uint64_t *compared);

#endif
