// Answers of an S3 store: listings and uploads for the XML reader, the JSON beside a checkpoint,
// and a file of access keys. Any bytes are rows within their limits or are refused.
#include <string.h>

#include "common/base/check.h"
#include "common/objects/address.h"
#include "common/objects/credentials.h"
#include "common/objects/xml.h"
#include "kernels/storage/stored.h"
#include "tests/fuzz/fuzz.h"

static lh_err note(void *arg, const struct lh_xml_row *row)
{
    LH_ASSERT(memchr(row->key, 0, sizeof row->key) && memchr(row->value, 0, sizeof row->value));
    return ++*(unsigned *)arg < 1000 ? LH_OK : LH_ERR_TOO_LARGE;
}

static void read_xml(struct lh_span xml)
{
    char text[64], small[4];
    unsigned rows = 0;
    lh_err err = lh_xml_rows(xml, "Contents", "Key", "Size", note, &rows);
    LH_ASSERT(!err || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    rows = 0;
    err = lh_xml_rows(xml, "Upload", "Key", "UploadId", note, &rows);
    LH_ASSERT(!err || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    lh_xml_find(xml, "NextContinuationToken", "Contents", text, sizeof text);
    LH_ASSERT(memchr(text, 0, sizeof text));
    lh_xml_find(xml, "Code", NULL, small, sizeof small);
    LH_ASSERT(memchr(small, 0, sizeof small));
}

// A store that returns these bytes for every object and lists them as one key.
struct store {
    struct lh_objects base;
    struct lh_span bytes;
};

static lh_err list(struct lh_objects *o, const char *prefix, lh_object_fn each, void *arg)
{
    const struct store *s = (const struct store *)o;
    char key[LH_OBJECT_KEY_BYTES];
    size_t n = s->bytes.len < sizeof key - 1 ? s->bytes.len : sizeof key - 1;
    (void)prefix;
    memcpy(key, s->bytes.data, n);
    key[n] = 0;
    return lh_object_key_fits(key) ? each(arg, key, n) : LH_OK;
}

static lh_err get(struct lh_objects *o, const char *key, struct lh_buf *out)
{
    const struct store *s = (const struct store *)o;
    LH_ASSERT(lh_object_key_fits(key));
    lh_buf_clear(out);
    lh_put(out, s->bytes.data, s->bytes.len);
    return lh_buf_err(out);
}

static void read_store(struct lh_span bytes)
{
    static const struct lh_objects_ops ops = {.list = list, .get = get};
    struct store s = {.base.ops = &ops, .bytes = bytes};
    struct lk_stored_about about;
    struct lk_stored_list all;
    const struct lk_stored any = {.epoch = 1};
    lh_err err = lk_stored_about(&s.base, &any, &about);
    LH_ASSERT(!err || err == LH_ERR_CORRUPT);
    LH_ASSERT(err || (about.bytes && strlen(about.sha256) == LH_OBJECT_HASH_BYTES - 1));
    LH_ASSERT(!lk_stored_list(&s.base, LK_STORED_ALL, &all));
    for (size_t i = 0; i < all.count; i++) {
        char name[LK_STORED_NAME_BYTES];
        lk_stored_name(&all.at[i], name);
        LH_ASSERT(!memcmp(bytes.data, name, strlen(name)));
    }
    lk_stored_list_free(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct lh_sigv4_keys keys;
    if (size > 1 << 16) return 0;
    const struct lh_span bytes = lh_span(data ? data : (const uint8_t *)"", size);
    read_xml(bytes);
    read_store(bytes);
    lh_err err = lh_credentials_parse(bytes, "default", &keys);
    LH_ASSERT(!err || err == LH_ERR_CONFIG);
    LH_ASSERT(err || (keys.id[0] && keys.secret[0]));
    return 0;
}
