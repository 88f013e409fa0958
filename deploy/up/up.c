// longhaul up: the command. See up.h for its parts.
//
//   prepare   model, folder, secrets, links, settings of every node
//   run       start all, watch, draw, drill; until every worker is done, or Ctrl-C
//   end       wait until the replicas agree, stop all, evaluate, report
//
// Signals: SIGINT and SIGTERM drain (a second one ends at once); sigtimedwait() in the one thread
// takes all three, so no handler runs.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env/env.h"
#include "common/objects/address.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/tend.h"
#include "deploy/up/up_check.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_faults.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_private.h"
#include "deploy/up/up_report.h"
#include "deploy/up/up_store.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_view.h"
#include "deploy/up/up_watch.h"

static const int64_t tick_ns = 250 * LH_MS;
enum { DRAIN_MS = 30000, STOP_MS = 8000, SETTLE_S = 20 };
enum ending { ENDED_DONE, ENDED_ASKED, ENDED_FAILED };

// ---------------------------------------------------------------- prepare

static LH_MUST lh_err own_program(char out[DP_PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", out, DP_PATH_BYTES - 1);
    if (n <= 0) return lh_fail_errno(errno, "/proc/self/exe");
    out[n] = 0;
    return LH_OK;
}

static LH_MUST lh_err find_programs(struct dp_up *up)
{
    static const char *const names[] = {"longhaul-server", "longhaul-worker"};
    // next to us (installed), or in a build tree
    static const char *const places[][2] = {{"", ""}, {"../server/", "../worker/"}};
    char self[DP_PATH_BYTES], path[DP_PATH_BYTES];
    LH_TRY(own_program(self));
    *strrchr(self, '/') = 0;
    for (size_t program = 0; program < 2; program++) {
        bool found = false;
        for (size_t place = 0; place < 2 && !found; place++) {
            LH_TRY(dp_path(path, "%s/%s%s", self, places[place][program], names[program]));
            found = !access(path, X_OK);
        }
        if (!found)
            return lh_fail(LH_ERR_NOT_FOUND, "can't find %s beside this program (in %s)",
                           names[program], self);
        LH_TRY(dp_path(up->program[program], "%s", path));
    }
    return own_program(up->program[DP_PROGRAM_TOOL]);
}

// Warns if the data end before the budget: the run then ends before its learning rate decays.
static void tell_end(const struct dp_up *up)
{
    uint64_t epochs = (uint64_t)up->t->run->epochs, tokens = 0;
    for (uint64_t u = 0; u < up->units.count; u++) tokens += up->units.unit[u].tokens;
    if (epochs * tokens >= (uint64_t)up->t->run->budget_tokens) return;
    fprintf(stderr,
            "longhaul: %s has %llu tokens, in %llu epochs %llu: the run will end there, before its "
            "budget_tokens of %lld; raise epochs, or lower budget_tokens\n",
            up->data, (unsigned long long)tokens, (unsigned long long)epochs,
            (unsigned long long)(epochs * tokens), (long long)up->t->run->budget_tokens);
}

// Checks that the region has the files of its own units: its workers read only those.
static LH_MUST lh_err check_region(const struct dp_up *up, unsigned region)
{
    const char *name = up->t->region[region].name, *file = "";
    char data[DP_PATH_BYTES], path[DP_PATH_BYTES];
    if (!up->t->region[region].data[0] || dp_region_has_records(&up->t->region[region]))
        return LH_OK;
    LH_TRY(dp_dir_data(up, region, data));
    for (uint64_t u = 0; u < up->units.count; u++) {
        const struct lh_unit *unit = &up->units.unit[u];
        if (strcmp(unit->home, name) != 0 || !strcmp(unit->file, file)) continue;
        file = unit->file; // units of a file follow each other
        LH_TRY(dp_path(path, "%s/%s", data, file));
        if (access(path, R_OK))
            return lh_fail(LH_ERR_CONFIG,
                           "%s: no %s, which has unit %llu of region %s: regions.%s.data must be "
                           "the folder of that region's own token files, as they are in %s",
                           data, file, (unsigned long long)u, name, name, up->data);
    }
    return LH_OK;
}

// Warns if a region whose units must travel has no server.
static void tell_givers(const struct dp_up *up, unsigned region)
{
    const char *name = up->t->region[region].name;
    bool away = false, gives = up->t->server_base->node.data.dir[0] != 0, units = false;
    for (unsigned r = 0; r < up->t->regions; r++)
        away |=
            r != region && up->t->region[r].data[0] && !dp_region_has_records(&up->t->region[r]);
    for (unsigned i = 0; i < up->t->servers; i++) gives |= up->t->server[i].region == region;
    for (uint64_t u = 0; u < up->units.count; u++)
        units |= up->units.unit[u].may_leave && !strcmp(up->units.unit[u].home, name);
    if (away && units && !gives)
        fprintf(stderr,
                "longhaul: no server is in %s: its units do not travel, so regions without its "
                "files can't train them\n",
                name);
}

static LH_MUST lh_err find_data(struct dp_up *up)
{
    if (lh_objects_is(up->flags.data)) {
        LH_TRY(dp_path(up->data, "%s", up->flags.data));
        return dp_store_fetch_texts(up);
    }
    char *real = realpath(up->flags.data, NULL);
    lh_err err = dp_units_load(real ? real : up->flags.data, &up->units);
    if (!err) err = dp_path(up->data, "%s", real);
    if (!err) err = dp_path(up->texts, "%s", real);
    free(real);
    return err;
}

// Checks that the data fit the model and the regions.
static LH_MUST lh_err check_data(struct dp_up *up)
{
    LH_TRY(find_data(up));
    if (!up->units.heldout_count && up->t->trainers == up->t->workers)
        up->unjudged = "the data has no held-out texts";
    if (up->shaped && up->units.vocabulary != up->shape.vocab)
        return lh_fail(LH_ERR_CONFIG, "%s: a vocabulary of %u, but model.vocabulary is %u",
                       up->data, up->units.vocabulary, up->shape.vocab);
    if (!up->unjudged && (!up->units.heldout_count || up->units.heldout_count > DP_LANGUAGES_MAX))
        return lh_fail(LH_ERR_CONFIG, "%s: %u held-out texts, expected 1 to %d", up->data,
                       up->units.heldout_count, DP_LANGUAGES_MAX);
    for (uint64_t u = 0; u < up->units.count; u++) {
        bool known = false;
        for (unsigned r = 0; r < up->t->regions && !known; r++)
            known = !strcmp(up->t->region[r].name, up->units.unit[u].home);
        if (!known)
            return lh_fail(LH_ERR_CONFIG,
                           "%s: unit %llu belongs to %s, which is not a region of %s: add it, or "
                           "prepare data without it; a run keeps its regions (`longhaul drain "
                           "region %s` lets one train nothing)",
                           up->data, (unsigned long long)u, up->units.unit[u].home,
                           up->flags.topology, up->units.unit[u].home);
    }
    for (unsigned r = 0; r < up->t->regions; r++) LH_TRY(check_region(up, r));
    for (unsigned r = 0; r < up->t->regions; r++) tell_givers(up, r);
    LH_TRY(lh_units_check_epochs(&up->units, (uint64_t)up->t->run->epochs));
    tell_end(up);
    return LH_OK;
}

// Nothing outside the emulated regions can be reached from them.
static LH_MUST lh_err check_pair(const struct dp_up *up)
{
    if (!dp_topology_pair(up->t) || up->flags.no_wan) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "%s: server.coordinator.store: an emulated region can't reach etcd at %s: use "
                   "--no-wan",
                   up->flags.topology, up->t->server_base->coordinator.store);
}

