// TensorBoard event files: their bytes, parsed by this test's own reader, and the file that a full
// disk leaves. tests/oracle/board.py reads such a file with TensorBoard itself.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/tensorboard.h"
#include "common/base/limits.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { FILE_BYTES = 1 << 20 };

struct rig {
    struct lh_fake_world *world;
    struct lh_env *env;
    char path[LH_PATH_BYTES];
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    if (!r) return -1;
    r->world = lh_fake_world_create(3);
    r->env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->env);
    snprintf(r->path, sizeof r->path, "board/s0/events.out.tfevents.%010lld.s0.7",
             (long long)r->env->ops->wall_s(r->env));
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_fake_world_destroy(r->world);
    free(r);
    return 0;
}

static uint32_t unmasked(uint32_t crc)
{
    crc -= 0xa282ead8u;
    return crc >> 17 | crc << 15;
}

// Appends the payloads of all records to `out`; returns their count.
static unsigned events_of(struct rig *r, struct lh_buf *out)
{
    struct lh_buf bytes = lh_buf(FILE_BYTES);
    unsigned n = 0;
    *out = lh_buf(FILE_BYTES);
    assert_int_equal(lh_file_load(r->env, r->path, &bytes), LH_OK);
    struct lh_cursor c = lh_cursor(lh_buf_span(&bytes));
    for (; lh_left(&c); n++) {
        uint8_t length[8];
        uint64_t len = lh_get_u64(&c);
        for (int i = 0; i < 8; i++) length[i] = (uint8_t)(len >> 8 * i);
        assert_int_equal(unmasked(lh_get_u32(&c)), lh_crc32c(0, length, sizeof length));
        assert_true(len < FILE_BYTES);
        struct lh_span body = lh_get(&c, (size_t)len);
        assert_int_equal(unmasked(lh_get_u32(&c)), lh_crc32c(0, body.data, body.len));
        assert_false(c.failed);
        lh_put(out, body.data, body.len);
    }
    lh_buf_free(&bytes);
    return n;
}

static bool holds(const struct lh_buf *bytes, const void *what, size_t n)
{
    return memmem(bytes->data, bytes->len, what, n) != NULL;
}

static json_t *status(int version)
{
    return json_pack("{s:s s:f s:b s:[{s:i s:i}]}", "role", "server", "loop_longest_ms", 250.0,
                     "ready", 1, "shards", "shard", 0, "version", version);
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(scalars_are_read_back, struct rig *r)
{
    static const char version[] = "\n\x1elonghaul_shard_version/shard=0\x15\0\0\xe0@"; // 7
    static const char longest[] = "\n\x1dlonghaul_loop_longest_seconds\x15\0\0\x80>";  // 0.25
    static const char ready[] = "\n\x0elonghaul_ready\x15\0\0\x80?";                   // 1
    struct lh_tensorboard *t;
    struct lh_buf events;
    json_t *is = status(7);
    assert_int_equal(lh_tensorboard_open(r->env, "board/s0", "s0.7", &t), LH_OK);
    assert_true(lh_tensorboard_due(t, 1000));
    assert_int_equal(lh_tensorboard_add(t, 1000, is), LH_OK);
    assert_int_equal(events_of(r, &events), 2);
    assert_true(holds(&events,
                      "\x1a\x0d"
                      "brain.Event:2",
                      15));
    assert_true(holds(&events, "\x10\x07\x2a", 3)); // step 7, then the summary
    assert_true(holds(&events, version, sizeof version - 1));
    assert_true(holds(&events, longest, sizeof longest - 1));
    assert_true(holds(&events, ready, sizeof ready - 1));
    lh_buf_free(&events);
    json_decref(is);
    lh_tensorboard_close(t);
}

IN_RIG(times_are_further_and_further_apart, struct rig *r)
{
    struct lh_tensorboard *t;
    struct lh_buf events;
    json_t *is = status(1);
    unsigned times = 0;
    assert_int_equal(lh_tensorboard_open(r->env, "board/s0", "s0.7", &t), LH_OK);
    for (int s = 0; s < 60000; s++)
        if (lh_tensorboard_due(t, s)) {
            assert_int_equal(lh_tensorboard_add(t, s, is), LH_OK);
            times++;
        }
    // 1,000 points 10 s apart, 1,000 points 20 s apart, the rest 40 s apart
    assert_in_range(times, 2740, 2760);
    assert_int_equal(events_of(r, &events), times + 1);
    lh_buf_free(&events);
    json_decref(is);
    lh_tensorboard_close(t);
}

IN_RIG(a_full_disk_leaves_whole_records, struct rig *r)
{
    struct lh_tensorboard *t;
    struct lh_buf events;
    json_t *is = status(7);
    assert_int_equal(lh_tensorboard_open(r->env, "board/s0", "s0.7", &t), LH_OK);
    lh_fake_disk_limit(r->env, lh_fake_disk_used(r->env));
    assert_int_equal(lh_tensorboard_add(t, 1000, is), LH_ERR_DISK_FULL);
    assert_true(lh_tensorboard_due(t, 1001));
    lh_fake_disk_limit(r->env, 0);
    assert_int_equal(lh_tensorboard_add(t, 1001, is), LH_OK);
    assert_int_equal(events_of(r, &events), 2);
    lh_buf_free(&events);
    json_decref(is);
    lh_tensorboard_close(t);
}
