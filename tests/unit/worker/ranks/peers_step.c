// A step for a region's peers: read back as written, refused if malformed; its parts cover all
// sequences; figures survive a sum bit for bit, in bf16 too.
#include <string.h>

#include "kernels/convert.h"
#include "tests/test.h"
#include "worker/ranks/peers_step.h"

enum { SEQUENCES = 3, LENGTH = 5, IDS = SEQUENCES * (LENGTH + 1) };

static void put_sample(struct lh_buf *out)
{
    uint32_t ids[IDS];
    struct lh_hash manifest;
    for (uint32_t i = 0; i < IDS; i++) ids[i] = 1000 + i;
    memset(manifest.b, 0x5a, sizeof manifest.b);
    const struct wk_update update = {0.125, 0.9, 0.95, 1e-8, 0.1, 1.5, 77};
    const struct wk_reduce_step step = {.ids = ids,
                                        .sequences = SEQUENCES,
                                        .length = LENGTH,
                                        .scale = 0.25f,
                                        .measure = true,
                                        .update = &update};
    wk_peers_step_put(out, &manifest, &step);
}

TEST(there_and_back)
{
    struct lh_buf out = lh_buf(4096), again = lh_buf(4096);
    struct wk_peers_step s = {0};
    put_sample(&out);
    assert_int_equal(wk_peers_step_get(lh_buf_span(&out), &s), LH_OK);
    assert_true(s.step.sequences == SEQUENCES && s.step.length == LENGTH && s.step.measure);
    assert_true(s.update.rate == 0.125 && s.update.clip == 1.5 && s.update.step == 77);
    assert_true(s.step.scale == 0.25f && s.step.ids[IDS - 1] == 1000 + IDS - 1);
    wk_peers_step_put(&again, &s.manifest, &s.step);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_buf_span(&again)));
    wk_peers_step_free(&s);
    lh_buf_free(&out);
    lh_buf_free(&again);
}

TEST(malformed_steps_are_refused)
{
    // Offsets of the magic, sequences, length, measure, zero and the step's number.
    static const size_t wrong[] = {0, 4, 8, 12, 52};
    struct lh_buf out = lh_buf(4096);
    struct wk_peers_step s = {0};
    put_sample(&out);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        out.data[wrong[i]] ^= 0x42;
        assert_int_equal(wk_peers_step_get(lh_buf_span(&out), &s), LH_ERR_MALFORMED);
        out.data[wrong[i]] ^= 0x42;
    }
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(wk_peers_step_get(lh_span(out.data, n), &s), LH_ERR_MALFORMED);
    out.data[56] = 0; // steps are counted from 1
    assert_int_equal(wk_peers_step_get(lh_buf_span(&out), &s), LH_ERR_MALFORMED);
    wk_peers_step_free(&s);
    lh_buf_free(&out);
}

TEST(parts_cover_a_step)
{
    for (uint32_t sequences = 1; sequences < 20; sequences++)
        for (uint32_t parts = 1; parts < 9; parts++) {
            uint32_t next = 0;
            for (uint32_t i = 0; i < parts; i++) {
                struct wk_part part = wk_reduce_part(sequences, i, parts);
                assert_int_equal(part.from, next);
                assert_true(part.count <= (sequences + parts - 1) / parts);
                next += part.count;
            }
            assert_int_equal(next, sequences);
            // the leader's part: see gather()
            assert_true(wk_reduce_part(sequences, 0, parts).count > 0);
        }
}

static void figures_survive_a_sum_of(enum wk_sum_type type)
{
    static const double nll[] = {0, 1.0 / 3, -1e300, 5e-324, 123456.789};
    float sum[WK_FIGURES] = {0};
    struct wk_gathered got = {0};
    for (uint32_t part = 1; part <= 5; part++) {
        float mine[WK_FIGURES] = {0};
        uint16_t narrow[WK_FIGURES];
        uint32_t first = part == 2 ? 0 : part == 5 ? UINT32_MAX : part;
        const struct wk_share share = {nll[part - 1], first, nll[5 - part]};
        wk_figures_put(mine, part, &share);
        lk_bf16_of_fp32(mine, narrow, WK_FIGURES);
        if (type == WK_SUM_BF16) lk_bf16_add(narrow, sum, WK_FIGURES);
        for (int i = 0; type == WK_SUM_FP32 && i < WK_FIGURES; i++) sum[i] += mine[i];
    }
    wk_figures_get(sum, 6, &got);
    double all = 0;
    for (int i = 0; i < 5; i++) all += nll[i];
    assert_true(got.nll == all);
    assert_int_equal(got.samples, 4); // a rank that measured nothing gives no sample
    assert_int_equal(got.sample[0].first, 1);
    assert_true(got.sample[3].first == UINT32_MAX);
    assert_true(got.sample[0].first_square == nll[4] && got.sample[3].first_square == nll[0]);
}

TEST(figures_survive_a_sum)
{
    figures_survive_a_sum_of(WK_SUM_FP32);
    figures_survive_a_sum_of(WK_SUM_BF16);
}
