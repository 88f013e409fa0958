// Reads safetensors files for models.py: `oracle_headers FILE...` prints a line of JSON for each,
// {"refused": why}, or {"tensors": {name: [dtype, shape, from, bytes]}}; `oracle_headers convert
// DTYPE IN OUT` writes IN's fp32 values as that type.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/models/folder.h"

static json_t *tensors_of(const struct dp_folder *f)
{
    json_t *all = json_object();
    for (uint32_t i = 0; i < f->tensors; i++) {
        const struct dp_st_tensor *t = &f->tensor[i].t;
        json_t *shape = json_array();
        for (unsigned d = 0; d < t->dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        json_object_set_new(all, t->name,
                            json_pack("[s, o, I, I]", dp_dtype_name(t->dtype), shape,
                                      (json_int_t)t->at, (json_int_t)t->bytes));
    }
    return all;
}

static void look(const char *path)
{
    struct dp_folder f;
    char why[512];
    lh_err err = dp_folder_open(&f, path);
    snprintf(why, sizeof why, "%s", lh_err_text(err));
    for (char *at = why; *at; at++) // the text quotes names, which may be cut inside a character
        if (*at & 0x80) *at = '?';
    json_t *o =
        err ? json_pack("{s:s}", "refused", why) : json_pack("{s:o}", "tensors", tensors_of(&f));
    json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(o);
    dp_folder_close(&f);
}

static lh_err convert(const char *name, const char *in, const char *out)
{
    enum dp_dtype type;
    struct lh_buf bytes = lh_buf(1 << 30), made = lh_buf(1 << 30);
    if (!dp_dtype_parse(name, &type) || !dp_dtype_trained(type))
        return lh_fail(LH_ERR_INVALID, "no type %s", name);
    lh_err err = dp_file_read(in, &bytes);
    size_t n = bytes.len / sizeof(float);
    float *value = malloc(bytes.len + 1);
    uint8_t *to = err ? NULL : lh_buf_grow(&made, n * dp_dtype_bits(type) / 8);
    if (!err && (!value || !to)) err = lh_fail(LH_ERR_NO_MEMORY, "no memory");
    if (!err) memcpy(value, bytes.data, n * sizeof *value);
    if (!err) dp_dtype_from_f32(type, value, n, to); // on overflow an infinity, as in PyTorch
    if (!err) err = dp_file_write(out, lh_buf_span(&made), 0666);
    free(value);
    lh_buf_free(&made);
    lh_buf_free(&bytes);
    return err;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "convert")) {
        lh_err err = convert(argv[2], argv[3], argv[4]);
        if (err) fprintf(stderr, "oracle_headers: %s\n", lh_err_text(err));
        return err != LH_OK;
    }
    for (int i = 1; i < argc; i++) look(argv[i]);
    return argc < 2;
}
