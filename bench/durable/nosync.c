// Loaded before a program's own libraries (LD_PRELOAD) by durable.py: fsync and fdatasync do
// nothing, except in the program that LH_BENCH_SYNCED names. This measures the cost of durability
// without a product setting that turns it off.
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool syncs(void)
{
    const char *name = getenv("LH_BENCH_SYNCED");
    return name && strcmp(name, program_invocation_short_name) == 0;
}

int fsync(int fd)
{
    return syncs() ? (int)syscall(SYS_fsync, fd) : 0;
}

int fdatasync(int fd)
{
    return syncs() ? (int)syscall(SYS_fdatasync, fd) : 0;
}
