// Everything needed to read a run's stored files. See job.h.
#include "deploy/stored/job.h"

#include <stdlib.h>

#include "common/app/node.h"
#include "common/env/environment.h"
#include "deploy/text/eval.h"
#include "server/settings.h"

static void fill(const char **flag, const char *setting)
{
    if (!*flag && setting[0]) *flag = setting;
}

static LH_MUST lh_err read_settings(struct dp_job *j)
{
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    LH_TRY(lh_config_create(&ps_settings_table, &j->settings));
    lh_err err = dp_file_read(j->config, &text);
    if (!err) err = lh_config_text(j->settings, j->config, lh_buf_span(&text));
    if (!err) err = lh_config_environment(j->settings, lh_environment);
    if (!err) err = lh_config_finish(j->settings);
    lh_buf_free(&text);
    if (err) return err;
    const struct ps_settings *s = lh_config_settings(j->settings);
    j->dir = s->node.dir;
    if (!j->run) {
        LH_TRY(lh_node_identity(&s->node, &j->identity));
        j->run = j->identity.peer.run;
        if (!j->domain) j->domain = j->identity.peer.domain;
    }
    fill(&j->manifest_path, s->node.model.manifest);
    fill(&j->keys_path, s->node.seal.keys);
    fill(&j->weights_path, s->model.weights);
    return LH_OK;
}

lh_err dp_job_open(struct dp_job *j, bool all)
{
    LH_TRY(lh_env_real_create(&j->env));
    if (j->config) LH_TRY(read_settings(j));
    if (all && (!j->run || !j->manifest_path || !j->keys_path))
        return lh_fail(LH_ERR_INVALID,
                       "%s is missing; --config FILE, the server's settings, says all of it",
                       !j->run             ? "--run"
                       : !j->manifest_path ? "--manifest"
                                           : "--keys");
    if ((j->has_id = j->run)) lh_job_id(j->domain ? j->domain : LH_DOMAIN_DEFAULT, j->run, j->id);
    if (j->manifest_path) LH_TRY(dp_manifest_load(j->manifest_path, &j->manifest));
    j->has_manifest = j->manifest_path;
    LH_TRY(lh_keyring_create(&j->keys));
    if (j->keys_path) LH_TRY(lh_keyring_load(j->keys, j->keys_path));
    j->has_keys = j->keys_path;
    return LH_OK;
}

void dp_job_close(struct dp_job *j)
{
    lh_keyring_destroy(j->keys);
    lh_manifest_free(&j->manifest);
    lh_config_destroy(j->settings);
    free(j->weights);
    if (j->env) lh_env_real_destroy(j->env);
}

lh_err dp_job_weights(struct dp_job *j, const float **out)
{
    if (!j->weights_path)
        return lh_fail(LH_ERR_INVALID, "--weights is missing: the log is folded from the initial "
                                       "parameters (model.weights of its server)");
    if (!j->weights) LH_TRY(dp_floats_load(j->weights_path, j->manifest.values, &j->weights));
    *out = j->weights;
    return LH_OK;
}

// ---------------------------------------------------------------- directories

// The first of these folders that is in `dir` (`other` may be NULL), else `dir` itself.
static LH_MUST lh_err sub_dir(const char *dir, const char *sub, const char *other,
                              char out[DP_PATH_BYTES])
{
    if (!dp_file_exists(dir)) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", dir);
    LH_TRY(dp_path(out, "%s/%s", dir, sub));
    if (dp_file_exists(out)) return LH_OK;
    if (other) return sub_dir(dir, other, NULL, out);
    return dp_path(out, "%s", dir);
}

lh_err dp_job_log_dir(const char *dir, char out[DP_PATH_BYTES])
{
    return sub_dir(dir, "log", NULL, out);
}

lh_err dp_job_checkpoint_dir(const char *dir, char out[DP_PATH_BYTES])
{
    return sub_dir(dir, "checkpoints", "replica", out); // a server's; a worker's durable copies
}

lh_err dp_job_no_log(const char *dir)
{
    return lh_fail(LH_ERR_NOT_FOUND, "no log in %s: give a server's directory, which holds log/",
                   dir);
}

bool dp_job_running(struct lh_env *env, const char *dir)
{
    char path[DP_PATH_BYTES];
    struct lh_file *file;
    if (dp_path(path, "%s/lock", dir)) return false;
    lh_err err = env->ops->files->open(env, path, LH_OPEN_WRITE | LH_OPEN_LOCK, &file);
    if (!err) env->ops->files->close(file);
    return err == LH_ERR_BUSY;
}
