// Broken plugins: one line says why the CPU is used, and no plugin stays open.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/loader.h"
#include "tests/test.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static void refused(const char *how, const char *why)
{
    struct lk_gpu gpu;
    setenv("LH_FAKE_PLUGIN", how, 1);
    assert_int_equal(lk_gpu_open(variable("LH_TEST_FAKE_PLUGIN"), &gpu), LH_ERR_UNSUPPORTED);
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    if (!strstr(text, why)) fail_msg("%s: \"%s\" lacks \"%s\"", how, text, why);
    assert_non_null(strstr(text, "the CPU is used"));
    assert_non_null(strstr(text, gpu.path));
    assert_null(strchr(text, '\n'));
    assert_null(gpu.library);
    assert_null(gpu.backend);
    lk_gpu_close(&gpu);
}

TEST(wrong_plugins)
{
    char sizes[64];
    snprintf(sizes, sizeof sizes, "its table has %zu bytes, this program's %zu",
             sizeof(struct lk_gpu_backend) - sizeof(void *), sizeof(struct lk_gpu_backend));
    refused("abi", "does not speak ABI 13");
    refused("renamed", "speaks ABI 14, this program 13");
    refused("short", sizes);
    refused("driver", "no NVIDIA driver");
    refused("none", "the driver sees no device");
}

TEST(a_table_without_a_driver)
{
    struct lk_gpu gpu;
    setenv("LH_FAKE_PLUGIN", "driver", 1);
    assert_int_equal(lk_gpu_open_table(variable("LH_TEST_FAKE_PLUGIN"), &gpu), LH_OK);
    assert_non_null(gpu.backend);
    assert_int_equal(gpu.devices, 0);
    lk_gpu_close(&gpu);
    assert_null(gpu.library);
}

TEST(the_emulated_one)
{
    struct lk_gpu gpu;
    struct lk_gpu_versions versions;
    struct lk_gpu_device device;
    assert_int_equal(lk_gpu_open(variable("LH_TEST_EMULATED_PLUGIN"), &gpu), LH_OK);
    assert_int_equal(gpu.devices, 1);
    gpu.backend->versions(&versions);
    assert_int_equal(versions.driver, 13000);
    assert_int_equal(gpu.backend->device(0, &device), 0);
    assert_string_equal(device.name, "an emulated device");
    assert_true(device.free_bytes <= device.bytes);
    assert_int_not_equal(gpu.backend->device(1, &device), 0);
    lk_gpu_close(&gpu);
}

// The plugin's path: from the caller, the environment, the folders around the program, or the bare
// name.
TEST(which_file)
{
    char path[LK_GPU_PATH_BYTES];
    setenv(LK_GPU_PLUGIN_VARIABLE, "/of/the/environment.so", 1);
    lk_gpu_find("/of/the/caller.so", path);
    assert_string_equal(path, "/of/the/caller.so");
    lk_gpu_find("", path);
    assert_string_equal(path, "/of/the/environment.so");
    unsetenv(LK_GPU_PLUGIN_VARIABLE);
    lk_gpu_find(NULL, path);
    size_t n = strlen(path), name = strlen(LK_GPU_PLUGIN);
    assert_true(n >= name && !strcmp(path + n - name, LK_GPU_PLUGIN));
    if (n > name) assert_int_equal(access(path, R_OK), 0);
}
