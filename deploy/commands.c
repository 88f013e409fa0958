// The commands of the tool, in the order in which help shows them. A new one is a row here and a
// prototype in commands.h.
#include "deploy/commands.h"

const struct dp_command dp_commands[] = {
    {"up", dp_cmd_up, "Run a whole topology on this machine, to its verdict"},
    {"certs", dp_cmd_certs, "Make and list certificates; make a job key"},
    {"config", dp_cmd_config, "Check a configuration file, explain its settings"},
    {"data", dp_cmd_data, "Turn text into token files and the manifest of their units"},
    {"describe", dp_cmd_describe, "All that is known of a run, a region, a shard or a worker"},
    {"drain", dp_cmd_drain, "Let a run, a region or a worker finish its work and stand still"},
    {"eval", dp_cmd_eval, "Held-out losses of a parameter file"},
    {"events", dp_cmd_events, "Joins, kills, checkpoints, refusals: what the logs of a run say"},
    {"generate", dp_cmd_generate, "Text that a parameter file goes on with"},
    {"get", dp_cmd_get, "What a running coordinator knows of workers, shards, regions, leases"},
    {"checkpoint", dp_cmd_checkpoint, "List and verify checkpoints"},
    {"model", dp_cmd_model, "Manifest and initial parameters of a new model"},
    {"top", dp_cmd_top, "A running run, drawn anew every second"},
    {NULL, NULL, NULL},
};
