// common/env/numbers.c: a small file is complete, of its kind and of this version; else it is
// damaged.
#include <string.h>

#include "common/env/numbers.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static const struct lh_numbers KIND = {
    .magic = 0x54534554, .version = 2, .count = 2, .remedy = "do this"};
static const char PATH[] = "d/file";

static struct lh_fake_world *world;
static struct lh_env *env;

static int set_up(void **state)
{
    (void)state;
    world = lh_fake_world_create(1);
    env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(env);
    return env->ops->files->make_dir(env, "d") ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    lh_fake_world_destroy(world);
    return 0;
}

static void put(struct lh_span bytes)
{
    assert_int_equal(lh_file_replace(env, PATH, bytes), LH_OK);
}

static void damaged(void)
{
    uint64_t got[2] = {8, 9};
    assert_int_equal(lh_numbers_load(env, &KIND, PATH, got), LH_ERR_CORRUPT);
    assert_true(got[0] == 8 && got[1] == 9);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "d/file is damaged; do this"));
}

#define IN_ENV(name) TEST_WITH(name, void *unused, set_up, tear_down)

IN_ENV(reads_what_was_written)
{
    uint64_t got[2] = {8, 9};
    assert_int_equal(lh_numbers_load(env, &KIND, PATH, got), LH_ERR_NOT_FOUND);
    assert_true(got[0] == 8 && got[1] == 9);
    assert_int_equal(lh_numbers_store(env, &KIND, PATH, (uint64_t[]){1, UINT64_MAX}), LH_OK);
    assert_int_equal(lh_numbers_load(env, &KIND, PATH, got), LH_OK);
    assert_true(got[0] == 1 && got[1] == UINT64_MAX);
}

static void seal(struct lh_buf *b)
{
    b->len -= 4;
    lh_put_u32(b, lh_crc32c(0, b->data, b->len));
}

IN_ENV(every_byte_and_every_length)
{
    struct lh_buf b = lh_buf(64);
    assert_int_equal(lh_numbers_store(env, &KIND, PATH, (uint64_t[]){1, 2}), LH_OK);
    assert_int_equal(lh_file_load(env, PATH, &b), LH_OK);
    assert_int_equal(b.len, 8 + 16 + 4);
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= 1;
        put(lh_buf_span(&b));
        damaged();
        b.data[i] ^= 1;
        put(lh_span(b.data, i));
        damaged();
    }
    lh_put_u8(&b, 0); // one byte too many
    put(lh_buf_span(&b));
    damaged();
    lh_put_zeros(&b, 64 - b.len); // larger than any of these files
    put(lh_buf_span(&b));
    damaged();
    lh_buf_free(&b);
}

IN_ENV(another_kind_or_version)
{
    struct lh_buf b = lh_buf(64);
    assert_int_equal(lh_numbers_store(env, &KIND, PATH, (uint64_t[]){1, 2}), LH_OK);
    assert_int_equal(lh_file_load(env, PATH, &b), LH_OK);
    const struct {
        size_t at;
        uint8_t mask;
    } change[] = {{0, 1}, {4, 1}, {4, 2}}; // magic, version 3, version 0
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        b.data[change[i].at] ^= change[i].mask;
        seal(&b);
        put(lh_buf_span(&b));
        damaged();
        b.data[change[i].at] ^= change[i].mask;
    }
    seal(&b);
    put(lh_buf_span(&b));
    uint64_t got[2];
    assert_int_equal(lh_numbers_load(env, &KIND, PATH, got), LH_OK);
    lh_buf_free(&b);
}
