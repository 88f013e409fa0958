// The nodes and files that every scheduler's rendering needs. See render.h.
#include "deploy/render/render.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_store.h"

#include <stdlib.h>
#include <string.h>

lh_err dp_render_open(struct dp_render *r, const char *by)
{
    struct dp_up *up = r->up = calloc(1, sizeof *up);
    if (!up) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a run");
    up->flags.topology = r->flags.topology;
    up->flags.dir = r->flags.out;
    up->written_by = by;
    up->places.elsewhere = true;
    LH_TRY(dp_topology_load(r->flags.topology, &up->t));
    return dp_dir_model(up);
}

lh_err dp_render_data(struct dp_render *r, const char *folder)
{
    const char *data = r->flags.data;
    if (!data) return dp_path(r->up->data, "%s", folder);
    if (strncmp(data, "s3://", 5) != 0)
        return lh_fail(LH_ERR_INVALID, "--data %.200s: want s3://BUCKET/PREFIX", data);
    LH_TRY(dp_path(r->up->data, "%s", data));
    return dp_store_check(r->up->t, r->flags.topology, data);
}

void dp_render_close(struct dp_render *r)
{
    if (!r->up) return;
    lh_units_free(&r->up->units);
    lh_manifest_free(&r->up->manifest);
    dp_topology_free(r->up->t);
    free(r->up);
    r->up = NULL;
}

lh_err dp_render_no_region(const struct dp_render *r, const char *folder)
{
    const struct dp_topology *t = r->up->t;
    for (unsigned i = 0; i < t->regions; i++)
        if (!strcmp(t->region[i].name, folder))
            return lh_fail(LH_ERR_CONFIG,
                           "%s: a region named %s: its folder would be the one of the run's %s: "
                           "give it another name",
                           r->flags.topology, folder, folder);
    return LH_OK;
}

lh_err dp_render_files(struct dp_render *r)
{
    struct dp_up *up = r->up;
    char dir[DP_PATH_BYTES], data[DP_PATH_BYTES];
    memcpy(dir, up->dir, sizeof dir);
    memcpy(data, up->data, sizeof data);
    LH_TRY(dp_path(up->dir, "%s/files", r->flags.out));
    LH_TRY(dp_make_dirs(up->dir));
    LH_TRY(dp_dir_model_files(up));
    if (dp_topology_own_data(up->t)) LH_TRY(dp_dir_own_data(up));
    memcpy(up->dir, dir, sizeof dir);
    memcpy(up->data, data, sizeof data);
    return LH_OK;
}

lh_err dp_render_write(const struct dp_render *r, const char *folder, const char *name,
                       const struct lh_buf *text)
{
    char path[DP_PATH_BYTES];
    LH_TRY(lh_buf_err(text));
    LH_TRY(dp_path(path, "%s/%s", r->flags.out, folder));
    LH_TRY(dp_make_dirs(path));
    LH_TRY(dp_path(path, "%s/%s/%s", r->flags.out, folder, name));
    return dp_file_write(path, lh_buf_span(text), 0644);
}

static LH_MUST lh_err one_settings(struct dp_render *r, const struct dp_node *node,
                                   const char *folder)
{
    char name[sizeof node->name + 8];
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    snprintf(name, sizeof name, "%s.yaml", node->name);
    lh_err err = dp_node_settings(r->up, node, &text);
    if (!err) err = dp_render_write(r, folder, name, &text);
    lh_buf_free(&text);
    return err;
}

lh_err dp_render_settings(struct dp_render *r, unsigned region, const char *folder)
{
    for (unsigned i = 0; i < r->up->nodes; i++) {
        const struct dp_node *node = &r->up->node[i];
        bool rank = node->kind == DP_WORKER || node->kind == DP_RANK;
        if (node->kind == DP_TRAINER || rank != (region < DP_REGIONS_MAX)) continue;
        if (rank && node->region != region) continue;
        LH_TRY(one_settings(r, node, folder));
    }
    return LH_OK;
}

void dp_render_quote(struct lh_buf *out, const char *word)
{
    dp_put(out, "'");
    for (const char *at = word; *at; at++)
        if (*at == '\'')
            dp_put(out, "'\\''");
        else
            dp_put(out, "%c", *at);
    dp_put(out, "'");
}
