// The CUDA plugin's loader: a missing part is reported in one line, and no library stays open.
// ctest: gpu_loader
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"

static void refused(const char *path, const char *why)
{
    struct lk_gpu gpu;
    assert_int_equal(lk_gpu_open(path, &gpu), LH_ERR_UNSUPPORTED);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), why));
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), "the CPU is used"));
    assert_null(strchr(lh_err_text(LH_ERR_UNSUPPORTED), '\n'));
    assert_null(gpu.library);
    assert_null(gpu.backend);
}

static void no_plugin(void **state)
{
    (void)state;
    refused("./no-such-plugin.so", "no-such-plugin.so");
}

static void another_library(void **state)
{
    (void)state;
    refused("libm.so.6", "another library");
}

// The plugin of this build, with or without a GPU in the machine.
static void this_plugin(void **state)
{
    (void)state;
    const char *path = getenv("LH_TEST_CUDA_PLUGIN");
    struct lk_gpu gpu;
    if (!path || !*path) skip();
    if (lk_gpu_open(path, &gpu) == LH_OK) {
        assert_true(gpu.devices > 0);
        lk_gpu_close(&gpu);
        assert_null(gpu.library);
        return;
    }
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    print_message("%s\n", text);
    assert_non_null(strstr(text, "driver"));
    assert_non_null(strstr(text, "the CPU is used"));
    assert_null(gpu.library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plugin),
        cmocka_unit_test(another_library),
        cmocka_unit_test(this_plugin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
