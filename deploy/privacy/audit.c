// longhaul privacy audit: what each private region has charged, and its epsilon, out of servers'
// logs alone (server/docs/0000-protocol.md#rule-34).
//
// A frame's header carries the total, a PLAN the terms. So no key is needed, and nothing that a
// region says of itself counts: a push that was refused has been seen by its server all the same,
// and counts like one that was admitted. A log without its beginning has the total of each region
// that pushed since; the others' totals are in the checkpoint that the log goes on from, which the
// run's keys open. It holds no total of a push that was refused.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/plan.h"
#include "common/format/record.h"
#include "common/privacy/account.h"
#include "deploy/privacy/audit.h"
#include "deploy/stored/job.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "kernels/storage/checkpoint.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/privacy.h"
#include "server/wal/wal.h"

struct account { // a worker that charged something
    uint64_t worker, releases;
    uint64_t *charged;  // highest total by shard
    uint64_t *released; // pushes by shard that were admitted
    bool stored;        // a checkpoint has a higher total than the logs
    bool falls;         // an admitted total did not rise by what its push cost
    uint64_t *last;     // total of the last admitted push by shard
};

struct audit {
    struct lh_privacy terms; // level 0: not known yet
    uint32_t shards;         // highest number seen, and one
    bool begun[LH_SHARDS_MAX];
    bool trimmed[LH_SHARDS_MAX]; // the log begins above version 1, and no checkpoint was read
    struct account account[LH_WORKERS_MAX];
    uint32_t accounts;
};

static lh_err account_of(struct audit *a, uint64_t worker, struct account **out)
{
    uint32_t i = 0;
    while (i < a->accounts && a->account[i].worker != worker) i++;
    if (i == LH_WORKERS_MAX) return lh_fail(LH_ERR_CORRUPT, "more workers than a run can have");
    struct account *c = *out = &a->account[i];
    if (i < a->accounts) return LH_OK;
    c->charged = calloc(LH_SHARDS_MAX, sizeof *c->charged);
    c->last = calloc(LH_SHARDS_MAX, sizeof *c->last);
    c->released = calloc(LH_SHARDS_MAX, sizeof *c->released);
    c->worker = worker;
    a->accounts++;
    return c->charged && c->last && c->released ? LH_OK : LH_ERR_NO_MEMORY;
}

static LH_MUST lh_err take_push(struct audit *a, const struct ps_wal_entry *e)
{
    struct lh_frame f;
    struct account *c = NULL;
    LH_TRY(lh_frame_parse_head(e->record->body, &f));
    if (!f.charged) return LH_OK;
    LH_TRY(account_of(a, f.worker, &c));
    c->releases++;
    if (f.charged > c->charged[e->shard]) c->charged[e->shard] = f.charged;
    if (e->record->kind != LH_ADMIT) return LH_OK;
    c->released[e->shard]++;
    uint64_t last = c->last[e->shard], cost = lh_privacy_cost(&a->terms, f.steps);
    c->falls |= f.charged < last || f.charged - last < cost;
    c->last[e->shard] = f.charged;
    return LH_OK;
}

static LH_MUST lh_err take_terms(struct audit *a, const struct lh_privacy *terms)
{
    if (!terms->level) return LH_OK;
    if (a->terms.level && !lh_privacy_equal(&a->terms, terms))
        return lh_fail(LH_ERR_CONFLICT, "a plan in the log has other terms of privacy than those "
                                        "before it, or than --config");
    a->terms = *terms;
    return LH_OK;
}

static LH_MUST lh_err take_plan(struct audit *a, const struct lh_record *r)
{
    struct lh_plan *plan = malloc(sizeof *plan);
    if (!plan) return LH_ERR_NO_MEMORY;
    lh_err err = lh_plan_parse(r->body, plan);
    if (!err) err = take_terms(a, &plan->privacy);
    free(plan);
    return err;
}

