// Watch: a disk too full for a status file is detected, and a worker that hangs at the run's end.
// This file has its own statvfs().
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/env/env.h"
#include "deploy/up/up.h"
#include "deploy/up/up_watch.h"
#include "tests/test.h"

// Replaces libc's function.
int statvfs(const char *path, struct statvfs *fs)
{
    bool full = strstr(path, "full") != NULL;
    *fs = (struct statvfs){.f_frsize = 4096, .f_blocks = 1000, .f_bavail = full ? 0 : 500};
    return strstr(path, "away") ? -1 : 0;
}

static bool is_full(struct dp_node *node, enum dp_kind kind, const char *dir)
{
    node->kind = kind;
    snprintf(node->dir, sizeof node->dir, "%s", dir);
    return dp_watch_full(node);
}

TEST(a_full_disk_is_seen_though_it_takes_no_status)
{
    static struct dp_proc proc = {.state = DP_PROC_RUNNING, .pid = 7};
    static struct dp_node node = {.proc = &proc};
    node.status.pid = 6; // written by an earlier process, or before the disk was full
    const enum dp_kind kinds[] = {DP_COORDINATOR, DP_SERVER, DP_WORKER};
    for (size_t i = 0; i < 3; i++) {
        assert_true(is_full(&node, kinds[i], "full"));
        assert_false(is_full(&node, kinds[i], "room"));
        assert_false(is_full(&node, kinds[i], "full, and away"));
    }
    assert_false(is_full(&node, DP_TRAINER, "full")); // the folder belongs to its worker
    proc.state = DP_PROC_ENDED;
    assert_false(is_full(&node, DP_SERVER, "full"));
}

// The log finds no space for its next segment, though a status file still fits.
TEST(a_node_says_itself_that_its_disk_is_full)
{
    static struct dp_proc proc = {.state = DP_PROC_RUNNING, .pid = 7};
    static struct dp_node node = {.proc = &proc, .status = {.pid = 7, .disk_full = true}};
    assert_true(is_full(&node, DP_SERVER, "room"));
    node.status.pid = 6;
    assert_false(is_full(&node, DP_SERVER, "room"));
}

TEST(a_disk_that_hangs_is_told_by_its_node_or_by_its_silence)
{
    static struct dp_proc proc = {.state = DP_PROC_RUNNING, .pid = 7};
    struct dp_node node = {.kind = DP_SERVER, .proc = &proc, .status = {.pid = 7, .time_s = 1000}};
    assert_null(dp_watch_hangs(&node, 1010));
    assert_string_equal(dp_watch_hangs(&node, 1020), "DISK OR PROCESS HANGS");
    node.status.commit_age_s = 20;
    assert_string_equal(dp_watch_hangs(&node, 1000), "DISK HANGS");
    node.kind = DP_TRAINER; // the status belongs to its worker
    assert_null(dp_watch_hangs(&node, 1000));
    node.kind = DP_SERVER;
    proc.state = DP_PROC_WAITING;
    assert_null(dp_watch_hangs(&node, 1000));
    proc.state = DP_PROC_RUNNING;
    node.status.pid = 6; // the status of an earlier process
    assert_null(dp_watch_hangs(&node, 1020));
}

// A worker that has drained is not left out. If it hangs before it has the last state, it is waited
// for as long as commands are that save their model.
TEST(a_run_that_has_ended_does_not_wait_for_a_worker_that_hangs)
{
    static struct dp_proc co = {.state = DP_PROC_RUNNING, .pid = 7},
                          proc = {.state = DP_PROC_RUNNING, .pid = 8};
    static struct dp_up up = {.nodes = 2};
    struct dp_node *worker = &up.node[1];
    up.node[0] = (struct dp_node){.proc = &co, .status = {.pid = 7, .state = "ended"}};
    *worker = (struct dp_node){.kind = DP_WORKER,
                               .proc = &proc,
                               .status = {.pid = 8, .time_s = 1000, .state = "draining"},
                               .told_ns = dp_now_ns() - (DP_END_S - 10) * LH_SECOND};
    assert_false(dp_watch_done(&up));
    worker->told_ns -= 20 * LH_SECOND;
    assert_true(dp_watch_done(&up));
    assert_non_null(strstr(dp_watch_left(&up, worker), "hangs"));
    snprintf(worker->dir, sizeof worker->dir, "full"); // its final.weights wait for space
    assert_false(dp_watch_done(&up));
    worker->dir[0] = 0;
    snprintf(up.node[0].status.state, sizeof up.node[0].status.state, "closing");
    assert_null(dp_watch_left(&up, worker));
}
