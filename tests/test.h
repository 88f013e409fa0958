// TEST(name) { ... } defines a test of a cmocka program and enters it, so a program has no table of
// its tests. They run in the order of their lines. A program whose main() has more to do has its
// own, which calls test_run().
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h> // this one and the next three: before cmocka.h
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

// Enters a test, before main() begins. Borrows its name.
void test_enter(struct CMUnitTest test, int line);

// Runs all tests; returns how many failed. `setup` and `teardown`: once, around all; or NULL.
int test_run(CMFixtureFunction setup, CMFixtureFunction teardown);

#define TEST_ENTER(name, setup, teardown)                                                          \
    __attribute__((constructor)) static void name##_enter(void)                                    \
    {                                                                                              \
        test_enter((struct CMUnitTest){#name, name##_run, setup, teardown, NULL}, __LINE__);       \
    }

#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    static void name##_run(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        name();                                                                                    \
    }                                                                                              \
    TEST_ENTER(name, NULL, NULL)                                                                   \
    static void name(void)

// A test with its own set-up. `parameter` declares the pointer that `setup` leaves in *state.
#define TEST_WITH(name, parameter, setup, teardown)                                                \
    static void name(parameter);                                                                   \
    static void name##_run(void **state)                                                           \
    {                                                                                              \
        name(*state);                                                                              \
    }                                                                                              \
    TEST_ENTER(name, setup, teardown)                                                              \
    static void name(__attribute__((unused)) parameter)

#endif
