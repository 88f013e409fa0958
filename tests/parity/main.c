// The plugin's kernels, run by the emulator, against kernels/cpu: `parity SUITE`.
//
// Each suite ends with 0 or with a line that says what differs.
#include "tests/parity/device.h"

#include <stdio.h>

static const struct {
    const char *name;
    void (*run)(void);
} suites[] = {
    {"encode", parity_encode}, {"dense", parity_dense},         {"guard", parity_guard},
    {"fold", parity_fold},     {"each", parity_each},           {"transfer", parity_transfer},
    {"layers", parity_layers}, {"optimizer", parity_optimizer}, {"large", parity_large},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < LH_COUNT(suites); i++) {
        if (strcmp(argv[1], suites[i].name) != 0) continue;
        suites[i].run();
        struct simt_counts c = simt_counted();
        must(c.held == 0, "%llu streams, events and arrays were not given back",
             (unsigned long long)c.held);
        printf("parity %s: %llu blocks, %llu switches, %llu barriers, %llu warp operations\n",
               argv[1], (unsigned long long)c.blocks, (unsigned long long)c.switches,
               (unsigned long long)c.barriers, (unsigned long long)c.warp_operations);
        return 0;
    }
    fprintf(stderr, "parity: no suite of that name\n");
    return 2;
}
