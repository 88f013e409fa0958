// stored.json of a folder in an object store (deploy/stored/upload.c), and a store's address. Any
// bytes are names that a folder can hold or are refused; no file is fetched.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/address.h"
#include "deploy/stored/upload.h"
#include "tests/fuzz/fuzz.h"

struct store { // a store with the single object stored.json
    struct lh_objects base;
    struct lh_span bytes;
};

static lh_err get(struct lh_objects *o, const char *key, struct lh_buf *out)
{
    const struct store *s = (const struct store *)o;
    LH_ASSERT(!strcmp(key, "stored.json"));
    lh_buf_clear(out);
    lh_put(out, s->bytes.data, s->bytes.len);
    return lh_buf_err(out);
}

static bool is_wanted(void *arg, const char *name)
{
    LH_ASSERT(lh_object_key_fits(name) && !strchr(name, '/') && name[0] != '.');
    ++*(unsigned *)arg;
    return false;
}

static void read_address(struct lh_span bytes)
{
    char *text = malloc(bytes.len + 1);
    LH_ASSERT(text);
    memcpy(text, bytes.data, bytes.len);
    text[bytes.len] = 0;
    if (!lh_objects_check(text)) LH_ASSERT(lh_objects_is(text) && strlen(text) < LH_PATH_BYTES);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct lh_objects_ops ops = {.get = get};
    if (size > 1 << 16) return 0;
    struct store s = {.base.ops = &ops, .bytes = lh_span(data ? data : (const uint8_t *)"", size)};
    unsigned seen = 0, count;
    uint64_t bytes;
    lh_err err = dp_download(NULL, &s.base, "s3://b/p", "/tmp", is_wanted, &seen, &count, &bytes);
    LH_ASSERT(!err || err == LH_ERR_CORRUPT || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    LH_ASSERT(!count && !bytes); // both count fetched files
    read_address(s.bytes);
    return 0;
}
