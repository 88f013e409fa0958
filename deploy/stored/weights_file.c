// Parameter files. See weights_file.h.
#include "deploy/stored/weights_file.h"

#include <stdlib.h>
#include <string.h>

#include "deploy/models/output.h"
#include "deploy/models/safetensors.h"

static const char SUFFIX[] = ".safetensors";

static bool is_safetensors(const char *path)
{
    size_t n = strlen(path), suffix = sizeof SUFFIX - 1;
    return n > suffix && !strcmp(path + n - suffix, SUFFIX);
}

static LH_MUST lh_err put_header(struct lh_buf *out, const struct lh_manifest *m, json_t *about)
{
    struct dp_st_tensor *tensor = calloc(m->tensors, sizeof *tensor);
    if (!tensor) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the header");
    lh_err err = LH_OK;
    for (uint32_t i = 0; !err && i < m->tensors; i++) {
        const struct lh_tensor *t = &m->tensor[i];
        tensor[i] = (struct dp_st_tensor){
            .name = t->name, .dtype = DP_DTYPE_F32, .dims = (unsigned)t->dims};
        memcpy(tensor[i].shape, t->shape, (size_t)t->dims * sizeof *t->shape);
        err = dp_st_measure("header", &tensor[i]);
    }
    if (!err) err = dp_st_header(tensor, m->tensors, about, out);
    free(tensor);
    return err;
}

lh_err dp_weights_write(const char *path, const struct lh_manifest *m, const float *theta,
                        json_t *about)
{
    struct dp_output out;
    struct lh_buf header = lh_buf(DP_ST_HEADER_BYTES_MAX + 64);
    lh_err err = is_safetensors(path) ? put_header(&header, m, about) : LH_OK;
    if (!err) err = dp_output_begin(&out, path);
    if (!err) {
        err = dp_output_put(&out, lh_buf_span(&header));
        // little endian, as the machine is
        if (!err) err = dp_output_put(&out, lh_span(theta, m->values * sizeof *theta));
        err = dp_output_end(&out, err);
    }
    lh_buf_free(&header);
    return err;
}
