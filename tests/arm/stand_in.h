// The part of cmocka that the codecs' tests use, for a processor without the tests' packages. A
// failing test ends the program, so the last line printed names it.
#ifndef LH_TESTS_ARM_STAND_IN_H
#define LH_TESTS_ARM_STAND_IN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*CMFixtureFunction)(void **state); // none of those tests has one
struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    CMFixtureFunction setup, teardown;
    void *initial_state;
};

static inline void stand_in_expect(int holds, const char *what, const char *file, int line)
{
    if (holds) return;
    printf("[  FAILED  ] %s:%d: %s\n", file, line, what);
    exit(1);
}
#define STAND_IN_EXPECT(holds, what) stand_in_expect((holds), what, __FILE__, __LINE__)

#define assert_true(x) STAND_IN_EXPECT(!!(x), #x " is not so")
#define assert_false(x) STAND_IN_EXPECT(!(x), #x " is so")
#define assert_null(x) STAND_IN_EXPECT((x) == NULL, #x " is not NULL")
#define assert_non_null(x) STAND_IN_EXPECT((x) != NULL, #x " is NULL")
#define assert_int_equal(a, b) STAND_IN_EXPECT((long long)(a) == (long long)(b), #a " is not " #b)
#define assert_int_not_equal(a, b) STAND_IN_EXPECT((long long)(a) != (long long)(b), #a " is " #b)
#define assert_string_equal(a, b) STAND_IN_EXPECT(strcmp((a), (b)) == 0, #a " is not " #b)
#define assert_memory_equal(a, b, n) STAND_IN_EXPECT(memcmp((a), (b), (n)) == 0, #a " is not " #b)
#define cmocka_set_test_filter(pattern) ((void)(pattern)) // all tests run there
#define print_message(...) printf(__VA_ARGS__)
#define fail_msg(...) (printf(__VA_ARGS__), STAND_IN_EXPECT(0, "see above"))

static inline int _cmocka_run_group_tests(const char *group, const struct CMUnitTest *test,
                                          size_t n, CMFixtureFunction setup,
                                          CMFixtureFunction teardown)
{
    (void)group, (void)setup, (void)teardown;
    for (size_t i = 0; i < n; i++) {
        printf("[ RUN      ] %s\n", test[i].name);
        fflush(stdout);
        test[i].run(&(void *){NULL});
    }
    printf("[  PASSED  ] %zu test(s).\n", n);
    return 0;
}

#endif
