// How a test controls the emulator (simt.h) and reads its counts; plain C.
#ifndef LH_TESTS_SIMT_CONTROL_H
#define LH_TESTS_SIMT_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void simt_seed(uint64_t seed); // seeds every choice from here on

struct simt_counts {
    uint64_t blocks, switches, barriers, warp_operations, operations; // operations: of streams
    uint64_t held; // streams, events and memory that were made and not given back
};
struct simt_counts simt_counted(void);

#ifdef __cplusplus
}
#endif

#endif
