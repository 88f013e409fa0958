// A fold state in transit, sealed with the job key: snapshots for joining followers, and the state
// that a follower restores to a server that lost its own.
//
// Mutual TLS proves the peer's certificate, not that it holds the job key. Sealed pieces do:
// without the key nobody can forge or read a state.
//
// The state's bytes are divided into pieces of LH_STATE_PIECE_BYTES, the last one shorter; each is
// one message, ciphertext and tag (seal.h). A stream of pieces has its own subkey, from
//
//   purpose      LH_SEAL_SNAPSHOT or LH_SEAL_RESTORE: one can't be turned into the other
//   worker, incarnation   the sender's 16 random bytes (`stream`), as two little-endian numbers
//   shard
//
// so the nonce may be a counter: bytes 0-7 are the piece's number from 0 on, little endian, the
// others 0. A sender draws a new `stream` for every stream, so no nonce repeats under a subkey. The
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
// Pieces can't be mixed, reordered, omitted or truncated, and a recorded stream does not unseal
// under another challenge, so an old state can't be replayed.
#ifndef LH_COMMON_STATE_SEAL_H
#define LH_COMMON_STATE_SEAL_H

#include "common/base/limits.h"
#include "common/format/frame.h"
#include "common/net/transport.h"
#include "common/net/wire_shard.h"
#include "common/security/seal.h"

enum { LH_STATE_RANDOM_BYTES = 16, LH_STATE_PIECE_BYTES = LH_PART_BYTES - LH_SEAL_TAG_BYTES };

// One stream, at either end. lh_state_seal_init() and then lh_state_seal_begin() or
// lh_state_unseal_begin() fill it.
struct lh_state_seal {
    const struct lh_keyring *keys; // borrows
    enum lh_seal_purpose purpose;
    enum lh_cipher cipher;
    uint32_t key_id, shard;
    uint8_t job[LH_JOB_BYTES];
    struct lh_hash manifest, chain;
    uint64_t epoch, version, total;
    uint8_t challenge[LH_STATE_RANDOM_BYTES], stream[LH_STATE_RANDOM_BYTES];
    uint64_t at; // bytes sealed or unsealed so far
};

// Fills in the fields known to both ends: purpose, keys, job, manifest, shard and challenge.
// LH_ERR_INVALID: no keys; LH_ERR_MALFORMED: the challenge has another length.
LH_MUST lh_err lh_state_seal_init(struct lh_state_seal *s, enum lh_seal_purpose purpose,
                                  const struct lh_keyring *keys, const uint8_t job[LH_JOB_BYTES],
                                  const struct lh_hash *manifest, uint32_t shard,
                                  struct lh_span challenge);

// ---- sender

// Begins: draws `stream` from the env. lh_state_seal_head() then gives the fields of the first
// message.
void lh_state_seal_begin(struct lh_state_seal *s, struct lh_env *env, enum lh_cipher cipher,
                         uint32_t key_id, uint64_t epoch, uint64_t version,
                         const struct lh_hash *chain, uint64_t total);
// Continues at byte `from` of the state, at either end: a stream may carry a range of the pieces.
// LH_ERR_MALFORMED: no piece begins there.
LH_MUST lh_err lh_state_seal_from(struct lh_state_seal *s, uint64_t from);
struct lh_seal lh_state_seal_head(const struct lh_state_seal *s);
// Bytes of the next piece without its tag; 0 when all are sealed.
size_t lh_state_seal_next(const struct lh_state_seal *s);
// Seals the next piece, lh_state_seal_next() bytes in `parts` spans, into out[those bytes +
// LH_SEAL_TAG_BYTES]. Any thread.
LH_MUST lh_err lh_state_seal_piece(struct lh_state_seal *s, const struct lh_span *plain,
                                   size_t parts, uint8_t *out);

// ---- receiver

// Reads the first message's fields. LH_ERR_MALFORMED, LH_ERR_UNSUPPORTED (a cipher).
LH_MUST lh_err lh_state_unseal_begin(struct lh_state_seal *s, const struct lh_seal *seal,
                                     uint64_t total);
// Unseals the next piece, the bytes of `msg` from `at` on, into out[lh_state_seal_next()].
// LH_ERR_MALFORMED: wrong length; LH_ERR_UNSEAL: unseal failed or the key is missing; `out` then
// holds none of its bytes.
LH_MUST lh_err lh_state_unseal_piece(struct lh_state_seal *s, const struct lh_msg *msg, size_t at,
                                     uint8_t *out);

#endif
