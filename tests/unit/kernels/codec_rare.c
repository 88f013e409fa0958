// An expert of a mixture that gets few tokens: its updates are rare and small beside those of other
// experts, and they must leave the residual soon. Top-k chooses in each chunk separately, so large
// values in other chunks do not hold them back. Values that share a chunk with larger ones do wait.
// This happens to an expert of fewer than 4,096 values in a tensor that holds all experts.
#include "tests/unit/kernels/codec_case.h"

#include "tests/test.h"
#include "worker/rule.h"

enum { CHUNKS = 8, N = CHUNKS * LH_CHUNK, EVERY = 25, ROUNDS = 4 * EVERY };
static const float SMALL = 0.01f;

// The largest share of one rare update's energy that is still in the residual `rounds` rounds
// later. The rare values are every `stride`-th one from `first` on.
static double left_after(const char *name, double density, int rounds, int first, int stride)
{
    static float d[N], e[N];
    struct layout_case c;
    struct lk_codec codec;
    uint64_t seed = 1;
    double most = 0;
    case_layout(&c, (const uint64_t[]){N, 0});
    assert_int_equal(lk_codec_parse(name, &codec), LH_OK);
    codec.density = (float)density;
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
    memset(e, 0, sizeof e);
    for (int t = 0; t < ROUNDS; t++) {
        double update = 0, left = 0;
        for (int i = 0; i < N; i++) d[i] = case_gaussian(&seed);
        for (int i = first; i < N; i += stride) {
            d[i] *= t % EVERY ? 0 : SMALL;
            update += (double)SMALL * SMALL;
        }
        for (int i = 0; i < N; i++) e[i] = (float)wk_rule_beta(density) * e[i] + d[i];
        out.len = 0;
        assert_int_equal(lk_encode(&codec, &c.layout, e, &out, NULL), LH_OK);
        for (int i = first; i < N; i += stride) left += (double)e[i] * e[i];
        if (t % EVERY == rounds && left / update > most) most = left / update;
    }
    lh_buf_free(&out);
    return most;
}

TEST(a_rare_experts_update_leaves_the_residual)
{
    static const char *const names[] = {"topk-sign", "topk-q4"};
    static const double densities[] = {1.0 / 6, 0.075}; // the range of the density rule
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < 2; j++) {
            int rounds = (int)(1 / densities[j] + 0.5);
            double own = left_after(names[k], densities[j], rounds, N - LH_CHUNK, 1);
            double shared = left_after(names[k], densities[j], EVERY - 1, 0, CHUNKS);
            print_message("%s, density %.3f: after %d rounds %.2f %% of its update is left; in "
                          "chunks of others, after %d rounds %.0f %%\n",
                          names[k], densities[j], rounds, 100 * own, EVERY - 1, 100 * shared);
            assert_true(own < 0.01);
            assert_true(shared > 0.9);
        }
}
