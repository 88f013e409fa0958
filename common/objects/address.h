// Addresses and keys of object stores (forms: objects.h). See address.c.
#ifndef LH_COMMON_ADDRESS_H
#define LH_COMMON_ADDRESS_H

#include "common/env/env.h"

enum { LH_OBJECT_HASH_BYTES = 64 + 1 };

// Tells a store's address from a folder of checkpoints.
bool lh_objects_is(const char *address);
// Checks the form of the address. LH_ERR_CONFIG: its text says how to write one.
LH_MUST lh_err lh_objects_check(const char *address);
bool lh_object_key_fits(const char *key);
// Gives the SHA-256 of a file in hexadecimal digits, and its size.
LH_MUST lh_err lh_object_hash(struct lh_env *env, const char *path, char out[LH_OBJECT_HASH_BYTES],
                              uint64_t *bytes);

#endif
