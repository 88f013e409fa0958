// The access key of an S3 store, from the places that other AWS programs use.
//
// The first of these that is set counts: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with
// AWS_SESSION_TOKEN; a web identity (web_identity.h), which callers
// look at before load(); the file AWS_SHARED_CREDENTIALS_FILE; the file
// ~/.aws/credentials. A file has sections [NAME] with lines `aws_access_key_id = ...`,
// `aws_secret_access_key = ...` and, for a session, `aws_session_token = ...`. The section is
// AWS_PROFILE, or `default`. Each request reads the file again, so a replaced key counts at once.
#ifndef LH_COMMON_CREDENTIALS_H
#define LH_COMMON_CREDENTIALS_H

#include "common/objects/sigv4.h"

// LH_ERR_CONFIG: no place has a key, or a file is malformed; LH_ERR_DENIED: users other than the
// file's owner may read it.
LH_MUST lh_err lh_credentials_load(const char *(*variable)(const char *),
                                   struct lh_sigv4_keys *out);
// Reads one section of a file's text.
LH_MUST lh_err lh_credentials_parse(struct lh_span text, const char *section,
                                    struct lh_sigv4_keys *out);

#endif
