// The machine that a process runs on, and its software: facts for people. Nothing is decided by
// them.
#ifndef LH_COMMON_MACHINE_H
#define LH_COMMON_MACHINE_H

#include <stdint.h>

struct lh_machine {     // "" and 0: not known
    char version[32];   // Longhaul's
    char system[96];    // kernel and architecture
    char processor[64]; // its model's name
    uint32_t processors;
    uint64_t memory_bytes;
    // The caller's to fill in: the device that makes pushes, and what they are made by.
    char gpu[64], codec[32], cipher[24];
};

void lh_machine_look(struct lh_machine *out);

#endif