static lh_err look(void *arg, const struct ps_wal_entry *e)
{
    struct audit *a = arg;
    const struct lh_record *r = e->record;
    if (!r || e->shard >= LH_SHARDS_MAX) return LH_OK;
    if (e->shard >= a->shards) a->shards = e->shard + 1;
    if (!a->begun[e->shard]) a->trimmed[e->shard] = r->version > 1;
    a->begun[e->shard] = true;
    if (r->kind == LH_PLAN) return take_plan(a, r);
    return r->kind == LH_ADMIT || r->kind == LH_REFUSE ? take_push(a, e) : LH_OK;
}

// ---------------------------------------------------------------- the checkpoint below a log

static LH_MUST lh_err take_rows(struct audit *a, const struct lh_ledger *l)
{
    LH_TRY(take_terms(a, &l->plan.privacy));
    for (uint32_t i = 0; i < l->rows; i++) {
        struct account *c = NULL;
        if (!l->row[i].charged) continue;
        LH_TRY(account_of(a, l->row[i].worker, &c));
        if (l->row[i].charged <= c->charged[l->shard]) continue;
        c->charged[l->shard] = l->row[i].charged;
        c->stored = true;
    }
    return LH_OK;
}

static LH_MUST lh_err read_checkpoint(struct audit *a, const struct dp_job *job, const char *dir,
                                      uint32_t shard)
{
    const struct lk_checkpoint_conf conf = {.env = job->env, .dir = dir, .keys = job->keys};
    struct lk_replica r;
    lh_err err = lk_replica_create(&r, job->id, &job->manifest, shard, job->keys);
    if (!err) err = lk_checkpoint_load(&conf, &r, NULL, NULL);
    if (!err) err = take_rows(a, &r.ledger);
    if (!err) a->trimmed[shard] = false;
    lk_replica_free(&r);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

static LH_MUST lh_err read_checkpoints(struct audit *a, const struct dp_job *job, const char *dir)
{
    char path[DP_PATH_BYTES];
    if (!job->has_id || !job->has_manifest || !job->has_keys) return LH_OK;
    LH_TRY(dp_job_checkpoint_dir(dir, path));
    for (uint32_t k = 0; k < a->shards && k < job->manifest.shards; k++)
        if (a->trimmed[k]) LH_TRY(read_checkpoint(a, job, path, k));
    return LH_OK;
}

// ---------------------------------------------------------------- what is printed

// At region level each shard's push has a share of a step; else all shards show one count.
static double steps_of(const struct audit *a, const struct account *c)
{
    double sum = 0, most = 0;
    for (uint32_t k = 0; k < a->shards; k++) {
        sum += (double)c->charged[k] / a->shards;
        if ((double)c->charged[k] > most) most = (double)c->charged[k];
    }
    return a->terms.level == LH_PRIVACY_REGION ? sum : most;
}

static json_t *row_of(const struct audit *a, const struct account *c)
{
    const struct lh_privacy *p = &a->terms;
    char worker[24];
    double steps = steps_of(a, c);
    snprintf(worker, sizeof worker, "%016" PRIx64, c->worker);
    double epsilon = lh_account_spent(lh_privacy_multiplier(p), p->rate, steps, p->delta);
    return json_pack("{s:s s:s s:s s:I s:f s:I s:f s:f s:f s:f s:s}", "worker", worker, "level",
                     lh_privacy_level_name(p->level), "from", c->stored ? "checkpoint" : "log",
                     "releases", (json_int_t)c->releases, "charged", steps, "steps",
                     (json_int_t)p->steps, "sigma", p->sigma, "delta", p->delta, "epsilon", epsilon,
                     "epsilon_max", p->epsilon, "verdict",
                     c->falls                   ? "a total fell"
                     : steps > (double)p->steps ? "above the plan"
                                                : "within the plan");
}

// The counts of each shard, for programs.
static json_t *by_shard(const struct audit *a, const uint64_t *count)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < a->shards; k++)
        json_array_append_new(list, json_integer((json_int_t)count[k]));
    return list;
}

