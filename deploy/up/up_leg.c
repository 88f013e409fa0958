// The next leg of a run that has ended. See up_leg.h.
#include "deploy/up/up_leg.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/app/node.h"
#include "common/env/env.h"
#include "deploy/ask/up_status.h"
#include "deploy/up/up_change.h"
#include "kernels/state/checkpoint.h"

enum { UNITS_BYTES_MAX = 1 << 30, LEGS_MAX = 1000 };

lh_err dp_leg_before(const struct dp_up *up, uint64_t *tokens)
{
    char path[DP_PATH_BYTES];
    struct lh_buf text = lh_buf(80);
    unsigned long long before;
    *tokens = 0;
    LH_TRY(dp_path(path, "%s/leg", up->dir));
    if (!dp_file_exists(path)) return LH_OK;
    lh_err err = dp_file_read(path, &text);
    lh_put_u8(&text, 0);
    if (!err && (lh_buf_err(&text) || sscanf((const char *)text.data, "%llu", &before) != 1))
        err = lh_fail(LH_ERR_MALFORMED, "%s: expected a number of tokens", path);
    if (!err) *tokens = before;
    lh_buf_free(&text);
    return err;
}

// ---------------------------------------------------------------- units that are left

// Marks the units of the data that the shards' last checkpoints credit in any epoch.
static LH_MUST lh_err mark_credited(const struct dp_up *up, const struct lh_units *units,
                                    uint64_t epochs, bool *credited)
{
    struct lh_keyring *keys = NULL;
    struct lh_env *env = NULL;
    uint8_t job[LH_JOB_BYTES];
    char path[DP_PATH_BYTES];
    lh_job_id(up->t->run->domain, up->t->run->run, job);
    LH_TRY(dp_path(path, "%s/secrets/job.keys", up->dir));
    lh_err err = lh_env_real_create(&env);
    if (!err) err = lh_keyring_create(&keys);
    if (!err) err = lh_keyring_load(keys, path);
    for (unsigned i = 0; !err && i < up->t->servers; i++)
        for (uint32_t k = 0; !err && k < up->t->server[i].shards.count; k++) {
            uint32_t shard = (uint32_t)up->t->server[i].shards.value[k];
            struct lk_replica r;
            err = dp_path(path, "%s/%s/checkpoints", up->dir, up->t->server[i].name);
            const struct lk_checkpoint_conf conf = {.env = env, .dir = path, .keys = keys};
            if (!err) err = lk_replica_create(&r, job, &up->manifest, shard, keys);
            if (err) break;
            err = lk_checkpoint_load(&conf, &r, NULL, NULL);
            for (uint64_t u = 0; !err && u < epochs * units->count; u++)
                credited[u % units->count] |= lh_ledger_credited(&r.ledger, u);
            lk_replica_free(&r);
        }
    lh_keyring_destroy(keys);
    if (env) lh_env_real_destroy(env);
    return err;
}

static LH_MUST lh_err link_file(const struct dp_up *up, const char *dir, const char *file)
{
    char from[DP_PATH_BYTES], to[DP_PATH_BYTES];
    LH_TRY(dp_path(from, "%s/%s", up->data, file));
    LH_TRY(dp_path(to, "%s/%s", dir, file));
    if (!symlink(from, to) || errno == EEXIST) return LH_OK;
    return lh_fail_errno(errno, "%s", to);
}

// units.json with the units that are not credited, and links to the token files.
static LH_MUST lh_err write_left(const struct dp_up *up, const char *dir, const bool *credited,
                                 uint64_t *left)
{
    char path[DP_PATH_BYTES];
    struct lh_units units = up->units;
    struct lh_buf json = lh_buf(UNITS_BYTES_MAX);
    units.unit = calloc(up->units.count + 1, sizeof *units.unit);
    units.count = 0;
    lh_err err = units.unit ? dp_make_dirs(dir) : lh_fail(LH_ERR_NO_MEMORY, "no memory for units");
    *left = 0;
    for (uint64_t u = 0; !err && u < up->units.count; u++) {
        if (credited[u]) continue;
        units.unit[units.count] = up->units.unit[u];
        units.unit[units.count].id = units.count;
        *left += up->units.unit[u].tokens;
        units.count++;
        err = link_file(up, dir, up->units.unit[u].file);
    }
    for (uint32_t i = 0; !err && i < up->units.heldout_count; i++)
        err = link_file(up, dir, up->units.heldout[i].file);
    if (!err && units.count) err = lh_units_write(&units, &json);
    if (!err && units.count) err = lh_buf_err(&json);
    if (!err) err = dp_path(path, "%s/units.json", dir);
    if (!err && units.count) err = dp_file_write(path, lh_buf_span(&json), 0666);
    free(units.unit);
    lh_buf_free(&json);
    return err;
}

static LH_MUST lh_err make_left(const struct dp_up *up, const struct dp_topology *was,
                                const char *dir)
{
    uint64_t left = 0, epochs = (uint64_t)was->run->epochs;
    if (up->t->run->own_data) return LH_OK;
    bool *credited = calloc(up->units.count + 1, sizeof *credited);
    if (!credited) return lh_fail(LH_ERR_NO_MEMORY, "no memory for units");
    lh_err err = mark_credited(up, &up->units, epochs, credited);
    // A further epoch has all units again; within one, those that nobody trained.
    bool again = up->t->run->epochs > was->run->epochs;
    if (again) memset(credited, 0, up->units.count * sizeof *credited);
    if (!err) err = write_left(up, dir, credited, &left);
    if (!err && !left)
        err = lh_fail(LH_ERR_CONFIG,
                      "%s: every unit is trained already: raise epochs, and all are trained once "
                      "more, or give --data with more of them",
                      up->data);
    free(credited);
    return err;
}

