// Case files of the trainer: a model, its parameters, a batch, and (in fixtures) PyTorch's answer.
//
// Little endian: "LKCASE1\n"; u32 length of the JSON that follows,
//   {"model": {...}, "sequences": n, "length": T};
// ids u32 [n][T + 1]; parameters f32 in the manifest's order. Then, or in a file of its own, the
// answer: logits f32 [n * T][vocab]; f64 sum of the negative log likelihoods; f32 gradient of the
// mean loss in the manifest's order.
#ifndef TESTS_ORACLE_CASE_H
#define TESTS_ORACLE_CASE_H

#include "common/base/buf.h"
#include "worker/train/transformer.h"

struct case_answer {
    float *logits, *gradient;
    double nll_sum;
};
struct case_file {
    struct wk_shape shape;
    struct wk_params params;
    size_t sequences, length;
    uint32_t *ids;
    float *value;
    bool answered;
    struct case_answer answer; // when answered
};

LH_MUST lh_err case_read(const char *path, struct lh_buf *out); // appends a whole file
LH_MUST lh_err case_load(const char *path, struct case_file *out);
void case_free(struct case_file *c);
struct wk_batch case_batch(const struct case_file *c);
// Computes our own answer; free with case_answer_free.
LH_MUST lh_err case_solve(const struct case_file *c, struct case_answer *out);
void case_answer_free(struct case_answer *a);
// |a - b| / |b| over n values, in fp64.
double case_distance(const float *a, const float *b, size_t n);

#endif
