// A fold state on its way, sealed with the job key: snapshots to those who join, and what a
// follower brings to a server that lost its own.
//
// Mutual TLS says which certificate speaks; it does not say that its holder has the job key. Sealed
// pieces do: whoever lacks the key can neither make a state that is taken nor read one.
//
// The state's bytes are divided into pieces of LH_STATE_PIECE_BYTES, the last one shorter; each is
// one message, ciphertext and tag (seal.h). One stream of pieces has a subkey of its own, from
//
//   purpose      LH_SEAL_SNAPSHOT or LH_SEAL_RESTORE: one can't be turned into the other
//   worker, incarnation   the sender's 16 random bytes (`stream`), as two little-endian numbers
//   shard
//
// so the nonce may count: bytes 0-7 are the piece's number from 0 on, little endian, the others 0.
// A sender draws `stream` anew for every stream, so no nonce is used twice under a subkey. The
// associated data of a piece, integers little endian:
//
//     0  16  "longhaul state 1"          116   4  bytes of this piece, without its tag
//    16  16  job                         120   8  epoch
//    32  32  hash of the manifest        128   8  version
//    64  32  chain                       136   8  bytes of the state in all
//    96  16  challenge: random bytes     144   8  number of this piece
//            of the receiver's           152   8  offset of its first byte
//   112   4  shard
//
// Pieces can't be mixed, reordered, left out or cut short, and a stream that was recorded opens for
// no other challenge, so nobody is handed an old state again.
#ifndef LH_COMMON_STATE_SEAL_H
#define LH_COMMON_STATE_SEAL_H

#include "common/base/limits.h"
#include "common/format/frame.h"
#include "common/net/transport.h"
#include "common/security/seal.h"
#include "longhaul/v1/shard.pb-c.h"

enum { LH_STATE_RANDOM_BYTES = 16, LH_STATE_PIECE_BYTES = LH_PART_BYTES - LH_SEAL_TAG_BYTES };

// One stream, at either end. Filled by lh_state_seal_start() or lh_state_unseal_begin().
struct lh_state_seal {
    const struct lh_keyring *keys; // borrows
    enum lh_seal_purpose purpose;
    enum lh_cipher cipher;
    uint32_t key_id, shard;
    uint8_t job[LH_JOB_BYTES];
    struct lh_hash manifest, chain;
    uint64_t epoch, version, total;
    uint8_t challenge[LH_STATE_RANDOM_BYTES], stream[LH_STATE_RANDOM_BYTES];
    uint64_t at; // bytes that are sealed or opened by now
};

// Fills in what both ends know before: purpose, keys, job, manifest, shard and the challenge.
// LH_ERR_INVALID: no keys; LH_ERR_MALFORMED: the challenge has another length.
LH_MUST lh_err lh_state_seal_init(struct lh_state_seal *s, enum lh_seal_purpose purpose,
                                  const struct lh_keyring *keys, const uint8_t job[LH_JOB_BYTES],
                                  const struct lh_hash *manifest, uint32_t shard,
                                  struct lh_span challenge);

// ---- sender

// Begins: draws `stream` from the env. Then `head` is what the first message carries; it borrows
// from `s`.
void lh_state_seal_begin(struct lh_state_seal *s, struct lh_env *env, enum lh_cipher cipher,
                         uint32_t key_id, uint64_t epoch, uint64_t version,
                         const struct lh_hash *chain, uint64_t total);
// Goes on at byte `from` of the state, at either end: a stream may be of a range of the pieces.
// LH_ERR_MALFORMED: no piece begins there.
LH_MUST lh_err lh_state_seal_from(struct lh_state_seal *s, uint64_t from);
struct lh_state_head {
    Longhaul__V1__Seal seal;
    Longhaul__V1__Point of;
};
void lh_state_seal_head(const struct lh_state_seal *s, struct lh_state_head *head);
// Bytes of the next piece without its tag; 0 when all are sealed.
size_t lh_state_seal_next(const struct lh_state_seal *s);
// Seals the next piece, given in `parts` spans of lh_state_seal_next() bytes together:
// out[that + LH_SEAL_TAG_BYTES]. Any thread.
LH_MUST lh_err lh_state_seal_piece(struct lh_state_seal *s, const struct lh_span *plain,
                                   size_t parts, uint8_t *out);

// ---- receiver

// Takes what the first message says. LH_ERR_MALFORMED, LH_ERR_UNSUPPORTED (a cipher).
LH_MUST lh_err lh_state_unseal_begin(struct lh_state_seal *s, const Longhaul__V1__Seal *seal,
                                     uint64_t total);
// Opens the next piece, the bytes of `msg` from `at` on, to out[lh_state_seal_next()].
// LH_ERR_MALFORMED: it has another length; LH_ERR_UNSEAL: it does not open, or no such key is here;
// `out` then holds nothing of it.
LH_MUST lh_err lh_state_unseal_piece(struct lh_state_seal *s, const struct lh_msg *msg, size_t at,
                                     uint8_t *out);

#endif
