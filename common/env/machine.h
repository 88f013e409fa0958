// The machine and software that a process runs on: facts for people; no decision depends on them.
#ifndef LH_COMMON_MACHINE_H
#define LH_COMMON_MACHINE_H

#include <stdint.h>

struct lh_machine {     // "" and 0: unknown
    char version[32];   // Longhaul's
    char system[96];    // kernel and architecture
    char processor[64]; // model name
    uint32_t processors;
    uint64_t memory_bytes;
    // The caller fills these in: the GPU, the codec and the cipher of pushes.
    char gpu[64], codec[32], cipher[24];
};

void lh_machine_look(struct lh_machine *out);

#endif
