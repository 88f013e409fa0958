// The tests of a program, as test.h describes them, and the main() that most programs use.
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { TESTS_MAX = 100 };

static struct CMUnitTest entered[TESTS_MAX];
static int line_of[TESTS_MAX];
static size_t count;

void test_enter(struct CMUnitTest test, int line)
{
    size_t at = count;
    if (count++ == TESTS_MAX) abort();
    for (; at > 0 && line_of[at - 1] > line; at--) { // compilers may enter them in any order
        entered[at] = entered[at - 1];
        line_of[at] = line_of[at - 1];
    }
    entered[at] = test;
    line_of[at] = line;
}

int test_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (!count) fprintf(stderr, "no tests\n");
    return count ? _cmocka_run_group_tests("tests", entered, count, setup, teardown) : 1;
}

__attribute__((weak)) int main(void)
{
    return test_run(NULL, NULL);
}
