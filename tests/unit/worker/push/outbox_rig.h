// A machine with an outbox on its disk.
#ifndef TESTS_UNIT_OUTBOX_RIG_H
#define TESTS_UNIT_OUTBOX_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"
#include "tests/world/env_fake.h"
#include "worker/push/outbox.h"

enum { BOXES_SHARD = 3 };

struct machine {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct wk_outbox box;
    int bad;
    char bad_file[64];
    lh_err bad_err;
};

static inline int make_machine(void **state)
{
    struct machine *m = calloc(1, sizeof *m);
    if (!m) return -1;
    m->world = lh_fake_world_create(11);
    m->env = lh_fake_node(m->world, NULL, NULL);
    lh_fake_boot(m->env);
    m->box = (struct wk_outbox){.env = m->env, .dir = "outbox", .shard = BOXES_SHARD};
    *state = m;
    return 0;
}

static inline int free_machine(void **state)
{
    struct machine *m = *state;
    wk_outbox_free(&m->box);
    lh_fake_world_destroy(m->world);
    free(m);
    return 0;
}

static inline LH_MUST lh_err keep(struct machine *m, uint64_t incarnation, uint64_t step,
                                  struct wk_entry **out)
{
    struct lh_frame f = case_frame();
    f.shard = BOXES_SHARD;
    f.incarnation.number = incarnation;
    f.step = step;
    struct lh_buf b = case_bytes(&f);
    struct lh_blob *frame = lh_blob_copy(lh_buf_span(&b));
    assert_non_null(frame);
    lh_err err = wk_outbox_write(&m->box, frame, out);
    if (!err) wk_outbox_insert(&m->box, *out);
    lh_blob_release(frame);
    lh_buf_free(&b);
    return err;
}

static inline void note_bad(void *arg, const char *file, lh_err e)
{
    struct machine *m = arg;
    m->bad++;
    m->bad_err = e;
    snprintf(m->bad_file, sizeof m->bad_file, "%s", file);
}

// Loads the outbox as a fresh process does after a kill or a power cut.
static inline void restart(struct machine *m, bool power)
{
    wk_outbox_free(&m->box);
    lh_fake_kill(m->env, power);
    lh_fake_boot(m->env);
    m->bad = 0;
    assert_int_equal(wk_outbox_load(&m->box, note_bad, m), LH_OK);
}

// Checks the entry's bytes, in memory or on disk; memory must hold as many of them afterwards as
// before.
static inline void assert_entry(struct machine *m, struct wk_entry *e, uint64_t incarnation,
                                uint64_t step)
{
    struct lh_blob *frame;
    assert_non_null(e);
    assert_int_equal(e->head.incarnation.number, incarnation);
    assert_int_equal(e->head.step, step);
    assert_int_equal(e->status, WK_UNDECIDED);
    bool held = e->frame != NULL;
    if (!held) e->status = WK_ADMITTED; // only an undecided entry keeps the frame that it reads
    assert_int_equal(wk_outbox_frame(&m->box, e, &frame), LH_OK);
    e->status = WK_UNDECIDED;
    assert_int_equal(e->frame != NULL, held);
    assert_int_equal(frame->len, e->bytes);
    struct lh_digest d = lh_frame_digest(lh_blob_span(frame), &e->head);
    assert_true(lh_digest_equal(&d, &e->digest));
    lh_blob_release(frame);
}

static inline void write_file(struct machine *m, const char *path, struct lh_span bytes)
{
    struct lh_file *file;
    unsigned flags = LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE;
    assert_int_equal(m->env->ops->files->open(m->env, path, flags, &file), LH_OK);
    assert_int_equal(m->env->ops->files->write(file, 0, bytes), LH_OK);
    m->env->ops->files->close(file);
}

#define ON_MACHINE(name, parameter) TEST_WITH(name, parameter, make_machine, free_machine)

#endif
