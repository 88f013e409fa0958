// Opens an object store of the kind that its address names. See objects.h.
#include "common/objects/objects.h"

#include <string.h>

lh_err lh_objects_open(const struct lh_objects_conf *conf, struct lh_objects **out)
{
    *out = NULL;
    LH_TRY(lh_objects_check(conf->address));
    return strncmp(conf->address, "s3:", 3) ? lh_objects_folder(conf, out)
                                            : lh_objects_s3(conf, out);
}
