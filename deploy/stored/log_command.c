// longhaul log dump|verify|replay: what a server's log says, whether it is whole, and the
// parameters of any past moment.
//
// All of it only reads, and may run beside the server: records now being written are not there yet,
// and if the server trims its log meanwhile, the command says so and must run again.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/stored/log_verify.h"
#include "deploy/stored/replay.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "server/wal/wal.h"

// The directory: an argument, or that of the settings file.
static LH_MUST lh_err one_dir(const struct dp_usage *usage, const struct dp_texts *rest,
                              const struct dp_job *job, const char **dir)
{
    *dir = rest->count ? rest->at[0] : job->dir;
    if (rest->count > 1 || !*dir) return lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
    return LH_OK;
}

// ---------------------------------------------------------------- dump

struct dump {
    bool json, one_shard, shard_seen;
    uint64_t shard, from, to, lines;
};

static const char *const kinds[] = {"?",    "admit",  "refuse", "fence",
                                    "plan", "digest", "epoch",  "move"};

// A record's subject: the author of a push or fence, 0 if there is none.
struct about {
    struct lh_frame frame;
    bool push, fence;
};

static LH_MUST lh_err look_at(const struct lh_record *r, struct about *a)
{
    struct lh_frame_parts parts;
    memset(a, 0, sizeof *a);
    a->push = r->kind == LH_ADMIT || r->kind == LH_REFUSE;
    a->fence = r->kind == LH_FENCE;
    if (r->kind == LH_ADMIT) return lh_frame_parse(r->body, &a->frame, &parts);
    if (r->kind == LH_REFUSE) return lh_frame_parse_stub(r->body, &a->frame);
    if (r->kind == LH_FENCE)
        return lh_fence_parse(r->body, &a->frame.worker, &a->frame.incarnation);
    return LH_OK;
}

static void incarnation_text(struct lh_incarnation i, char out[24])
{
    snprintf(out, 24, "%" PRIu64 ".%" PRIu64, i.number >> 32, i.number & UINT32_MAX);
}

static void dump_json(const struct ps_wal_entry *e, const struct about *a)
{
    const struct lh_record *r = e->record;
    char chain[2 * LH_HASH_BYTES + 1], segment[24], worker[24], incarnation[24];
    lh_hash_hex(&r->chain, chain);
    snprintf(segment, sizeof segment, "%016" PRIx64, e->segment);
    json_t *o = json_pack("{s:s s:I s:I s:I s:I s:I s:I s:s s:f s:I s:s}", "segment", segment,
                          "offset", (json_int_t)e->at, "generation", (json_int_t)e->generation,
                          "entry", (json_int_t)e->sequence, "shard", (json_int_t)e->shard,
                          "version", (json_int_t)r->version, "epoch", (json_int_t)r->epoch, "kind",
                          kinds[r->kind], "scale", (double)r->scale, "bytes",
                          (json_int_t)(LH_RECORD_HEADER_BYTES + r->body.len), "chain", chain);
    if (a->push || a->fence) {
        snprintf(worker, sizeof worker, "%016" PRIx64, a->frame.worker);
        incarnation_text(a->frame.incarnation, incarnation);
        json_object_set_new(o, "worker", json_string(worker));
        json_object_set_new(o, "incarnation", json_string(incarnation));
    }
    if (a->push) {
        json_object_set_new(o, "step", json_integer((json_int_t)a->frame.step));
        json_object_set_new(o, "tokens", json_integer((json_int_t)a->frame.tokens));
        json_object_set_new(o, "density", json_real((double)a->frame.density));
    }
    struct lh_norm norm = lh_record_norm(r);
    if (r->kind == LH_ADMIT) {
        json_object_set_new(o, "norm", json_real((double)norm.at_equal_h));
        json_object_set_new(o, "clipped", json_boolean(norm.clipped));
        json_object_set_new(o, "outlier", json_boolean(norm.outlier));
    }
    if (r->kind == LH_REFUSE)
        json_object_set_new(o, "reason", json_string(lh_err_name((lh_err)r->reason)));
    json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(o);
}

static void dump_header(void)
{
    printf("%16s %10s %19s %5s %8s %5s %-6s %16s %11s %6s %-8s %8s %9s %s\n", "SEGMENT", "OFFSET",
           "GENERATION", "SHARD", "VERSION", "EPOCH", "KIND", "WORKER", "INCARNATION", "STEP",
           "SCALE", "TOKENS", "BYTES", "CHAIN");
}

