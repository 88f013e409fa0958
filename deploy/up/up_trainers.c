// Commands beside the workers. See up_trainers.h.
#include "deploy/up/up_trainers.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/env/env.h"
#include "deploy/tool/tend.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_view.h"
#include "deploy/up/up_watch.h"

enum { STOPPED_S = 10 }; // a command's time to end after SIGTERM
enum { LOOPS_OVER_S = 3, QUOTED_LINES = 12, QUOTED_AGAIN_S = 600 };
static const int64_t LEFT_NS = 3 * LH_SECOND;   // a worker says by then that its loop is over
static const int64_t ALONE_NS = 60 * LH_SECOND; // until a command's first greeting
static const int64_t SEEN_NS =
    LH_SECOND / 2; // before a restart: the worker's status is new by then

static bool is_trainer(const struct dp_node *node)
{
    return node->kind == DP_TRAINER;
}

struct dp_node *dp_trainer_of(struct dp_up *up, const struct dp_node *worker)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *at = &up->node[i];
        if (is_trainer(at) && at->region == worker->region && at->index == worker->index) return at;
    }
    return NULL;
}

// ---------------------------------------------------------------- nodes

// A trainer's node has its worker's state directory and settings.
lh_err dp_trainers_list(struct dp_up *up)
{
    for (unsigned i = 0, nodes = up->nodes; i < nodes; i++) {
        const struct dp_node *worker = &up->node[i];
        if (worker->kind != DP_WORKER || !up->t->region[worker->region].command) continue;
        struct dp_node *node = &up->node[up->nodes++];
        char name[sizeof node->name] = "";
        snprintf(name, sizeof name, "%.50s.trainer", worker->name);
        *node =
            (struct dp_node){.kind = DP_TRAINER, .region = worker->region, .index = worker->index};
        memcpy(node->name, name, sizeof node->name);
        memcpy(node->dir, worker->dir, sizeof node->dir);
        memcpy(node->config, worker->config, sizeof node->config);
    }
    return LH_OK;
}

void dp_trainers_free(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        free(up->node[i].trainer.words);
        up->node[i].trainer.words = NULL;
    }
}

// ---------------------------------------------------------------- start

// Each loop on one machine would start a thread per core and slow the others: divides the cores
// among the training processes. A user's setting wins.
static void share_cores(struct dp_up *up, struct dp_view *v)
{
    unsigned processes = 0, cores = 0;
    cpu_set_t set;
    if (up->threads[0] || getenv("OMP_NUM_THREADS")) return;
    if (!sched_getaffinity(0, sizeof set, &set)) cores = (unsigned)CPU_COUNT(&set);
    for (unsigned r = 0; r < up->t->regions; r++) {
        const struct dp_region *region = &up->t->region[r];
        if (region->command) processes += (unsigned)(region->workers * region->ranks);
    }
    unsigned each = processes && cores > processes ? cores / processes : 1;
    snprintf(up->threads, sizeof up->threads, "OMP_NUM_THREADS=%u", each);
    dp_view_say(v, up,
                "the commands get %s: %u cores, %u training processes; set OMP_NUM_THREADS for "
                "another number",
                up->threads, cores, processes);
}

static LH_MUST lh_err fill(const struct dp_up *up, struct dp_node *node, const char *worker)
{
    const struct dp_region *region = &up->t->region[node->region];
    const struct dp_placeholder list[] =
        DP_COMMAND_PLACEHOLDERS(worker, region->name, up->dir, up->data);
    node->trainer.words = malloc(sizeof *node->trainer.words);
    if (!node->trainer.words) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the command");
    return dp_words_fill(region->command, list, node->trainer.words);
}

static LH_MUST lh_err start(struct dp_up *up, struct dp_node *node, const struct dp_node *worker)
{
    LH_TRY(fill(up, node, worker->name));
    node->entry = (struct dp_entry){up, node};
    struct dp_proc *proc = dp_procs_add(&up->procs, node->name);
    if (!proc) return lh_fail(LH_ERR_TOO_LARGE, "more than %d processes", DP_PROCS_MAX);
    const char *const own[] = {
        up->program[DP_PROGRAM_TOOL], "run", "--config", node->config, "--tend", "--"};
    enum { OWN = sizeof own / sizeof own[0] };
    _Static_assert(OWN + DP_WORDS_MAX < DP_ARGS_MAX, "a whole command has room");
    memcpy(proc->argv, own, sizeof own);
    const struct dp_words *words = node->trainer.words;
    memcpy(proc->argv + OWN, words->at, (words->count + 1) * sizeof *proc->argv);
    proc->enter = dp_net_enter;
    proc->enter_arg = &node->entry;
    proc->tended = true;
    proc->env = up->threads[0] ? up->threads : NULL;
    LH_TRY(dp_path(proc->log, "%s/%s.log", up->dir, node->name));
    LH_TRY(dp_proc_start(proc));
    node->proc = proc;
    return LH_OK;
}

