// Instances on this machine. See state.h for the files.
//
// Invariants:
//  1. Only the process that holds an instance's lock makes and removes its files and namespaces.
//  2. A namespace is listed in `regions` before it is made, so after any crash the next `up` or
//     `down` finds it. Nothing unlisted is ever removed.
#include "deploy/wan/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"

// Names are bounded (dp_name_valid), so a path that does not fit is a bug.
__attribute__((format(printf, 1, 2))) static struct dp_state_path make_path(const char *format, ...)
{
    struct dp_state_path path;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path.text, sizeof path.text, format, args);
    va_end(args);
    LH_ASSERT(length >= 0 && length < (int)sizeof path.text);
    return path;
}

struct dp_state_path dp_state_path(const char *instance, const char *file)
{
    return make_path(DP_STATE_DIR "/%s/%s", instance, file);
}

struct dp_state_path dp_state_lock_path(const char *instance)
{
    return make_path(DP_STATE_DIR "/%s.lock", instance);
}

struct dp_state_path dp_state_netns_path(const char *instance, const char *region)
{
    return make_path(DP_NETNS_DIR "/%s-%s", instance, region);
}

lh_err dp_state_create_file(const char *instance, const char *name, FILE **out)
{
    struct dp_state_path path = dp_state_path(instance, name);
    *out = fopen(path.text, "we");
    return *out ? LH_OK : lh_fail_errno(errno, "%s", path.text);
}

// ---------------------------------------------------------------- lock

// Tries once. *again: the holder has just let go of the lock, or removed the file.
static LH_MUST lh_err try_lock(const char *path, int file, pid_t *holder, bool *held, bool *again)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat locked, named;
    if (fcntl(file, F_SETLK, &lock) == 0) {
        *held =
            fstat(file, &locked) == 0 && stat(path, &named) == 0 && locked.st_ino == named.st_ino;
    } else if (errno != EAGAIN && errno != EACCES) {
        return lh_fail_errno(errno, "%s", path);
    } else if (fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
        *holder = lock.l_pid;
    }
    *again = !*held && *holder == 0;
    return LH_OK;
}

lh_err dp_state_lock(const char *instance, pid_t *holder)
{
    struct dp_state_path path = dp_state_lock_path(instance);
    bool held = false, again = true;
    lh_err err = LH_OK;
    *holder = 0;
    while (again && !err) {
        if (mkdir(DP_STATE_DIR, 0755) < 0 && errno != EEXIST)
            return lh_fail_errno(errno, "%s", DP_STATE_DIR);
        int file = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 && errno == ENOENT) continue; // the last other instance removed the directory
        if (file < 0) return lh_fail_errno(errno, "%s", path.text);
        err = try_lock(path.text, file, holder, &held, &again);
        if (!held) close(file); // kept open, it holds the lock until this process ends
    }
    return err;
}

// ---------------------------------------------------------------- regions

// Calls `visit` for each region in the state directory; there may be none.
static void each_listed_region(const char *instance, bool flag,
                               void (*visit)(const char *instance, const char *name, bool flag))
{
    char line[DP_WORLD_NAME_BYTES + 1];
    FILE *in = fopen(dp_state_path(instance, "regions").text, "re");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        visit(instance, line, flag);
    }
    if (in) fclose(in);
}

// Whether a process, given by its number in /proc, lives in a namespace.
static bool lives_in(const char *process, const struct stat *home)
{
    char path[300];
    struct stat its;
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    return stat(path, &its) == 0 && its.st_ino == home->st_ino && its.st_dev == home->st_dev;
}

static void visit_inhabitants(const char *instance, const char *region, bool kill_them)
{
    struct stat home;
    int count = 0;
    DIR *proc = opendir("/proc");
    if (proc && stat(dp_state_netns_path(instance, region).text, &home) == 0)
        for (struct dirent *entry; (entry = readdir(proc));) {
            long process = strtol(entry->d_name, NULL, 10);
            if (process <= 0 || !lives_in(entry->d_name, &home)) continue;
            count++;
            if (kill_them) kill((pid_t)process, SIGKILL);
        }
    if (proc) closedir(proc);
    if (count > 0)
        fprintf(stderr, "wanem: %s: %d process%s %s\n", region, count, count > 1 ? "es" : "",
                kill_them ? "killed" : "left without network");
}

void dp_state_visit(const char *instance, bool kill_inhabitants)
{
    each_listed_region(instance, kill_inhabitants, visit_inhabitants);
}

static void remove_netns(const char *instance, const char *region, bool flag)
{
    struct dp_state_path path = dp_state_netns_path(instance, region);
    (void)flag;
    umount2(path.text, MNT_DETACH);
    unlink(path.text);
}

static void clear_state(const char *instance)
{
    each_listed_region(instance, false, remove_netns);
    unlink(dp_state_path(instance, "regions").text);
    unlink(dp_state_path(instance, "hosts").text);
    unlink(dp_state_path(instance, "socket").text);
    rmdir(dp_state_path(instance, "").text);
}

void dp_state_remove(const char *instance)
{
    clear_state(instance);
    unlink(dp_state_lock_path(instance).text);
    rmdir(DP_STATE_DIR); // unless another instance uses it
}

lh_err dp_state_claim(const char *instance)
{
    struct dp_state_path directory = dp_state_path(instance, "");
    pid_t holder;
    LH_TRY(dp_state_lock(instance, &holder));
    if (holder) return lh_fail(LH_ERR_EXISTS, "%s is already up", instance);
    if (access(directory.text, F_OK) == 0) {
        fprintf(stderr, "wanem: %s crashed; cleaning up after it\n", instance);
        dp_state_visit(instance, false);
        clear_state(instance);
    }
    if (mkdir(directory.text, 0755) == 0) return LH_OK;
    lh_err err = lh_fail_errno(errno, "%s", directory.text);
    dp_state_remove(instance);
    return err;
}
