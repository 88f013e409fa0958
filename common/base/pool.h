// A pool of large blobs. It caches the memory of one dense push for the next: a new page costs more
// than a copy into an old one, several times more on a virtual machine.
//
// Any thread may take and release. A blob may outlive its pool.
#ifndef LH_COMMON_POOL_H
#define LH_COMMON_POOL_H

#include "common/base/buf.h"

struct lh_pool;
// Released blobs are cached while the pool's bytes, given out and cached, stay within `bytes_max`.
struct lh_pool *lh_pool_create(size_t bytes_max);            // NULL: out of memory
void lh_pool_destroy(struct lh_pool *p);                     // NULL is allowed
struct lh_blob *lh_pool_blob(struct lh_pool *p, size_t len); // as lh_blob_new()
void lh_pool_trim(struct lh_pool *p);                        // frees the cached blobs
// Changes `bytes_max`; frees cached blobs beyond it.
void lh_pool_keep(struct lh_pool *p, size_t bytes_max);
size_t lh_pool_bytes(struct lh_pool *p);                      // bytes given out and cached
void lh_pool_take_back(struct lh_pool *p, struct lh_blob *b); // lh_blob_release() alone calls it

#endif
