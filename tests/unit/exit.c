// Exit codes: one each, and what errors of the programs' starts become.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/check.h"
#include "common/exit.h"

static void codes_differ_and_are_documented_in_order(void **state)
{
    (void)state;
    static const int code[] = {
#define CODE(id, number, name, meaning) LH_EXIT_##id,
        LH_EXITS(CODE)
#undef CODE
    };
    for (size_t i = 0; i < LH_COUNT(code); i++) assert_int_equal(code[i], i);
}

static void errors_have_their_codes(void **state)
{
    (void)state;
    static const struct {
        lh_err err;
        enum lh_exit exit;
    } row[] = {
        {LH_OK, LH_EXIT_OK},
        {LH_ERR_INVALID, LH_EXIT_USAGE},
        {LH_ERR_CONFIG, LH_EXIT_CONFIG},
        {LH_ERR_MANIFEST, LH_EXIT_CONFIG},
        {LH_ERR_NOT_FOUND, LH_EXIT_MISSING},
        {LH_ERR_CORRUPT, LH_EXIT_UNVERIFIED},
        {LH_ERR_UNAUTHENTICATED, LH_EXIT_DENIED},
        {LH_ERR_DENIED, LH_EXIT_DENIED},
        {LH_ERR_EXISTS, LH_EXIT_FAILED},
        {LH_ERR_BUSY, LH_EXIT_FAILED},
        {LH_ERR_IO, LH_EXIT_FAILED},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++)
        assert_int_equal(lh_exit_of(row[i].err), row[i].exit);
    for (int err = 1; err < LH_ERR_COUNT; err++) // no failure looks like success
        assert_int_not_equal(lh_exit_of((lh_err)err), LH_EXIT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_differ_and_are_documented_in_order),
        cmocka_unit_test(errors_have_their_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
