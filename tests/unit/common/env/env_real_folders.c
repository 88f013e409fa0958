// Folders of the real env: every level of a new folder is durable when it is made. Otherwise a file
// synced inside could be lost with its folder's name.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env_real_files.h"
#include "tests/test.h"

enum { SYNCED_MAX = 64, LEVELS = 3 };

static struct {
    ino_t inode[SYNCED_MAX];
    size_t count;
} synced;

// The linker takes this definition before the C library's. It records the synced inodes.
int fsync(int fd)
{
    struct stat st;
    if (!fstat(fd, &st) && synced.count < SYNCED_MAX) synced.inode[synced.count++] = st.st_ino;
    return (int)syscall(SYS_fsync, fd);
}

static bool was_synced(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (size_t i = 0; i < synced.count; i++)
        if (synced.inode[i] == st.st_ino) return true;
    return false;
}

struct disk {
    struct lh_env *env;
    char level[LEVELS + 1][128]; // level[0] exists already
};

static int make_disk(void **state)
{
    struct disk *d = test_calloc(1, sizeof *d);
    if (lh_env_real_create(&d->env)) return -1;
    snprintf(d->level[0], sizeof d->level[0], "/tmp/lh_folders.XXXXXX");
    if (!mkdtemp(d->level[0])) return -1;
    for (int i = 1; i <= LEVELS; i++) {
        char above[101];
        snprintf(above, sizeof above, "%.100s", d->level[i - 1]);
        snprintf(d->level[i], sizeof d->level[i], "%s/%c", above, 'a' + i);
    }
    *state = d;
    return 0;
}

static int drop_disk(void **state)
{
    struct disk *d = *state;
    for (int i = LEVELS; i >= 0; i--) assert_int_equal(rmdir(d->level[i]), 0);
    lh_env_real_destroy(d->env);
    test_free(d);
    return 0;
}

#define ON_DISK(name, parameter) TEST_WITH(name, parameter, make_disk, drop_disk)

ON_DISK(each_level_that_is_made_is_durable, struct disk *d)
{
    synced.count = 0;
    assert_int_equal(d->env->ops->files->make_dir(d->env, d->level[LEVELS]), LH_OK);
    // the parent of the next level
    for (int i = 0; i < LEVELS; i++) assert_true(was_synced(d->level[i]));
}

// Its maker may have been killed before the folder was durable.
ON_DISK(one_that_is_there_is_made_durable, struct disk *d)
{
    for (int i = 1; i <= LEVELS; i++) assert_int_equal(mkdir(d->level[i], 0700), 0);
    synced.count = 0;
    assert_int_equal(d->env->ops->files->make_dir(d->env, d->level[LEVELS]), LH_OK);
    for (int i = 0; i < LEVELS; i++) assert_true(was_synced(d->level[i]));
}
