// The access key of an S3 store, from where other programs have theirs too.
//
// In this order: the file that a setting names; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with
// AWS_SESSION_TOKEN; the file AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials. A file has
// sections [NAME] with lines `aws_access_key_id = ...`, `aws_secret_access_key = ...` and, of a
// session, `aws_session_token = ...`; the section is AWS_PROFILE, or `default`. It is read again
// for each request, so a key that is replaced in the file is used at once.
#ifndef LH_COMMON_CREDENTIALS_H
#define LH_COMMON_CREDENTIALS_H

#include "common/objects/sigv4.h"

// LH_ERR_CONFIG: nobody has a key, or a file can't be read as such; LH_ERR_DENIED: others than the
// file's owner may read it.
LH_MUST lh_err lh_credentials_load(const char *file, const char *(*variable)(const char *),
                                   struct lh_sigv4_keys *out);
// Reads one section of a file's text.
LH_MUST lh_err lh_credentials_parse(struct lh_span text, const char *section,
                                    struct lh_sigv4_keys *out);

#endif
