// The commands of the tool, in the order of the help: one row each. `longhaul COMMAND --help` shows
// their help.
#ifndef DP_COMMANDS_H
#define DP_COMMANDS_H

#include "deploy/tool/cli.h"

// RUN(command, help, words, own), or ENDS for a command that chooses its exit code (struct
// dp_command).
#define DP_COMMANDS(RUN, ENDS)                                                                     \
    ENDS(up, "Run a whole topology on this machine and check the result", NULL, false)             \
    RUN(admit, "Let back a member that was expelled, or whose pushes were set aside", NULL, false) \
    RUN(adopt, "Let another server own shards or stand by for them", NULL, false)                  \
    RUN(balancer, "Assign units of data by hand, over the balancer", "freeze thaw move", false)    \
    RUN(certs, "Make and list certificates; make a job key",                                       \
        "init issue request sign renew ls key signer", true)                                       \
    RUN(config, "Check a configuration file, explain its settings", "check explain", false)        \
    RUN(data, "Make token files and the manifest of their units from text", "prepare", false)      \
    RUN(describe, "Show everything known about a run, a region, a shard or a worker",              \
        "run region shard worker", false)                                                          \
    ENDS(doctor, "Check whether a machine has what a run needs, or a running run", NULL, false)    \
    ENDS(drain, "Let a run, a region or a worker finish its work and stop training",               \
         "run region worker", false)                                                               \
    RUN(eval, "Compute held-out losses of a parameter file", NULL, false)                          \
    RUN(events, "List the events in a run's logs: joins, kills, checkpoints, refusals", NULL,      \
        false)                                                                                     \
    RUN(generate, "Continue a text with a parameter file", NULL, false)                            \
    RUN(get, "List members, workers, shards, regions, links, plan, leases of a running run",       \
        "members workers shards regions links plan leases", false)                                 \
    RUN(gpu, "Show which GPUs, driver, CUDA plugin and NCCL a worker here would find", NULL,       \
        false)                                                                                     \
    RUN(checkpoint, "List, verify, restore and prune checkpoints", "ls verify restore prune",      \
        true)                                                                                      \
    RUN(log, "Read a server's log: its records, its integrity, any past state",                    \
        "dump verify replay", true)                                                                \
    RUN(model, "Make a model's manifest and initial parameters, new or imported", "init import",   \
        true)                                                                                      \
    RUN(expel, "Expel a worker or a server from a running run", NULL, false)                       \
    RUN(export, "Export any state of a run as a Hugging Face folder", NULL, false)                 \
    ENDS(move, "Move a server's shards to its standby while both run", NULL, false)                \
    RUN(pause, "Pause a run", NULL, false)                                                         \
    RUN(resume, "Resume a paused run", NULL, false)                                                \
    RUN(man, "Print manual pages", NULL, false)                                                    \
    RUN(completion, "Print completion scripts for bash and zsh", "bash zsh", false)                \
    RUN(privacy, "Plan, state and audit differential privacy", "plan statement audit", true)       \
    ENDS(refold, "Remove one worker's pushes from a running run", NULL, false)                     \
    RUN(render, "Render a topology for Kubernetes or Slurm", "k8s slurm", true)                    \
    RUN(retire, "Free the name of a worker that will not come back", NULL, false)                  \
    ENDS(rewind, "Take a running run back to an earlier version", NULL, false)                     \
    RUN(run, "Start your own training loop beside this host's worker", NULL, false)                \
    RUN(state, "Move a run's coordinator state from etcd into a file", "to-file", true)            \
    RUN(store, "Copy files, such as data units, to an S3 store and back", "push pull", true)       \
    RUN(top, "Watch a running run, redrawn every second", NULL, false)

#define DP_RUN(command, ...) LH_MUST lh_err dp_cmd_##command(int argc, char **argv);
#define DP_ENDS(command, ...)                                                                      \
    LH_MUST lh_err dp_cmd_##command(int argc, char **argv, enum dp_exit *exit);
DP_COMMANDS(DP_RUN, DP_ENDS)
#undef DP_RUN
#undef DP_ENDS

#endif