static void dump_line(const struct ps_wal_entry *e, const struct about *a)
{
    const struct lh_record *r = e->record;
    char chain[2 * LH_HASH_BYTES + 1], worker[24] = "-", incarnation[24] = "-", step[24] = "-",
                                       tokens[24] = "-";
    lh_hash_hex(&r->chain, chain);
    if (a->push || a->fence) {
        snprintf(worker, sizeof worker, "%016" PRIx64, a->frame.worker);
        incarnation_text(a->frame.incarnation, incarnation);
    }
    if (a->push) {
        snprintf(step, sizeof step, "%" PRIu64, a->frame.step);
        snprintf(tokens, sizeof tokens, "%" PRIu64, a->frame.tokens);
    }
    printf("%016" PRIx64 " %10" PRIu64 " %19" PRIu64 " %5" PRIu32 " %8" PRIu64 " %5" PRIu64
           " %-6s %16s %11s %6s %-8.6g %8s %9zu %.12s\n",
           e->segment, e->at, e->generation, e->shard, r->version, r->epoch, kinds[r->kind], worker,
           incarnation, step, (double)r->scale, tokens, LH_RECORD_HEADER_BYTES + r->body.len,
           chain);
}

static lh_err dump_entry(void *arg, const struct ps_wal_entry *e)
{
    struct dump *d = arg;
    const struct lh_record *r = e->record;
    struct about a;
    if (!r || (d->one_shard && e->shard != d->shard)) return LH_OK;
    d->shard_seen = true;
    if (r->version < d->from || r->version > d->to) return LH_OK;
    lh_err err = look_at(r, &a);
    if (err) // its checksum holds, so it was written like this
        return lh_fail(LH_ERR_CORRUPT, "segment %016" PRIx64 " byte %" PRIu64 ": %s", e->segment,
                       e->at, lh_err_text(err));
    if (!d->json && !d->lines++) dump_header();
    if (d->json)
        dump_json(e, &a);
    else
        dump_line(e, &a);
    return LH_OK;
}

static LH_MUST lh_err dump_dir(struct dump *d, struct lh_env *env, const char *dir)
{
    char path[DP_PATH_BYTES];
    struct ps_wal_found found;
    LH_TRY(dp_job_log_dir(dir, path));
    LH_TRY(ps_wal_look(env, path, NULL, dump_entry, d, &found));
    if (!found.segments) return dp_job_no_log(path);
    if (d->one_shard && !d->shard_seen)
        return lh_fail(LH_ERR_NOT_FOUND, "no record of shard %" PRIu64 " in %s", d->shard, path);
    if (!d->json && !d->lines) dump_header();
    if (found.torn)
        fprintf(stderr, "segment %016" PRIx64 " byte %" PRIu64 ": bytes of no whole entry\n",
                found.torn_segment, found.torn_at);
    return LH_OK;
}

