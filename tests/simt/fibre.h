// The interface between the emulator's halves: fibre.cu runs a block, runtime.cu keeps streams and
// memory.
#ifndef LH_TESTS_SIMT_FIBRE_H
#define LH_TESTS_SIMT_FIBRE_H

#include "tests/simt/control.h"
#include "tests/simt/simt.h"

// Runs every block of a launch, now.
void simt_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &run);
unsigned simt_choose(unsigned below); // the seed's next choice, 0..below-1
struct simt_counts *simt_counting();
[[noreturn]] void simt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
