// Addresses and keys of object stores, and hashes of files. See address.h.
#include "common/objects/address.h"
#include "common/objects/objects.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char S3[] = "s3://", FOLDER[] = "file://";

static bool is_s3(const char *address)
{
    return !strncmp(address, S3, sizeof S3 - 1);
}

bool lh_objects_is(const char *address)
{
    return is_s3(address) || !strncmp(address, FOLDER, sizeof FOLDER - 1);
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

bool lh_object_key_fits(const char *key)
{
    size_t n = 0;
    while (is_plain(key[n])) n++;
    return n && !key[n] && n < LH_OBJECT_KEY_BYTES && key[0] != '.';
}

// The path consists of names between slashes; none is empty, "." or "..".
static bool are_names(const char *path)
{
    size_t n = 0, dots = 0;
    for (;; path++) {
        bool ends = !*path || *path == '/';
        if (!ends && !is_plain(*path)) return false;
        if (!ends) n++, dots += *path == '.';
        if (ends && (!n || (dots == n && n <= 2))) return false;
        if (!*path) return true;
        if (ends) n = dots = 0;
    }
}

lh_err lh_objects_check(const char *address)
{
    bool fits = strlen(address) < LH_PATH_BYTES && lh_objects_is(address);
    if (fits && !is_s3(address) && address[sizeof FOLDER - 1] == '/') return LH_OK;
    if (fits && is_s3(address) && are_names(address + sizeof S3 - 1)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "%.100s: want s3://BUCKET/PREFIX of letters, digits and -._, without a slash at "
                   "its end, or file:///FOLDER",
                   address);
}

lh_err lh_object_hash(struct lh_env *env, const char *path, char out[LH_OBJECT_HASH_BYTES],
                      uint64_t *bytes)
{
    enum { BLOCK = 1 << 20 };
    crypto_hash_sha256_state state;
    uint8_t hash[crypto_hash_sha256_BYTES], *block = malloc(BLOCK);
    struct lh_file *file = NULL;
    size_t got = 0;
    *bytes = 0;
    if (!block) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a hash");
    lh_err err = env->ops->files->open(env, path, LH_OPEN_READ, &file);
    (void)crypto_hash_sha256_init(&state); // None of these three calls fails.
    do {
        if (!err) err = env->ops->files->read(file, *bytes, block, BLOCK, &got);
        if (!err) (void)crypto_hash_sha256_update(&state, block, got);
        if (!err) *bytes += got;
    } while (!err && got);
    (void)crypto_hash_sha256_final(&state, hash);
    sodium_bin2hex(out, LH_OBJECT_HASH_BYTES, hash, sizeof hash);
    if (file) env->ops->files->close(file);
    free(block);
    return err;
}
