// Private keys: one copy of each in this process. See transport_grpc_core.h.
//
// gRPC takes a key as PEM text, copies the text into every credential, and frees the copies without
// wiping them. So gRPC gets a name instead, and the programs define their own
// PEM_read_bio_PrivateKey() (as transport_grpc_door.c does with accept4()), which maps the name to
// the one parsed key. The key's secret number is in OpenSSL's secure heap: locked in memory,
// between guard pages, in no core dump.
//
//  1. A name is looked up, never parsed; a peer has no way to send one.
//  2. A key lives until its name is dropped and the last TLS context that uses it is freed.
//  3. gRPC reads the key when it makes a TLS context, on a thread of its choice. So that thread
//     learns here which guard the context is under (transport_grpc_guard.c).
#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/net/grpc/transport_grpc_core.h"

enum { SECURE_BYTES = 64 << 10, SECURE_BYTES_MIN = 16 };

struct held {
    struct held *next;
    EVP_PKEY *key;
    struct lh_grpc_guard *guard; // a reference
    char name[LH_GRPC_KEY_NAME_BYTES];
};

// PEM_read_bio_PrivateKey() has no context, so the table is global.
static struct {
    pthread_mutex_t lock;
    struct held *first;
    uint64_t last;
} keys = {.lock = PTHREAD_MUTEX_INITIALIZER};

void lh_grpc_key_prepare(void)
{
    pthread_mutex_lock(&keys.lock);
    // If the limit of locked memory is too low, the heap works, but unlocked.
    if (!CRYPTO_secure_malloc_initialized())
        (void)CRYPTO_secure_malloc_init(SECURE_BYTES, SECURE_BYTES_MIN);
    pthread_mutex_unlock(&keys.lock);
}

lh_err lh_grpc_key_keep(struct evp_pkey_st *key, struct lh_grpc_guard *guard,
                        char name[LH_GRPC_KEY_NAME_BYTES])
{
    struct held *h = calloc(1, sizeof *h);
    if (!h) return LH_ERR_NO_MEMORY;
    EVP_PKEY_up_ref(key);
    h->key = key;
    h->guard = lh_grpc_guard_share(guard);
    pthread_mutex_lock(&keys.lock);
    snprintf(h->name, sizeof h->name, "longhaul key %llu", (unsigned long long)++keys.last);
    memcpy(name, h->name, sizeof h->name);
    h->next = keys.first;
    keys.first = h;
    pthread_mutex_unlock(&keys.lock);
    return LH_OK;
}

void lh_grpc_key_drop(const char *name)
{
    struct held *found = NULL;
    pthread_mutex_lock(&keys.lock);
    for (struct held **at = &keys.first; *at && !found; at = found ? at : &(*at)->next) {
        if (strcmp((*at)->name, name) != 0) continue;
        found = *at;
        *at = found->next;
    }
    pthread_mutex_unlock(&keys.lock);
    if (found) EVP_PKEY_free(found->key);
    if (found) lh_grpc_guard_drop(found->guard);
    free(found);
}

static EVP_PKEY *take(const char *text, size_t n)
{
    pthread_mutex_lock(&keys.lock);
    const struct held *h = keys.first;
    while (h && (strlen(h->name) != n || memcmp(h->name, text, n) != 0)) h = h->next;
    EVP_PKEY *key = h ? h->key : NULL;
    if (key) EVP_PKEY_up_ref(key);
    if (key) lh_grpc_guard_make(h->guard); // this thread makes a context
    pthread_mutex_unlock(&keys.lock);
    return key;
}

// Replaces PEM_read_bio_PrivateKey() for the linker. On gRPC's threads and ours.
EVP_PKEY *lh_grpc_read_key(BIO *bio, EVP_PKEY **out, pem_password_cb *callback,
                           void *arg) __asm__("PEM_read_bio_PrivateKey");
EVP_PKEY *lh_grpc_read_key(BIO *bio, EVP_PKEY **out, pem_password_cb *callback, void *arg)
{
    EVP_PKEY *(*real)(BIO *, EVP_PKEY **, pem_password_cb *, void *);
    char *text = NULL;
    long n = BIO_method_type(bio) == BIO_TYPE_MEM ? BIO_get_mem_data(bio, &text) : 0;
    EVP_PKEY *key = n > 0 ? take(text, (size_t)n) : NULL;
    if (key) return key;
    *(void **)&real = dlsym(RTLD_NEXT, "PEM_read_bio_PrivateKey");
    return real ? real(bio, out, callback, arg) : NULL;
}
