// dp_st_length, dp_st_parse: the tensors of an accepted file cover its bytes once, and its header
// survives a write and a parse.
#include <string.h>

#include "common/base/check.h"
#include "deploy/models/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void check_cover(const struct dp_st *st, uint64_t data_bytes)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < st->tensors; i++) {
        const struct dp_st_tensor *t = &st->tensor[i];
        LH_ASSERT(t->at == end && t->bytes <= data_bytes - end && t->dims <= DP_ST_DIMS_MAX);
        LH_ASSERT(t->bytes * 8 == t->values * dp_dtype_bits(t->dtype));
        end += t->bytes;
    }
    LH_ASSERT(end == data_bytes);
}

static void check_again(struct dp_st *st, uint64_t data_bytes)
{
    struct lh_buf made = lh_buf(64 << 20);
    struct dp_st again;
    uint64_t length;
    lh_err err =
        dp_st_header(st->tensor, st->tensors, json_object_get(st->root, "__metadata__"), &made);
    LH_ASSERT(err == LH_OK && made.len % 8 == 0);
    struct lh_span header = lh_span(made.data + 8, made.len - 8);
    LH_ASSERT(!dp_st_length("again", lh_span(made.data, 8), made.len + data_bytes, &length));
    LH_ASSERT(length == header.len && !dp_st_parse("again", header, data_bytes, &again));
    LH_ASSERT(again.tensors == st->tensors);
    for (uint32_t i = 0; i < st->tensors; i++) {
        const struct dp_st_tensor *a = &st->tensor[i], *b = &again.tensor[i];
        LH_ASSERT(!strcmp(a->name, b->name) && a->dtype == b->dtype && a->dims == b->dims);
        LH_ASSERT(!memcmp(a->shape, b->shape, sizeof a->shape) && a->at == b->at);
    }
    dp_st_free(&again);
    lh_buf_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dp_st st;
    uint64_t length;
    if (dp_st_length("input", lh_span(data, size < 8 ? size : 8), size, &length)) return 0;
    LH_ASSERT(length <= size - 8);
    if (dp_st_parse("input", lh_span(data + 8, length), size - 8 - length, &st)) {
        LH_ASSERT(!st.tensor && !st.root);
        return 0;
    }
    check_cover(&st, size - 8 - length);
    check_again(&st, size - 8 - length);
    dp_st_free(&st);
    return 0;
}
