// longhaul export: any state of a run as a Hugging Face folder.
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/regular.h"
#include "common/objects/address.h"
#include "deploy/ask/up_status.h"
#include "deploy/models/export.h"
#include "deploy/stored/replay.h"
#include "deploy/stored/store.h"
#include "deploy/stored/upload.h"
#include "deploy/text/eval.h"
#include "deploy/tool/commands.h"

struct request {
    struct dp_job job;
    const char *format, *run_dir, *parameters, *out, *like, *dtype, *most;
    struct dp_texts dirs, at;
    bool weights_only;
    const char *buffers;
    char path[3][DP_PATH_BYTES];
    struct dp_fetched fetched;
    char scratch[DP_PATH_BYTES]; // the folder of a file on its way to a store; "": none
    struct dp_upload upload;
};

// ---------------------------------------------------------------- flags

static LH_MUST lh_err read_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {{"", 1},          {"B", 1},           {"KB", 1000},
                 {"MB", 1000000},  {"GB", 1000000000}, {"KiB", 1 << 10},
                 {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    for (size_t i = 0; i < LH_COUNT(units); i++) {
        if (strcmp(end, units[i].unit) != 0 || end == text || text[0] == '-' || errno) continue;
        if (!n || n > (UINT64_C(1) << 60) / units[i].bytes) break;
        *out = n * units[i].bytes;
        return LH_OK;
    }
    return lh_fail(LH_ERR_INVALID, "--max-shard-size %.40s: want a size such as 5GB or 500MB",
                   text);
}

static LH_MUST lh_err read_dtype(const char *text, enum dp_dtype *out)
{
    char upper[8] = "";
    size_t n = strlen(text);
    for (size_t i = 0; i < n && n < sizeof upper; i++)
        upper[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
    if (dp_dtype_parse(upper, out) && dp_dtype_trained(*out)) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "--dtype %.40s: want BF16, F16, F32 or F64", text);
}

static LH_MUST lh_err check(struct request *q, const char *usage)
{
    int sources = (q->dirs.count || q->job.config) + (q->run_dir != NULL) + (q->parameters != NULL);
    if (!q->out || sources != 1) return lh_fail(LH_ERR_INVALID, "usage: %s", usage);
    if (strcmp(q->format, "safetensors") != 0)
        return lh_fail(LH_ERR_INVALID, "--to %.40s: want safetensors", q->format);
    if (q->run_dir) {
        LH_TRY(dp_path(q->path[0], "%s/model.json", q->run_dir));
        LH_TRY(dp_path(q->path[1], "%s/final.bin", q->run_dir));
        if (!q->job.manifest_path) q->job.manifest_path = q->path[0];
        q->parameters = q->path[1];
        if (!dp_file_exists(q->parameters))
            return lh_fail(LH_ERR_NOT_FOUND,
                           "no %s: `longhaul up` writes it at the end of a run; of one that goes "
                           "on, give its servers' directories",
                           q->parameters);
    }
    if (q->run_dir) dp_note_gone_on("export", q->run_dir, q->parameters);
    if (q->parameters && (q->at.count || q->weights_only))
        return lh_fail(LH_ERR_INVALID, "--at and --weights-only are for servers' directories; a "
                                       "file has one state");
    if (q->parameters && !q->job.manifest_path)
        return lh_fail(LH_ERR_INVALID, "--manifest is missing: model.json says what the file is");
    return LH_OK;
}

// ---------------------------------------------------------------- where the values come from

struct file {
    int fd;
    const char *path;
};

static lh_err from_file(void *arg, uint64_t first, size_t n, float *out)
{
    const struct file *f = arg;
    uint8_t *to = (uint8_t *)out;
    size_t bytes = n * sizeof *out;
    for (size_t done = 0; done < bytes;) { // little endian, as the machine is
        ssize_t got = pread(f->fd, to + done, bytes - done, (off_t)(first * sizeof *out + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return lh_fail_errno(errno, "%s", f->path);
        if (!got) return lh_fail(LH_ERR_MALFORMED, "%s ends early", f->path);
        done += (size_t)got;
    }
    return LH_OK;
}

static lh_err from_shards(void *arg, uint64_t first, size_t n, float *out)
{
    const struct dp_replay *r = arg;
    const struct lh_manifest *m = &r->job->manifest;
    for (uint32_t s = 0; s < m->shards && n; s++) {
        const struct lh_shard_layout *at = &m->shard[s];
        if (first >= at->first + at->values) continue;
        uint64_t skip = first - at->first, left = at->values - skip;
        size_t take = left < n ? (size_t)left : n;
        memcpy(out, r->fold.shard[s].replica.theta + skip, take * sizeof *out);
        out += take;
        first += take;
        n -= take;
    }
    LH_ASSERT(!n);
    return LH_OK;
}

static LH_MUST lh_err about(const struct lh_manifest *m, const char *run, json_t *shards,
                            json_t **out)
{
    char hash[2 * LH_HASH_BYTES + 1];
    lh_hash_hex(&m->hash, hash);
    *out = json_pack("{s:s, s:s*, s:s, s:o*}", "schema", "longhaul.export/1", "run", run,
                     "manifest", hash, "shards", shards);
    return *out ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for longhaul.json");
}

// Stores a file that was written, so that the disk holds one file at a time.
static lh_err store_file(void *arg, const char *path, const char *name)
{
    LH_TRY(dp_upload_file(arg, path, name));
    return unlink(path) ? lh_fail_errno(errno, "%s", path) : LH_OK;
}

static LH_MUST lh_err export_to_store(struct request *q, struct dp_export *e)
{
    struct lh_objects *o;
    struct lh_env *own = NULL;
    struct dp_upload *u = &q->upload;
    if (!q->job.env) LH_TRY(lh_env_real_create(&own));
    if (own) q->job.env = own;
    lh_err err = dp_store_open(&q->job, q->out, &o);
    if (!err) {
        err = dp_upload_begin(u, q->job.env, o, q->out);
        e->written = store_file;
        e->written_arg = u;
        if (!err) err = dp_export(e);
        err = dp_upload_end(u, err);
        lh_objects_close(o);
    }
    if (own) q->job.env = NULL;
    if (own) lh_env_real_destroy(own);
    return err;
}

static LH_MUST lh_err write_out(struct request *q, struct dp_export *e)
{
    lh_err err = q->scratch[0] ? export_to_store(q, e) : dp_export(e);
    if (e->notes.len) fwrite(e->notes.data, 1, e->notes.len, stderr);
    if (!err)
        printf("%s: %" PRIu64 " parameters, %" PRIu64 " bytes in %u file%s\n", q->out,
               e->manifest->values, e->bytes, e->files, e->files == 1 ? "" : "s");
    lh_buf_free(&e->notes);
    return err;
}

static LH_MUST lh_err export_file(struct request *q, struct dp_export *e)
{
    struct lh_manifest m = {0};
    struct file file = {.fd = -1, .path = q->parameters};
    struct stat is;
    LH_TRY(dp_manifest_load(q->job.manifest_path, &m));
    lh_err err = lh_regular_open(file.path, O_RDONLY, 0, &file.fd);
    if (err && err != LH_ERR_IO) return err;
    err = LH_OK;
    if (file.fd < 0 && errno == ENOENT)
        err = lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", file.path);
    else if (file.fd < 0 || fstat(file.fd, &is))
        err = lh_fail_errno(errno, "%s", file.path);
    else if ((uint64_t)is.st_size != m.values * sizeof(float))
        err =
            lh_fail(LH_ERR_MALFORMED,
                    "%s: %lld bytes where the model's %" PRIu64 " parameters are %" PRIu64
                    ": is it another model's?",
                    file.path, (long long)is.st_size, m.values, m.values * (uint64_t)sizeof(float));
    e->manifest = &m;
    e->values = from_file;
    e->arg = &file;
    if (!err) err = about(&m, q->job.run, NULL, &e->about);
    if (!err) err = write_out(q, e);
    json_decref(e->about);
    if (file.fd >= 0) close(file.fd);
    lh_manifest_free(&m);
    return err;
}

static LH_MUST lh_err export_shards(struct dp_replay *r, struct request *q, struct dp_export *e)
{
    json_t *rows = NULL;
    r->weights_only = q->weights_only;
    for (unsigned i = 0; i < q->at.count; i++) LH_TRY(dp_replay_want(r, q->at.at[i]));
    if (!q->dirs.count) LH_TRY(dp_replay_dir(r, q->job.dir));
    for (unsigned i = 0; i < q->dirs.count; i++) LH_TRY(dp_replay_dir(r, q->dirs.at[i]));
    LH_TRY(dp_replay_complete(r));
    LH_TRY(dp_replay_rows(r, &rows));
    LH_TRY(about(&q->job.manifest, q->job.run, rows, &e->about));
    e->manifest = &q->job.manifest;
    e->values = from_shards;
    e->arg = r;
    return write_out(q, e);
}

static LH_MUST lh_err export_state(struct request *q, struct dp_export *e)
{
    struct dp_replay r = {.job = &q->job};
    lh_err err = dp_job_open(&q->job, true);
    e->manifest_path = q->job.manifest_path; // the settings file's, where no flag named one
    const struct dp_fetch fetch = {
        .job = &q->job, .near = e->out, .weights = q->weights_only, .all = q->at.count > 0};
    if (!err) err = dp_store_fetch(&fetch, &q->dirs, &q->fetched);
    if (!err) err = dp_replay_create(&r, &q->job);
    if (!err) err = export_shards(&r, q, e);
    json_decref(e->about);
    dp_store_drop(&q->fetched);
    dp_replay_free(&r);
    dp_job_close(&q->job);
    return err;
}

// Takes the buffers that a loop left in its worker's directory at the end of the run: the newest
// ones, since those of a worker that the run ended without may be from an earlier end.
static LH_MUST lh_err find_buffers(struct request *q)
{
    char pattern[DP_PATH_BYTES];
    const char *newest = NULL;
    struct timespec at = {0};
    glob_t found;
    struct stat is;
    LH_TRY(dp_path(pattern, "%s/*/buffers.safetensors", q->run_dir));
    if (glob(pattern, 0, NULL, &found)) return LH_OK;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (stat(found.gl_pathv[i], &is)) continue;
        const struct timespec *t = &is.st_mtim;
        if (newest &&
            (t->tv_sec < at.tv_sec || (t->tv_sec == at.tv_sec && t->tv_nsec <= at.tv_nsec)))
            continue;
        newest = found.gl_pathv[i];
        at = *t;
    }
    lh_err err = newest ? dp_path(q->path[2], "%s", newest) : LH_OK;
    if (newest) q->buffers = q->path[2];
    globfree(&found);
    return err;
}

// ---------------------------------------------------------------- the command

static LH_MUST lh_err make_scratch(struct request *q)
{
    const char *folder = getenv("TMPDIR");
    LH_TRY(lh_objects_check(q->out));
    LH_TRY(dp_path(q->scratch, "%s/longhaul-export-XXXXXX", folder && folder[0] ? folder : "/tmp"));
    if (mkdtemp(q->scratch)) return LH_OK;
    lh_err err = lh_fail_errno(errno, "%s", q->scratch);
    q->scratch[0] = 0;
    return err;
}

static LH_MUST lh_err export(struct request *q, struct dp_export *e)
{
    e->out = q->out;
    if (lh_objects_is(q->out)) {
        LH_TRY(make_scratch(q));
        e->out = q->scratch;
    }
    lh_err err = q->parameters ? export_file(q, e) : export_state(q, e);
    if (q->scratch[0]) dp_store_remove_folder(q->scratch);
    return err;
}

lh_err dp_cmd_export(int argc, char **argv)
{
    struct request q = {.format = "safetensors"};
    struct dp_export e = {.shard_bytes_max = 5000000000};
    enum dp_dtype dtype;
    bool help;
    const struct dp_flag flags[] = {
        {"--to", DP_TEXT, &q.format, "safetensors", "output format (safetensors)"},
        {"--out", DP_TEXT, &q.out, "FOLDER|s3://BUCKET/PREFIX",
         "output folder; it must have no model yet"},
        {"--at", DP_EACH, &q.at, "[SHARD:]VERSION",
         "version of all shards, or of one; may repeat (default: the last)"},
        {"--weights-only", DP_SWITCH, &q.weights_only, NULL,
         "use checkpoints of weights only, without the log"},
        {"--dir", DP_TEXT, &q.run_dir, "RUNDIR", "a run's folder: model.json and final.bin"},
        {"--parameters", DP_TEXT, &q.parameters, "FILE",
         "a file of plain fp32, such as a worker's final.weights, instead of DIR"},
        {"--like", DP_TEXT, &q.like, "FOLDER",
         "the folder that was imported: its types, config.json and tokenizer are used"},
        {"--buffers", DP_TEXT, &q.buffers, "FOLDER|FILE",
         "a region's buffers, such as BatchNorm's statistics (with --dir: the newest of its "
         "loops)"},
        {"--dtype", DP_TEXT, &q.dtype, "BF16|F16|F32|F64", "type of all tensors (as imported)"},
        {"--max-shard-size", DP_TEXT, &q.most, "SIZE", "maximum size of a file (5GB)"},
        DP_JOB_FLAGS(q.job),
        {"--weights", DP_TEXT, &q.job.weights_path, "FILE",
         "the initial parameters, if no checkpoint is old enough"},
    };
    const struct dp_usage usage = {
        "longhaul export --to safetensors --out FOLDER DIR... | --config FILE [flags]",
        "Writes a run's parameters as a folder that transformers loads: from servers'\n"
        "directories (checkpoints and log, at any version that both still cover), from a store\n"
        "of checkpoints (s3://BUCKET/PREFIX), from a run's folder (--dir) or from a parameter\n"
        "file (--parameters). Values are rounded to the nearest, ties to even. longhaul.json in\n"
        "the folder has the versions and digests. In a store, stored.json is written last and\n"
        "lists all files with their SHA-256; each file is in TMPDIR until it is stored.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &q.dirs, &help));
    if (help) return LH_OK;
    LH_TRY(check(&q, usage.line));
    if (q.most) LH_TRY(read_bytes(q.most, &e.shard_bytes_max));
    if (q.dtype) LH_TRY(read_dtype(q.dtype, &dtype));
    e.dtype = q.dtype ? &dtype : NULL;
    e.like = q.like;
    if (q.run_dir && !q.buffers) LH_TRY(find_buffers(&q));
    e.buffers = q.buffers;
    e.manifest_path = q.job.manifest_path;
    return export(&q, &e);
}
