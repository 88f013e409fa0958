// A job as needed to read its stored files: the run's name, its model and its keys.
//
// A server's settings file (--config) gives all of it; single flags may too, and take precedence.
#ifndef DP_JOB_H
#define DP_JOB_H

#include "common/app/config.h"
#include "common/env/env.h"
#include "common/format/frame.h"
#include "common/format/manifest.h"
#include "common/security/certs.h"
#include "common/security/seal.h"
#include "deploy/tool/files.h"

struct dp_job {
    const char *config, *run, *domain, *manifest_path, *keys_path, *weights_path; // flags
    // set by open()
    const char *dir; // the settings file's folder; NULL: none was given
    struct lh_config *settings;
    struct lh_certs_info identity; // the certificate's
    uint8_t id[LH_JOB_BYTES];
    bool has_id, has_manifest, has_keys;
    struct lh_manifest manifest;
    struct lh_keyring *keys;
    struct lh_env *env;
    float *weights; // set by dp_job_weights()
};

// The flags, for a command's table.
#define DP_JOB_FLAGS(j)                                                                            \
    {"--config", DP_TEXT, &(j).config, "FILE",                                                     \
     "the server's settings: its directory, and all that follows"},                                \
        {"--manifest", DP_TEXT, &(j).manifest_path, "FILE", "the model's manifest"},               \
        {"--run", DP_TEXT, &(j).run, "NAME", "the run they are of"},                               \
        {"--domain", DP_TEXT, &(j).domain, "DOMAIN", "its trust domain (" LH_DOMAIN_DEFAULT ")"},  \
    {                                                                                              \
        "--keys", DP_TEXT, &(j).keys_path, "FILE", "the run's job keys"                            \
    }

// Reads what the flags name and leaves out the rest (has_...). With `all`, run, manifest and keys
// must be there: LH_ERR_INVALID. close() in any case.
LH_MUST lh_err dp_job_open(struct dp_job *j, bool all);
void dp_job_close(struct dp_job *j);
// Reads the model's initial parameters once; the job owns them. LH_ERR_INVALID: no file named.
LH_MUST lh_err dp_job_weights(struct dp_job *j, const float **out);

// The log and the checkpoints of a node's directory. A folder without such a subfolder counts as
// one itself.
LH_MUST lh_err dp_job_log_dir(const char *dir, char out[DP_PATH_BYTES]);
LH_MUST lh_err dp_job_checkpoint_dir(const char *dir, char out[DP_PATH_BYTES]);
LH_MUST lh_err dp_job_no_log(const char *dir); // LH_ERR_NOT_FOUND, and what to give instead
// Whether a server runs on the directory now (it holds DIR/lock).
bool dp_job_running(struct lh_env *env, const char *dir);

#endif
