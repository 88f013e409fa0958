// longhaul gpu: shows the GPU support that a worker on this machine would find (plugin, driver,
// devices, matrix products, NCCL), with reasons if it is missing.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "kernels/cuda/gemm_loader.h"
#include "kernels/cuda/loader.h"
#include "worker/ranks/comm/nccl.h"

enum { OUTPUT_BYTES_MAX = 1 << 20, MIB = 1 << 20 };

// "13.0" for 13000; "" for 0.
static json_t *cuda_version(int version)
{
    char text[32] = "";
    if (version) snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    return json_string(text);
}

static json_t *device_row(const struct lk_gpu *gpu, int index)
{
    struct lk_gpu_device is;
    char capability[32];
    int err = gpu->backend->device(index, &is);
    snprintf(capability, sizeof capability, "%d.%d", is.major, is.minor);
    return json_pack("{s:i s:s s:s s:s s:i s:I s:I s:s}", "device", index, "name", is.name, "bus",
                     is.bus, "capability", capability, "processors", is.processors, "memory_mib",
                     (json_int_t)(is.bytes / MIB), "free_mib", (json_int_t)(is.free_bytes / MIB),
                     "why", err ? gpu->backend->error_text(err) : "");
}

static json_t *gpu_part(const char *path)
{
    struct lk_gpu gpu;
    struct lk_gpu_versions versions = {0};
    json_t *devices = json_array();
    lh_err err = lk_gpu_open_table(path, &gpu);
    bool opened = err == LH_OK;
    if (opened) gpu.backend->versions(&versions);
    for (int i = 0; opened && i < gpu.devices; i++)
        json_array_append_new(devices, device_row(&gpu, i));
    char file[LK_GPU_PATH_BYTES];
    snprintf(file, sizeof file, "%s", gpu.path);
    lk_gpu_close(&gpu);
    if (opened) err = lk_gpu_open(path, &gpu); // the reason why a worker would not use it
    json_t *part = json_pack(
        "{s:s s:b s:i s:o s:o s:s s:o}", "plugin", file, "opened", opened, "abi",
        opened ? LK_GPU_ABI : 0, "driver", cuda_version(versions.driver), "runtime",
        cuda_version(versions.runtime), "why", err ? lh_err_text(err) : "", "devices", devices);
    lk_gpu_close(&gpu);
    return part;
}

// The matrix products of a trainer on a device. The handle uses no workspace memory here.
static json_t *products_part(const char *path)
{
    struct lk_gemm_library library;
    struct lk_gemm *gemm = NULL;
    char none[1];
    const char *why = "";
    lh_err err = lk_gemm_open(path, &library);
    int failed = err ? 0 : library.table->create(none, &gemm);
    if (err) why = lh_err_text(err);
    if (failed) why = library.table->error_text(failed);
    json_t *part = json_pack("{s:s s:s s:s}", "plugin", library.path, "name",
                             gemm ? library.table->name(gemm) : "", "why", why);
    if (gemm) library.table->destroy(gemm);
    lk_gemm_close(&library);
    return part;
}

static json_t *nccl_part(const char *path)
{
    struct wk_nccl nccl;
    struct lh_buf variables = lh_buf(OUTPUT_BYTES_MAX);
    char text[32] = "";
    lh_err err = wk_nccl_open(path, &nccl);
    if (!err) wk_nccl_version_text(nccl.version, text);
    wk_nccl_environment(&variables);
    lh_put_u8(&variables, 0);
    bool said = lh_buf_err(&variables) == LH_OK;
    json_t *part = json_pack("{s:s s:s s:s s:s}", "file", nccl.path, "version", text, "why",
                             err ? lh_err_text(err) : "", "environment",
                             said ? (const char *)variables.data : "");
    lh_buf_free(&variables);
    wk_nccl_close(&nccl);
    return part;
}

static void line(struct lh_buf *out, const char *head, const char *text, const char *otherwise)
{
    lh_put(out, head, strlen(head));
    const char *said = *text ? text : otherwise;
    lh_put(out, said, strlen(said));
    lh_put(out, "\n", 1);
}

static void show(const json_t *gpu, const json_t *products, const json_t *nccl, struct lh_buf *out)
{
    static const struct dp_column columns[] = {
        {"DEVICE", "device", 6},     {"NAME", "name", -28},    {"BUS", "bus", -12},
        {"SM", "capability", 4},     {"SMS", "processors", 4}, {"MEMORY MIB", "memory_mib", 10},
        {"FREE MIB", "free_mib", 8}, {"WHY NOT", "why", -20},  {NULL, NULL, 0},
    };
    const json_t *devices = json_object_get(gpu, "devices");
    line(out, "plugin   ", lh_json_word(gpu, "plugin"), "none");
    line(out, "driver   CUDA ", lh_json_word(gpu, "driver"), "none");
    line(out, "built    CUDA ", lh_json_word(gpu, "runtime"), "not known");
    line(out, "backend  ", lh_json_word(gpu, "why"), "cuda");
    line(out, "products ", lh_json_word(products, "name"), lh_json_word(products, "why"));
    line(out, "NCCL     ", lh_json_word(nccl, "version"), lh_json_word(nccl, "why"));
    if (*lh_json_word(nccl, "environment"))
        line(out, "NCCL_*   ", lh_json_word(nccl, "environment"), "");
    if (json_array_size(devices)) dp_table_put(out, columns, devices);
}

static LH_MUST lh_err report(const char *plugin, const char *products_plugin, const char *library,
                             bool json)
{
    struct lh_buf text = lh_buf(OUTPUT_BYTES_MAX);
    json_t *gpu = gpu_part(plugin), *products = products_part(products_plugin);
    json_t *nccl = nccl_part(library), *all = NULL;
    lh_err err = gpu && products && nccl ? LH_OK : LH_ERR_NO_MEMORY;
    if (!err && json)
        all = json_pack("{s:O s:O s:O}", "gpu", gpu, "products", products, "nccl", nccl);
    if (!err && json) err = dp_table_json(&text, all);
    if (!err && !json) show(gpu, products, nccl, &text);
    err = dp_print(&text, err);
    json_decref(all);
    json_decref(gpu);
    json_decref(products);
    json_decref(nccl);
    return err;
}

lh_err dp_cmd_gpu(int argc, char **argv)
{
    const char *plugin = NULL, *products = NULL, *library = NULL;
    bool help, json = false;
    const struct dp_flag flags[] = {
        {"--plugin", DP_TEXT, &plugin, "FILE",
         "use this CUDA plugin instead of the one that is found"},
        {"--products", DP_TEXT, &products, "FILE", "use this plugin for matrix products"},
        {"--nccl", DP_TEXT, &library, "FILE", "use this NCCL instead of the one that is found"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul gpu [flags]",
        "Shows what a worker on this machine would find: the CUDA plugin, the driver, the\n"
        "devices, the library for matrix products, NCCL; for each missing one, the reason. It\n"
        "reads the devices' memory sizes and starts nothing on them. The exit code is 0 in any\n"
        "case.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    return report(plugin, products, library, json);
}
