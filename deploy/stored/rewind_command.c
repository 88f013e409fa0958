// longhaul rewind, longhaul refold: a stopped server's directory becomes that of an earlier
// version, or of the fold without a worker's pushes, and the run goes on from there.
//
// 1. The new directory is made whole beside the old one (checkpoint_restore.h), which then becomes
//    DIR.before-N; so nothing that was there is lost, and the old one comes back by its name.
// 2. The file `rewound` in the new one says that it counts (server/recovery/recover.h). The server
//    that starts on it begins a new epoch, also below the stable point, and followers take that.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/stored/checkpoint_restore.h"
#include "deploy/tool/commands.h"
#include "server/recovery/recover.h"

enum { BEFORE_MAX = 1000 };

struct request {
    struct dp_job job;
    struct dp_restore restore;
};

static LH_MUST lh_err free_name(const char *dir, char out[DP_PATH_BYTES])
{
    for (int n = 1; n <= BEFORE_MAX; n++) {
        LH_TRY(dp_path(out, "%s.before-%d", dir, n));
        if (!dp_file_exists(out)) return LH_OK;
    }
    return lh_fail(LH_ERR_EXISTS, "%s.before-1 to -%d are all there: remove some", dir, BEFORE_MAX);
}

static LH_MUST lh_err swap(const char *dir, const char *fresh, const char *before)
{
    if (rename(dir, before)) return lh_fail_errno(errno, "%s to %s", dir, before);
    if (!rename(fresh, dir)) return LH_OK;
    lh_err err = lh_fail_errno(errno, "%s to %s", fresh, dir);
    if (rename(before, dir))
        err = lh_fail(err, "%s; the server's directory is %s now", lh_err_text(err), before);
    return err;
}

static LH_MUST lh_err make_history(struct request *q, const char *dir)
{
    char fresh[DP_PATH_BYTES], before[DP_PATH_BYTES];
    const struct dp_texts from = {.at = {dir}, .count = 1};
    LH_TRY(dp_path(fresh, "%s.fresh", dir));
    LH_TRY(free_name(dir, before));
    q->restore.job = &q->job;
    q->restore.from = &from;
    q->restore.into = fresh;
    q->restore.is_history = true;
    LH_TRY(dp_checkpoint_restore(&q->restore));
    LH_TRY(swap(dir, fresh, before));
    printf("%s goes on from there; what it was is %s\n", dir, before);
    return LH_OK;
}

static LH_MUST lh_err one_dir(const struct dp_usage *usage, const struct dp_texts *rest,
                              const struct dp_job *job, char dir[DP_PATH_BYTES])
{
    if (rest->count > 1 || (!rest->count && !job->dir))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
    LH_TRY(dp_path(dir, "%s", rest->count ? rest->at[0] : job->dir));
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--) dir[n - 1] = 0;
    return LH_OK;
}

static LH_MUST lh_err run_on(struct request *q, const struct dp_usage *usage,
                             const struct dp_texts *rest)
{
    char dir[DP_PATH_BYTES];
    lh_err err = dp_job_open(&q->job, true);
    if (!err) err = one_dir(usage, rest, &q->job, dir);
    if (!err) err = make_history(q, dir);
    dp_job_close(&q->job);
    return err;
}

static const char again[] =
    "\n"
    "For each server of the run, while it is stopped; then start them as before. The run goes on\n"
    "under a new epoch: workers take the new states, and push what they still hold and what is in\n"
    "no state any more. The directory as it was stays beside it, as DIR.before-N.";

static LH_MUST lh_err run_rewind(int argc, char **argv)
{
    struct request q = {0};
    struct dp_texts rest;
    bool help;
    char about[1024];
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(q.job),
        {"--weights", DP_TEXT, &q.job.weights_path, "FILE",
         "the initial parameters, where no checkpoint is old enough"},
        {"--to", DP_EACH, &q.restore.to, "[SHARD:]VERSION", "of all its shards, or of one"},
        {"--sign-key", DP_TEXT, &q.restore.sign_key, "FILE", "sign what is written"},
    };
    snprintf(
        about, sizeof about,
        "Makes a version that a server's shards had the one that they have. Versions go as far\n"
        "back as checkpoints and log are kept; the refusal names from which on.\n%s",
        again);
    const struct dp_usage usage = {"longhaul rewind --to VERSION DIR | --config FILE [flags]",
                                   about, flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (!q.restore.to.count)
        return lh_fail(LH_ERR_INVALID, "--to is missing: usage: %s", usage.line);
    return run_on(&q, &usage, &rest);
}

static LH_MUST lh_err run_refold(int argc, char **argv)
{
    struct request q = {0};
    struct dp_texts rest;
    bool help;
    char about[1024];
    const struct dp_flag flags[] = {
        DP_JOB_FLAGS(q.job),
        {"--weights", DP_TEXT, &q.job.weights_path, "FILE",
         "the initial parameters, where no checkpoint is old enough"},
        {"--without", DP_TEXT, &q.restore.without, "REGION/NAME",
         "the worker; or its 16 digits, as `log dump` shows them"},
        {"--from", DP_TEXT, &q.restore.without_from, "VERSION", "only what it pushed from here on"},
        {"--sign-key", DP_TEXT, &q.restore.sign_key, "FILE", "sign what is written"},
    };
    snprintf(
        about, sizeof about,
        "Folds a server's log again without what one worker pushed, as if all of it had been\n"
        "refused: the units that it claimed are free again. It goes as far back as checkpoints\n"
        "and log are kept; the refusal names from which version on. Expel the worker first\n"
        "(`longhaul expel`), or it pushes the same again.\n%s",
        again);
    const struct dp_usage usage = {"longhaul refold --without REGION/NAME DIR | --config FILE "
                                   "[flags]",
                                   about, flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (!q.restore.without)
        return lh_fail(LH_ERR_INVALID, "--without is missing: usage: %s", usage.line);
    return run_on(&q, &usage, &rest);
}

int dp_cmd_rewind(int argc, char **argv)
{
    lh_err err = run_rewind(argc, argv);
    return err ? (int)dp_complain("rewind", err) : (int)DP_OK;
}

int dp_cmd_refold(int argc, char **argv)
{
    lh_err err = run_refold(argc, argv);
    return err ? (int)dp_complain("refold", err) : (int)DP_OK;
}
