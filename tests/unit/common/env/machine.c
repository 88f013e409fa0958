// common/env/machine.c: this machine has a name, processors and memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/env/env_fake.h"
#include "common/env/machine.h"

static void this_one_is_known(void **state)
{
    (void)state;
    struct lh_machine m;
    lh_machine_look(&m);
    assert_string_equal(m.version, LH_VERSION);
    assert_memory_equal(m.system, "Linux ", 6);
    assert_true(strlen(m.processor) > 2);
    assert_true(m.processor[0] != ' ' && m.processor[strlen(m.processor) - 1] != ' ');
    assert_in_range(m.processors, 1, 1 << 20);
    assert_true(m.memory_bytes > 1 << 20);
    assert_int_equal(strlen(m.gpu) + strlen(m.codec) + strlen(m.cipher), 0); // the caller's
}

static void some_memory_is_available(void **state)
{
    (void)state;
    struct lh_machine m;
    struct lh_env *env;
    lh_machine_look(&m);
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    uint64_t available = lh_machine_available(env);
    assert_true(available > 1 << 20 && available <= m.memory_bytes);
    lh_env_real_destroy(env);
}

static void a_machine_without_proc_does_not_tell(void **state)
{
    (void)state;
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct lh_env *env = lh_fake_node(w, NULL, NULL);
    lh_fake_boot(env);
    assert_int_equal(lh_machine_available(env), 0);
    lh_fake_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(this_one_is_known),
                                       cmocka_unit_test(some_memory_is_available),
                                       cmocka_unit_test(a_machine_without_proc_does_not_tell)};
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