static LH_MUST lh_err prepare(struct dp_up *up)
{
    LH_TRY(check_pair(up));
    LH_TRY(find_programs(up));
    if (!dp_topology_own_data(up->t)) LH_TRY(check_data(up));
    LH_TRY(dp_private_data(up, false));
    LH_TRY(dp_dir_open(up));
    if (dp_topology_own_data(up->t)) LH_TRY(dp_dir_own_data(up));
    LH_TRY(dp_dir_prepare(up));
    LH_TRY(dp_net_up(up));
    if (!up->t->server_base->node.http.listen[0]) LH_TRY(dp_net_page(up));
    LH_TRY(dp_dir_settings(up));
    return dp_watch_resume(up);
}

static LH_MUST lh_err start_node(struct dp_up *up, struct dp_node *node)
{
    node->entry = (struct dp_entry){up, node};
    node->proc = dp_procs_add(&up->procs, node->name);
    if (!node->proc) return lh_fail(LH_ERR_TOO_LARGE, "more than %d processes", DP_PROCS_MAX);
    struct dp_proc *proc = node->proc;
    const char *argv[] = {up->program[node->kind >= DP_WORKER], "--config", node->config, NULL};
    memcpy(proc->argv, argv, sizeof argv);
    proc->enter = dp_net_enter;
    proc->enter_arg = &node->entry;
    proc->fd = node->page;
    proc->serves = node->kind < DP_WORKER; // somebody else may send it SIGTERM
    LH_TRY(dp_path(proc->log, "%s/%s.log", up->dir, node->name));
    return dp_proc_start(proc);
}

