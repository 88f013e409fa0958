// common/env/machine.c reports this machine's name, processors and memory.
#include <string.h>

#include "common/env/machine.h"
#include "tests/test.h"

TEST(this_one_is_known)
{
    struct lh_machine m;
    lh_machine_look(&m);
    assert_string_equal(m.version, LH_VERSION);
    assert_memory_equal(m.system, "Linux ", 6);
    assert_true(strlen(m.processor) > 2);
    assert_true(m.processor[0] != ' ' && m.processor[strlen(m.processor) - 1] != ' ');
    assert_in_range(m.processors, 1, 1 << 20);
    assert_true(m.memory_bytes > 1 << 20);
    assert_int_equal(strlen(m.gpu) + strlen(m.codec) + strlen(m.cipher), 0); // left to the caller
}