// The worker's present process has reported and has something to train.
static bool wanted(const struct dp_node *worker)
{
    return worker->proc && worker->proc->state == DP_PROC_RUNNING &&
           worker->status.pid == worker->proc->pid && worker->status.state[0] &&
           strcmp(worker->status.state, "joining") != 0 &&
           strcmp(worker->status.state, "done") != 0;
}

static LH_MUST lh_err start_missing(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        const struct dp_node *worker =
            is_trainer(node) && !node->proc ? dp_worker_of(up, node) : NULL;
        if (!worker || !wanted(worker)) continue;
        share_cores(up, v);
        LH_TRY(start(up, node, worker));
        dp_view_say(v, up, "%s started: its output goes to %s", node->name, node->proc->log);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- end

static bool over(const struct dp_node *node)
{
    return !node->proc || node->proc->state == DP_PROC_ENDED ||
           node->proc->state == DP_PROC_GIVEN_UP;
}

bool dp_trainers_ended(const struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (is_trainer(&up->node[i]) && !over(&up->node[i])) return false;
    return true;
}

// Every worker has a command, and its loop is over: it waits for the run's end, or is gone.
static bool nobody_trains(struct dp_up *up)
{
    if (up->t->trainers < up->t->workers) return false;
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        if (!is_trainer(node)) continue;
        const struct dp_node *worker = dp_worker_of(up, node);
        bool waits =
            worker->proc && worker->proc->pid == worker->status.pid && worker->status.trainer_over;
        if (!node->proc || !(waits || over(node))) return false;
    }
    return true;
}

// Asks like an operator, from outside: this process is in no region.
static LH_MUST lh_err end_run(struct dp_up *up, struct dp_view *v, const char *why)
{
    dp_view_say(v, up, "%s: ending the run", why);
    up->ender = dp_procs_add(&up->procs, "longhaul drain");
    if (!up->ender) return lh_fail(LH_ERR_TOO_LARGE, "more than %d processes", DP_PROCS_MAX);
    const char *argv[] = {
        up->program[DP_PROGRAM_TOOL], "drain", "run", "--end", "--dir", up->dir, NULL};
    memcpy(up->ender->argv, argv, sizeof argv);
    LH_TRY(dp_path(up->ender->log, "%s/drain.log", up->dir));
    return dp_proc_start(up->ender);
}

// Loops also end because the run ends. The coordinator's status shows that about a second later;
// only a run that still goes on is asked to end.
static LH_MUST lh_err end_idle_run(struct dp_up *up, struct dp_view *v)
{
    bool goes_on = !strcmp(dp_up_coordinator(up)->status.state, "running");
    if (!goes_on || !nobody_trains(up)) {
        up->idle_ns = 0;
        return LH_OK;
    }
    if (!up->idle_ns) up->idle_ns = dp_now_ns();
    if (dp_now_ns() - up->idle_ns < LOOPS_OVER_S * LH_SECOND) return LH_OK;
    return end_run(up, v, "all commands' loops have ended");
}

// Removes lines written by the tending tool.
static void drop_own_lines(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        size_t n = (size_t)(next - line);
        char end = *next;
        *next = 0;
        bool own = strstr(line, " trainer/") && strstr(line, " process ") &&
                   (strstr(line, " program.") || strstr(line, " process.killed"));
        *next = end;
        if (own) continue;
        memmove(to, line, n);
        to += n;
    }
    *to = 0;
}

// The last lines of a text.
static const char *last_lines(const char *text, unsigned lines)
{
    const char *at = text + strlen(text);
    while (at > text && lines) {
        at--;
        while (at > text && at[-1] != '\n') at--;
        lines--;
    }
    return at;
}

