// longhaul doctor: does this machine have all that a run, or one of its nodes, needs? And does a
// run that goes on have what it needs?
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deploy/ask/look.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/config.h"
#include "deploy/up/doctor_run.h"
#include "deploy/up/up_check.h"
#include "deploy/up/up_dir.h"

static LH_MUST lh_err topology(struct dp_check *c, const char *file, const char *dir,
                               const char *data)
{
    struct dp_up *up = calloc(1, sizeof *up);
    if (!up) return lh_fail(LH_ERR_NO_MEMORY, "no memory");
    up->flags = (struct dp_up_flags){.topology = file, .dir = dir, .data = data};
    lh_err err = dp_topology_load(file, &up->t);
    if (!err) err = dp_dir_model(up);
    if (!err) dp_check_topology(c, up);
    lh_manifest_free(&up->manifest);
    dp_topology_free(up->t);
    free(up);
    return err;
}

static LH_MUST lh_err node(struct dp_check *c, bool worker, const char *file)
{
    struct lh_config *config;
    const struct dp_texts none = {.count = 0};
    LH_TRY(lh_config_create(worker ? &wk_settings_table : &ps_settings_table, &config));
    lh_err err = dp_config_apply(config, file, &none);
    if (!err) err = lh_config_finish(config);
    if (!err && worker) dp_check_worker(c, file, lh_config_settings(config));
    if (!err && !worker) dp_check_server(c, file, lh_config_settings(config));
    lh_config_destroy(config);
    return err;
}

static LH_MUST lh_err running(struct dp_check *c, struct dp_admin *a)
{
    json_t *status = NULL;
    lh_err err = dp_admin_open(a);
    if (!err) err = dp_admin_status(a, &status);
    if (!err) {
        json_t *servers = dp_look_servers(a, status), *files = dp_look_files(a, status);
        dp_check_run(c, status, servers, files, (int64_t)time(NULL));
        json_decref(servers);
        json_decref(files);
    }
    json_decref(status);
    dp_admin_close(a);
    return err;
}

lh_err dp_cmd_doctor(int argc, char **argv, enum dp_exit *exit)
{
    struct dp_check c = {.out = stdout};
    const char *kind = "topology", *data = "data/tokens";
    struct dp_admin admin = {0};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--kind", DP_TEXT, &kind, "topology|server|worker", "what FILE is (topology)"},
        {"--data", DP_TEXT, &data, "DIR", "units.json and token files (data/tokens)"},
        DP_ADMIN_FLAGS(admin),
    };
    const struct dp_usage usage = {
        "longhaul doctor FILE [flags] | --coordinator HOST:PORT | --dir RUNDIR",
        "Checks whether this machine has what FILE needs, and says how to fix what is missing:\n"
        "disk, memory, open files, the clock, certificates, whether the data suffice for the\n"
        "budget. For a server.yaml or worker.yaml it also checks the ports, and whether the\n"
        "coordinator can be reached. If the node is running, its status is checked.\n\n"
        "Without FILE it checks a running run, and lists what needs an operator: lost or\n"
        "stalled members, servers that this machine can't reach, alarms, disks, clocks,\n"
        "certificates, the store of checkpoints, versions.\n\n"
        "It starts and changes nothing. Exit codes: 0 no failure, perhaps warnings; 1 something\n"
        "fails or will fail; 4 no coordinator answers.",
        flags, sizeof flags / sizeof flags[0]};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    bool goes_on = !rest.count && (admin.coordinator || admin.dir);
    if (rest.count != 1 && !goes_on) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    bool server = !strcmp(kind, "server"), worker = !strcmp(kind, "worker");
    if (!server && !worker && strcmp(kind, "topology") != 0)
        return lh_fail(LH_ERR_INVALID, "unknown kind %.60s: use topology, server or worker", kind);
    LH_TRY(goes_on            ? running(&c, &admin)
           : server || worker ? node(&c, worker, rest.at[0])
                              : topology(&c, rest.at[0], admin.dir, data));
    printf("%u to mend, %u to look at\n", c.failures, c.warnings);
    *exit = c.failures ? DP_FAILED : DP_OK;
    return LH_OK;
}
