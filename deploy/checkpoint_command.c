// longhaul checkpoint ls|verify: the checkpoints in a folder, by name or read whole.
//
// ls believes the names; verify opens every file under the job key, loads it into a replica of its
// own and compares the digest, as a node that starts from it would.
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/check.h"
#include "common/env.h"
#include "common/node.h"
#include "deploy/commands.h"
#include "deploy/eval.h"
#include "deploy/files.h"
#include "kernels/checkpoint.h"

struct request {
    const char *verb, *dir, *manifest, *run, *domain, *keys, *format;
};

struct listing {
    const struct request *q;
    bool verify;
    struct lh_manifest manifest; // verify only, with job and conf
    uint8_t job[LH_JOB];
    struct lk_checkpoint_conf conf;
    json_t *rows; // NULL: a table
    unsigned count, bad;
};

// "<shard, 4 hex>-<version, 16 hex>.ckpt"
static bool parse_name(const char *name, struct lk_checkpoint_name *out)
{
    unsigned shard;
    unsigned long long version;
    char tail[8], again[40];
    if (sscanf(name, "%4x-%16llx.%7s", &shard, &version, tail) != 3) return false;
    *out = (struct lk_checkpoint_name){shard, version};
    snprintf(again, sizeof again, "%04x-%016llx.ckpt", shard, version);
    return !strcmp(name, again);
}

static int is_checkpoint(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 5 && !strcmp(entry->d_name + n - 5, ".ckpt");
}

static LH_MUST lh_err read_whole(const struct listing *l, const char *path,
                                 const struct lk_checkpoint_name *name)
{
    struct lk_replica r;
    if (name->shard >= l->manifest.shards)
        return lh_fail(LH_ERR_MANIFEST, "%s: the model has %u shards", path, l->manifest.shards);
    lh_err err = lk_replica_create(&r, l->job, &l->manifest, name->shard, l->conf.keys);
    if (!err) err = lk_checkpoint_read(&l->conf, path, &r);
    if (!err && r.ledger.version != name->version)
        err = lh_fail(LH_ERR_CORRUPT, "%s: holds version %llu", path,
                      (unsigned long long)r.ledger.version);
    lk_replica_free(&r);
    return err;
}

static void show(struct listing *l, const char *file, const struct lk_checkpoint_name *name,
                 long long bytes, const char *state)
{
    l->count++;
    if (!l->rows) {
        printf("%-28s %5u %12llu %12lld%s%s\n", file, name->shard,
               (unsigned long long)name->version, bytes, state ? "  " : "", state ? state : "");
        return;
    }
    json_t *row = json_pack("{s:s, s:I, s:I, s:I}", "name", file, "shard", (json_int_t)name->shard,
                            "version", (json_int_t)name->version, "bytes", (json_int_t)bytes);
    if (state) json_object_set_new(row, "state", json_string(state));
    json_array_append_new(l->rows, row);
}

static LH_MUST lh_err list_one(struct listing *l, const char *file)
{
    struct lk_checkpoint_name name = {0};
    char path[DP_PATH_SIZE];
    struct stat is;
    lh_err err = LH_OK;
    LH_TRY(dp_path(path, "%s/%s", l->q->dir, file));
    if (stat(path, &is)) // pruned since the folder was read
        return errno == ENOENT ? LH_OK : lh_fail_errno(errno, "%s", path);
    if (!parse_name(file, &name))
        err = lh_fail(LH_ERR_MALFORMED, "no checkpoint has such a name");
    else if (l->verify)
        err = read_whole(l, path, &name);
    if (err == LH_ERR_KEY_MISSING || err == LH_ERR_NO_MEMORY) return err; // not the file's fault
    l->bad += err != LH_OK;
    show(l, file, &name, (long long)is.st_size, err ? lh_err_text(err) : l->verify ? "ok" : NULL);
    return LH_OK;
}

static LH_MUST lh_err list_dir(struct listing *l)
{
    struct dirent **entry = NULL;
    int count = scandir(l->q->dir, &entry, is_checkpoint, alphasort);
    if (count < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", l->q->dir);
    if (count < 0) return lh_fail_errno(errno, "%s", l->q->dir);
    if (!l->rows)
        printf("%-28s %5s %12s %12s%s\n", "NAME", "SHARD", "VERSION", "BYTES",
               l->verify ? "  STATE" : "");
    lh_err err = LH_OK;
    for (int i = 0; i < count; i++) {
        if (!err) err = list_one(l, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return err;
}

static LH_MUST lh_err open_job(struct listing *l)
{
    const struct request *q = l->q;
    lh_job_id(q->domain, q->run, l->job);
    l->conf.dir = q->dir;
    LH_TRY(dp_manifest_load(q->manifest, &l->manifest));
    LH_TRY(lh_keyring_create(&l->conf.keys));
    LH_TRY(lh_keyring_load(l->conf.keys, q->keys));
    return lh_env_real_create(&l->conf.env);
}

static LH_MUST lh_err checkpoints(const struct request *q)
{
    struct listing l = {.q = q, .verify = !strcmp(q->verb, "verify")};
    l.rows = !strcmp(q->format, "json") ? json_array() : NULL;
    lh_err err = l.verify ? open_job(&l) : LH_OK;
    if (!err) err = list_dir(&l);
    if (!err && l.rows) {
        json_dumpf(l.rows, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    if (!err && l.verify && !l.count)
        err = lh_fail(LH_ERR_NOT_FOUND, "no checkpoint in %s", q->dir);
    if (!err && l.bad)
        err = lh_fail(LH_ERR_CORRUPT, "%u of %u checkpoints in %s are no good", l.bad, l.count,
                      q->dir);
    json_decref(l.rows);
    lh_keyring_destroy(l.conf.keys);
    if (l.conf.env) lh_env_real_destroy(l.conf.env);
    lh_manifest_free(&l.manifest);
    return err;
}

static LH_MUST lh_err run(int argc, char **argv)
{
    struct request q = {.format = "table", .domain = "longhaul.local"};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--manifest", DP_TEXT, &q.manifest, "FILE", "the model's manifest"},
        {"--run", DP_TEXT, &q.run, "NAME", "the run they are of"},
        {"--domain", DP_TEXT, &q.domain, "DOMAIN", "its trust domain (longhaul.local)"},
        {"--keys", DP_TEXT, &q.keys, "FILE", "the run's job keys"},
        {"-o", DP_TEXT, &q.format, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul checkpoint ls DIR | verify DIR --manifest FILE --run NAME --keys FILE [flags]",
        "ls      list the checkpoints of a server or a worker\n"
        "verify  read each whole and compare its digest; exit code 5 when one is no good",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    bool form = !strcmp(q.format, "table") || !strcmp(q.format, "json");
    if (rest.count == 2 && form) {
        q.verb = rest.at[0];
        q.dir = rest.at[1];
        if (!strcmp(q.verb, "ls")) return checkpoints(&q);
        if (!strcmp(q.verb, "verify") && q.manifest && q.run && q.keys) return checkpoints(&q);
    }
    return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
}

int dp_cmd_checkpoint(int argc, char **argv)
{
    lh_err err = run(argc, argv);
    return err ? (int)dp_complain("checkpoint", err) : DP_OK;
}
