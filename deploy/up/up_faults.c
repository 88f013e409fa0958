// The drill of `up --with-faults`: kill -9 of a shard server, a worker, the coordinator; then 20
// seconds without network for one region. Each begins at a fixed part of the token budget, after
// the one before has healed.
//
// "Healed" is seen from outside: a new process shows a count beyond the one at the kill (a server:
// versions of its first shard; a worker: steps; the coordinator: credited tokens); the cut region
// finishes a round after the network is back. The time runs from the kill, or from the end of the
// cut.
#include <signal.h>
#include <string.h>

#include "common/env/env.h"
#include "deploy/up/up.h"

static const int64_t cut_ns = 20 * LH_SECOND;
enum action { KILL_SERVER, KILL_WORKER, KILL_COORDINATOR, CUT_REGION };
static const struct {
    enum action action;
    double at; // part of the budget
} script[] = {{KILL_SERVER, 0.2}, {KILL_WORKER, 0.35}, {KILL_COORDINATOR, 0.5}, {CUT_REGION, 0.6}};
enum { STEPS = sizeof script / sizeof script[0] };

unsigned dp_faults_planned(void)
{
    return STEPS;
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

// The last worker: not the one that is killed, where there are two.
static struct dp_node *last_worker(struct dp_up *up)
{
    for (unsigned i = up->nodes; i-- > 0;)
        if (up->node[i].kind == DP_WORKER) return &up->node[i];
    return NULL;
}

// The count that tells that a node works; it survives the node's restart.
static uint64_t count_of(const struct dp_node *node, enum action action)
{
    switch (action) {
    case KILL_SERVER: return node->status.shards ? node->status.shard[0].version : 0;
    case KILL_WORKER: return node->total.steps;
    case KILL_COORDINATOR: return node->status.credited_tokens;
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

static void begin(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    static const char *const what[] = {"kill -9 of a shard server", "kill -9 of a worker",
                                       "kill -9 of the coordinator", "20 s cut of a region"};
    enum action action = script[f->next].action;
    struct dp_node *node = action == KILL_SERVER   ? first_of(up, DP_SERVER)
                           : action == KILL_WORKER ? first_of(up, DP_WORKER)
                           : action == CUT_REGION  ? last_worker(up)
                                                   : dp_up_coordinator(up);
    if (!node->proc || node->proc->state != DP_PROC_RUNNING) return; // try again at the next tick
    const char *region = up->t->region[node->region].name;
    // Without emulated links a region's worker is stopped instead: a pause, and called so.
    bool pause = action == CUT_REGION && !up->emulated;
    struct dp_fault *fault = record(up, pause ? "20 s pause of a worker" : what[action],
                                    action == CUT_REGION && !pause ? region : node->name);
    *f = (struct dp_faults){.next = f->next + 1,
                            .waiting = true,
                            .cut = action == CUT_REGION,
                            .from_ns = dp_now_ns() + (action == CUT_REGION ? cut_ns : 0),
                            .mark = count_of(node, action),
                            .pid = node->proc->pid,
                            .target = node};
    dp_view_say(v, up, "drill: %s: %s", fault->what, fault->target);
    if (action != CUT_REGION || pause) {
        kill(node->proc->pid, pause ? SIGSTOP : SIGKILL);
        return;
    }
    lh_err err = dp_net_cut(up, node->region);
    if (!err) return;
    f->waiting = false; // never healed: the verdict says so
    dp_view_say(v, up, "drill: the cut failed: %s", lh_err_text(err));
}

// The end of a cut: the network is back; what the region must pass is counted from now on.
static void end_cut(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    if (up->emulated) {
        lh_err err = dp_net_heal(up, f->target->region);
        if (err) dp_view_say(v, up, "drill: healing failed: %s", lh_err_text(err));
    } else if (f->target->proc->state == DP_PROC_RUNNING) {
        kill(f->target->proc->pid, SIGCONT);
    }
    f->cut = false;
    f->mark = count_of(f->target, CUT_REGION);
    f->from_ns = dp_now_ns();
    dp_view_say(v, up, "drill: %s is back", up->fault[up->faults - 1].target);
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
    bool reborn = action == CUT_REGION || f->target->status.pid != f->pid;
    bool ended = dp_watch_done(up); // nothing is counted any more: it took part in the end
    if (!reborn || (count_of(f->target, action) <= f->mark && !ended)) return;
    fault->recovered_s = (double)(now - f->from_ns) / 1e9;
    f->waiting = false;
    dp_view_say(v, up, "drill: %s recovered in %.1f s", fault->target, fault->recovered_s);
}

void dp_faults_tick(struct dp_faults *f, struct dp_up *up, struct dp_view *v)
{
    if (f->waiting)
        wait_for_healing(f, up, v);
    else if (f->next < STEPS && dp_watch_progress(up) >= script[f->next].at && !dp_watch_done(up))
        begin(f, up, v);
}
