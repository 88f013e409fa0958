// Runs the WAN emulator's program. See wan.h.
//
// The daemon runs in the foreground as our child, in its own process group (we handle Ctrl-C) and
// with a parent-death signal (it never outlives us). All other commands are short-lived children
// whose output is collected in memory.
#include "deploy/up/wan.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

enum { WORDS_MAX = 8, EXIT_NO_EXEC = 127 };
static const char PROGRAM[] = "longhaul-wanem";

lh_err dp_wan_find(struct dp_wan *wan)
{
    *wan = (struct dp_wan){0};
    char self[DP_PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return lh_fail_errno(errno, "/proc/self/exe");
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    LH_TRY(dp_path(wan->program, "%s/%s", self, PROGRAM));
    if (access(wan->program, X_OK) != 0)
        return lh_fail(LH_ERR_UNSUPPORTED, "no emulated links: no %s in %s", PROGRAM, self);
    if (geteuid() != 0)
        return lh_fail(LH_ERR_UNSUPPORTED, "no emulated links: they need root; or use --no-wan");
    if (access("/dev/net/tun", R_OK | W_OK) != 0)
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "no emulated links: no /dev/net/tun here; load tun, or use --no-wan");
    return LH_OK;
}

// ---------------------------------------------------------------- children

// In the child of a fork: async-signal-safe calls only.
static _Noreturn void become(char *const *argv, int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2)
        execv(argv[0], argv);
    _exit(EXIT_NO_EXEC);
}

static LH_MUST lh_err wait_for(pid_t child, int *status)
{
    while (waitpid(child, status, 0) < 0)
        if (errno != EINTR) return lh_fail_errno(errno, "wait for %s", PROGRAM);
    return LH_OK;
}

// Reads a child's output from a memory file into `text`, cut to fit.
static void collect(int file, char *text, size_t size)
{
    ssize_t n = pread(file, text, size - 1, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

// Turns the program's message into an error text.
static lh_err complaint(int err_file, lh_err otherwise)
{
    char text[400];
    collect(err_file, text, sizeof text);
    const char *said = strncmp(text, "wanem: ", 7) == 0 ? text + 7 : text;
    return lh_fail(strstr(said, "already up") ? LH_ERR_EXISTS : otherwise, "emulated links: %s",
                   *said ? said : "the emulator failed and does not say why");
}

// The program, its instance and arguments; argv ends with NULL. Borrows all.
struct line {
    char *argv[WORDS_MAX + 4];
};

static struct line make_line(const struct dp_wan *wan, const char *const *words)
{
    struct line line = {{(char *)(uintptr_t)wan->program, (char *)(uintptr_t) "-n",
                         (char *)(uintptr_t)wan->instance}};
    size_t n = 3;
    for (; *words; words++) {
        LH_ASSERT(n < LH_COUNT(line.argv) - 1);
        line.argv[n++] = (char *)(uintptr_t)*words; // execv() does not modify them
    }
    return line;
}

static LH_MUST lh_err run_with(const struct dp_wan *wan, const char *const *words, int out, int err)
{
    struct line line = make_line(wan, words);
    int status = 0;
    pid_t child = fork();
    if (child < 0) return lh_fail_errno(errno, "fork");
    if (child == 0) become(line.argv, out, err);
    LH_TRY(wait_for(child, &status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return LH_OK;
    return complaint(err, LH_ERR_INVALID);
}

// Runs a command to its end. *out: its output, in a memory file that the caller closes; NULL: not
// wanted.
static LH_MUST lh_err run(const struct dp_wan *wan, const char *const *words, int *out)
{
    int files[2] = {memfd_create("wanem-out", MFD_CLOEXEC), memfd_create("wanem-err", MFD_CLOEXEC)};
    lh_err err = files[0] >= 0 && files[1] >= 0 ? run_with(wan, words, files[0], files[1])
                                                : lh_fail_errno(errno, "memfd");
    bool give = out && !err;
    if (give) *out = files[0];
    if (files[0] >= 0 && !give) close(files[0]);
    if (files[1] >= 0) close(files[1]);
    return err;
}

// ---------------------------------------------------------------- up, down

static _Noreturn void become_daemon(char *const *argv, pid_t parent, int out, int err)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_NO_EXEC); // the parent died before the signal was armed
    become(argv, out, err);
}

// Waits until the daemon reports that the world is up (true), or has ended.
static bool is_up(int out)
{
    char text[256];
    ssize_t n;
    do n = read(out, text, sizeof text);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static LH_MUST lh_err start_daemon(struct dp_wan *wan, const char *topology, int said[2], int err)
{
    const char *const words[] = {"up", "-f", topology, NULL};
    struct line line = make_line(wan, words);
    pid_t parent = getpid(), child = fork();
    if (child < 0) return lh_fail_errno(errno, "fork");
    if (child == 0) become_daemon(line.argv, parent, said[1], err);
    close(said[1]);
    said[1] = -1;
    wan->daemon = child;
    if (is_up(said[0])) return LH_OK;
    int status;
    wan->daemon = 0;
    LH_TRY(wait_for(child, &status));
    return complaint(err, LH_ERR_CONFIG);
}

lh_err dp_wan_up(struct dp_wan *wan, const char *topology, const char *instance)
{
    int said[2] = {-1, -1}, err_file = -1;
    LH_ASSERT(wan->program[0] && !wan->daemon);
    if (snprintf(wan->instance, sizeof wan->instance, "%s", instance) >= DP_WAN_NAME_BYTES)
        return lh_fail(LH_ERR_INVALID, "instance name of %zu bytes", strlen(instance));
    err_file = memfd_create("wanem-err", MFD_CLOEXEC);
    lh_err err = err_file < 0 || pipe2(said, O_CLOEXEC) < 0
                     ? lh_fail_errno(errno, "pipe")
                     : start_daemon(wan, topology, said, err_file);
    if (said[0] >= 0) close(said[0]);
    if (said[1] >= 0) close(said[1]);
    if (err_file >= 0) close(err_file);
    return err;
}

lh_err dp_wan_down(struct dp_wan *wan, bool kill_inhabitants)
{
    const char *const words[] = {"down", kill_inhabitants ? "-k" : NULL, NULL};
    int status;
    if (!wan->daemon) return LH_OK;
    lh_err err = run(wan, words, NULL); // waits until the daemon releases its lock
    if (err) kill(wan->daemon, SIGTERM);
    lh_err waited = wait_for(wan->daemon, &status);
    wan->daemon = 0;
    return err ? err : waited;
}

// ---------------------------------------------------------------- regions

lh_err dp_wan_enter(const struct dp_wan *wan, const char *region)
{
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "/run/netns/%s-%s", wan->instance, region));
    int netns = open(path, O_RDONLY | O_CLOEXEC);
    if (netns < 0 && errno == ENOENT)
        return lh_fail(LH_ERR_NOT_FOUND, "no region '%s' in %s", region, wan->instance);
    if (netns < 0) return lh_fail_errno(errno, "%s", path);
    lh_err err = setns(netns, CLONE_NEWNET) < 0 ? lh_fail_errno(errno, "enter %s", path) : LH_OK;
    close(netns);
    return err;
}

lh_err dp_wan_cut(const struct dp_wan *wan, const char *region)
{
    return run(wan, (const char *const[]){"cut", region, NULL}, NULL);
}

lh_err dp_wan_heal(const struct dp_wan *wan, const char *region)
{
    return run(wan, (const char *const[]){"heal", region, NULL}, NULL);
}

// ---------------------------------------------------------------- stats

struct tally {
    struct dp_wan_bytes *region;
    unsigned count;
};

// The region's row, created if new. NULL: no name, or too many regions.
static struct dp_wan_bytes *row_of(struct tally *t, const char *name)
{
    if (!name || !*name || strlen(name) >= DP_WAN_NAME_BYTES) return NULL;
    for (unsigned i = 0; i < t->count; i++)
        if (strcmp(t->region[i].region, name) == 0) return &t->region[i];
    if (t->count == DP_WAN_REGIONS_MAX) return NULL;
    struct dp_wan_bytes *row = &t->region[t->count++];
    *row = (struct dp_wan_bytes){0};
    memcpy(row->region, name, strlen(name));
    return row;
}

static uint64_t number_of(const json_t *object, const char *key, bool *good)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    *good = *good && json_is_integer(value) && number >= 0;
    return (uint64_t)number;
}

