// Settings of every node of a run, server or worker: trusted certificates, keys, directories, logs.
// The node's identity comes from its certificate (tls.cert). These rows come first in the tables of
// server/settings.c and worker/settings.c.
#ifndef LH_COMMON_NODE_H
#define LH_COMMON_NODE_H

#include "common/app/config.h"
#include "common/format/frame.h"
#include "common/security/certs.h"
#include "common/security/seal.h"

// clang-format off
struct lh_node {
#define LH_SETTING LH_SETTING_FIELD
#define LH_SETTINGS_GROUP(name) struct {
#define LH_SETTINGS_END(name) } name;
#include "common/app/node.def"
};
// clang-format on

static inline enum lh_cipher lh_node_cipher(const struct lh_node *node)
{
    return node->seal.cipher ? LH_CIPHER_AES256GCM : LH_CIPHER_XCHACHA20;
}
// Distinguishes this run's frames, logs and checkpoints from another run's: the first bytes of
// BLAKE2b-256("longhaul job 1" | domain | "/" | run).
void lh_job_id(const char *domain, const char *run, uint8_t out[LH_JOB_BYTES]);
// Checks these rows for both tables: addresses are host:port, tls.key is set. LH_ERR_CONFIG names
// the key.
LH_MUST lh_err lh_node_check(const struct lh_node *node);
// Reads this node's identity and expiry from the certificate tls.cert. LH_ERR_CONFIG: it is a CA's.
LH_MUST lh_err lh_node_identity(const struct lh_node *node, struct lh_certs_info *out);
// Fails with LH_ERR_CONFIG when `value`, a setting that the role `who` needs, is "".
LH_MUST lh_err lh_setting_needed(const char *key, const char *value, const char *who);
// "host:port", "[v6]:port"; port 0 only with `any_port`.
LH_MUST lh_err lh_address_check(const char *key, const char *value, bool any_port);
// One or more of them, separated by commas.
LH_MUST lh_err lh_addresses_check(const char *key, const char *value);

#endif
