// Data units in an object store: `--data s3://BUCKET/PREFIX`. See up_store.h.
#include <string.h>

#include "common/objects/address.h"
#include "common/objects/objects.h"
#include "deploy/stored/upload.h"
#include "deploy/up/up.h"
#include "deploy/up/up_store.h"

bool dp_data_is_stored(const struct dp_up *up)
{
    return lh_objects_is(up->data);
}

// Refuses a region whose workers could not read its units there.
static LH_MUST lh_err check_region(const struct dp_topology *t, const char *file,
                                   const struct dp_region *r)
{
    bool loop = r->command || t->worker_base->trainer.kind == WK_TRAINER_EXTERNAL;
    bool leased = ps_settings_data(t->server_base, r->name) == LH_DATA_LEASED;
    if (loop && leased)
        return lh_fail(LH_ERR_CONFIG,
                       "%s: --data is a store, but the command of region %s reads its units from "
                       "files: fetch them (`longhaul store pull`), and pass that folder as --data",
                       file, r->name);
    if (r->data[0] && !dp_region_has_records(r))
        return lh_fail(LH_ERR_CONFIG,
                       "%s: regions.%s.data is set, but --data is a store, which every region "
                       "reads: leave one of the two out",
                       file, r->name);
    return LH_OK;
}

lh_err dp_store_check(const struct dp_topology *t, const char *file, const char *address)
{
    lh_err err = lh_objects_check(address);
    if (err) return lh_fail(err, "--data: %s", lh_err_text(err));
    for (unsigned i = 0; i < t->regions; i++) LH_TRY(check_region(t, file, &t->region[i]));
    return LH_OK;
}

static bool is_manifest(void *arg, const char *name)
{
    (void)arg;
    return !strcmp(name, "units.json");
}

static bool is_heldout(void *arg, const char *name)
{
    const struct lh_units *units = arg;
    for (uint32_t i = 0; i < units->heldout_count; i++)
        if (!strcmp(units->heldout[i].file, name)) return true;
    return false;
}

static LH_MUST lh_err fetch(struct dp_up *up, struct lh_env *env, struct lh_objects *o)
{
    unsigned count;
    uint64_t bytes;
    LH_TRY(dp_download(env, o, up->data, up->texts, is_manifest, NULL, &count, &bytes));
    LH_TRY(dp_units_load(up->texts, &up->units));
    return dp_download(env, o, up->data, up->texts, is_heldout, &up->units, &count, &bytes);
}

lh_err dp_store_fetch_texts(struct dp_up *up)
{
    struct lh_objects_conf with = {.address = up->data};
    struct lh_objects *o = NULL;
    if (!up->flags.no_wan)
        return lh_fail(LH_ERR_CONFIG,
                       "--data %s: an emulated region can't reach the store: use --no-wan",
                       up->data);
    LH_TRY(dp_store_check(up->t, up->flags.topology, up->data));
    if (up->flags.dir)
        LH_TRY(dp_path(up->texts, "%s/data", up->flags.dir));
    else
        LH_TRY(dp_path(up->texts, "run/%s/data", up->t->run->run));
    LH_TRY(lh_env_real_create(&with.env));
    lh_err err = lh_objects_open(&with, &o);
    if (!err) err = fetch(up, with.env, o);
    lh_objects_close(o);
    lh_env_real_destroy(with.env);
    return err;
}
