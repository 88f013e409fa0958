// Shapes, the table of tensors, the manifest made from it, and initial values.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/train/model.h"

static const char *const main_job =
    "{\"architecture\":\"transformer\",\"vocab\":256,\"dim\":96,\"layers\":4,\"heads\":4,"
    "\"kv_heads\":2,\"ffn\":256,\"context\":128,\"rope_theta\":10000,\"rms_eps\":1e-6,"
    "\"qkv_bias\":true,\"tied\":true}";

static struct wk_shape shape_of(const char *json)
{
    struct wk_shape s;
    assert_int_equal(wk_shape_parse(json, &s), LH_OK);
    return s;
}

TEST(parses_and_writes_a_shape)
{
    struct wk_shape s = shape_of(main_job), again;
    assert_int_equal(s.vocab, 256);
    assert_int_equal(s.kv_heads, 2);
    assert_int_equal(wk_shape_head_dim(&s), 24);
    assert_true(s.rope_theta == 10000.0 && s.rms_eps == 1e-6 && s.qkv_bias && s.tied);

    struct lh_buf b = lh_buf(4096);
    assert_int_equal(wk_shape_write(&s, &b), LH_OK);
    assert_int_equal(strlen((const char *)b.data), b.len);
    again = shape_of((const char *)b.data);
    assert_int_equal(again.ffn, s.ffn);
    assert_true(again.rms_eps == s.rms_eps && again.tied == s.tied);
    lh_buf_free(&b);

    s = shape_of("{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,"
                 "\"heads\":2,\"ffn\":5,\"context\":9}");
    assert_int_equal(s.kv_heads, 2);
    assert_true(s.rope_theta == 10000.0 && !s.qkv_bias && !s.tied);
}

TEST(refuses_what_it_cannot_train)
{
    static const char *const bad[] = {
        NULL,
        "",
        "[]",
        "{}",
        "{\"architecture\":\"mamba\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":2,\"ffn\":5,"
        "\"context\":9}",
        "{\"architecture\":\"transformer\",\"dim\":8,\"layers\":1,\"heads\":2,\"ffn\":5,"
        "\"context\":9}",
        "{\"architecture\":\"transformer\",\"vocab\":0,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":3,"
        "\"ffn\":5,\"context\":9}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":6,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":12,\"layers\":1,\"heads\":6,"
        "\"kv_heads\":4,\"ffn\":5,\"context\":9}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9,\"rope_theta\":\"1e4\"}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9,\"rms_eps\":0}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9,\"tied\":1}",
        "{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9,\"layers\":2}",
        "{\"architecture\":\"transformer\",\"vocab\":1e9,\"dim\":8,\"layers\":1,\"heads\":2,"
        "\"ffn\":5,\"context\":9}",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct wk_shape s;
        assert_int_equal(wk_shape_parse(bad[i], &s), LH_ERR_CONFIG);
    }
    struct wk_shape s;
    assert_int_equal(wk_shape_parse("{\"architecture\":\"transformer\",\"vocab\":7,\"dim\":8,"
                                    "\"layers\":1,\"heads\":2,\"ffn\":5,\"context\":9,"
                                    "\"experts\":2}",
                                    &s),
                     LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "experts"));
}

TEST(tensors_lie_one_after_another)
{
    struct wk_shape s = shape_of(main_job);
    struct wk_params p;
    assert_int_equal(wk_params_list(&s, &p), LH_OK);
    assert_int_equal(p.count, 2 + 4 * 12);
    uint64_t at = 0;
    for (uint32_t i = 0; i < p.count; i++) {
        assert_int_equal(p.at[i].offset, at);
        at += p.at[i].len;
        bool norm_or_bias = strstr(p.at[i].name, "norm") || strstr(p.at[i].name, "bias");
        assert_int_equal(wk_param_decays(&p.at[i]), !norm_or_bias);
    }
    assert_int_equal(at, p.values);
    assert_int_equal(p.values, 431712);
    assert_string_equal(p.at[14].name, "model.layers.1.self_attn.q_proj.weight");
    assert_string_equal(p.at[p.count - 1].name, "model.norm.weight");
    wk_params_free(&p);

    s.tied = false;
    s.qkv_bias = false;
    assert_int_equal(wk_params_list(&s, &p), LH_OK);
    assert_int_equal(p.count, 3 + 4 * 9);
    assert_string_equal(p.at[p.count - 1].name, "lm_head.weight");
    wk_params_free(&p);
}

TEST(the_manifest_has_the_same_order)
{
    struct wk_shape s = shape_of(main_job), again;
    struct wk_params p;
    struct lh_manifest m;
    assert_int_equal(wk_params_list(&s, &p), LH_OK);
    assert_int_equal(wk_model_manifest(&s, 2, &m), LH_OK);
    assert_int_equal(m.values, p.values);
    assert_int_equal(m.shards, 2);
    assert_int_equal(m.tensors, p.count);
    for (uint32_t i = 0; i < p.count; i++) {
        assert_string_equal(m.tensor[i].name, p.at[i].name);
        assert_int_equal(m.tensor[i].offset, p.at[i].offset);
        assert_int_equal(m.tensor[i].len, p.at[i].len);
    }
    assert_int_equal(wk_shape_parse(m.model_json, &again), LH_OK);
    assert_int_equal(again.dim, s.dim);
    lh_manifest_free(&m);
    wk_params_free(&p);
}

// The initial values are part of a run's history: these bits must never change. tests/oracle
// implements the generator in Python and compares every value (oracle.py init).
TEST(initial_values_are_fixed_bits)
{
    struct wk_shape s = shape_of(main_job);
    struct wk_params p;
    assert_int_equal(wk_params_list(&s, &p), LH_OK);
    float *a = calloc(p.values, sizeof *a), *b = calloc(p.values, sizeof *b);
    assert_true(a != NULL && b != NULL);
    assert_int_equal(wk_model_init(&s, 1, a), LH_OK);
    assert_int_equal(lh_crc32c(0, a, p.values * sizeof *a), 0x5b66170du);

    assert_int_equal(wk_model_init(&s, 2, b), LH_OK);
    assert_memory_not_equal(a, b, 100 * sizeof *a);
    for (uint32_t i = 0; i < p.count; i++) {
        const struct wk_param *t = &p.at[i];
        double sum = 0.0, square = 0.0, n = (double)t->len;
        for (uint64_t j = t->offset; j < t->offset + t->len; j++) {
            sum += (double)a[j];
            square += (double)a[j] * (double)a[j];
        }
        double want = t->role == WK_RESIDUAL_OUT ? 0.02 / sqrt(8.0) : 0.02;
        if (t->role == WK_NORM)
            assert_true(sum == n && square == n);
        else if (t->role == WK_BIAS)
            assert_true(square == 0.0);
        else { // within five standard errors
            assert_true(fabs(sum / n) < 5.0 * want / sqrt(n));
            assert_true(fabs(square / n / (want * want) - 1.0) < 5.0 * sqrt(2.0 / n));
        }
    }
    free(a);
    free(b);
    wk_params_free(&p);
}