static const struct dp_column columns[] = {{"WORKER", "worker", 16},
                                           {"LEVEL", "level", -8},
                                           {"FROM", "from", -10},
                                           {"RELEASES", "releases", 8},
                                           {"CHARGED", "charged", 9},
                                           {"STEPS", "steps", 8},
                                           {"SIGMA", "sigma", 8},
                                           {"DELTA", "delta", 8},
                                           {"EPSILON", "epsilon", 9},
                                           {"VERDICT", "verdict", -16},
                                           {NULL, NULL, 0}};

static LH_MUST lh_err show(const struct audit *a, bool json, bool *good)
{
    json_t *rows = json_array();
    *good = true;
    for (uint32_t i = 0; i < a->accounts; i++) {
        const struct account *c = &a->account[i];
        json_t *row = row_of(a, c);
        json_object_set_new(row, "by_shard", by_shard(a, c->charged));
        json_object_set_new(row, "released", by_shard(a, c->released));
        json_array_append_new(rows, row);
        *good &= !c->falls && steps_of(a, c) <= (double)a->terms.steps;
    }
    lh_err err = dp_table_show(columns, rows, json);
    json_decref(rows);
    return err;
}

static LH_MUST lh_err audit_dirs(struct audit *a, const struct dp_job *job,
                                 const struct dp_texts *dirs)
{
    for (size_t i = 0; i < dirs->count; i++) {
        char path[DP_PATH_BYTES];
        struct ps_wal_found found;
        LH_TRY(dp_job_log_dir(dirs->at[i], path));
        LH_TRY(ps_wal_look(job->env, path, NULL, look, a, &found));
        if (!found.segments) return dp_job_no_log(path);
        LH_TRY(read_checkpoints(a, job, dirs->at[i]));
    }
    return LH_OK;
}

static LH_MUST lh_err judge(const struct audit *a, bool json)
{
    bool good, trimmed = false;
    if (a->accounts && !a->terms.level)
        return lh_fail(LH_ERR_UNSUPPORTED, "pushes are charged, and the logs begin behind the plan "
                                           "that has the terms: give --config");
    LH_TRY(show(a, json, &good));
    for (uint32_t k = 0; k < a->shards; k++) trimmed |= a->trimmed[k];
    if (trimmed)
        fprintf(stderr, "a log begins above version 1: a region whose pushes are all older than "
                        "that is not listed. Its totals are in the server's checkpoint: give "
                        "--manifest, --run and --keys, or a --config that names them\n");
    return good ? LH_OK : lh_fail(LH_ERR_CONFLICT, "a region's charges are not within its plan");
}

lh_err dp_privacy_audit(int argc, char **argv)
{
    struct dp_job job = {0};
    struct dp_texts rest;
    bool help, json = false;
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(job),
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul privacy audit DIR... [flags]",
        "Computes what each private region has charged to its budget, and its epsilon, from the\n"
        "logs of the run's servers alone: pass the directories of all of them. A key is needed\n"
        "only for the checkpoint below a log that was trimmed. It trusts no statement of a\n"
        "region, and counts refused pushes as released. --config names the coordinator's\n"
        "settings, which have the terms.\n"
        "Exit codes: 0 all within the plan's terms; 1 a total fell, or exceeds them.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (!rest.count) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    struct audit *a = calloc(1, sizeof *a);
    if (!a) return LH_ERR_NO_MEMORY;
    lh_err err = dp_job_open(&job, false);
    if (!err && job.settings) a->terms = ps_privacy_terms(lh_config_settings(job.settings));
    if (!err) err = audit_dirs(a, &job, &rest);
    if (!err) err = judge(a, json);
    dp_job_close(&job);
    for (uint32_t i = 0; i < a->accounts; i++) {
        free(a->account[i].charged);
        free(a->account[i].last);
        free(a->account[i].released);
    }
    free(a);
    return err;
}
