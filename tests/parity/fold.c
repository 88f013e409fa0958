// Folds payloads of any codec and density, several at once, in the order of the log.
#include "tests/parity/device.h"

#include <stdlib.h>

enum { RECORDS = 3 };

struct payloads {
    struct lk_codec codec[RECORDS];
    struct lh_buf bytes[RECORDS];
    uint8_t *device[RECORDS];
    float scale[RECORDS];
    uint32_t count;
};

static void fill(const struct device *dev, struct payloads *p, const struct lh_shard_layout *layout,
                 uint64_t n)
{
    static const float densities[] = {64.0f / 4096, 0.3f, 0.002f, 1, 0.06f};
    p->count = 1 + (uint32_t)(n % RECORDS);
    for (uint32_t i = 0; i < p->count; i++) {
        uint64_t m = n + i * 5;
        struct lk_payload_info info;
        p->codec[i] = (struct lk_codec){.density = 1};
        must(!lk_codec_parse(lk_codec_word(m % 7), &p->codec[i]), "no such codec");
        if (p->codec[i].index) p->codec[i].density = densities[(m / 2 + i) % LH_COUNT(densities)];
        int kind = (int)((n + 3 * i) % CASE_KINDS);
        float *e = made((enum case_kind)kind, layout->values, m);
        p->bytes[i] = lh_buf(1 << 24);
        must(lk_encode(&p->codec[i], layout, e, &p->bytes[i], &info) == LH_OK, "encode");
        p->device[i] = device_put(dev, p->bytes[i].data, p->bytes[i].len);
        p->scale[i] = (float[]){0.3f, -1, 1e-3f, 7}[(n + i) % 4];
        free(e);
    }
}

static void payloads_free(const struct device *dev, struct payloads *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        lh_buf_free(&p->bytes[i]);
        device_free(dev, p->device[i]);
    }
}

static void compare(const struct device *dev, struct lk_gpu_shard *shard,
                    const struct lh_shard_layout *layout, const struct payloads *p, uint64_t n)
{
    uint64_t below = n % 2 ? UINT64_MAX : 1 + n * 977 % layout->values;
    size_t bytes = layout->values * sizeof(float);
    float *theta = made((enum case_kind)(n % CASE_KINDS), layout->values, n + 99);
    float *got = malloc(bytes), *to = device_put(dev, theta, bytes);
    struct lk_gpu_record record[RECORDS];
    must(theta && got, "no memory");
    for (uint32_t i = 0; i < p->count; i++) {
        struct lh_span payload = lh_buf_span(&p->bytes[i]);
        record[i] = lk_gpu_record_of(&p->codec[i], payload, p->device[i], p->scale[i]);
        must(!lk_fold_below(&p->codec[i], layout, payload, p->scale[i], theta, below),
             "fold on the CPU");
    }
    must_succeed(dev, dev->b->kernels->fold(shard, record, p->count, below, to, dev->stream),
                 "fold");
    device_get(dev, got, to, bytes);
    must_equal(got, theta, bytes, "fold %llu of %u records from %s", (unsigned long long)n,
               p->count, lk_codec_name(&p->codec[0]));
    device_free(dev, to);
    free(theta);
    free(got);
}

void parity_fold(void)
{
    static const uint64_t lens[2][16] = {
        {9000, 1, 4096, 63, 5, 4097, 700, 2, 17, 64, 255, 31, 8, 3, 1300, 0}, {700, 4096, 1, 0}};
    struct device dev = device_create();
    struct lk_codec own = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    for (uint64_t n = 0; n < seeds_of(72); n++) {
        struct layout_case c;
        struct lk_gpu_plan plan;
        struct lk_gpu_shard *shard;
        struct payloads p = {.count = 0};
        simt_seed(n);
        case_layout(&c, lens[n / 2 % 2]);
        must(lk_gpu_plan_create(&own, &c.layout, &plan) == LH_OK, "no plan");
        must_succeed(&dev, dev.b->kernels->shard_create(&plan, &shard), "shard_create");
        fill(&dev, &p, &c.layout, n);
        compare(&dev, shard, &c.layout, &p, n);
        payloads_free(&dev, &p);
        dev.b->kernels->shard_destroy(shard);
        lk_gpu_plan_free(&plan);
    }
    device_destroy(&dev);
}
