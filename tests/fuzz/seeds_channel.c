// Seeds of the channel between a worker and a trainer.
#include <stdlib.h>

#include "common/base/check.h"
#include "tests/fuzz/seeds.h"
#include "worker/external/correction.h"

static void put_channel_message(const struct fuzz_seeds *o, const char *name,
                                struct wk_channel_message m)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m.abi = WK_CHANNEL_ABI;
    size_t n = wk_channel_encode(&m, bytes);
    fuzz_seed(o, "channel", name, lh_span("\0", 1), lh_span(bytes, n));
}

static void channel_messages(const struct fuzz_seeds *o)
{
    struct wk_channel_message m = {.kind = WK_CHANNEL_HELLO};
    m.as.hello = (struct wk_channel_hello){1, 2, 3, true, {9, 8, 7}};
    put_channel_message(o, "hello", m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_TENSOR};
    m.as.tensor =
        (struct wk_channel_tensor){1, WK_CHANNEL_BF16, 2, 5, 10, false, {5, 6}, "layer.0.weight"};
    put_channel_message(o, "tensor", m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_WELCOME};
    m.as.welcome = (struct wk_channel_welcome){1 << 20, false, {9}};
    put_channel_message(o, "welcome", m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_REFUSED};
    m.as.refused = (struct wk_channel_refused){WK_CHANNEL_BUSY, "another process is this rank"};
    put_channel_message(o, "refused", m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_RING};
    put_channel_message(o, "ring", m);
}

// A memory of two parts, with two corrections of the first one: a sparse and a dense one.
void fuzz_seeds_channel(const struct fuzz_seeds *o)
{
    static const uint64_t first[] = {0, 40, 50};
    struct wk_channel_shape shape = {50, 2, 1, 4, 4, first};
    struct wk_channel_layout layout;
    struct wk_channel c;
    struct wk_correction_work work;
    float view[40] = {0};
    LH_ASSERT(!wk_correction_open(&work, 40));
    LH_ASSERT(wk_channel_plan(&shape, &layout));
    uint8_t *base = calloc(1, layout.bytes);
    LH_ASSERT(base && wk_channel_open(&c, &shape, base));
    wk_channel_format(&c, (const uint8_t[WK_CHANNEL_LIFE]){1}, (const uint8_t[WK_CHANNEL_HASH]){2});
    struct wk_channel_part *p = wk_channel_part(&c, 0);
    for (uint64_t number = 1, at = 0; number <= 2; number++) {
        struct wk_base from = {&c, 0, 0, 0, number - 1};
        struct wk_correction_plan plan;
        const struct wk_external_view to = {.theta = view};
        for (int i = 0; i < 40; i += number == 1 ? 13 : 1) view[i] += 1;
        LH_ASSERT(!wk_correction_plan(&from, &to, &work, &plan));
        LH_ASSERT(!wk_correction_write(&from, &to, &work, &plan, wk_channel_ring(&c, 0) + at));
        p->entry[number] = (struct wk_channel_entry){number, plan.kind, 0, at, plan.count};
        at += plan.bytes;
    }
    wk_correction_close(&work);
    p->published = 2;
    struct lh_buf b = lh_buf(1 << 16);
    lh_put(&b, base, sizeof(struct wk_channel_head));
    lh_put(&b, base + layout.first_at, 64);
    lh_put(&b, p, sizeof *p);
    lh_put(&b, wk_channel_ring(&c, 0), 512);
    fuzz_seed(o, "channel", "memory", lh_span("\1", 1), lh_buf_span(&b));
    b.data[sizeof(struct wk_channel_head) + 64 + 64 + 32 + 24] = 200; // more entries than values
    fuzz_seed(o, "channel", "memory-damaged", lh_span("\1", 1), lh_buf_span(&b));
    lh_buf_free(&b);
    wk_channel_close(&c);
    free(base);
    channel_messages(o);
}
