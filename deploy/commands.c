// The commands of the tool, in the order in which help shows them. A new one is a row here and a
// prototype in commands.h.
#include "deploy/commands.h"

const struct dp_command dp_commands[] = {
    {"up", dp_cmd_up, "Run a whole topology on this machine, to its verdict", NULL, false},
    {"certs", dp_cmd_certs, "Make and list certificates; make a job key",
     "init issue ls key signer", true},
    {"config", dp_cmd_config, "Check a configuration file, explain its settings", "check explain",
     false},
    {"data", dp_cmd_data, "Turn text into token files and the manifest of their units", "prepare",
     false},
    {"describe", dp_cmd_describe, "All that is known of a run, a region, a shard or a worker",
     "run region shard worker", false},
    {"drain", dp_cmd_drain, "Let a run, a region or a worker finish its work and stand still",
     "run region worker", false},
    {"eval", dp_cmd_eval, "Held-out losses of a parameter file", NULL, false},
    {"events", dp_cmd_events, "Joins, kills, checkpoints, refusals: what the logs of a run say",
     NULL, false},
    {"generate", dp_cmd_generate, "Text that a parameter file goes on with", NULL, false},
    {"get", dp_cmd_get, "What a running coordinator knows of workers, shards, regions, leases",
     "workers shards regions leases", false},
    {"checkpoint", dp_cmd_checkpoint, "List, verify, restore and prune checkpoints",
     "ls verify restore prune", true},
    {"log", dp_cmd_log, "Read a server's log: its records, whether it is whole, any past state",
     "dump verify replay", true},
    {"model", dp_cmd_model, "Manifest and initial parameters of a new model", "init", false},
    {"move", dp_cmd_move, "Let a server's shards go to its standby while both live", NULL, false},
    {"man", dp_cmd_man, "Manual pages, generated from the commands' own tables", NULL, false},
    {"completion", dp_cmd_completion, "Completion for bash and zsh, generated likewise", "bash zsh",
     false},
    {"top", dp_cmd_top, "A running run, drawn anew every second", NULL, false},
    {NULL, NULL, NULL, NULL, false},
};
