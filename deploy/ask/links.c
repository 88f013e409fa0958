// Finds the network namespace of a run's coordinator. See links.h.
#include "deploy/ask/links.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "deploy/tool/table.h"
#include "deploy/up/wan.h"

enum { LINKS_BYTES_MAX = 4096 };

lh_err dp_links_keep(const char *dir, const char *instance, const char *region)
{
    char path[DP_PATH_BYTES];
    struct lh_buf text = lh_buf(LINKS_BYTES_MAX);
    json_t *o = json_pack("{s:s s:s}", "instance", instance, "region", region);
    lh_err err = o ? dp_table_json(&text, o) : lh_fail(LH_ERR_NO_MEMORY, "no memory for links");
    if (!err) err = dp_path(path, "%s/links.json", dir);
    if (!err) err = dp_file_write(path, lh_buf_span(&text), 0640);
    json_decref(o);
    lh_buf_free(&text);
    return err;
}

void dp_links_forget(const char *dir)
{
    char path[DP_PATH_BYTES];
    if (!dp_path(path, "%s/links.json", dir)) unlink(path);
}

static LH_MUST lh_err enter(const char *path, const char *instance, const char *region)
{
    struct dp_wan wan = {.daemon = 0};
    if (!instance || !region || strlen(instance) >= sizeof wan.instance)
        return lh_fail(LH_ERR_MALFORMED, "%s does not name a world and a region", path);
    if (geteuid() != 0)
        return lh_fail(
            LH_ERR_DENIED,
            "this run uses emulated links, and only root may enter its regions: run this as root");
    memcpy(wan.instance, instance, strlen(instance) + 1);
    lh_err err = dp_wan_enter(&wan, region);
    if (err != LH_ERR_NOT_FOUND) return err;
    return lh_fail(LH_ERR_UNAVAILABLE,
                   "no coordinator answers: the emulated links of this run are down (%s)", path);
}

lh_err dp_links_enter(const char *dir)
{
    char path[DP_PATH_BYTES];
    struct lh_buf text = lh_buf(LINKS_BYTES_MAX);
    LH_TRY(dp_path(path, "%s/links.json", dir));
    if (!dp_file_exists(path)) return LH_OK;
    lh_err err = dp_file_read(path, &text);
    json_t *o = err ? NULL : json_loadb((const char *)text.data, text.len, 0, NULL);
    if (!err)
        err = enter(path, json_string_value(json_object_get(o, "instance")),
                    json_string_value(json_object_get(o, "region")));
    json_decref(o);
    lh_buf_free(&text);
    return err;
}
