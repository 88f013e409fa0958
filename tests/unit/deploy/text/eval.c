// Held-out evaluation on a tiny model: compared with wk_eval itself, the bigram entropy with
// theory; and invalid files are refused.
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/text/eval.h"
#include "deploy/tool/files.h"
#include "tests/test.h"

enum { TOKENS = 5000 };
static char dir[] = "/tmp/longhaul-eval-XXXXXX";
static uint32_t ids[TOKENS];
static const struct wk_shape shape = {.vocab = 16,
                                      .dim = 8,
                                      .layers = 1,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .ffn = 16,
                                      .context = 32,
                                      .rope_theta = 10000,
                                      .rms_eps = 1e-6,
                                      .tied = true};
static float *parameters;
static struct lh_heldout held[2];
static struct lh_units units = {
    .heldout = held, .heldout_count = 2, .vocabulary = 16, .token_bytes = 2};

static void write_tokens(const char *name, uint32_t count_said)
{
    char path[DP_PATH_BYTES];
    struct lh_buf out = lh_buf(1 << 20);
    lh_put_u32(&out, 20240520);
    lh_put_u32(&out, 1);
    lh_put_u32(&out, count_said);
    lh_put_zeros(&out, 1024 - 12);
    for (int i = 0; i < TOKENS; i++) lh_put_u16(&out, (uint16_t)ids[i]);
    assert_int_equal(dp_path(path, "%s/%s", dir, name), LH_OK);
    assert_int_equal(dp_file_write(path, lh_buf_span(&out), 0600), LH_OK);
    lh_buf_free(&out);
}

static int setup(void **state)
{
    (void)state;
    struct wk_params list;
    if (!mkdtemp(dir) || wk_params_list(&shape, &list)) return 1;
    parameters = malloc(list.values * sizeof *parameters);
    if (!parameters || wk_model_init(&shape, 3, parameters)) return 1;
    wk_params_free(&list);
    uint64_t x = 1;
    for (int i = 0; i < TOKENS; i++) { // each token is one of two possible successors
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = i ? (ids[i - 1] * 3 + (uint32_t)(x >> 63)) % 16 : 0;
    }
    snprintf(held[0].language, sizeof held[0].language, "aa");
    snprintf(held[0].file, sizeof held[0].file, "a.bin");
    held[0].tokens = held[0].bytes = TOKENS;
    uint8_t bytes[2 * TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        bytes[2 * i] = (uint8_t)ids[i];
        bytes[2 * i + 1] = 0;
    }
    if (!EVP_Digest(bytes, sizeof bytes, held[0].sha256, NULL, EVP_sha256(), NULL)) return 1;
    held[1] = held[0];
    snprintf(held[1].language, sizeof held[1].language, "bb");
    held[1].bytes = 2 * TOKENS; // two bytes a token
    write_tokens("a.bin", TOKENS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char path[DP_PATH_BYTES];
    free(parameters);
    if (dp_path(path, "%s/a.bin", dir)) return 1;
    unlink(path);
    return rmdir(dir);
}

TEST(the_whole_text)
{
    struct dp_eval_row row[2];
    double nll;
    uint64_t tokens;
    assert_int_equal(dp_eval(&units, dir, &shape, parameters, 0, row), LH_OK);
    assert_int_equal(wk_eval(&shape, parameters, ids, TOKENS, 32, &nll, &tokens), LH_OK);
    assert_string_equal(row[0].language, "aa");
    assert_true(fabs(row[0].nats - nll / (double)tokens) < 1e-12);
    assert_true(fabs(row[0].nats - log(16)) < 0.3); // untrained: near uniform
    assert_true(fabs(row[1].nats - row[0].nats / 2) < 1e-12);
    assert_int_equal(row[0].bytes, TOKENS - 1);
    assert_true(fabs(row[0].bigram - log(2)) < 0.01); // two equally likely successors
    assert_true(fabs(row[1].bigram - log(2) / 2) < 0.01);
}

TEST(a_sample_is_spread)
{
    struct dp_eval_row row[2], all[2];
    assert_int_equal(dp_eval(&units, dir, &shape, parameters, 800, row), LH_OK);
    assert_int_equal(dp_eval(&units, dir, &shape, parameters, 0, all), LH_OK);
    assert_int_equal(row[0].bytes, 8 * 99);
    assert_int_equal(row[1].bytes, 2 * 8 * 49);
    assert_true(row[0].nats != all[0].nats && fabs(row[0].nats - all[0].nats) < 0.1);
    assert_true(row[0].bigram == all[0].bigram); // both are of the whole text
}

TEST(files_that_are_refused)
{
    struct dp_eval_row row[2];
    struct lh_units other = units;
    struct lh_heldout wrong[1] = {held[0]};
    other.vocabulary = 17;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_CONFIG);
    other = units;
    other.heldout = wrong;
    other.heldout_count = 1;
    wrong[0].tokens--;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_TOO_LARGE);
    wrong[0].tokens += 2;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_MALFORMED);
    wrong[0].tokens = TOKENS;
    other.token_bytes = 4;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_MALFORMED);
    other.token_bytes = 2;
    snprintf(wrong[0].file, sizeof wrong[0].file, "b.bin");
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "b.bin"));
    struct lh_units none;
    assert_int_equal(dp_units_load(dir, &none), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "longhaul data prepare"));
    float *f;
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/a.bin", dir), LH_OK);
    assert_int_equal(dp_floats_load(path, 3000, &f), LH_ERR_MALFORMED);
    assert_int_equal(dp_floats_load(path, (1024 + 2 * TOKENS) / 4, &f), LH_OK);
    free(f);
}

TEST(a_text_that_has_changed)
{
    struct dp_eval_row row[2];
    struct lh_units other = units;
    struct lh_heldout wrong[1] = {held[0]};
    other.heldout = wrong;
    other.heldout_count = 1;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_OK);
    wrong[0].sha256[31] ^= 1;
    assert_int_equal(dp_eval(&other, dir, &shape, parameters, 0, row), LH_ERR_CORRUPT);
    assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "a.bin: its sha256 is not that of"));
}

TEST(values_that_are_not_finite_are_named)
{
    float values[6] = {0};
    struct lh_tensor tensor[2] = {{.name = "a"}, {.name = "b", .offset = 4}};
    const struct lh_manifest m = {.values = 6, .tensors = 2, .tensor = tensor};
    assert_int_equal(dp_floats_finite("w.bin", &m, values), LH_OK);
    values[5] = NAN;
    assert_int_equal(dp_floats_finite("w.bin", &m, values), LH_ERR_NON_FINITE);
    assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "w.bin: value 1 of b is not finite"));
    values[3] = INFINITY;
    assert_int_equal(dp_floats_finite("w.bin", &m, values), LH_ERR_NON_FINITE);
    assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "value 3 of a is"));
}

int main(void)
{
    return test_run(setup, teardown);
}
