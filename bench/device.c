// Opens the device that a bench measures, or gives the reason why there is none. See device.h.
#include "bench/device.h"

#include <string.h>

#include "common/base/check.h"

static bool is_emulated(const struct lk_gpu_device *d)
{
    return strstr(d->name, LK_GPU_EMULATED) != NULL;
}

static lh_err open_device(struct bench_report *r, struct lk_gpu *out)
{
    struct lk_gpu_device is;
    struct lk_gpu_versions versions;
    const char *allowed = getenv("LH_BENCH_EMULATED");
    LH_TRY(lk_gpu_open(NULL, out));
    int err = out->backend->device(0, &is);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "GPU 0: %s", out->backend->error_text(err));
    bool emulated = is_emulated(&is);
    if (emulated && !(allowed && !strcmp(allowed, "1")))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s is %s: its times are none of a GPU's", out->path,
                       is.name);
    out->backend->versions(&versions);
    bench_condition(r, "device", "%s, %llu MiB, sm %d.%d%s", is.name,
                    (unsigned long long)(is.bytes >> 20), is.major, is.minor,
                    emulated ? "; for a test: no figure of a GPU's" : "");
    bench_condition(r, "CUDA", "driver %d, runtime %d", versions.driver, versions.runtime);
    return LH_OK;
}

bool bench_device(struct bench_report *r, enum bench_backend kind, struct lk_gpu *out)
{
    *out = (struct lk_gpu){0};
    lh_err err = kind == BENCH_CPU ? lh_fail(LH_ERR_UNSUPPORTED, "asked for") : open_device(r, out);
    if (!err) return true;
    if (kind == BENCH_CUDA) {
        fprintf(stderr, "%s: not run: %s\n", r->bench, lh_err_text(err));
        exit(BENCH_NO_DEVICE);
    }
    bench_condition(r, "backend", "cpu: %s", lh_err_text(err));
    lk_gpu_close(out);
    return false;
}
