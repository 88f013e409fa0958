// An emulated GPU for the simulator (sim --device). Its memory is the host's, and each call works
// at once, with the CPU's functions. So a worker's device state (worker/state/state_device.c) runs
// under crashes, refusals, arriving states and rolled-back logs.
#ifndef SIM_MADE_DEVICE_H
#define SIM_MADE_DEVICE_H

#include "worker/worker.h"

struct sim_device;
// Opens the states of a worker whose trainer's parameters are value[values of the manifest], and
// sets the conf's state_open. Borrows everything.
struct sim_device *sim_device_open(struct wk_conf *conf, float *value);
// Call after the worker's stop. Adds the number of digest records that the device's parameters were
// compared with, and asserts that none differed. NULL is allowed.
void sim_device_close(struct sim_device *d, uint64_t *compared);

#endif
