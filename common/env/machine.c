// The machine that a process runs on. See machine.h.
//
// The processor's name comes from the CPUID instruction (AMD64 Architecture Programmer's Manual,
// volume 3, functions 8000_0002h to 8000_0004h); other processors show their architecture.
#include "common/env/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

static void name_processor(char out[64])
{
    unsigned word[12] = {0};
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1], &word[4 * i + 2],
                    &word[4 * i + 3]);
    char name[sizeof word + 1];
    memcpy(name, word, sizeof word);
    name[sizeof word] = 0;
    size_t len = strlen(name);
    while (len && name[len - 1] == ' ') name[--len] = 0;
    snprintf(out, 64, "%s", name + strspn(name, " "));
}
#else
static void name_processor(char out[64])
{
    (void)out;
}
#endif

void lh_machine_look(struct lh_machine *out)
{
    *out = (struct lh_machine){.version = LH_VERSION};
    struct utsname kernel;
    bool known = uname(&kernel) == 0;
    if (known)
        snprintf(out->system, sizeof out->system, "%.20s %.50s %.20s", kernel.sysname,
                 kernel.release, kernel.machine);
    name_processor(out->processor);
    if (known && !out->processor[0])
        snprintf(out->processor, sizeof out->processor, "%.60s", kernel.machine);
    long processors = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES),
         page = sysconf(_SC_PAGESIZE);
    if (processors > 0) out->processors = (uint32_t)processors;
    if (pages > 0 && page > 0) out->memory_bytes = (uint64_t)pages * (uint64_t)page;
}