static LH_MUST lh_err start_all(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        if (up->node[i].kind == DP_TRAINER) continue; // starts when its worker is there
        LH_TRY(start_node(up, &up->node[i]));
        if (up->node[i].address[0])
            dp_view_say(v, up, "%s at %s in %s", up->node[i].name, up->node[i].address,
                        up->t->region[up->node[i].region].name);
    }
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].page)
            dp_view_say(v, up, "%s page: http://%s/", i ? DP_STANDBY_NAME "'s" : "the run's",
                        up->node[i].page_at);
    return LH_OK;
}

// ---------------------------------------------------------------- run

// Waits for a signal or a tick; true: asked to end.
static bool asked_to_end(void)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    int signal = sigtimedwait(&set, &info, &(struct timespec){0, tick_ns});
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static void say_restarts(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        char how[64];
        if (!node->proc || node->proc->restarts == node->restarts_said) continue;
        node->restarts_said = node->proc->restarts;
        dp_proc_ending(node->proc, how, sizeof how);
        dp_view_say(v, up, "%s ended with %s and was started again", node->name, how);
    }
}

// Statuses are read anew before this: a worker that is done says so in its last one.
static void say_left(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        const char *why = node->kind == DP_WORKER ? dp_watch_left(up, node) : NULL;
        if (why && !node->left_said)
            dp_view_say(v, up, "the run goes on without %s, which %s", node->name, why);
        node->left_said = why != NULL;
        const char *stalls = node->kind == DP_WORKER ? dp_watch_stalls(up, node) : NULL;
        if (stalls && !node->stall_said)
            dp_view_say(v, up, "%s is stalled (%s): others train its units; see its log",
                        node->name, stalls);
        if (!stalls && node->stall_said && !why)
            dp_view_say(v, up, "%s makes progress again", node->name);
        node->stall_said = stalls != NULL;
    }
}

static bool workers_ended(const struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_WORKER && up->node[i].proc->state != DP_PROC_ENDED) return false;
    return true;
}

static enum ending run(struct dp_up *up, struct dp_view *v)
{
    struct dp_faults faults = {0};
    for (;;) {
        if (asked_to_end()) return ENDED_ASKED;
        dp_watch_poll(up);
        say_left(up, v);
        bool keeps = up->flags.go_on && up->went_on && !up->next_kept;
        lh_err err = keeps ? dp_dir_went_on(up) : LH_OK;
        if (!err) err = dp_procs_tick(&up->procs, dp_now_ns());
        if (!err) err = dp_trainers_tick(up, v);
        if (err) {
            dp_view_say(v, up, "%s", lh_err_text(err));
            return ENDED_FAILED;
        }
        say_restarts(up, v);
        if (up->flags.with_faults) dp_faults_tick(&faults, up, v);
        dp_view_show(v, up, false);
        if (dp_faults_open(&faults) || !(dp_watch_done(up) || workers_ended(up))) continue;
        if (up->flags.with_faults) dp_faults_over(up, v);
        return ENDED_DONE;
    }
}

// ---------------------------------------------------------------- end

