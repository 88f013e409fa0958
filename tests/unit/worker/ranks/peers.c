// The digest by which the ranks of a region compare their parameters: a bit that differs anywhere
// shows, in the middle, in what is left over at the end, and in what was digested before.
#include "worker/ranks/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { BYTES = 4 * 32 + 7 };

static void fill(uint8_t *data)
{
    for (size_t i = 0; i < BYTES; i++) data[i] = (uint8_t)(i * 37 + 11);
}

static void every_bit_shows(void **state)
{
    uint8_t data[BYTES];
    (void)state;
    fill(data);
    for (size_t bytes = 0; bytes <= BYTES; bytes++) {
        uint64_t is = wk_peers_digest(1, data, bytes);
        assert_true(is == wk_peers_digest(1, data, bytes));
        assert_true(is != wk_peers_digest(2, data, bytes));
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (wk_peers_digest(1, data, bytes) == is)
                fail_msg("of %zu bytes, bit %zu does not show", bytes, bit);
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

// Values that changed places are other parameters.
static void every_place_shows(void **state)
{
    uint8_t data[BYTES], other[BYTES];
    (void)state;
    fill(data);
    uint64_t is = wk_peers_digest(1, data, BYTES);
    for (size_t a = 0; a + 8 <= BYTES; a += 8)
        for (size_t b = a + 8; b + 8 <= BYTES; b += 8) {
            memcpy(other, data, BYTES);
            memcpy(other + a, data + b, 8);
            memcpy(other + b, data + a, 8);
            if (wk_peers_digest(1, other, BYTES) == is)
                fail_msg("words at %zu and %zu changed places, and it does not show", a, b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_shows),
        cmocka_unit_test(every_place_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