static void quote(struct dp_trainer *t, const struct dp_proc *proc)
{
    char tail[4000];
    dp_proc_log_tail(proc, tail, sizeof tail);
    drop_own_lines(tail);
    const char *said = last_lines(tail, QUOTED_LINES);
    size_t n = strlen(said);
    if (n)
        printf("%s%s", said, said[n - 1] == '\n' ? "" : "\n");
    else
        printf("(it said nothing)\n");
    fflush(stdout);
    t->quoted_ns = dp_now_ns();
}

// It ended well by itself, but its worker knows of no end of its loop.
static bool is_inside(struct dp_up *up, const struct dp_node *trainer)
{
    const struct dp_node *worker = dp_worker_of(up, trainer);
    const struct dp_proc *proc = trainer->proc;
    return !proc->last_status && !proc->stopping && !proc->last && wanted(worker) &&
           !worker->status.trainer_over;
}

static void say_ends(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        char how[64];
        struct dp_trainer *t = &node->trainer;
        if (!is_trainer(node) || !node->proc || t->end_said || !over(node)) continue;
        if (!t->over_ns) t->over_ns = dp_now_ns();
        bool inside = is_inside(up, node);
        if (inside && dp_now_ns() - t->over_ns < LEFT_NS) continue; // statuses are a second old
        t->end_said = true;
        dp_proc_ending(node->proc, how, sizeof how);
        dp_view_say(v, up, "%s ended with %s%s%s", node->name, how,
                    inside ? " without leaving the run (finish(), or the end of `with "
                             "AsyncDiLoCo`): steps since its last cut are lost, and nothing more "
                             "is trained in region "
                           : "",
                    inside ? up->t->region[node->region].name : "");
        // After the run's end it may fail to save its model, say.
        if (node->proc->last_status && !node->proc->stopping) quote(t, node->proc);
    }
}

// The run ended without its worker, which may hang and has nothing to save.
static bool is_left_out(const struct dp_up *up, const struct dp_node *trainer)
{
    const struct dp_node *worker = dp_worker_of(up, trainer);
    return worker && dp_watch_left(up, worker);
}

// Killed from outside, or for lack of memory: not the script's fault.
static bool was_killed(const struct dp_proc *proc)
{
    return proc->state == DP_PROC_WAITING && WIFSIGNALED(proc->last_status);
}

// A worker counts the trainers that greeted it and the progress it stored. A trainer whose worker
// ended before the greeting waits in vain, and is not waited for.
static void look_for_late(struct dp_up *up, struct dp_node *node, struct dp_view *v)
{
    struct dp_trainer *t = &node->trainer;
    struct dp_proc *proc = node->proc;
    const struct dp_node *worker = dp_worker_of(up, node);
    const struct dp_status *s = &worker->status;
    if (proc->pid && t->pid != proc->pid) { // a new process; the status was read before it began
        t->pid = proc->pid;
        t->came = t->kept = false;
        t->alone_ns = ALONE_NS;
        t->worker = s->pid;
        t->lives = s->trainer_lives;
        t->cuts = s->trainer_cuts;
    }
    bool same = s->pid == t->worker;
    t->came |= s->trainer_lives > (same ? t->lives : 0);
    t->kept |= t->came && s->trainer_cuts > (same ? t->cuts : 0);
    proc->joined |= t->came;
    t->ever |= t->came;
    proc->came |= t->kept || (t->came && was_killed(proc));
    if (worker->proc->state != DP_PROC_ENDED || proc->state == DP_PROC_GIVEN_UP) return;
    bool good = over(node) && !proc->last_status;
    dp_proc_last(proc);
    if (t->came || t->late || good) return;
    t->late = true;
    dp_view_say(v, up, "%s came too late: its worker has ended", node->name);
    if (!over(node)) dp_proc_stop(proc, SIGTERM);
}

// A failing script is usually wrong: quotes its output at once, and again only if it may have
// changed. A process killed after joining is not quoted.
static void say_fails(struct dp_up *up, struct dp_node *node, struct dp_view *v)
{
    struct dp_trainer *t = &node->trainer;
    struct dp_proc *proc = node->proc;
    char how[64];
    if (proc->state != DP_PROC_WAITING || t->told == t->pid) return;
    if (!proc->last_status && proc->retry_ns - dp_now_ns() > SEEN_NS) return;
    t->told = t->pid;
    if (t->came && (was_killed(proc) || !proc->last_status)) return;
    dp_proc_ending(proc, how, sizeof how);
    const char *where = t->came ? "" : " before it joined the run,";
    if (t->quoted_ns && dp_now_ns() - t->quoted_ns < QUOTED_AGAIN_S * LH_SECOND) {
        if (!t->kept)
            dp_view_say(v, up, "%s failed again%s with %s: %u of %d times", node->name, where, how,
                        proc->fails, DP_FAILS_MAX);
        return;
    }
    dp_view_say(v, up,
                "%s failed%s with %s; it is started again, and given up after %d times in a row "
                "without progress. Its output is in %s; its last lines:",
                node->name, where, how, DP_FAILS_MAX, proc->log);
    quote(t, proc);
}

