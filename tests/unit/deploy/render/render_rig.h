// A topology and what is rendered from it, in a temporary folder.
#ifndef TESTS_RENDER_RIG_H
#define TESTS_RENDER_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/render/render.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

#define MODEL                                                                                      \
    "model: {vocabulary: 32, dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}\n"

static char root[] = "/tmp/longhaul-render-XXXXXX";
static char topology[DP_PATH_BYTES], out[DP_PATH_BYTES];

static inline int setup(void **state)
{
    (void)state;
    if (!mkdtemp(root)) return 1;
    return dp_path(out, "%s/out", root) || dp_path(topology, "%s/t.yaml", root);
}

static inline int teardown(void **state)
{
    (void)state;
    return remove_tree(root);
}

// Writes the topology's file, and renders from it.
static inline LH_MUST lh_err render_with(lh_err (*form)(struct dp_render *), const char *yaml,
                                         struct dp_render_flags flags)
{
    flags.topology = topology;
    flags.out = out;
    struct dp_render r = {.flags = flags};
    assert_int_equal(dp_file_write(topology, lh_span_str(yaml), 0600), LH_OK);
    lh_err err = form(&r);
    dp_render_close(&r);
    return err;
}

static inline void has(const char *name, const char *text)
{
    char path[DP_PATH_BYTES];
    struct lh_buf got = lh_buf(1 << 20);
    assert_int_equal(dp_path(path, "%s/%s", out, name), LH_OK);
    assert_int_equal(dp_file_read(path, &got), LH_OK);
    dp_put(&got, "%c", 0);
    if (!strstr((char *)got.data, text)) fail_msg("%s has no %s:\n%s", name, text, got.data);
    lh_buf_free(&got);
}

#endif
