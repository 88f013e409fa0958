// The parts of longhaul-server's process that node.c and node_coordinator.c share. Included by
// these two files only.
#ifndef PS_NODE_PARTS_H
#define PS_NODE_PARTS_H

#include "common/app/units_file.h"
#include "common/security/hmac.h"
#include "common/security/sign.h"
#include "server/command.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/schedule.h"
#include "server/coordinator/store/lead.h"
#include "server/coordinator/watch/hook_call.h"
#include "server/coordinator/watch/rules_text.h"
#include "server/node.h"
#include "server/server.h"
#include "server/settings.h"

struct ps_uploader;

struct ps_node {
    struct lh_program *program;
    const struct ps_settings *settings;
    struct ps_server *server;           // NULL: no server role
    struct ps_coordinator *coordinator; // NULL: no coordinator role, or not leading yet
    struct ps_lead *lead;               // NULL: the coordinator's store is a file
    struct lh_units units, given_units; // units of the coordinator; units of data.dir
    struct ps_schedule schedule;
    struct ps_terms terms;
    struct ps_command scale_command;
    struct ps_hook_call hook;
    struct ps_rules rules;
    struct lh_signer *signer; // signs checkpoints; NULL: checkpoints are not signed
    struct lh_trusted trusted;
    uint32_t shard[LH_CONFIG_INTS_MAX];
    char address[LH_ADDRESS_BYTES];
    struct lh_service door;       // the door of both roles
    struct lh_log *audit;         // the audit file of both roles
    struct ps_uploader *uploader; // NULL: checkpoint.store is empty
    bool again;                   // the process is to start again in place
    char checkpoints[LH_PATH_BYTES];
};

// ---- node_coordinator.c
LH_MUST lh_err ps_node_read_units(const char *key, const char *path, struct lh_units *out);
// Starts the coordinator; where its store is in etcd, once it leads.
LH_MUST lh_err ps_node_start_coordinator(struct ps_node *n);
// The status of a coordinator whose store is in etcd: the coordinator's object, or of a standby
// {"role": "coordinator", "phase": "standby"}; with that of the lead.
LH_MUST lh_err ps_node_lead_status(struct ps_node *n, struct lh_buf *out);
// Ends the program; main() then runs it once more, without any memory of the first run. `arg` is
// the node.
void ps_node_start_again(void *arg);

#endif
