// Sends an operator's requests to a running coordinator, with an admin's certificate.
//
// The certificate names run and domain, so no flag does. With --dir, address and certificate come
// from a folder of `longhaul up`. A run on emulated links is in network namespaces that cannot be
// reached from outside: open() then moves the process into the coordinator's region (root),
// permanently.
#ifndef DP_ADMIN_H
#define DP_ADMIN_H

#include <jansson.h>

#include "common/base/limits.h"
#include "common/net/transport.h"
#include "common/net/wire.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"

enum { DP_ADDRESS_BYTES = 300, DP_SERVERS_ASKED_MAX = 256 };

struct dp_admin {
    const char *coordinator, *dir, *ca, *cert, *key; // flags
    // set by open():
    char address[DP_ADDRESS_BYTES];
    char path[3][DP_PATH_BYTES]; // paths of ca, cert, key from --dir
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_link *link;
    struct {
        char address[LH_ADDRESS_BYTES];
        struct lh_link *link;
    } server[DP_SERVERS_ASKED_MAX]; // the servers asked so far
    unsigned servers;
};

// The flags that select the coordinator, for a command's table.
#define DP_ADMIN_FLAGS(a)                                                                          \
    {"--coordinator", DP_TEXT, &(a).coordinator, "HOST:PORT", "the coordinator's address"},        \
        {"--dir", DP_TEXT, &(a).dir, "RUNDIR", "a run's folder: address and certificates"},        \
        {"--ca", DP_TEXT, &(a).ca, "FILE", "the run's CA (RUNDIR/secrets/ca.pem)"},                \
        {"--cert", DP_TEXT, &(a).cert, "FILE",                                                     \
         "an admin's certificate (RUNDIR/secrets/admin.pem)"},                                     \
    {                                                                                              \
        "--key", DP_TEXT, &(a).key, "FILE", "its key (RUNDIR/secrets/admin.key)"                   \
    }

// Completes the flags and prepares the link; sends nothing yet. LH_ERR_INVALID: too few flags;
// LH_ERR_NOT_FOUND: a missing file; LH_ERR_UNAVAILABLE: the run's links are down; LH_ERR_DENIED:
// emulated regions need root. Call close() in any case.
LH_MUST lh_err dp_admin_open(struct dp_admin *a);
void dp_admin_close(struct dp_admin *a);

// Sends one request; `take` (may be NULL) sees the answer, which is freed afterwards.
// LH_ERR_UNAVAILABLE: no answer from the address.
LH_MUST lh_err dp_admin_ask(struct dp_admin *a, enum lh_rpc rpc, const struct lh_wire_type *type,
                            const void *question, lh_err (*take)(void *arg, const void *answer),
                            void *arg);
// The coordinator's status as parsed JSON; the caller drops it. LH_ERR_MALFORMED: not a status.
LH_MUST lh_err dp_admin_status(struct dp_admin *a, json_t **out);
// The same for a text from elsewhere.
LH_MUST lh_err dp_admin_parse(const char *text, json_t **out);
// Asks all servers at once, by their addresses in `servers`: replaces the value of each one that
// answers within seconds by its status.
void dp_admin_servers(struct dp_admin *a, json_t *servers);
// Waits without sending anything.
void dp_admin_pause(struct dp_admin *a, int64_t ns);

#endif
