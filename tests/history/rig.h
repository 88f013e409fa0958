// Shared by the tests of histories: a history on a fake disk, a folder on the real disk for code
// that reads only that, and the commands of `longhaul` with their output.
#ifndef TESTS_HISTORY_RIG_H
#define TESTS_HISTORY_RIG_H

#include "tests/history/history.h"

struct history_rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct history h;  // a history whose folder is "server" of env
    char root[64];     // the folder on the real disk; "": none
    struct lh_buf out; // output of the last command, ending with a 0 byte
    struct lh_signer *signer[2];
};

// Begins an empty history.
void history_rig_start(struct history_rig *r);
void history_rig_finish(struct history_rig *r); // removes the folder and its contents too
void history_rig_root(struct history_rig *r);   // makes the folder
// Writes the usual history into the folder as ROOT/server, with the job's files
// (history_write_job).
void history_rig_files(struct history_rig *r);

// Returns the path ROOT/NAME, which the eighth call after this one overwrites.
const char *history_in_root(const struct history_rig *r, const char *name);
// Runs a command with the words of `line` and returns its exit code. @NAME stands for a path in the
// root, JOB for the three flags of the job.
int history_command(struct history_rig *r, const char *name, const char *line);
bool history_says(const struct history_rig *r, const char *text); // the last command's output

// Setups and teardown for cmocka; *state is a rig. They add: files; a plan and a worker in both
// shards, at version 2; signers as well.
int history_set_up_files(void **state);
int history_set_up_shards(void **state);
int history_set_up_signed(void **state);
int history_tear_down(void **state);

#endif
