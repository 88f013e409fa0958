// Rice-coded indices alone: every parameter, streams that continue from chunk to chunk, and the
// ends of both streams.
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/rice.h"
#include "tests/test.h"

enum { LEN = 4096, CHUNKS = 5, FIELD_BYTES = LEN * 28 / 8 + 8 };

struct chunk {
    uint16_t index[LEN];
    uint32_t k;
    uint16_t code[LEN];
    uint8_t fields[FIELD_BYTES];
    size_t field_bytes;
};

// Sets every `step`-th index, shifted and thinned by the chunk's number.
static void fill(struct chunk *c, uint32_t number, uint32_t step, uint32_t code_bits)
{
    c->k = 0;
    for (uint32_t i = number; i < LEN; i += step + i % (number + 1)) c->index[c->k++] = (uint16_t)i;
    for (uint32_t i = 0; i < LEN; i++)
        c->code[i] = (uint16_t)((i + number) * 40503u % (1u << code_bits));
}

static void expect_chunk(const struct lk_rice *rice, const struct chunk *c, struct lk_unary *u)
{
    uint16_t index[LEN];
    uint16_t code[LEN];
    // exact length, so that a sanitizer sees a read past the end
    uint8_t *fields = malloc(c->field_bytes + 1);
    assert_non_null(fields);
    memcpy(fields, c->fields, c->field_bytes);
    struct lh_span span = lh_span(fields, c->field_bytes);
    assert_true(lk_rice_get(rice, span, u, LEN, c->k, index, code));
    assert_memory_equal(index, c->index, c->k * sizeof *index);
    if (rice->field_bits > rice->low_bits) assert_memory_equal(code, c->code, c->k * sizeof *code);
    free(fields);
}

static void there_and_back(uint32_t b, uint32_t code_bits, uint32_t step)
{
    static struct chunk c[CHUNKS];
    static uint8_t unary[CHUNKS * LEN / 4];
    struct lk_rice rice = {b, b + code_bits};
    size_t at = 0;
    memset(unary, 0, sizeof unary);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        fill(&c[i], i, step, code_bits);
        c[i].field_bytes = ((size_t)c[i].k * rice.field_bits + 7) / 8;
        at = lk_rice_put(&rice, c[i].index, code_bits ? c[i].code : NULL, c[i].k, c[i].fields,
                         unary, at);
        assert_true(at <= 8 * sizeof unary);
    }
    struct lk_unary u = lk_unary(lh_span(unary, (at + 7) / 8));
    for (uint32_t i = 0; i < CHUNKS; i++) {
        assert_false(lk_unary_ended(&u));
        expect_chunk(&rice, &c[i], &u);
    }
    assert_true(lk_unary_ended(&u));
    u.bytes.len++;
    assert_false(lk_unary_ended(&u));
}

TEST(every_parameter)
{
    for (uint32_t b = 0; b <= 12; b++)
        for (uint32_t step = 1; step < 2 * LEN; step = step * 3 + 1)
            for (uint32_t bits = 0; bits <= 16; bits = 2 * bits + !bits)
                there_and_back(b, bits, step);
}

TEST(the_bits_of_the_page)
{
    // b = 2, gaps 5, 0, 9: fields 01+sign, 00+sign, 01+sign; unary 01 1 001.
    static const uint16_t index[] = {5, 6, 16};
    static const uint16_t sign[] = {1, 0, 0};
    uint8_t fields[8] = {0}, unary[8] = {0};
    struct lk_rice rice = {2, 3};
    assert_int_equal(lk_rice_put(&rice, index, sign, 3, fields, unary, 0), 6);
    assert_int_equal(fields[0], 0x45); // 101, 000, 10, from the lowest bit up
    assert_int_equal(fields[1], 0x00);
    assert_int_equal(unary[0], 0x26); // 0,1, 1, 0,0,1
}

TEST(ends)
{
    static const uint8_t fields[] = {0x00, 0x00};
    uint8_t unary[] = {0x05};
    uint16_t index[8];
    uint16_t code[8];
    struct lk_rice rice = {0, 1};
    struct lk_unary u = lk_unary(lh_span(unary, 1)); // ones at 0 and 2: indices 0 and 2
    struct lh_span one = lh_span(fields, 1);
    assert_true(lk_rice_get(&rice, one, &u, 3, 2, index, code));
    assert_int_equal(index[1], 2);
    u = lk_unary(lh_span(unary, 1));
    assert_false(lk_rice_get(&rice, one, &u, 2, 2, index, code)); // index 2 is outside a chunk of 2
    u = lk_unary(lh_span(unary, 1));
    assert_false(lk_rice_get(&rice, one, &u, 8, 3, index, code)); // there is no third index
    static const uint8_t padded[] = {0x04};
    u = lk_unary(lh_span(unary, 1));
    assert_false(lk_rice_get(&rice, lh_span(padded, 1), &u, 3, 2, index, code));
}
