// Shared by the tests of histories: a history on a fake disk, a folder on the real one for what
// reads only that, and the commands of `longhaul` with what they print.
#ifndef TESTS_HISTORY_RIG_H
#define TESTS_HISTORY_RIG_H

#include "tests/history/history.h"

struct history_rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct history h;  // a history whose folder is "server" of env
    char root[64];     // the folder on the real disk; "": none
    struct lh_buf out; // what the last command printed, 0 behind it
    struct lh_signer *signer[2];
};

// An empty history.
void history_rig_start(struct history_rig *r);
void history_rig_finish(struct history_rig *r); // the folder goes with all that is in it
void history_rig_root(struct history_rig *r);   // makes the folder
// The folder gets the usual history as ROOT/server, and the job's files (history_write_job).
void history_rig_files(struct history_rig *r);

// ROOT/NAME; it is overwritten by the eighth call after this one.
const char *history_in_root(const struct history_rig *r, const char *name);
// Runs a command with the words of `line` and returns its exit code: @NAME is a path in the root,
// JOB the three flags of the job.
int history_command(struct history_rig *r, const char *name, int (*command)(int, char **),
                    const char *line);
bool history_says(const struct history_rig *r, const char *text); // the last command

// setup and teardown of cmocka, *state is a rig: with its files; with a plan and a worker in both
// shards, at version 2; with signers as well.
int history_set_up_files(void **state);
int history_set_up_shards(void **state);
int history_set_up_signed(void **state);
int history_tear_down(void **state);

#endif
