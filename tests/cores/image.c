// Copies of a node's directory. See image.h.
#include "tests/cores/image.h"

#include <stdio.h>

static void note(void *arg, const char *path, uint64_t bytes)
{
    struct image *m = arg;
    (void)bytes;
    assert_true(m->count < LH_COUNT(m->file));
    struct image_file *f = &m->file[m->count++];
    snprintf(f->path, sizeof f->path, "%.159s", path);
    f->bytes = lh_buf(1 << 24);
}

void image_take(struct rig_node *n, struct image *m)
{
    m->count = 0;
    lh_fake_boot(n->env);
    lh_fake_disk_each(n->env, note, m);
    lh_fake_look(n->env, true);
    for (size_t i = 0; i < m->count; i++)
        assert_int_equal(lh_file_load(n->env, m->file[i].path, &m->file[i].bytes), LH_OK);
    lh_fake_look(n->env, false);
    lh_fake_kill(n->env, false);
}

void image_put(struct rig_node *n, const struct image *m)
{
    lh_fake_disk_wipe(n->env);
    lh_fake_boot(n->env);
    for (size_t i = 0; i < m->count; i++)
        assert_int_equal(lh_file_replace(n->env, m->file[i].path, lh_buf_span(&m->file[i].bytes)),
                         LH_OK);
    lh_fake_kill(n->env, false);
}

void image_free(struct image *m)
{
    for (size_t i = 0; i < m->count; i++) lh_buf_free(&m->file[i].bytes);
    m->count = 0;
}

struct newest {
    char path[LH_PATH_BYTES];
    const char *dir;
};

static void note_newest(void *arg, const char *name)
{
    struct newest *n = arg;
    assert_int_equal(lh_path(n->path, sizeof n->path, n->dir, "%s", name), LH_OK);
}

void image_damage_tail(const struct rig_node *n)
{
    char dir[64];
    struct newest last = {.dir = dir};
    struct lh_buf b = lh_buf(1 << 22);
    snprintf(dir, sizeof dir, "%s/log", n->dir);
    lh_fake_boot(n->env);
    assert_int_equal(n->env->ops->files->list(n->env, dir, note_newest, &last), LH_OK);
    assert_int_equal(lh_file_load(n->env, last.path, &b), LH_OK);
    size_t end = b.len;
    while (end && !b.data[end - 1]) end--;
    lh_buf_free(&b);
    assert_true(end > 64);
    assert_int_equal(lh_fake_flip(n->env, last.path, end - 12, 1), LH_OK);
    lh_fake_kill(n->env, false);
}
