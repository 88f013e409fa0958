// longhaul checkpoint ls|verify|restore|prune: the checkpoints in a folder, or in a store.
//
// ls believes names and headers. verify checks what each file proves: with the run's keys it is
// opened, loaded into a replica of its own and its digest compared, as a node that starts from it
// would; without, the hashes of its ranges and its signature.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/objects/address.h"
#include "deploy/stored/checkpoint_restore.h"
#include "deploy/stored/store.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "kernels/storage/checkpoint.h"
#include "kernels/storage/checkpoint_read.h"

// The directory: an argument, or that of the settings file.
static LH_MUST lh_err one_dir(const struct dp_usage *usage, const struct dp_texts *rest,
                              const struct dp_job *job, char out[DP_PATH_BYTES])
{
    const char *dir = rest->count ? rest->at[0] : job->dir;
    if (rest->count > 1 || !dir) return lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
    if (lh_objects_is(dir)) return dp_path(out, "%s", dir);
    return dp_job_checkpoint_dir(dir, out);
}

// ---------------------------------------------------------------- ls, verify

struct listing {
    struct dp_job *job;
    const char *dir;
    bool verify;
    struct lk_checkpoint_conf conf;
    json_t *rows;
    unsigned count, bad;
};

static int is_checkpoint(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && (!strcmp(dot, ".ckpt") || !strcmp(dot, ".weights"));
}

static LH_MUST lh_err read_whole(const struct listing *l, const char *path,
                                 const struct lk_checkpoint_info *info)
{
    const struct dp_job *job = l->job;
    struct lk_replica r;
    if (info->shard >= job->manifest.shards)
        return lh_fail(LH_ERR_MANIFEST, "%s: the model has %" PRIu32 " shards", path,
                       job->manifest.shards);
    lh_err err = lk_replica_create(&r, job->id, &job->manifest, info->shard, job->keys);
    if (!err) err = lk_checkpoint_read(&l->conf, path, &r);
    lk_replica_free(&r);
    return err;
}

static LH_MUST lh_err prove(const struct listing *l, const char *path,
                            const struct lk_checkpoint_name *name, struct lk_checkpoint_info *info)
{
    lh_err err = l->job->has_keys ? LH_OK : lk_checkpoint_check(&l->conf, path, info);
    if (!err && l->job->has_keys) err = lk_checkpoint_peek(l->conf.env, path, info);
    if (!err && (info->version != name->version || info->shard != name->shard ||
                 info->weights != name->weights))
        err = lh_fail(LH_ERR_CORRUPT, "%s: holds shard %" PRIu32 " version %" PRIu64, path,
                      info->shard, info->version);
    if (!err && l->job->has_keys) err = read_whole(l, path, info);
    return err;
}

static void add_row(struct listing *l, const char *file, const struct lk_checkpoint_info *info,
                    const struct stat *is, lh_err err)
{
    char signer[2 * LH_SIGN_PUBLIC_BYTES + 1] = "", hex[2 * LH_HASH_BYTES + 1];
    json_int_t age = (json_int_t)(time(NULL) - is->st_mtime);
    json_t *row = json_pack("{s:s s:I s:I}", "name", file, "bytes", (json_int_t)is->st_size,
                            "age_s", age < 0 ? 0 : age);
    if (info->format) {
        if (info->is_signed) lh_public_hex(&info->signer, signer);
        lh_hash_hex(&info->digest, hex);
        json_t *said =
            json_pack("{s:I s:I s:I s:s s:s s:s}", "shard", (json_int_t)info->shard, "version",
                      (json_int_t)info->version, "epoch", (json_int_t)info->epoch, "channel",
                      info->weights ? "weights" : "full", "digest", hex, "signer",
                      info->is_signed ? signer : "-");
        json_object_update(row, said);
        json_decref(said);
    }
    if (err || l->verify)
        json_object_set_new(row, "state", json_string(err ? lh_err_text(err) : "ok"));
    json_array_append_new(l->rows, row);
}

