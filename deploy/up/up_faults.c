// The drill of `up --with-faults`: kill -9 of a shard server, a worker, the coordinator; then 20
// seconds without network for one region. If commands train: kill -9 of one, and of one with its
// worker. Each begins at a fixed part of the token budget, once the previous one has healed.
//
// "Healed" is judged from outside: a new process shows a higher count than at the kill (a server:
// versions of its first shard; a worker: steps; the coordinator: credited tokens, or trained ones
// if no unit is leased); a restarted command makes a step; the cut region finishes a round after
// the network is back. The time runs from the kill, or from the end of the cut.
#include <signal.h>
#include <string.h>

#include "common/env/env.h"
#include "deploy/up/up_faults.h"
#include "deploy/up/up_net.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_view.h"
#include "deploy/up/up_watch.h"

static const int64_t cut_ns = 20 * LH_SECOND;
enum action {
    KILL_SERVER,
    KILL_WORKER,
    KILL_COORDINATOR,
    CUT_REGION,
    KILL_TRAINER,
    KILL_BOTH, // a command and its worker
};
static const struct {
    enum action action;
    double at; // part of the budget
} script[] = {{KILL_SERVER, 0.2}, {KILL_TRAINER, 0.28},    {KILL_WORKER, 0.35},
              {KILL_BOTH, 0.43},  {KILL_COORDINATOR, 0.5}, {CUT_REGION, 0.6}};
enum { STEPS = sizeof script / sizeof script[0] };

static bool for_commands(enum action action)
{
    return action == KILL_TRAINER || action == KILL_BOTH;
}

unsigned dp_faults_planned(const struct dp_up *up)
{
    unsigned planned = 0;
    for (unsigned i = 0; i < STEPS; i++)
        planned += up->t->trainers || !for_commands(script[i].action);
    return planned;
}

bool dp_faults_open(const struct dp_faults *f)
{
    return f->waiting;
}

static struct dp_node *first_of(struct dp_up *up, enum dp_kind kind)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == kind) return &up->node[i];
    return NULL;
}

// The last worker; with two or more, not the one that is killed.
static struct dp_node *last_worker(struct dp_up *up)
{
    for (unsigned i = up->nodes; i-- > 0;)
        if (up->node[i].kind == DP_WORKER) return &up->node[i];
    return NULL;
}

// The first worker with a command beside it; NULL: none.
static struct dp_node *first_commanded(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_WORKER && dp_trainer_of(up, &up->node[i])) return &up->node[i];
    return NULL;
}

// A count that shows progress of a node and survives its restart.
static uint64_t count_of(const struct dp_up *up, const struct dp_node *node, enum action action)
{
    switch (action) {
    case KILL_SERVER: return node->status.shards ? node->status.shard[0].version : 0;
    case KILL_WORKER:
    case KILL_TRAINER:
    case KILL_BOTH: return node->total.steps;
    case KILL_COORDINATOR: return (uint64_t)dp_watch_tokens(up);
    case CUT_REGION: return node->total.accepted + node->total.damped;
    }
    return 0;
}

static struct dp_fault *record(struct dp_up *up, const char *what, const char *target)
{
    struct dp_fault *fault = &up->fault[up->faults++];
    *fault = (struct dp_fault){.what = what, .t_s = dp_up_seconds(up), .recovered_s = -1};
    snprintf(fault->target, sizeof fault->target, "%s", target);
    return fault;
}

static bool runs(const struct dp_node *node)
{
    return node->proc && node->proc->state == DP_PROC_RUNNING;
}