// A script that never comes to its loop: a mistake in it, or a download that hangs.
static void say_alone(struct dp_up *up, struct dp_node *node, struct dp_view *v)
{
    struct dp_trainer *t = &node->trainer;
    int64_t ran = dp_now_ns() - node->proc->started_ns;
    if (node->proc->state != DP_PROC_RUNNING || t->came || !t->alone_ns || ran < t->alone_ns)
        return;
    t->alone_ns *= 2;
    dp_view_say(v, up,
                "%s has run for %lld s and has not joined the run: region %s trains nothing until "
                "then. Its output is in %s",
                node->name, (long long)(ran / LH_SECOND), up->t->region[node->region].name,
                node->proc->log);
}

static void look_at_all(struct dp_up *up, struct dp_view *v)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (is_trainer(&up->node[i]) && up->node[i].proc) {
            look_for_late(up, &up->node[i], v);
            say_fails(up, &up->node[i], v);
            say_alone(up, &up->node[i], v);
        }
    say_ends(up, v);
}

lh_err dp_trainers_tick(struct dp_up *up, struct dp_view *v)
{
    if (!up->t->trainers) return LH_OK;
    LH_TRY(start_missing(up, v));
    look_at_all(up, v);
    return up->ender || dp_watch_done(up) ? LH_OK : end_idle_run(up, v);
}

bool dp_trainers_leave(struct dp_up *up, struct dp_view *v)
{
    look_at_all(up, v);
    if (dp_trainers_ended(up)) return true;
    int64_t now = dp_now_ns();
    if (!up->leave_ns) {
        up->leave_ns = now + DP_END_S * LH_SECOND;
        dp_view_say(v, up, "waiting up to %d s for the commands to end (Ctrl-C ends them)",
                    DP_END_S);
    }
    bool saves = false;
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        if (!is_trainer(node) || !node->proc) continue;
        dp_proc_last(node->proc);
        saves |= !is_left_out(up, node) && !over(node);
        if (!is_left_out(up, node) || over(node) || node->proc->stopping) continue;
        dp_view_say(v, up, "%s is stopped: the run ended without its worker", node->name);
        dp_proc_stop(node->proc, SIGTERM);
    }
    if (!saves && up->leave_ns > now + STOPPED_S * LH_SECOND)
        up->leave_ns = now + STOPPED_S * LH_SECOND;
    return now >= up->leave_ns;
}

void dp_trainers_stop(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (is_trainer(&up->node[i]) && up->node[i].proc) dp_proc_stop(up->node[i].proc, SIGTERM);
}

// ---------------------------------------------------------------- what is told of them

void dp_trainer_kill(const struct dp_node *trainer)
{
    if (trainer->proc && trainer->proc->state == DP_PROC_RUNNING)
        dp_tend_signal(trainer->proc->pid, SIGKILL);
}

void dp_trainer_ending(const struct dp_node *trainer, char *out, size_t size)
{
    if (!trainer->proc)
        snprintf(out, size, "not started");
    else if (trainer->trainer.late)
        snprintf(out, size, "%s: the run had ended",
                 trainer->proc->fails && !trainer->trainer.ever ? "failed" : "too late");
    else if (!over(trainer))
        snprintf(out, size,
                 trainer->proc->state == DP_PROC_STUCK ? "killed, and did not end" : "running");
    else
        dp_proc_ending(trainer->proc, out, size);
}

bool dp_trainers_good(const struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_proc *proc = is_trainer(&up->node[i]) ? up->node[i].proc : NULL;
        const struct dp_trainer *t = &up->node[i].trainer;
        bool excused = t->late && (t->ever || !(proc && proc->fails));
        if (proc && !excused && !is_left_out(up, &up->node[i]) &&
            (proc->state != DP_PROC_ENDED || proc->last_status))
            return false;
    }
    return true;
}
