// longhaul run: starts a user's training loop beside this host's worker, with the environment that
// the client library and the Python package expect. The command replaces the tool, so it gets
// signals and sets the exit status directly; with --tend the tool stays (tend.h), as `longhaul up`
// needs it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/config.h"
#include "deploy/tool/tend.h"
#include "worker/settings.h"

enum { WHO_BYTES = 160 };

// Sets the variable to DIR/NAME as an absolute path, because the loop may change its folder.
static LH_MUST lh_err set_path(const char *variable, const char *dir, const char *name)
{
    char here[LH_PATH_BYTES], whole[LH_PATH_BYTES];
    bool absolute = dir[0] == '/';
    if (!getcwd(here, sizeof here))
        return lh_fail_errno(errno, "can't find out the current folder");
    int n = snprintf(whole, sizeof whole, "%s%s%s%s", absolute ? "" : here, absolute ? "" : "/",
                     dir, name);
    if (n < 0 || (size_t)n >= sizeof whole)
        return lh_fail(LH_ERR_TOO_LARGE, "the path for %s is longer than %zu bytes", variable,
                       sizeof whole - 1);
    if (setenv(variable, whole, 1)) return lh_fail_errno(errno, "cannot set %s", variable);
    return LH_OK;
}

static LH_MUST lh_err set_environment(const struct wk_settings *s, const char *file)
{
    if (s->trainer.kind != WK_TRAINER_EXTERNAL)
        return lh_fail(LH_ERR_CONFIG,
                       "%s: trainer.kind is not external: this worker trains by itself, with the "
                       "built-in trainer",
                       file);
    LH_TRY(set_path("LONGHAUL_SOCKET", s->node.dir, "/trainer.sock"));
    return set_path("LONGHAUL_MANIFEST", s->node.model.manifest, "");
}

// Sets the environment; `who` becomes the loop's name in logs.
static LH_MUST lh_err prepare(const char *file, const struct dp_texts *set, char who[WHO_BYTES])
{
    struct lh_config *c;
    LH_TRY(lh_config_create(&wk_settings_table, &c));
    lh_err err = dp_config_apply(c, file, set);
    if (!err) err = lh_config_finish(c);
    const struct wk_settings *s = lh_config_settings(c);
    if (!err) err = set_environment(s, file);
    struct lh_certs_info is;
    snprintf(who, WHO_BYTES, "trainer");
    if (!err && !lh_node_identity(&s->node, &is))
        snprintf(who, WHO_BYTES, "trainer/%s/%s", is.peer.region, is.peer.name);
    lh_config_destroy(c);
    return err;
}

// Logs in a program's format, so that `longhaul events` finds these lines among the command's own.
static LH_MUST lh_err tend(char *const argv[], const char *who, int *status)
{
    struct lh_env *env;
    struct lh_log *log = NULL;
    LH_TRY(lh_env_real_create(&env));
    lh_err err = lh_log_open(&log, env, who, LH_INFO, false, NULL);
    if (!err) err = dp_tend(argv, log, status);
    lh_log_close(log);
    lh_env_real_destroy(env);
    return err;
}

lh_err dp_cmd_run(int argc, char **argv)
{
    const char *file = NULL;
    struct dp_texts set = {.count = 0}, rest;
    bool stay = false;
    char who[WHO_BYTES];
    const struct dp_flag flags[] = {
        {"--config", DP_TEXT, &file, "FILE", "the worker's settings (worker.yaml)"},
        {"--set", DP_EACH, &set, "KEY=VALUE", "override a setting, as for the worker; may repeat"},
        {"--tend", DP_SWITCH, &stay, NULL,
         "wait for COMMAND, then kill all processes that it started"},
    };
    const struct dp_usage usage = {
        "longhaul run --config FILE [--set KEY=VALUE] [--tend] -- COMMAND [WORD...]",
        "Starts COMMAND, such as `python train.py` or `torchrun --nproc-per-node 8 train.py`,\n"
        "beside the worker whose settings are in FILE. It sets LONGHAUL_SOCKET (the worker's\n"
        "socket) and LONGHAUL_MANIFEST (the run's model.json). The worker need not run yet. If\n"
        "COMMAND was killed, start it again with the same line.",
        flags, LH_COUNT(flags)};
    int own = 1;
    bool help;
    while (own < argc && strcmp(argv[own], "--") != 0) own++;
    LH_TRY(dp_flags(&usage, own, argv, &rest, &help));
    if (help) return LH_OK;
    if (!file || rest.count || own + 1 >= argc)
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(prepare(file, &set, who));
    int status;
    if (stay) {
        LH_TRY(tend(argv + own + 1, who, &status));
        dp_tend_leave(status);
    }
    execvp(argv[own + 1], argv + own + 1);
    return lh_fail_errno(errno, "cannot start %s", argv[own + 1]);
}