static bool settled(const struct dp_up *up)
{
    unsigned compared;
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        if (node->kind == DP_TRAINER) continue; // it writes no status
        if (!dp_watch_own(node) && !dp_watch_left(up, node)) return false;
    }
    return dp_replicas_equal(up, &compared) && dp_credited_once(up);
}

// Statuses come about once a second. Waits until they show the last version and the coordinator
// knows the servers' credits. When an ended run is restarted, its workers are done before it, and
// all statuses of their earlier processes look the same.
static void settle(struct dp_up *up)
{
    int64_t until = dp_now_ns() + SETTLE_S * LH_SECOND;
    while (!settled(up) && dp_now_ns() < until && !asked_to_end()) {
        lh_err err = dp_procs_tick(&up->procs, dp_now_ns());
        if (err) return;
        dp_watch_poll(up);
    }
}

// The run has ended; waits for commands that still take or save its parameters.
static void let_commands_end(struct dp_up *up, struct dp_view *v)
{
    while (up->t->trainers && !dp_trainers_leave(up, v) && !asked_to_end()) {
        lh_err err = dp_procs_tick(&up->procs, dp_now_ns());
        if (err) dp_view_say(v, up, "%s", lh_err_text(err));
        dp_watch_poll(up);
        dp_view_show(v, up, false);
    }
}

// The run itself is complete; only such a process is left.
static void say_stuck(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->procs.count; i++) {
        const struct dp_proc *proc = &up->procs.proc[i];
        if (proc->state == DP_PROC_STUCK)
            dp_view_say(v, up,
                        "%s was killed and does not end: a disk or network file system that it "
                        "uses hangs. It ends once that answers (process %d)",
                        proc->name, (int)proc->pid);
    }
}

// Stops commands before their workers, which still take their last cuts, and workers before the
// servers, which take their last pushes.
static void stop_all(struct dp_up *up, struct dp_view *v, int64_t patience_ms)
{
    int64_t until = dp_now_ns() + STOP_MS * LH_MS;
    dp_trainers_stop(up);
    while (!dp_trainers_ended(up) && dp_now_ns() < until && !asked_to_end()) {
        lh_err err = dp_procs_tick(&up->procs, dp_now_ns());
        if (err) dp_view_say(v, up, "%s", lh_err_text(err));
    }
    until = dp_now_ns() + patience_ms * LH_MS;
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_WORKER && up->node[i].proc)
            dp_proc_stop(up->node[i].proc, SIGTERM);
    while (!workers_ended(up) && dp_now_ns() < until) {
        if (asked_to_end()) break; // the second time: at once
        lh_err err = dp_procs_tick(&up->procs, dp_now_ns());
        if (err) dp_view_say(v, up, "%s", lh_err_text(err));
        dp_watch_poll(up);
        dp_view_show(v, up, false);
    }
    dp_procs_end(&up->procs, STOP_MS);
    say_stuck(up, v);
    dp_watch_poll(up);
}

static void print_last_words(const struct dp_up *up)
{
    for (unsigned i = 0; i < up->procs.count; i++) {
        const struct dp_proc *proc = &up->procs.proc[i];
        char tail[1200];
        if (proc->state != DP_PROC_GIVEN_UP) continue;
        dp_proc_log_tail(proc, tail, sizeof tail);
        fprintf(stderr, "last words of %s:\n%s\n", proc->name, tail);
    }
}

static LH_MUST lh_err run_all(struct dp_up *up, enum dp_exit *exit)
{
    struct dp_view view;
    dp_view_open(&view);
    lh_err err = start_all(up, &view);
    enum ending how = err ? ENDED_FAILED : run(up, &view);
    if (how == ENDED_DONE) let_commands_end(up, &view);
    if (how == ENDED_DONE) settle(up);
    if (how == ENDED_ASKED) dp_view_say(&view, up, "draining; Ctrl-C again ends at once");
    if (err) dp_procs_end(&up->procs, 0);
    LH_TRY(err);
    dp_view_show(&view, up, true);
    stop_all(up, &view, how == ENDED_ASKED ? DRAIN_MS : STOP_MS);
    LH_TRY(dp_watch_keep(up));
    *exit = how == ENDED_ASKED ? DP_STOPPED : DP_FAILED;
    if (how == ENDED_ASKED) printf("stopped; the same command goes on from %s\n", up->dir);
    if (how == ENDED_FAILED) print_last_words(up);
    if (how != ENDED_DONE) return LH_OK;
    struct dp_verdict verdict;
    LH_TRY(dp_report(up, &verdict));
    *exit = dp_verdict_ok(&verdict) ? DP_OK : DP_UNVERIFIED;
    return LH_OK;
}

