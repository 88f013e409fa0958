// longhaul state to-file: moves a run's coordinator state from etcd into a file.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/stored/job.h"
#include "deploy/tool/commands.h"
#include "server/coordinator/store/etcd_wire.h"
#include "server/coordinator/store/move.h"
#include "server/settings.h"

enum { BASE_BYTES = 280 };

static LH_MUST lh_err connect_to(const struct dp_job *job, struct ps_etcd **out)
{
    const struct ps_settings *s = lh_config_settings(job->settings);
    char login[PS_ETCD_LOGIN_BYTES];
    struct ps_etcd_place place;
    struct ps_etcd_conf conf = {.env = job->env,
                                .login = login,
                                .timeout_ns = 5 * LH_SECOND,
                                .patience_ns = 20 * LH_SECOND};
    LH_TRY(ps_etcd_parse(s->coordinator.store, &place));
    lh_err err = ps_etcd_login(s->coordinator.store_secrets, login);
    if (!err) err = ps_etcd_wire_open(&place, s->coordinator.store_secrets, &conf.wire);
    if (!err) err = ps_etcd_create(&conf, out);
    explicit_bzero(login, sizeof login);
    return err;
}

static LH_MUST lh_err move(const struct dp_job *job, bool *before)
{
    const struct ps_settings *s = lh_config_settings(job->settings);
    struct ps_etcd_place place;
    struct ps_etcd *etcd, *log;
    char base[BASE_BYTES];
    lh_err err = ps_etcd_parse(s->coordinator.store, &place);
    if (err) return lh_fail(err, "coordinator.store: %s", lh_err_text(err));
    snprintf(base, sizeof base, "%s/%s", place.prefix, job->run);
    LH_TRY(connect_to(job, &etcd));
    err = connect_to(job, &log);
    if (!err) err = ps_store_move_back(job->env, etcd, log, base, job->dir, before);
    ps_etcd_destroy(etcd);
    return err;
}

static lh_err run_to_file(int argc, char **argv)
{
    struct dp_job job = {0};
    struct dp_texts rest;
    bool help, before;
    const struct dp_flag flags[] = {
        {"--config", DP_TEXT, &job.config, "FILE",
         "the settings of a coordinator whose state is in etcd; the file is made in its dir"}};
    const struct dp_usage usage = {
        "longhaul state to-file --config FILE",
        "Moves a run's coordinator state from etcd into the file `store` of a coordinator's\n"
        "directory. End all coordinators of the run first; workers train on with what they have\n"
        "leased. Afterwards take coordinator.store out of that coordinator's settings and start\n"
        "it. No coordinator starts on that state in etcd any more.\n"
        "\n"
        "Exit codes: 0 it is in the file; 1 a coordinator leads, or the file is there already;\n"
        "2 wrong line; 3 etcd has no state of the run; 4 etcd does not answer; 6 wrong settings.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count || !job.config) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    lh_err err = dp_job_open(&job, false);
    if (!err) err = move(&job, &before);
    if (!err && before)
        printf("etcd has no state of run %s any more: it was moved to a file before\n", job.run);
    else if (!err)
        printf("the state of run %s is in %s/store now; take coordinator.store out of the settings "
               "before you start the coordinator\n",
               job.run, job.dir);
    dp_job_close(&job);
    return err;
}

lh_err dp_cmd_state(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {{"to-file", run_to_file}};
    const struct dp_usage usage = {
        "longhaul state to-file --config FILE",
        "to-file  move a run's coordinator state from etcd into a file\n\n"
        "`longhaul state VERB --help` lists the flags of each.",
        NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