static LH_MUST lh_err run_dump(int argc, char **argv)
{
    const char *shard = NULL, *from = NULL, *to = NULL, *dir;
    struct dump d = {.to = UINT64_MAX};
    struct dp_job job = {0};
    struct dp_texts rest;
    bool help;
    const struct dp_flag flags[] = {
        {"--config", DP_TEXT, &job.config, "FILE", "the server's settings, instead of DIR"},
        {"--shard", DP_TEXT, &shard, "N", "only records of this shard"},
        {"--from", DP_TEXT, &from, "VERSION", "only from this version on"},
        {"--to", DP_TEXT, &to, "VERSION", "only up to this version"},
        {"-o", DP_FORM, &d.json, "table|json", "form of the output; json: one object per line"},
    };
    const struct dp_usage usage = {
        "longhaul log dump DIR | --config FILE [flags]",
        "Prints one line for each record of a server's log: its position and kind, the push's\n"
        "worker and scale, and the first digits of the chain. No key is needed: only payloads\n"
        "are sealed. DIR is the server's directory (setting dir).",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--shard", shard, 0, UINT32_MAX - 1, &d.shard));
    d.one_shard = shard != NULL;
    LH_TRY(dp_number("--from", from, 0, UINT64_MAX, &d.from));
    LH_TRY(dp_number("--to", to, 0, UINT64_MAX, &d.to));
    if (d.from > d.to)
        return lh_fail(LH_ERR_INVALID, "--from %" PRIu64 " is above --to %" PRIu64, d.from, d.to);
    lh_err err = dp_job_open(&job, false);
    if (!err) err = one_dir(&usage, &rest, &job, &dir);
    if (!err) err = dump_dir(&d, job.env, dir);
    dp_job_close(&job);
    return err;
}

// ---------------------------------------------------------------- verify

static LH_MUST lh_err run_verify(int argc, char **argv)
{
    const char *dir;
    struct dp_job job = {0};
    struct dp_texts rest;
    bool help, json = false;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"--weights", DP_TEXT, &job.weights_path, "FILE", "the initial parameters"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul log verify DIR | --config FILE [flags]",
        "Checks every entry of a server's log: checksums, the sequence of entries, durable\n"
        "positions, each shard's versions, epochs and chain, and whether log and checkpoints\n"
        "fit together. With manifest, run and keys it also unseals every push, folds all\n"
        "records, and compares every DIGEST record.\n"
        "Exit codes: 0 intact; 1 an incomplete entry at the end, which a start drops, opening a\n"
        "new epoch (of a running server it is a write in progress: 0); 5 damage, which a start\n"
        "refuses.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    bool deep = job.config || job.keys_path;
    lh_err err = dp_job_open(&job, deep);
    if (!err) err = one_dir(&usage, &rest, &job, &dir);
    if (!err) err = dp_log_verify(&job, dir, deep, json);
    dp_job_close(&job);
    return err;
}

// ---------------------------------------------------------------- replay

static const struct dp_column columns[] = {
    {"SHARD", "shard", 5}, {"VERSION", "version", 10}, {"EPOCH", "epoch", 5},
    {"FROM", "from", 10},  {"RECORDS", "records", 10}, {"DIGEST", "digest", -64},
    {NULL, NULL, 0}};

static LH_MUST lh_err show_rows(const struct dp_replay *r, bool json)
{
    json_t *rows;
    LH_TRY(dp_replay_rows(r, &rows));
    lh_err err = dp_table_show(columns, rows, json);
    json_decref(rows);
    return err;
}

struct replay_flags {
    const char *export, *without, *from;
    struct dp_texts to;
    bool json;
};

static LH_MUST lh_err replay(struct dp_job *job, const struct dp_texts *dirs,
                             const struct replay_flags *q)
{
    struct dp_replay r;
    const struct dp_texts *to = &q->to;
    lh_err err = dp_replay_create(&r, job);
    if (!err && q->without) err = dp_replay_without(&r, q->without, q->from);
    for (unsigned i = 0; !err && i < to->count; i++) err = dp_replay_want(&r, to->at[i]);
    if (!err && !dirs->count) err = dp_replay_dir(&r, job->dir);
    for (unsigned i = 0; !err && i < dirs->count; i++) err = dp_replay_dir(&r, dirs->at[i]);
    if (!err && q->export) err = dp_replay_export(&r, q->export);
    if (!err) err = show_rows(&r, q->json);
    dp_replay_free(&r);
    return err;
}

static LH_MUST lh_err run_replay(int argc, char **argv)
{
    struct dp_job job = {0};
    struct replay_flags q = {0};
    struct dp_texts rest;
    bool help;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"--weights", DP_TEXT, &job.weights_path, "FILE",
         "the initial parameters, where no checkpoint is old enough"},
        {"--to", DP_EACH, &q.to, "[SHARD:]VERSION",
         "version of all shards, or of one; may repeat (default: the last)"},
        {"--without", DP_TEXT, &q.without, "REGION/NAME",
         "leave out this worker's pushes (name, or its 16 digits)"},
        {"--from", DP_TEXT, &q.from, "VERSION", "with --without: only pushes from this version on"},
        {"--export", DP_TEXT, &q.export, "FILE",
         "write the parameters: .safetensors, or else plain fp32 as `eval` reads it"},
        {"-o", DP_FORM, &q.json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul log replay DIR... | --config FILE [flags]",
        "Folds checkpoint and log of servers' directories to any version that both still cover,\n"
        "and prints the digest of each shard's state, which every replica had at that version.\n"
        "The log is trimmed below the oldest checkpoint that is kept (setting checkpoint.keep):\n"
        "to replay further back later, keep more. --export needs the directories of all shards.\n\n"
        "--without folds the log without one worker's pushes; every other push keeps its\n"
        "weight. A new run can start from the file of --export (model.weights); the run that\n"
        "wrote the log can't continue from it.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (q.from && !q.without) return lh_fail(LH_ERR_INVALID, "--from goes with --without");
    lh_err err = rest.count || job.config ? dp_job_open(&job, true)
                                          : lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    if (!err) err = replay(&job, &rest, &q);
    dp_job_close(&job);
    return err;
}

// ---------------------------------------------------------------- the command

lh_err dp_cmd_log(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {
        {"dump", run_dump}, {"verify", run_verify}, {"replay", run_replay}};
    const struct dp_usage usage = {
        "longhaul log dump | verify | replay [flags]",
        "dump    print one line for each record\n"
        "verify  check whether the log is intact, torn or damaged, and where\n"
        "replay  compute the state at any version, and its parameters\n\n"
        "These commands only read. `longhaul log VERB --help` lists the flags of each.",
        NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