static LH_MUST lh_err list_one(struct listing *l, const char *file)
{
    struct lk_checkpoint_name name;
    struct lk_checkpoint_info info = {0};
    char path[DP_PATH_BYTES];
    struct stat is;
    lh_err err;
    LH_TRY(dp_path(path, "%s/%s", l->dir, file));
    if (stat(path, &is)) // pruned since the folder was read
        return errno == ENOENT ? LH_OK : lh_fail_errno(errno, "%s", path);
    if (!lk_checkpoint_name_parse(file, &name))
        err = lh_fail(LH_ERR_MALFORMED, "no checkpoint has such a name");
    else
        err =
            l->verify ? prove(l, path, &name, &info) : lk_checkpoint_peek(l->conf.env, path, &info);
    if (err == LH_ERR_KEY_MISSING || err == LH_ERR_NO_MEMORY) return err; // not the file's fault
    l->count++;
    l->bad += err != LH_OK;
    add_row(l, file, &info, &is, err);
    return LH_OK;
}

static LH_MUST lh_err list_dir(struct listing *l)
{
    struct dirent **entry = NULL;
    int count = scandir(l->dir, &entry, is_checkpoint, alphasort);
    if (count < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", l->dir);
    if (count < 0) return lh_fail_errno(errno, "%s", l->dir);
    lh_err err = LH_OK;
    for (int i = 0; i < count; i++) {
        if (!err) err = list_one(l, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return err;
}

// ---------------------------------------------------------------- a store's

static void add_stored(struct listing *l, const struct lk_stored *s,
                       const struct lk_stored_about *about, lh_err err)
{
    char name[LK_STORED_NAME_BYTES];
    lk_stored_name(s, name);
    json_t *row =
        json_pack("{s:s s:I s:I s:I s:s}", "name", name, "shard", (json_int_t)s->name.shard,
                  "version", (json_int_t)s->name.version, "epoch", (json_int_t)s->epoch, "channel",
                  s->name.weights ? "weights" : "full");
    json_int_t age = (json_int_t)time(NULL) - about->time_s;
    if (about->bytes) {
        json_object_set_new(row, "bytes", json_integer((json_int_t)about->bytes));
        json_object_set_new(row, "age_s", json_integer(age < 0 ? 0 : age));
    }
    if (err) json_object_set_new(row, "state", json_string(lh_err_text(err)));
    json_array_append_new(l->rows, row);
    l->count++;
    l->bad += err != LH_OK;
}

// Fetches one checkpoint, proves it and removes it again: the disk holds one at a time.
static LH_MUST lh_err prove_stored(struct listing *l, struct lh_objects *o,
                                   const struct lk_stored *s, const struct lk_stored_about *about)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lk_checkpoint_path(l->dir, &s->name, path));
    lh_err err = lk_stored_get(o, l->job->env, s, path);
    if (err == LH_ERR_CORRUPT) {
        add_stored(l, s, about, err);
        return LH_OK;
    }
    if (err) return err;
    err = list_one(l, strrchr(path, '/') + 1);
    lh_err removed = l->job->env->ops->files->remove(l->job->env, path);
    return err ? err : removed;
}

static LH_MUST lh_err list_stored(struct listing *l, struct lh_objects *o)
{
    struct lk_stored_list list;
    lh_err err = lk_stored_list(o, LK_STORED_ALL, &list);
    for (size_t i = 0; !err && i < list.count; i++) {
        const struct lk_stored *s = &list.at[i];
        struct lk_stored_about about;
        lh_err bad = lk_stored_about(o, s, &about);
        if (bad == LH_ERR_NOT_FOUND) continue; // pruned since the store was listed
        if (bad && bad != LH_ERR_CORRUPT)
            err = bad;
        else if (bad || !l->verify)
            add_stored(l, s, &about, bad);
        else
            err = prove_stored(l, o, s, &about);
    }
    lk_stored_list_free(&list);
    return err;
}

static LH_MUST lh_err list_store(struct listing *l)
{
    char folder[DP_PATH_BYTES];
    const char *address = l->dir, *tmp = getenv("TMPDIR");
    struct lh_objects *o;
    LH_TRY(dp_path(folder, "%s/longhaul-verify-XXXXXX", tmp && tmp[0] ? tmp : "/tmp"));
    LH_TRY(dp_store_open(l->job, address, &o));
    lh_err err = LH_OK;
    if (l->verify && !mkdtemp(folder)) err = lh_fail_errno(errno, "%s", folder);
    l->dir = l->conf.dir = folder;
    if (!err) err = list_stored(l, o);
    if (l->verify) rmdir(folder);
    l->dir = l->conf.dir = address;
    lh_objects_close(o);
    return err;
}

static const struct dp_column columns[] = {{"NAME", "name", -30},      {"SHARD", "shard", 5},
                                           {"VERSION", "version", 10}, {"EPOCH", "epoch", 5},
                                           {"CHANNEL", "channel", -7}, {"BYTES", "bytes", 12},
                                           {"AGE_S", "age_s", 8},      {"SIGNER", "signer", -64},
                                           {"STATE", "state", -5},     {NULL, NULL, 0}};

static LH_MUST lh_err checkpoints(struct dp_job *job, const char *dir, const char *signers,
                                  bool verify, bool json)
{
    struct lh_trusted trusted;
    struct listing l = {.job = job, .dir = dir, .verify = verify, .rows = json_array()};
    l.conf = (struct lk_checkpoint_conf){.env = job->env, .dir = dir, .keys = job->keys};
    lh_err err = signers ? lh_trusted_load(signers, &trusted) : LH_OK;
    if (signers) l.conf.trusted = &trusted;
    if (!err) err = lh_objects_is(dir) ? list_store(&l) : list_dir(&l);
    if (!err) err = dp_table_show(columns, l.rows, json);
    if (!err && !verify && !l.count) fprintf(stderr, "no checkpoint in %s\n", dir); // not yet
    if (!err && verify && !l.count) err = lh_fail(LH_ERR_NOT_FOUND, "no checkpoint in %s", dir);
    if (!err && l.bad)
        err =
            lh_fail(LH_ERR_CORRUPT,
                    "%u of %u checkpoints in %s can't be used, STATE says why: restore the file "
                    "from a copy, or move it away (a server goes on from an older one and its log)",
                    l.bad, l.count, dir);
    json_decref(l.rows);
    return err;
}

static LH_MUST lh_err run_ls(int argc, char **argv)
{
    struct dp_job job = {0};
    struct dp_texts rest;
    char dir[DP_PATH_BYTES];
    bool help, json = false;
    const struct dp_flag flags[] = {
        {"--config", DP_TEXT, &job.config, "FILE", "the server's settings, instead of DIR"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul checkpoint ls DIR | --config FILE [-o table|json]",
        "Lists the checkpoints of a server or a worker. DIR is its directory (setting dir), the\n"
        "folder of the checkpoints itself, or a store (s3://BUCKET/PREFIX, file:///FOLDER). It\n"
        "reads only names and headers; `verify` checks the contents. A server starts from the\n"
        "channel `full`; `weights` is for readers.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    lh_err err = dp_job_open(&job, false);
    if (!err) err = one_dir(&usage, &rest, &job, dir);
    if (!err) err = checkpoints(&job, dir, NULL, false, json);
    dp_job_close(&job);
    return err;
}

static LH_MUST lh_err run_verify(int argc, char **argv)
{
    const char *signers = NULL;
    struct dp_job job = {0};
    struct dp_texts rest;
    char dir[DP_PATH_BYTES];
    bool help, json = false;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"--signers", DP_TEXT, &signers, "FILE", "public keys: one of them must have signed"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul checkpoint verify DIR | --config FILE [flags]",
        "Checks the hashes of every range and the signature, which needs no key. With manifest,\n"
        "run and keys it also unseals and loads each checkpoint, and compares its digest. From\n"
        "a store (s3://BUCKET/PREFIX) it fetches one after another into TMPDIR. Exit code 5:\n"
        "one is bad.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    lh_err err = dp_job_open(&job, job.config || job.keys_path || job.manifest_path || job.run);
    if (!err) err = one_dir(&usage, &rest, &job, dir);
    if (!err) err = checkpoints(&job, dir, signers, true, json);
    dp_job_close(&job);
    return err;
}

// ---------------------------------------------------------------- restore, prune

static LH_MUST lh_err run_restore(int argc, char **argv)
{
    struct dp_job job = {0};
    struct dp_restore q = {.job = &job};
    struct dp_texts rest;
    struct dp_fetched fetched = {.root = ""};
    bool help;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"--weights", DP_TEXT, &job.weights_path, "FILE",
         "the initial parameters, where no checkpoint is old enough"},
        {"--into", DP_TEXT, &q.into, "DIR", "the new server's directory; it must be empty"},
        {"--shards", DP_TEXT, &q.shards, "N,N,...", "only these shards (default: all in FROM)"},
        {"--to", DP_EACH, &q.to, "[SHARD:]VERSION",
         "version of all shards, or of one (default: the last)"},
        {"--export", DP_TEXT, &q.export, "FILE",
         "write the parameters instead: .safetensors, or else plain fp32"},
        {"--sign-key", DP_TEXT, &q.sign_key, "FILE", "sign the new checkpoints"},
        {"--epoch", DP_TEXT, &q.epoch, "N", "open at least this epoch"},
    };
    const struct dp_usage usage = {
        "longhaul checkpoint restore FROM... --into DIR | --export FILE [flags]",
        "FROM is a server's directory, whose log is folded onto its checkpoint, a folder of\n"
        "checkpoints alone, or a store (s3://BUCKET/PREFIX), whose newest ones are fetched\n"
        "first. Shards can be regrouped: those of one server into directories of several, or\n"
        "those of several into one. Each new server's setting `shards` must name the shards in\n"
        "its directory. If FROM is the whole directory of a stopped server, nothing is lost and\n"
        "the history goes on; otherwise the new server opens a new epoch, and pushes above the\n"
        "checkpoint are decided again. FROM is not changed: remove it, or make sure that no\n"
        "server starts on it again.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if ((!rest.count && !job.config) || !q.into == !q.export)
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    lh_err err = dp_job_open(&job, true);
    if (!err && !rest.count) rest = (struct dp_texts){.at = {job.dir}, .count = 1};
    q.from = &rest;
    const struct dp_fetch fetch = {
        .job = &job, .near = q.into ? q.into : q.export, .shards = q.shards, .all = q.to.count > 0};
    if (!err) err = dp_store_fetch(&fetch, &rest, &fetched);
    if (!err) err = dp_checkpoint_restore(&q);
    dp_store_drop(&fetched);
    dp_job_close(&job);
    return err;
}

static LH_MUST lh_err run_prune(int argc, char **argv)
{
    const char *keep_text = NULL;
    struct dp_job job = {0};
    struct dp_texts rest;
    uint64_t keep = 2;
    bool help;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"--keep", DP_TEXT, &keep_text, "N",
         "checkpoints to keep of each shard and channel, at least 2 (2)"},
    };
    const struct dp_usage usage = {
        "longhaul checkpoint prune DIR | --config FILE [flags]",
        "Removes all but the newest good checkpoints from a stopped server's directory. A\n"
        "checkpoint counts as good if it was read completely and the log continues from it.\n"
        "Damaged ones stay, for inspection. A running server prunes by itself\n"
        "(checkpoint.keep). In a store (s3://BUCKET/PREFIX) nothing is read: all but the newest\n"
        "are removed.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--keep", keep_text, 2, 1000, &keep));
    if (rest.count > 1 || (!rest.count && !job.config))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    bool store = rest.count && lh_objects_is(rest.at[0]);
    lh_err err = dp_job_open(&job, !store);
    if (!err && store) err = dp_store_prune(&job, rest.at[0], (unsigned)keep);
    if (!err && !store)
        err = dp_checkpoint_prune(&job, rest.count ? rest.at[0] : job.dir, (unsigned)keep);
    dp_job_close(&job);
    return err;
}

// ---------------------------------------------------------------- the command

lh_err dp_cmd_checkpoint(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {
        {"ls", run_ls}, {"verify", run_verify}, {"restore", run_restore}, {"prune", run_prune}};
    const struct dp_usage usage = {
        "longhaul checkpoint ls | verify | restore | prune [flags]",
        "ls       list the checkpoints of a server, a worker or a store\n"
        "verify   read each one and compare hashes, signature, digest\n"
        "restore  make a server's directory, or parameters, from checkpoints\n"
        "prune    remove the older ones of a stopped server\n\n"
        "`longhaul checkpoint VERB --help` lists the flags of each.",
        NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
