// Parameter files. See weights_file.h.
#include "deploy/stored/weights_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/tool/files.h"

static const char SUFFIX[] = ".safetensors";

static bool is_safetensors(const char *path)
{
    size_t n = strlen(path), suffix = sizeof SUFFIX - 1;
    return n > suffix && !strcmp(path + n - suffix, SUFFIX);
}

static LH_MUST lh_err put_header(struct lh_buf *out, const struct lh_manifest *m, json_t *about)
{
    json_t *root = json_pack("{s:O}", "__metadata__", about);
    for (uint32_t i = 0; i < m->tensors; i++) {
        const struct lh_tensor *t = &m->tensor[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        json_object_set_new(root, t->name,
                            json_pack("{s:s s:o s:[I,I]}", "dtype", "F32", "shape", shape,
                                      "data_offsets", (json_int_t)(t->offset * sizeof(float)),
                                      (json_int_t)((t->offset + t->len) * sizeof(float))));
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the header");
    size_t len = strlen(text), room = (8 - len % 8) % 8; // the tensors begin at a multiple of 8
    lh_put_u64(out, len + room);
    lh_put(out, text, len);
    for (size_t i = 0; i < room; i++) lh_put_u8(out, ' ');
    free(text);
    return lh_buf_err(out);
}

lh_err dp_weights_write(const char *path, const struct lh_manifest *m, const float *theta,
                        json_t *about)
{
    char tmp[DP_PATH_SIZE];
    struct lh_buf header = lh_buf(64 << 20);
    LH_TRY(dp_path(tmp, "%s.tmp", path));
    lh_err err = is_safetensors(path) ? put_header(&header, m, about) : LH_OK;
    if (err) {
        lh_buf_free(&header);
        return err;
    }
    FILE *file = fopen(tmp, "wb");
    bool good = file;
    if (good && header.len) good = fwrite(header.data, 1, header.len, file) == header.len;
    // little endian, as the machine is
    good = good && fwrite(theta, sizeof *theta, m->values, file) == m->values;
    good = good && !fflush(file) && !fsync(fileno(file));
    if (file && fclose(file)) good = false;
    good = good && !rename(tmp, path);
    err = good ? LH_OK : lh_fail_errno(errno, "%s", path);
    if (file && !good) unlink(tmp);
    lh_buf_free(&header);
    return err;
}