static LH_MUST lh_err add_link(struct tally *t, const char *text)
{
    json_t *link = json_loads(text, 0, NULL);
    struct dp_wan_bytes *from = row_of(t, json_string_value(json_object_get(link, "from")));
    struct dp_wan_bytes *to = row_of(t, json_string_value(json_object_get(link, "to")));
    bool good = from && to;
    uint64_t up = number_of(link, "offered_bytes", &good);
    uint64_t down = number_of(link, "delivered_bytes", &good);
    uint64_t dropped = number_of(link, "lost", &good);
    dropped += number_of(link, "overflowed", &good);
    dropped += number_of(link, "severed", &good);
    json_decref(link);
    if (!good) return lh_fail(LH_ERR_MALFORMED, "unreadable counters of the emulator: %.80s", text);
    from->up += up;
    from->dropped += dropped;
    to->down += down;
    return LH_OK;
}

static LH_MUST lh_err add_links(struct tally *t, FILE *in)
{
    char line[1024];
    while (fgets(line, sizeof line, in)) LH_TRY(add_link(t, line));
    return ferror(in) ? lh_fail_errno(errno, "counters of the emulator") : LH_OK;
}

lh_err dp_wan_stats(const struct dp_wan *wan, struct dp_wan_bytes out[DP_WAN_REGIONS_MAX],
                    unsigned *count)
{
    struct tally tally = {out, 0};
    int file;
    *count = 0;
    LH_TRY(run(wan, (const char *const[]){"stats", "-j", NULL}, &file));
    FILE *in = lseek(file, 0, SEEK_SET) == 0 ? fdopen(file, "r") : NULL;
    lh_err err = in ? add_links(&tally, in) : lh_fail_errno(errno, "counters of the emulator");
    if (in)
        fclose(in);
    else
        close(file);
    if (!err) *count = tally.count;
    return err;
}
