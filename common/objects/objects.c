// Opens an object store of the kind that its address names. See objects.h.
#include "common/objects/address.h"
#include "common/objects/objects.h"

#include <string.h>

lh_err lh_objects_open(const struct lh_objects_conf *conf, struct lh_objects **out)
{
    *out = NULL;
    LH_TRY(lh_objects_check(conf->address));
    return strncmp(conf->address, "s3:", 3) ? lh_objects_folder(conf, out)
                                            : lh_objects_s3(conf, out);
}

struct wanted {
    const char *key;
    uint64_t *bytes;
    bool is;
};

static lh_err look(void *arg, const char *key, uint64_t bytes)
{
    struct wanted *w = arg;
    if (strcmp(key, w->key) != 0) return LH_OK;
    *w->bytes = bytes;
    w->is = true;
    return LH_OK;
}

lh_err lh_object_size(struct lh_objects *s, const char *key, uint64_t *bytes)
{
    struct wanted w = {.key = key, .bytes = bytes};
    LH_TRY(s->ops->list(s, key, look, &w));
    return w.is ? LH_OK : lh_fail(LH_ERR_NOT_FOUND, "there is no object %s", key);
}
