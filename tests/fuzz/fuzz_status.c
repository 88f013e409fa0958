// A status written by another process, as `up`, the metrics page and TensorBoard read it. Any bytes
// are counts and names within their limits and metrics of the registry, or are refused.
#include <ctype.h>
#include <jansson.h>
#include <string.h>

#include "common/app/metrics.h"
#include "common/base/check.h"
#include "deploy/ask/up_status.h"
#include "tests/fuzz/fuzz.h"

static void check_name(const char *name, size_t size)
{
    LH_ASSERT(memchr(name, 0, size));
    for (; *name; name++) LH_ASSERT((unsigned char)*name >= ' ' && *name != 127);
}

static void read_status(struct lh_span bytes)
{
    static struct dp_status s;
    struct dp_lives lives = {.pid = 0};
    struct dp_counts total;
    if (dp_status_parse(bytes, &s)) return;
    LH_ASSERT(s.seen && s.shards <= DP_SHARDS_MAX && s.behind_count <= DP_SHARDS_MAX);
    LH_ASSERT(s.left_outs <= DP_LEFT_OUT_MAX && s.expelleds <= DP_LEFT_OUT_MAX);
    check_name(s.role, sizeof s.role);
    check_name(s.name, sizeof s.name);
    check_name(s.state, sizeof s.state);
    for (unsigned i = 0; i < s.expelleds; i++) check_name(s.expelled[i], sizeof s.expelled[i]);
    for (int i = 0; i < 2; i++) dp_lives_see(&lives, &s, &total);
}

static void render(struct lh_span bytes)
{
    struct lh_buf out = lh_buf(1 << 22);
    json_t *root = json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    lh_err err = lh_metrics_prometheus(root, &out);
    LH_ASSERT(!err || err == LH_ERR_INVALID || err == LH_ERR_TOO_LARGE || err == LH_ERR_NO_MEMORY);
    LH_ASSERT(!out.len || err || out.data[out.len - 1] == '\n');
    lh_buf_free(&out);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 16) return 0;
    const struct lh_span bytes = lh_span(data ? data : (const uint8_t *)"", size);
    read_status(bytes);
    render(bytes);
    return 0;
}
