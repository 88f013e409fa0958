// The fake world's disks: declarations that env_fake.c and env_fake_files.c share. No other file
// includes it.
#ifndef TESTS_ENV_FAKE_FILES_H
#define TESTS_ENV_FAKE_FILES_H

#include "tests/world/env_fake.h"

struct lh_fake_inode;
struct lh_fake_name {
    char path[160];
    struct lh_fake_inode *inode;
};
struct lh_fake_names {
    struct lh_fake_name *name; // ascending by path
    size_t count;
};

// A change of a name that a power cut may undo.
struct lh_fake_change {
    char path[160];
    struct lh_fake_inode *was; // NULL: the name did not exist
    char folder[2][160];       // a sync of either makes it durable; "": no second folder
    bool with_next; // the next change is the other half of this rename; both are kept or undone
};

struct lh_fake_env {
    struct lh_env env;
    struct lh_fake_world *world;
    bool alive, struck, crash_power;
    uint64_t life, random;
    int64_t crash_in; // file operations until the crash, < 0: never
    int64_t fail_in;  // file operations until one fails with `fail`, < 0: never
    lh_err fail;
    bool failed;
    bool no_room_in_place;     // a write within a file's size found the disk full in this life
    struct lh_fake_harm harm;  // its seed is the stream's state
    int64_t short_in, sync_in; // writes and syncs until one finds the disk full or fails; < 0: none
    int64_t still_until;       // the node handles nothing before
    int64_t still_in, still_ns;    // file operations until the stall, < 0: never; its length
    bool looking;                  // operations are the test driver's
    int64_t slow;                  // bound of a job's delay
    int64_t begins[LH_LANE_COUNT]; // when the last delayed job begins
    int64_t hangs_until;           // jobs of the disk's lanes begin no earlier
    uint8_t boot[16];
    lh_fn on_death;
    void *arg;
    lh_fake_job_fn take_job; // NULL: jobs run at once
    void *jobs_arg;
    // disk: `now` has the names as programs see them; `past` has them before each change since the
    // last sync of a directory, oldest first; a power cut falls back to any of these
    struct lh_fake_names now;
    struct lh_fake_names *past;
    size_t past_count;
    bool apart; // folders are synced separately: `change` replaces `past`, oldest first
    struct lh_fake_change *change;
    size_t changes;
    uint64_t limit, used;
};

extern const struct lh_files_ops lh_fake_files_ops;
void lh_fake_files_power_cut(struct lh_fake_env *e);
bool lh_fake_step(struct lh_fake_env *e);
uint64_t lh_fake_env_random(struct lh_fake_env *e);
uint64_t lh_fake_harm_random(struct lh_fake_env *e);

#endif
