// longhaul store push, pull: a folder's files to an object store and back.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/app/units_file.h"
#include "common/base/check.h"
#include "deploy/stored/store.h"
#include "deploy/stored/upload.h"
#include "deploy/tool/commands.h"

static const char UNITS[] = "units.json";

// A private region's records, and texts that stay in their region, never go into a store.
static LH_MUST lh_err check_residency(const char *folder)
{
    char path[DP_PATH_BYTES];
    struct lh_units units;
    LH_TRY(dp_path(path, "%s/%s", folder, UNITS));
    if (!dp_file_exists(path)) return LH_OK;
    lh_err err = lh_units_open(path, &units);
    for (uint64_t i = 0; !err && i < units.count; i++)
        if (!units.unit[i].may_leave)
            err = lh_fail(LH_ERR_DENIED,
                          "%s: unit %" PRIu64 " of region %s stays in its region (may_leave), and "
                          "a store may be anywhere: nothing was stored",
                          path, i, units.unit[i].home);
    lh_units_close(&units);
    return err;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static int is_pushed(const struct dirent *d)
{
    return d->d_name[0] != '.' && !ends_with(d->d_name, ".index") && !ends_with(d->d_name, ".tmp");
}

static LH_MUST lh_err push_one(struct dp_upload *u, const char *folder, const char *name)
{
    char path[DP_PATH_BYTES];
    struct stat is;
    LH_TRY(dp_path(path, "%s/%s", folder, name));
    if (stat(path, &is)) return lh_fail_errno(errno, "%s", path);
    return S_ISREG(is.st_mode) ? dp_upload_file(u, path, name) : LH_OK;
}

static LH_MUST lh_err push(struct lh_env *env, struct lh_objects *o, const char *folder,
                           const char *address)
{
    struct dp_upload u;
    struct dirent **name;
    LH_TRY(check_residency(folder));
    int count = scandir(folder, &name, is_pushed, alphasort);
    if (count < 0) return lh_fail_errno(errno, "%s", folder);
    lh_err err = dp_upload_begin(&u, env, o, address);
    for (int i = 0; i < count; i++) {
        if (!err) err = push_one(&u, folder, name[i]->d_name);
        free(name[i]);
    }
    free(name);
    if (!err && !u.count) err = lh_fail(LH_ERR_NOT_FOUND, "%s has no files", folder);
    err = dp_upload_end(&u, err);
    if (!err) printf("%s: %u files, %" PRIu64 " bytes\n", address, u.count, u.bytes);
    return err;
}

static LH_MUST lh_err pull(struct lh_env *env, struct lh_objects *o, const char *folder,
                           const char *address)
{
    unsigned count;
    uint64_t bytes;
    LH_TRY(dp_download(env, o, address, folder, NULL, NULL, &count, &bytes));
    printf("%s: %u files, %" PRIu64 " bytes\n", folder, count, bytes);
    return LH_OK;
}

static LH_MUST lh_err run(const struct dp_usage *usage, bool up, int argc, char **argv)
{
    struct dp_job job = {0};
    struct dp_texts rest;
    struct lh_objects *o = NULL;
    bool help;
    LH_TRY(dp_flags(usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 2) return lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
    const char *address = rest.at[up], *folder = rest.at[!up];
    LH_TRY(lh_env_real_create(&job.env));
    lh_err err = dp_store_open(&job, address, &o);
    if (!err) err = up ? push(job.env, o, folder, address) : pull(job.env, o, folder, address);
    lh_objects_close(o);
    lh_env_real_destroy(job.env);
    return err;
}

static lh_err run_push(int argc, char **argv)
{
    const struct dp_usage usage = {
        "longhaul store push FOLDER s3://BUCKET/PREFIX",
        "Stores the files of a folder, such as that of `longhaul data prepare`, under their\n"
        "names, and last stored.json, which lists them with their SHA-256. The prefix must hold\n"
        "no other files. Hidden files, folders, *.index and *.tmp are left out. Units that may\n"
        "not leave their region are refused. Access key and endpoint come from the AWS_\n"
        "variables.",
        NULL, 0};
    return run(&usage, true, argc, argv);
}

static lh_err run_pull(int argc, char **argv)
{
    const struct dp_usage usage = {
        "longhaul store pull s3://BUCKET/PREFIX FOLDER",
        "Gets the files that `longhaul store push` or `longhaul export` stored, and checks each\n"
        "against its SHA-256. Files that are in the folder already and right are not fetched\n"
        "again. Access key and endpoint come from the AWS_ variables.",
        NULL, 0};
    return run(&usage, false, argc, argv);
}

lh_err dp_cmd_store(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {{"push", run_push}, {"pull", run_pull}};
    const struct dp_usage usage = {"longhaul store push|pull FROM TO",
                                   "push  store a folder's files\n"
                                   "pull  get them back, checked\n\n"
                                   "`longhaul store VERB --help` says more.",
                                   NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
