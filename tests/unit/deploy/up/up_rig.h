// A run's folder inside a temporary folder of the test.
#ifndef TESTS_UP_RIG_H
#define TESTS_UP_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/up/up_dir.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_watch.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

static char root[] = "/tmp/longhaul-dir-XXXXXX";
static char run_dir[DP_PATH_BYTES], topology[DP_PATH_BYTES];

static inline int setup(void **state)
{
    (void)state;
    if (!mkdtemp(root)) return 1;
    return dp_path(run_dir, "%s/run", root) || dp_path(topology, "%s/t.yaml", root);
}

static inline int teardown(void **state)
{
    (void)state;
    return remove_tree(root);
}

// Returns a new `up` for this topology text.
static inline struct dp_up *open_up(const char *yaml)
{
    struct dp_up *up = calloc(1, sizeof *up);
    assert_non_null(up);
    assert_int_equal(dp_file_write(topology, lh_span_str(yaml), 0600), LH_OK);
    up->flags = (struct dp_up_flags){.topology = topology, .dir = run_dir, .no_wan = true};
    assert_int_equal(dp_path(up->data, "/data/tokens"), LH_OK);
    lh_err err = dp_topology_load(topology, &up->t);
    if (err) fail_msg("%s", lh_err_text(err));
    assert_int_equal(dp_dir_model(up), LH_OK);
    return up;
}

static inline void close_up(struct dp_up *up)
{
    dp_dir_close(up);
    dp_watch_free(up);
    lh_manifest_free(&up->manifest);
    dp_topology_free(up->t);
    free(up);
}

static inline void all(struct dp_up *up)
{
    assert_int_equal(dp_dir_open(up), LH_OK);
    assert_int_equal(dp_dir_prepare(up), LH_OK);
    assert_int_equal(dp_net_up(up), LH_OK);
    lh_err err = dp_dir_settings(up);
    if (err) fail_msg("%s", lh_err_text(err));
}

#endif
