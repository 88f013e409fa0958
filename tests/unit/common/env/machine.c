// common/env/machine.c: this machine has a name, processors and memory; what is left of it, on
// made-up machines too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

struct made_up {
    const char *path, *text;
};

// Memory that is left on a machine with these files.
static uint64_t available(const struct made_up *file, size_t files)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct lh_env *env = lh_fake_node(w, NULL, NULL);
    lh_fake_boot(env);
    for (size_t i = 0; i < files; i++) {
        struct lh_span text = lh_span(file[i].text, strlen(file[i].text));
        char folder[128];
        snprintf(folder, sizeof folder, "%s", file[i].path);
        *strrchr(folder, '/') = 0;
        assert_int_equal(env->ops->files->make_dir(env, folder), LH_OK);
        assert_int_equal(lh_file_replace(env, file[i].path, text), LH_OK);
    }
    uint64_t is = lh_machine_available(env);
    lh_fake_world_destroy(w);
    return is;
}

#define AVAILABLE(...)                                                                             \
    available((const struct made_up[]){__VA_ARGS__},                                               \
              sizeof((const struct made_up[]){__VA_ARGS__}) / sizeof(struct made_up))

static const struct made_up meminfo = {
    "/proc/meminfo", "MemTotal:       8000 kB\nMemFree:        10 kB\nMemAvailable:   4000 kB\n"};
#define SECOND "/sys/fs/cgroup"
#define FIRST "/sys/fs/cgroup/memory"

static void a_machine_without_proc_does_not_tell(void **state)
{
    (void)state;
    assert_int_equal(available(NULL, 0), 0);
}

static void a_group_without_a_limit_leaves_what_the_machine_has(void **state)
{
    (void)state;
    assert_int_equal(AVAILABLE(meminfo), 4000 * 1024);
    assert_int_equal(AVAILABLE(meminfo, {"/proc/self/cgroup", "0::/a\n"},
                               {SECOND "/a/memory.max", "max\n"},
                               {SECOND "/a/memory.current", "70000\n"}),
                     4000 * 1024);
    assert_int_equal(AVAILABLE(meminfo, {"/proc/self/cgroup", "4:cpu:/\n3:memory:/\n0::/\n"},
                               {FIRST "/memory.limit_in_bytes", "9223372036854771712\n"},
                               {FIRST "/memory.usage_in_bytes", "70000\n"}),
                     4000 * 1024);
}

static void the_least_that_a_group_or_one_above_it_leaves_counts(void **state)
{
    (void)state;
    struct made_up in = {"/proc/self/cgroup", "0::/up/job\n"};
    struct made_up limit = {SECOND "/up/job/memory.max", "100000\n"},
                   used = {SECOND "/up/job/memory.current", "30000\n"},
                   stat = {SECOND "/up/job/memory.stat", "anon 5\ninactive_file 2500\nslab 1\n"};
    assert_int_equal(AVAILABLE(meminfo, in, limit, used), 70000);
    assert_int_equal(AVAILABLE(in, limit, used), 70000);
    assert_int_equal(AVAILABLE(meminfo, in, limit, used, stat), 72500);
    assert_int_equal(AVAILABLE(meminfo, in, limit, used, {SECOND "/up/memory.max", "90000\n"},
                               {SECOND "/up/memory.current", "80000\n"}),
                     10000);
    assert_int_equal(AVAILABLE(meminfo, in, limit, used, {SECOND "/memory.max", "90000\n"},
                               {SECOND "/memory.current", "95000\n"}),
                     1); // Nothing is left; 0 would be "not known".
    assert_int_equal(AVAILABLE(meminfo, {"/proc/self/cgroup", "4:cpu,memory:/job\n0::/\n"},
                               {FIRST "/job/memory.limit_in_bytes", "60000\n"},
                               {FIRST "/job/memory.usage_in_bytes", "20000\n"},
                               {FIRST "/job/memory.stat", "inactive_file 9\n"
                                                          "total_inactive_file 700\n"}),
                     40700);
}

// Its files are at the top, and its group has the name that it has outside.
static void a_containers_limit_counts(void **state)
{
    (void)state;
    assert_int_equal(AVAILABLE(meminfo, {"/proc/self/cgroup", "5:memory:/docker/0123\n0::/\n"},
                               {FIRST "/memory.limit_in_bytes", "60000\n"},
                               {FIRST "/memory.usage_in_bytes", "20000\n"}),
                     40000);
    assert_int_equal(AVAILABLE(meminfo, {"/proc/self/cgroup", "0::/\n"},
                               {SECOND "/memory.max", "60000\n"},
                               {SECOND "/memory.current", "20000\n"}),
                     40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_one_is_known),
        cmocka_unit_test(some_memory_is_available),
        cmocka_unit_test(a_machine_without_proc_does_not_tell),
        cmocka_unit_test(a_group_without_a_limit_leaves_what_the_machine_has),
        cmocka_unit_test(the_least_that_a_group_or_one_above_it_leaves_counts),
        cmocka_unit_test(a_containers_limit_counts)};
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
