// An operator's questions to a running coordinator, under an admin's certificate.
//
// The certificate says which run and domain are meant, so no flag does. With --dir, address and
// certificate are those of a folder of `longhaul up`. A run on emulated links lives in network
// namespaces that nothing outside reaches: open() then moves the process into the coordinator's
// region (root), for good.
#ifndef DP_ADMIN_H
#define DP_ADMIN_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "common/base/limits.h"
#include "common/net/transport.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"

enum { DP_ADDRESS_BYTES = 300, DP_SERVERS_ASKED_MAX = 256 };

struct dp_admin {
    const char *coordinator, *dir, *ca, *cert, *key; // flags
    // what follows is open()'s
    char address[DP_ADDRESS_BYTES];
    char path[3][DP_PATH_BYTES]; // paths of ca, cert, key where they come from --dir
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_link *link;
    struct {
        char address[LH_ADDRESS_BYTES];
        struct lh_link *link;
    } server[DP_SERVERS_ASKED_MAX]; // those that were asked
    unsigned servers;
};

// The flags that say whom to ask, for a command's table.
#define DP_ADMIN_FLAGS(a)                                                                          \
    {"--coordinator", DP_TEXT, &(a).coordinator, "HOST:PORT", "the coordinator's address"},        \
        {"--dir", DP_TEXT, &(a).dir, "RUNDIR", "a run's folder: address and certificates"},        \
        {"--ca", DP_TEXT, &(a).ca, "FILE", "the run's CA (RUNDIR/secrets/ca.pem)"},                \
        {"--cert", DP_TEXT, &(a).cert, "FILE",                                                     \
         "an admin's certificate (RUNDIR/secrets/admin.pem)"},                                     \
    {                                                                                              \
        "--key", DP_TEXT, &(a).key, "FILE", "its key (RUNDIR/secrets/admin.key)"                   \
    }

// Completes what the flags left out and prepares to ask; nothing is sent yet. LH_ERR_INVALID: too
// few flags; LH_ERR_NOT_FOUND: a file; LH_ERR_UNAVAILABLE: a run whose links are down;
// LH_ERR_DENIED: emulated regions, and not root. close() in any case.
LH_MUST lh_err dp_admin_open(struct dp_admin *a);
void dp_admin_close(struct dp_admin *a);

// One question; `take` (may be NULL) sees the answer, which is gone when it returns.
// LH_ERR_UNAVAILABLE: nobody answers at the address.
LH_MUST lh_err dp_admin_ask(struct dp_admin *a, enum lh_rpc rpc, const ProtobufCMessage *question,
                            const ProtobufCMessageDescriptor *answer,
                            lh_err (*take)(void *arg, const ProtobufCMessage *answer), void *arg);
// The coordinator's status as parsed JSON; the caller drops it. LH_ERR_MALFORMED: it is none.
LH_MUST lh_err dp_admin_status(struct dp_admin *a, json_t **out);
// The same, of a text that came otherwise.
LH_MUST lh_err dp_admin_parse(const char *text, json_t **out);
// The status of the server at an address that the coordinator named; the caller drops it.
// LH_ERR_UNAVAILABLE, LH_ERR_DEADLINE: it does not answer within seconds.
LH_MUST lh_err dp_admin_server(struct dp_admin *a, const char *address, json_t **out);
// Waits without asking.
void dp_admin_pause(struct dp_admin *a, int64_t ns);

#endif
