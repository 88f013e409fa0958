// Settings of every node of a run, server or worker: trusted certificates, keys, directories, logs.
// The node's identity comes from its certificate (tls.cert). These rows come first in the tables of
// server/settings.c and worker/settings.c.
#ifndef LH_COMMON_NODE_H
#define LH_COMMON_NODE_H

#include "common/app/config.h"
#include "common/format/frame.h"
#include "common/security/certs.h"
#include "common/security/seal.h"

struct lh_node {
    const char *coordinator; // host:port; "": this node is the coordinator
    int64_t budget_tokens;   // 0: all (workers only)
    int64_t epochs, seed;    // epochs 0: one; at a worker the run's number
    const char *units, *data_dir;
    const char *tls_ca, *tls_cert, *tls_key, *tls_revoked;
    const char *seal_keys; // file of job keys
    int64_t seal_key_id;
    int seal_cipher; // index of its word; lh_node_cipher() gives the cipher
    const char *manifest;
    const char *dir;
    int log_level;  // enum lh_level
    int log_format; // 0 text, 1 json
    const char *log_file;
    const char *log_tensorboard; // "": no event files
    const char *http_listen;     // "": no HTTP server
};

// clang-format off
#define LH_NODE_ROWS(T, node)                                                                      \
    LH_CONFIG_ROW_INT(T, user, "run.budget_tokens", node.budget_tokens, "all", 0, 1e15, "tokens",  \
        "all=0", "Credited tokens at which the run ends, and the learning rate's schedule with "   \
        "it; where loops have data of their own, tokens of admitted pushes. A coordinator needs a "\
        "number; all, of a worker: each unit of each epoch"),                                      \
    LH_CONFIG_ROW_INT(T, rare, "run.epochs", node.epochs, "0", 0, LH_UNITS_MAX, NULL, NULL,        \
        "Times that each unit of data is trained, from the second one on in another order each "   \
        "time. 0: once; of a worker: as often as the coordinator says. A worker with another "     \
        "number than the coordinator's ends with an error"),                                       \
    LH_CONFIG_ROW_INT(T, rare, "run.seed", node.seed, "1", 0, 4294967295.0, NULL, NULL,            \
        "Seed of the order of units in the later epochs, and of what a trainer draws"),            \
    LH_CONFIG_ROW_STRING(T, user, "data.units", node.units, "",                                    \
        "Manifest of the data's units (JSON file), the same bytes everywhere, but for a private "  \
        "region's own: there each unit of this region is a record. A coordinator and a "           \
        "worker need it; empty, at a server with data.dir: units.json there"),                     \
    LH_CONFIG_ROW_STRING(T, user, "data.dir", node.data_dir, "",                                   \
        "Folder of the token files that the manifest names. A worker trains on them (an external " \
        "trainer reads its own); a server gives those of its region to workers that have not got " \
        "them, as far as the manifest lets them leave"),                                           \
    LH_CONFIG_ROW_STRING(T, user, "coordinator", node.coordinator, "",                             \
        "Address of the coordinator, host:port"),                                                  \
    LH_CONFIG_ROW_STRING(T, user, "tls.ca", node.tls_ca, NULL,                                     \
        "Certificate authority of the run (PEM file)"),                                            \
    LH_CONFIG_ROW_STRING(T, user, "tls.cert", node.tls_cert, NULL,                                 \
        "This node's certificate (PEM file)"),                                                     \
    LH_CONFIG_ROW_SECRET(T, user, "tls.key", node.tls_key, "LONGHAUL_TLS_KEY",                     \
        "Private key of this node's certificate (PEM file)"),                                      \
    LH_CONFIG_ROW_STRING(T, rare, "tls.revoked", node.tls_revoked, "",                             \
        "File of revoked certificates' serials, one a line; it is read again every 10 s"),         \
    LH_CONFIG_ROW_SECRET(T, user, "seal.keys", node.seal_keys, "LONGHAUL_SEAL_KEYS",               \
        "File of the run's job keys, which seal every push"),                                      \
    LH_CONFIG_ROW_INT(T, rare, "seal.key_id", node.seal_key_id, "1", 1, 65535, NULL, NULL,         \
        "Job key that new pushes are sealed with"),                                                \
    LH_CONFIG_ROW_ENUM(T, rare, "seal.cipher", node.seal_cipher, "xchacha20",                      \
        "xchacha20|aes256gcm",                                                                     \
        "Cipher of new pushes; AES needs a processor that has it"),                                \
    LH_CONFIG_ROW_STRING(T, user, "model.manifest", node.manifest, NULL,                           \
        "Manifest of the model's tensors and shards (JSON file); the same everywhere"),            \
    LH_CONFIG_ROW_STRING(T, user, "dir", node.dir, NULL,                                           \
        "State directory of this node; one process at a time"),                                    \
    LH_CONFIG_ROW_ENUM(T, user, "log.level", node.log_level, "info", "debug|info|warn|error",      \
        "Least severe events that are logged"),                                                    \
    LH_CONFIG_ROW_ENUM(T, rare, "log.format", node.log_format, "text", "text|json",                \
        "Lines for people or for machines"),                                                       \
    LH_CONFIG_ROW_STRING(T, rare, "log.file", node.log_file, "",                                   \
        "Log file; empty: standard error"),                                                        \
    LH_CONFIG_ROW_STRING(T, rare, "log.tensorboard", node.log_tensorboard, "",                     \
        "Folder for TensorBoard's event files of this node's metrics, which lie in a folder of "   \
        "its name there; empty: none"),                                                            \
    LH_CONFIG_ROW_STRING(T, rare, "http.listen", node.http_listen, "",                             \
        "Address for /metrics, /healthz, /readyz, /status.json and the coordinator's page, "       \
        "host:port, read-only and without a login; port 0: any; fd:N: a socket that listens; "     \
        "empty: none")
// clang-format on

static inline enum lh_cipher lh_node_cipher(const struct lh_node *node)
{
    return node->seal_cipher ? LH_CIPHER_AES256GCM : LH_CIPHER_XCHACHA20;
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

#endif
