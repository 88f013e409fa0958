// The machine that a process runs on. See machine.h.
//
// The processor's name is that of the CPUID instruction (AMD64 Architecture Programmer's Manual,
// volume 3, functions 8000_0002h to 8000_0004h); elsewhere the architecture stands for it.
#include "common/env/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/env/env.h"

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

// ---------------------------------------------------------------- memory that is left

enum { TEXT_BYTES = 4096 }; // the start of a kernel's file is read, so much of it

struct group_files { // names of version 1 or 2, for a group with a limit
    const char *base, *limit, *used, *reclaimable;
};
static const struct group_files VERSION_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_inactive_file"};
static const struct group_files VERSION_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                             "inactive_file"};

// False: it can't be read.
static bool read_text(struct lh_env *env, const char *path, char text[TEXT_BYTES])
{
    const struct lh_files_ops *files = env->ops->files;
    struct lh_file *file;
    size_t got = 0;
    text[0] = 0;
    if (files->open(env, path, LH_OPEN_READ, &file)) return false;
    lh_err err = files->read(file, 0, text, TEXT_BYTES - 1, &got);
    files->close(file);
    text[err ? 0 : got] = 0;
    return !err;
}

// The number behind this word at a line's start; `none` where no line has it.
static uint64_t number_of(const char *text, const char *word, uint64_t none)
{
    size_t len = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, word, len) && strchr(": ", line[len]) && line[len])
            return strtoull(line + len + 1, NULL, 10);
    }
    return none;
}

static bool read_of_group(struct lh_env *env, const struct group_files *f, const char *group,
                          const char *name, char text[TEXT_BYTES])
{
    char path[LH_PATH_BYTES];
    return !lh_path(path, sizeof path, f->base, "%s%s%s", group, group[0] ? "/" : "", name) &&
           read_text(env, path, text);
}

// This group's own limit leaves so much; UINT64_MAX: it has none, or it can't be read. Memory of
// files that nobody used lately is given back when it is wanted.
static uint64_t left_in(struct lh_env *env, const struct group_files *f, const char *group)
{
    char text[TEXT_BYTES], *end;
    if (!read_of_group(env, f, group, f->limit, text)) return UINT64_MAX;
    uint64_t limit = strtoull(text, &end, 10);
    if (end == text || !read_of_group(env, f, group, f->used, text)) return UINT64_MAX; // "max"
    uint64_t used = strtoull(text, NULL, 10), back = 0;
    bool known = read_of_group(env, f, group, "memory.stat", text);
    if (known) back = number_of(text, f->reclaimable, 0);
    used -= back < used ? back : used;
    return used < limit ? limit - used : 0;
}

// The group and all above it. Where a container does not show a group by that name, its own limit
// is the top's.
static uint64_t left_below(struct lh_env *env, const struct group_files *f, char *group)
{
    uint64_t left = left_in(env, f, group);
    while (group[0]) {
        char *slash = strrchr(group, '/');
        *(slash ? slash : group) = 0;
        uint64_t here = left_in(env, f, group);
        if (here < left) left = here;
    }
    return left;
}

// "4:cpu,memory:/a/b" is a group of version 1, "0::/a/b" of version 2.
static uint64_t left_in_groups(struct lh_env *env)
{
    char text[TEXT_BYTES], *save = NULL;
    uint64_t left = UINT64_MAX;
    if (!read_text(env, "/proc/self/cgroup", text)) return left;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group || group[1] != '/') continue;
        *group = 0;
        bool second = !kinds[1], first = strstr(kinds, "memory") != NULL;
        if (!first && !second) continue;
        uint64_t here = left_below(env, second ? &VERSION_2 : &VERSION_1, group + 2);
        if (here < left) left = here;
    }
    return left;
}

uint64_t lh_machine_available(struct lh_env *env)
{
    char text[TEXT_BYTES];
    uint64_t left = UINT64_MAX, groups = left_in_groups(env);
    if (read_text(env, "/proc/meminfo", text)) left = number_of(text, "MemAvailable", 0);
    left = left == UINT64_MAX || !left ? UINT64_MAX : 1024 * left; // meminfo counts KiB
    if (groups < left) left = groups;
    if (left == UINT64_MAX) return 0;
    return left ? left : 1;
}