// nohup ignores SIGHUP, so that a run outlives its terminal; a signal that is blocked would be
// delivered all the same.
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (!dp_tend_ignored(SIGHUP)) sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); // a closed output must not leave children behind
}

static LH_MUST lh_err whole(struct dp_up *up, enum dp_exit *exit)
{
    LH_TRY(dp_topology_load(up->flags.topology, &up->t));
    LH_TRY(dp_dir_model(up));
    if (up->flags.plan) {
        struct dp_check check = {.out = stdout};
        dp_plan_print(up->t, &up->plan, stdout);
        LH_TRY(dp_private_data(up, true));
        LH_TRY(dp_private_print(up, stdout));
        dp_check_topology(&check, up);
        *exit = DP_OK;
        return LH_OK;
    }
    block_signals();
    LH_TRY(prepare(up));
    dp_plan_print(up->t, &up->plan, stdout);
    LH_TRY(dp_private_print(up, stdout));
    printf("\nfolder            %s\n\n", up->dir);
    fflush(stdout);
    return run_all(up, exit);
}

// ---------------------------------------------------------------- command

static LH_MUST lh_err read_flags(int argc, char **argv, struct dp_up_flags *f, bool *help)
{
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--plan", DP_SWITCH, &f->plan, NULL, "print what the run will cost, start nothing"},
        {"--dir", DP_TEXT, &f->dir, "DIR", "folder of the run (run/NAME)"},
        {"--data", DP_TEXT, &f->data, "DIR",
         "units.json and token files (data/tokens), or s3://BUCKET/PREFIX with --no-wan"},
        {"--no-wan", DP_SWITCH, &f->no_wan, NULL, "loopback instead of emulated long links"},
        {"--json", DP_TEXT, &f->json, "FILE", "write the summary there, too"},
        {"--continue", DP_SWITCH, &f->go_on, NULL,
         "continue a run that has ended, with a larger budget_tokens"},
        {"--with-faults", DP_SWITCH, &f->with_faults, NULL,
         "kill a server, a worker, a command, the coordinator; cut a region for 20 s"},
    };
    const struct dp_usage usage = {
        "longhaul up TOPOLOGY [flags]",
        "Starts a whole run on this machine and watches it to its end: coordinator, servers and\n"
        "workers as processes, regions as network namespaces joined by emulated links (root).\n"
        "If the topology has a `command`, it trains instead of the built-in trainer. Ctrl-C\n"
        "drains the run; the same command continues it. Exit codes: 0 all replicas agree and\n"
        "every language was learned; 5 they do not, or one was not; 8 the run was stopped.",
        flags, sizeof flags / sizeof flags[0]};
    f->data = "data/tokens";
    LH_TRY(dp_flags(&usage, argc, argv, &rest, help));
    if (*help) return LH_OK;
    if (rest.count != 1) return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    f->topology = rest.at[0];
    return LH_OK;
}

lh_err dp_cmd_up(int argc, char **argv, enum dp_exit *exit)
{
    struct dp_up *up = calloc(1, sizeof *up);
    bool help = false;
    lh_err err =
        up ? read_flags(argc, argv, &up->flags, &help) : lh_fail(LH_ERR_NO_MEMORY, "no memory");
    if (!err && !help) {
        up->started_ns = dp_now_ns();
        err = whole(up, exit);
    }
    if (up) {
        dp_procs_end(&up->procs, 0);
        dp_dir_forget_ranks(up);
        dp_net_down(up);
        dp_dir_close(up);
        dp_watch_free(up);
        dp_trainers_free(up);
        lh_units_free(&up->units);
        lh_manifest_free(&up->manifest);
        dp_topology_free(up->t);
        free(up);
    }
    return err;
}