static void begin(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    static const char *const what[] = {"kill -9 of a shard server",  "kill -9 of a worker",
                                       "kill -9 of the coordinator", "20 s cut of a region",
                                       "kill -9 of a command",       "kill -9 of command, worker"};
    enum action action = script[f->next].action;
    struct dp_node *node = action == KILL_SERVER   ? first_of(up, DP_SERVER)
                           : action == KILL_WORKER ? first_of(up, DP_WORKER)
                           : action == CUT_REGION  ? last_worker(up)
                           : for_commands(action)  ? first_commanded(up)
                                                   : dp_up_coordinator(up);
    const struct dp_node *trainer = for_commands(action) ? dp_trainer_of(up, node) : node;
    if (!runs(node) || !runs(trainer)) return;                       // try again at the next tick
    if (for_commands(action) && !node->status.trainer_lives) return; // not started yet
    const char *region = up->t->region[node->region].name;
    // Without emulated links, a region's worker is paused instead, and reported as paused.
    bool pause = action == CUT_REGION && !up->emulated;
    struct dp_fault *fault = record(up, pause ? "20 s pause of a worker" : what[action],
                                    action == CUT_REGION && !pause ? region
                                    : action == KILL_TRAINER       ? trainer->name
                                                                   : node->name);
    *f = (struct dp_faults){.next = f->next + 1,
                            .waiting = true,
                            .cut = action == CUT_REGION,
                            .from_ns = dp_now_ns() + (action == CUT_REGION ? cut_ns : 0),
                            .mark = count_of(up, node, action),
                            .lives = node->status.trainer_lives,
                            .pid = node->proc->pid,
                            .target = node};
    dp_view_say(v, up, "drill: %s: %s", fault->what, fault->target);
    if (for_commands(action)) dp_trainer_kill(trainer);
    if (action == KILL_TRAINER) return;
    if (action != CUT_REGION || pause) {
        kill(node->proc->pid, pause ? SIGSTOP : SIGKILL);
        return;
    }
    lh_err err = dp_net_cut(up, node->region);
    if (!err) return;
    f->waiting = false; // the verdict reports it as not healed
    dp_view_say(v, up, "drill: the cut failed: %s", lh_err_text(err));
}

// Ends a cut: the network is back; the region's count starts now.
static void end_cut(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    if (up->emulated) {
        lh_err err = dp_net_heal(up, f->target->region);
        if (err) dp_view_say(v, up, "drill: healing failed: %s", lh_err_text(err));
    } else if (f->target->proc->state == DP_PROC_RUNNING) {
        kill(f->target->proc->pid, SIGCONT);
    }
    f->cut = false;
    f->mark = count_of(up, f->target, CUT_REGION);
    f->from_ns = dp_now_ns();
    dp_view_say(v, up, "drill: %s is back", up->fault[up->faults - 1].target);
}

// Is there a new process of the node, or of its command, whose worker then counts one more? The
// count to exceed starts when it is first seen.
static bool reborn(struct dp_faults *f, const struct dp_up *up, enum action action)
{
    const struct dp_status *s = &f->target->status;
    bool process = action == CUT_REGION || action == KILL_TRAINER || s->pid != f->pid;
    bool command = !for_commands(action) || s->trainer_lives > (s->pid == f->pid ? f->lives : 0);
    if (process && command && for_commands(action) && !f->seen) {
        f->seen = true;
        f->mark = count_of(up, f->target, action);
    }
    return process && command;
}

static void wait_for_healing(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    enum action action = script[f->next - 1].action;
    int64_t now = dp_now_ns();
    struct dp_fault *fault = &up->fault[up->faults - 1];
    if (f->cut) {
        if (now >= f->from_ns) end_cut(f, up, v);
        return;
    }
    bool ended = dp_watch_done(up); // nothing is counted any more: it took part in the end
    if (!reborn(f, up, action) && !(ended && for_commands(action))) return;
    if (count_of(up, f->target, action) <= f->mark && !ended) return;
    fault->recovered_s = (double)(now - f->from_ns) / 1e9;
    f->waiting = false;
    dp_view_say(v, up, "drill: %s recovered in %.1f s", fault->target, fault->recovered_s);
}

void dp_faults_tick(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    while (f->next < STEPS && !f->waiting && !up->t->trainers &&
           for_commands(script[f->next].action))
        f->next++;
    if (f->waiting)
        wait_for_healing(f, up, v);
    else if (f->next < STEPS && dp_watch_progress(up) >= script[f->next].at && !dp_watch_done(up))
        begin(f, up, v);
}

void dp_faults_over(struct dp_up *up, struct dp_view *v)
{
    unsigned planned = dp_faults_planned(up);
    if (up->faults < planned)
        dp_view_say(v, up,
                    "drill: only %u of its %u faults came before the run ended: a larger "
                    "budget_tokens leaves time for the others",
                    up->faults, planned);
}
