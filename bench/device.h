// --backend of a bench: whether it measures the CUDA plugin's device beside the processor.
#ifndef LH_BENCH_DEVICE_H
#define LH_BENCH_DEVICE_H

#include <stdbool.h>

#include "bench/report.h"
#include "kernels/cuda/loader.h"

enum bench_backend { BENCH_CPU, BENCH_CUDA, BENCH_AUTO };
#define BENCH_BACKENDS "cpu|cuda|auto" // a flag's words, in that order
enum { BENCH_NO_DEVICE = 3 };          // the program's status

// Opens the CUDA plugin's first device, and notes it as a condition. False: only the CPU is
// measured, and a condition gives the reason. With BENCH_CUDA and no device the program ends with
// BENCH_NO_DEVICE and one line. An emulator does not count as a device: its times say nothing about
// a GPU. Tests that check only the rows set LH_BENCH_EMULATED=1, and a condition says so.
bool bench_device(struct bench_report *r, enum bench_backend kind, struct lk_gpu *out);

#endif
