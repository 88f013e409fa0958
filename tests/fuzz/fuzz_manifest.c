// lh_manifest_parse: an accepted manifest covers every value once, and survives a write and a
// parse.
#include "common/base/check.h"
#include "common/format/manifest.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_layout(const struct lh_manifest *m)
{
    uint64_t flat = 0;
    for (uint32_t s = 0; s < m->shards; s++) {
        uint64_t values = 0;
        LH_ASSERT(m->shard[s].first == flat && m->shard[s].chunks > 0);
        for (uint32_t e = 0; e < m->shard[s].extents; e++) {
            const struct lh_extent *x = &m->shard[s].extent[e];
            const struct lh_tensor *t = &m->tensor[x->tensor];
            LH_ASSERT(x->len > 0 && x->offset == values && (flat - t->offset) % LH_CHUNK == 0);
            LH_ASSERT(flat >= t->offset && flat + x->len <= t->offset + t->len);
            values += x->len;
            flat += x->len;
        }
        LH_ASSERT(values == m->shard[s].values);
    }
    LH_ASSERT(flat == m->values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_manifest m, again;
    if (lh_manifest_parse(&m, lh_span(data, size))) {
        LH_ASSERT(!m.tensor && !m.shard && !m.model_json);
        return 0;
    }
    check_layout(&m);
    struct lh_buf out = lh_buf(64 << 20);
    LH_ASSERT(lh_manifest_write(&m, &out) == LH_OK);
    LH_ASSERT(lh_manifest_parse(&again, lh_buf_span(&out)) == LH_OK);
    LH_ASSERT(lh_hash_equal(&m.hash, &again.hash) && m.values == again.values);
    LH_ASSERT(!m.model_json == !again.model_json);
    LH_ASSERT(!m.model_json || !strcmp(m.model_json, again.model_json));
    lh_manifest_free(&again);
    lh_manifest_free(&m);
    lh_buf_free(&out);
    return 0;
}
