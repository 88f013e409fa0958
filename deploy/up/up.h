// `longhaul up`: runs a whole run on this machine. The state that its parts share:
//
//   up.c          the command: flags, the main loop, the end
//   up_dir.c      the run's folder: keys, certificates, model, weights, a settings file per node
//   up_net.c      where nodes stand: emulated regions, or loopback
//   up_watch.c    what the nodes say of themselves, over all their lives
//   up_view.c     live progress, for a terminal or as lines
//   up_trainers.c commands of the user's beside the workers
//   up_faults.c   --with-faults: kills and a cut, and how long each took to heal
//   up_settings.c the settings file of each node
//   up_private.c  private regions: their records, what privacy costs
//   up_store.c    data in an object store
//   up_check.c    what this machine has, beside what the run needs
//   up_report.c   the verdict: table, picture, summary.json
#ifndef DP_UP_H
#define DP_UP_H

#include "common/format/units.h"
#include "deploy/ask/up_status.h"
#include "deploy/text/eval.h"
#include "deploy/tool/files.h"
#include "deploy/up/topology.h"
#include "deploy/up/up_plan.h"
#include "deploy/up/up_plot.h"
#include "deploy/up/up_procs.h"
#include "deploy/up/wan.h"

// A rank computes for a worker; a trainer is the user's command beside one.
enum dp_kind { DP_COORDINATOR, DP_SERVER, DP_WORKER, DP_RANK, DP_TRAINER };
enum dp_program { DP_PROGRAM_SERVER, DP_PROGRAM_WORKER, DP_PROGRAM_TOOL, DP_PROGRAMS };

enum {
    DP_NODES_MAX = 2 + DP_SERVERS_MAX + 2 * DP_WORKERS_MAX + DP_RANKS_MAX,
    DP_FAULTS_MAX = 8,
    DP_EVAL_BYTES = 48 << 10, // held-out text per language that `up` evaluates
    DP_END_S = 300, // after the run's end: for commands to save, for workers to be heard again
};

struct dp_up;
struct dp_node;
struct dp_entry { // data with which a child enters its region
    const struct dp_up *up;
    const struct dp_node *node;
};

// State of a command beside a worker.
struct dp_trainer {
    struct dp_words *words; // the words it was started with; owned
    bool end_said;
    int64_t quoted_ns; // last time its output was quoted; 0: never
    bool came;         // this process has greeted its worker
    bool kept;         // the worker made some of this process's progress durable
    bool late;         // it never greeted, and its worker has ended
    bool ever;         // one of its processes has greeted the worker
    int64_t over_ns;   // when its end was seen; 0: not yet
    int64_t alone_ns;  // how long a process that has not greeted runs when that is said next
    pid_t pid;         // the process that the flags describe
    pid_t told;        // the last process whose failure was logged
    int64_t worker;    // the worker's process and its counts when this one began
    uint64_t lives, cuts;
};

// One process of the run.
struct dp_node {
    enum dp_kind kind;
    char name[64];
    unsigned region, index;  // index: of the server in the topology, of the worker in its region
    unsigned rank;           // 0: the worker itself
    char dir[DP_PATH_BYTES]; // state directory
    char config[DP_PATH_BYTES];
    char address[128]; // coordinator and servers; rank 0 of several hosts: the listening address
    char listen[64]; // coordinator and servers, if they listen elsewhere than at `address`; else ""
    char host[40];   // a rank's address if its worker has several hosts; else ""
    int page;        // coordinators: socket of the page on this machine; 0: none
    char page_at[64]; // its address
    struct dp_proc *proc;
    struct dp_entry entry;
    unsigned restarts_said;
    bool left_said;          // the user has been told that the run goes on without it
    bool stall_said;         // the user has been told that it is stalled
    struct dp_status status; // the last status read
    int64_t told_ns;         // when its last new status was read
    struct dp_lives lives;
    struct dp_counts total; // over all lives
    struct dp_point *point; // workers: loss over seconds
    size_t points, point_cap;
    struct dp_trainer trainer; // used by trainers only
};

struct dp_fault {
    const char *what; // "kill -9 server", ...
    char target[64];
    double t_s, recovered_s; // recovered_s < 0: not yet, or never
};

struct dp_heldout {
    struct dp_eval_row before, after;
};

// Paths in the nodes' settings files, beside their state directories.
struct dp_places {
    char secrets[DP_PATH_BYTES]; // certificates and keys
    char files[DP_PATH_BYTES];   // model.json and weights.bin
    char budgets[DP_PATH_BYTES]; // privacy budgets without a place of their own
    char coordinators[2 * 128];  // addresses of the coordinators; "": those of the nodes
    char etcd[DP_PATH_BYTES];    // folder of etcd's secrets; "": the topology's
    char http[64];               // http.listen of every node but ranks; "": not set here
    bool elsewhere; // the nodes run on other machines: paths of data are theirs, and the
                    // coordinator gets no job key
};

struct dp_up_flags {
    const char *topology, *dir, *data, *json;
    bool plan, no_wan, with_faults, go_on;
};

struct dp_up {
    struct dp_up_flags flags;
    struct dp_topology *t;
    struct dp_plan plan;
    struct lh_manifest manifest;
    struct lh_units units;
    uint64_t records[DP_REGIONS_MAX]; // records of regions private at that level; 0: not counted
    bool shaped;                      // the model is of the built-in trainer's shape
    struct wk_shape shape;
    const char *unjudged; // why no language has a loss; NULL: losses are reported
    char dir[DP_PATH_BYTES];
    char data[DP_PATH_BYTES];  // token files and units.json: a folder or a store
    char texts[DP_PATH_BYTES]; // folder with units.json and the held-out texts
    char model[DP_PATH_BYTES]; // folder of the manifest if the model is imported
    struct dp_places places;
    const char *written_by; // the command that writes the settings files
    int lock;               // the folder's lock; 0: none
    char program[DP_PROGRAMS][DP_PATH_BYTES];
    struct dp_wan wan;
    bool emulated; // the wan is up
    struct dp_node node[DP_NODES_MAX];
    unsigned nodes;
    unsigned leader; // the coordinator that led last
    struct dp_procs procs;
    struct dp_proc *ender; // asks the coordinator to end the run; NULL: not started
    char threads[40];      // OMP_NUM_THREADS=N, for the commands; "": the user set it
    int64_t idle_ns;       // time since when every command's loop is over; 0: not yet
    int64_t leave_ns;      // deadline for commands to end by themselves; 0: not yet set
    int64_t started_ns;    // start of this command
    double trained_s;      // seconds in which a worker trained, over all `up`s of this folder
    double polled_s;       // time of the last poll
    bool went_on;          // the coordinator was in another phase than the end
    bool next_kept;        // dp_dir_went_on() was called
    double before_s;       // seconds of training by earlier `up`s of this folder
    struct dp_fault fault[DP_FAULTS_MAX];
    unsigned faults;
    struct dp_heldout heldout[DP_LANGUAGES_MAX]; // units.heldout_count of them
};

// The coordinator that led last. The first node is one, and so is the second where there are two.
static inline struct dp_node *dp_up_coordinator(struct dp_up *up)
{
    return &up->node[up->leader];
}
static inline const struct dp_node *dp_up_leader(const struct dp_up *up)
{
    return &up->node[up->leader];
}
// Seconds of the run, over all `up`s of its folder.
static inline double dp_up_seconds(const struct dp_up *up)
{
    return up->before_s + (double)(dp_now_ns() - up->started_ns) / 1e9;
}

#endif
