// The CUDA plugin's loader: a missing part is reported in one line, and no library stays open.
// ctest: gpu_loader
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "tests/test.h"

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

TEST(no_plugin)
{
    refused("./no-such-plugin.so", "no-such-plugin.so");
}

TEST(another_library)
{
    refused("libm.so.6", "another library");
}

// The plugin of this build, with or without a GPU in the machine.
TEST(this_plugin)
{
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
