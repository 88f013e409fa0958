// Sealing: authenticated encryption of frames and of data at rest under the job's keys.
//
// The job key (32 random bytes, in a file outside the data directory) encrypts nothing itself. Each
// (purpose, cipher, key id, worker, incarnation, shard) has its own subkey, so a random nonce of 12
// bytes is enough for AES-GCM, and a frame unseals only in its own context:
//
//   subkey = BLAKE2b-256, keyed by the job key, of these 49 bytes, integers little endian:
//     0  15  "longhaul seal 1"
//     15  1  purpose             enum lh_seal_purpose
//     16  1  cipher              enum lh_cipher
//     17  4  key id
//     21  8  worker
//     29  8  incarnation
//     37  8  incarnation_random
//     45  4  shard
//
// A holder of the job key can unseal everything and seal in anybody's name; there is no forward
// secrecy. A caller that seals draws a new nonce from the env's random numbers for each call.
//
// Threads: one thread fills a ring before others see it. lh_seal and lh_unseal change no shared
// state and may run on any number of threads at once.
#ifndef LH_COMMON_SEAL_H
#define LH_COMMON_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_SEAL_KEY_BYTES = 32, LH_SEAL_TAG_BYTES = 16, LH_SEAL_NONCE_BYTES = 24 };
enum { LH_KEYRING_MAX = 16 }; // one key in use, the others for older sealed bytes

struct lh_seal_key {
    uint8_t b[LH_SEAL_KEY_BYTES];
};

enum lh_cipher {
    LH_CIPHER_XCHACHA20 = 1, // XChaCha20-Poly1305, all 24 bytes of the nonce; on every processor
    LH_CIPHER_AES256GCM = 2, // AES-256-GCM, the nonce's first 12 bytes; if the processor has AES
};

enum lh_seal_purpose {
    LH_SEAL_FRAME = 1,
    LH_SEAL_AT_REST = 2,
    LH_SEAL_SNAPSHOT = 3, // a fold state in transit from a server to a follower (state_seal.h)
    LH_SEAL_RESTORE = 4,  // a fold state in transit from a follower to a server
};

struct lh_seal_context {
    uint64_t worker, incarnation, incarnation_random; // a server's data at rest: its own numbers
    uint32_t shard;
    enum lh_seal_purpose purpose;
};

// ---- keys

// Keys by id, in guarded memory that is wiped when the ring is destroyed.
struct lh_keyring;
LH_MUST lh_err lh_keyring_create(struct lh_keyring **out);
void lh_keyring_destroy(struct lh_keyring *ring); // NULL is allowed

// Copies a key in. id >= 1. LH_ERR_EXISTS: the id has other bytes; LH_ERR_TOO_LARGE: the ring is
// full.
LH_MUST lh_err lh_keyring_add(struct lh_keyring *ring, uint32_t key_id,
                              const struct lh_seal_key *key);
// Adds the keys of a file: 64 hexadecimal digits (key 1), or lines "id:64 digits". Blank lines and
// lines that begin with # are ignored. LH_ERR_DENIED: group or others can read the file;
// LH_ERR_CONFIG gives the number of the bad line, never its text; LH_ERR_NOT_FOUND.
LH_MUST lh_err lh_keyring_load(struct lh_keyring *ring, const char *path);
// The id to seal with: the first key's, in the order of the file; 0 for an empty ring. So a new key
// is added to every node's file before it is moved to the first place of any.
uint32_t lh_keyring_first(const struct lh_keyring *ring);

// Writes a new random key to a file of mode 0600; never overwrites (LH_ERR_EXISTS).
LH_MUST lh_err lh_key_generate(const char *path);

// ---- sealing

bool lh_cipher_available(enum lh_cipher cipher);

// out[plain.len + LH_SEAL_TAG_BYTES] = ciphertext, tag. `ad` is authenticated, not stored. `out`
// must not overlap `plain`. LH_ERR_KEY_MISSING, LH_ERR_UNSUPPORTED, LH_ERR_TOO_LARGE.
LH_MUST lh_err lh_seal(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                       const struct lh_seal_context *context, struct lh_span ad,
                       const uint8_t nonce[LH_SEAL_NONCE_BYTES], struct lh_span plain,
                       uint8_t *out);
// The reverse: out[sealed.len - LH_SEAL_TAG_BYTES], which must not overlap `sealed`. LH_ERR_UNSEAL:
// any input differs from the sealed one (`out` is then wiped), or `sealed` is shorter than a tag;
// LH_ERR_KEY_MISSING, LH_ERR_UNSUPPORTED, LH_ERR_TOO_LARGE.
LH_MUST lh_err lh_unseal(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                         const struct lh_seal_context *context, struct lh_span ad,
                         const uint8_t nonce[LH_SEAL_NONCE_BYTES], struct lh_span sealed,
                         uint8_t *out);
// The same for a text in `parts` spans, which need not be contiguous. lh_unseal_parts() gets the
// tag separately.
LH_MUST lh_err lh_seal_parts(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                             const struct lh_seal_context *context, struct lh_span ad,
                             const uint8_t nonce[LH_SEAL_NONCE_BYTES], const struct lh_span *plain,
                             size_t parts, uint8_t *out);
LH_MUST lh_err lh_unseal_parts(const struct lh_keyring *ring, enum lh_cipher cipher,
                               uint32_t key_id, const struct lh_seal_context *context,
                               struct lh_span ad, const uint8_t nonce[LH_SEAL_NONCE_BYTES],
                               const struct lh_span *sealed, size_t parts,
                               const uint8_t tag[LH_SEAL_TAG_BYTES], uint8_t *out);

#endif