// ---------------------------------------------------------------- the folder

static LH_MUST lh_err move_aside(const char *dir, const char *leg)
{
    char from[DP_PATH_BYTES], to[DP_PATH_BYTES];
    DIR *all = opendir(dir);
    lh_err err = all ? LH_OK : lh_fail_errno(errno, "%s", dir);
    for (struct dirent *e; !err && (e = readdir(all)) != NULL;) {
        if (e->d_name[0] == '.' || !strncmp(e->d_name, "leg-", 4) || !strcmp(e->d_name, "next"))
            continue;
        err = dp_path(from, "%s/%s", dir, e->d_name);
        if (!err) err = dp_path(to, "%s/%s", leg, e->d_name);
        if (!err && rename(from, to)) err = lh_fail_errno(errno, "%s", from);
    }
    if (all) closedir(all);
    return err;
}

static LH_MUST lh_err next_leg(const char *dir, char out[DP_PATH_BYTES])
{
    for (unsigned i = 1; i < LEGS_MAX; i++) {
        LH_TRY(dp_path(out, "%s/leg-%u", dir, i));
        if (!dp_file_exists(out)) return dp_make_dirs(out);
    }
    return lh_fail(LH_ERR_TOO_LARGE, "%s: more than %d legs", dir, LEGS_MAX);
}

// The units of the next leg are found in DIR/next first, so that an error leaves the folder as it
// was. A kill later leaves all that was there in DIR/leg-N.
static LH_MUST lh_err begin(struct dp_up *up, const struct dp_topology *was, uint64_t credited)
{
    char leg[DP_PATH_BYTES], from[DP_PATH_BYTES], to[DP_PATH_BYTES], left[DP_PATH_BYTES], text[40];
    LH_TRY(dp_path(left, "%s/next", up->dir));
    LH_TRY(make_left(up, was, left));
    LH_TRY(next_leg(up->dir, leg));
    LH_TRY(move_aside(up->dir, leg));
    LH_TRY(dp_path(to, "%s/left", up->dir));
    if (!up->t->run->own_data && rename(left, to)) return lh_fail_errno(errno, "%s", to);
    LH_TRY(dp_path(from, "%s/final.bin", leg));
    LH_TRY(dp_path(to, "%s/weights.bin", up->dir));
    if (link(from, to)) return lh_fail_errno(errno, "%s", to);
    LH_TRY(dp_path(to, "%s/leg", up->dir));
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)credited);
    LH_TRY(dp_file_write(to, lh_span_str(text), 0666));
    printf("The run that ended goes on: %llu tokens are credited, %s has that leg. This one begins "
           "with its parameters; the built-in trainer's rate warms up again, over "
           "worker.trainer.warmup of the %lld tokens that are left\n\n",
           (unsigned long long)credited, leg,
           (long long)up->t->run->budget_tokens - (long long)credited);
    return LH_OK;
}

lh_err dp_leg_begin(struct dp_up *up)
{
    struct dp_status coordinator = {0};
    struct dp_topology *was = NULL;
    uint64_t before;
    char path[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/coordinator", up->dir));
    lh_err err = dp_status_read(path, &coordinator);
    LH_TRY(dp_path(path, "%s/final.bin", up->dir));
    if (err || strcmp(coordinator.state, "ended") != 0 || !dp_file_exists(path))
        return lh_fail(LH_ERR_CONFIG,
                       "no run has ended in %s with its verdict: the same command without "
                       "--continue goes on with one that was stopped",
                       up->dir);
    LH_TRY(dp_leg_before(up, &before));
    before += coordinator.credited_tokens;
    if ((uint64_t)up->t->run->budget_tokens <= before)
        return lh_fail(LH_ERR_CONFIG,
                       "%s: budget_tokens is %lld, and %llu tokens are credited: raise it to what "
                       "the whole run is to train",
                       up->flags.topology, (long long)up->t->run->budget_tokens,
                       (unsigned long long)before);
    LH_TRY(dp_path(path, "%s/topology.yaml", up->dir));
    LH_TRY(dp_topology_load(path, &was));
    struct dp_changes changes;
    err = dp_changes_find(was, up->t, &changes);
    if (!err && changes.refusals)
        err = lh_fail(LH_ERR_CONFIG, "%s: what can't change in a run can't in its next leg: %.*s",
                      up->flags.topology, (int)strcspn((const char *)changes.refused.data, "\n"),
                      (const char *)changes.refused.data);
    dp_changes_free(&changes);
    if (!err) err = begin(up, was, before);
    dp_topology_free(was);
    return err;
}

lh_err dp_leg_apply(struct dp_up *up)
{
    uint64_t before;
    char path[DP_PATH_BYTES];
    LH_TRY(dp_leg_before(up, &before));
    if (!before) return LH_OK;
    // The settings are the topology's own copy, and `up` is its only reader.
    struct dp_run_settings *run = (struct dp_run_settings *)(uintptr_t)up->t->run;
    if ((uint64_t)run->budget_tokens <= before)
        return lh_fail(LH_ERR_CONFIG, "%s: budget_tokens is %lld, and earlier legs credited %llu",
                       up->flags.topology, (long long)run->budget_tokens,
                       (unsigned long long)before);
    run->budget_tokens -= (int64_t)before;
    up->later_leg = true;
    dp_plan_make(up->t, up->manifest.values, &up->plan);
    if (run->own_data) return LH_OK;
    LH_TRY(dp_path(path, "%s/left", up->dir));
    memcpy(up->data, path, sizeof up->data);
    lh_units_free(&up->units);
    return dp_units_load(path, &up->units);
}
