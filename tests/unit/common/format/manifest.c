// common/format/manifest.c: layouts cover every value once, the hash is stable, and the parser
// accepts no malformed file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "tests/test.h"

static const char *const names[] = {"embed.weight", "norm.weight", "head.weight"};
static const uint64_t shapes[][5] = {{256, 96}, {96}, {256, 96}};

TEST(hash_is_golden)
{
    struct lh_manifest m;
    assert_int_equal(lh_manifest_build(&m, 3, names, shapes, 2, NULL), LH_OK);
    char hex[65];
    lh_hash_hex(&m.hash, hex);
    // hashlib.blake2b(digest_size=32) over the bytes that manifest.h describes
    assert_string_equal(hex, "41907f0a45a8c4517d8f1144c1be5779feebabd06424935945f72488bb9f3f55");
    struct lh_hash two = m.hash;
    lh_manifest_free(&m);
    assert_int_equal(lh_manifest_build(&m, 3, names, shapes, 3, "{\"d\": 96}"), LH_OK);
    assert_false(lh_hash_equal(&two, &m.hash)); // the hash includes the number of shards
    lh_manifest_free(&m);
}

TEST(layout_of_three_tensors)
{
    struct lh_manifest m;
    assert_int_equal(lh_manifest_build(&m, 3, names, shapes, 2, NULL), LH_OK);
    // 6 + 1 + 6 chunks: shard 0 has 6, shard 1 has 7
    assert_int_equal(m.values, 24576 * 2 + 96);
    assert_int_equal(m.shard[0].chunks, 6);
    assert_int_equal(m.shard[0].values, 24576);
    assert_int_equal(m.shard[0].extents, 1);
    assert_int_equal(m.shard[1].chunks, 7);
    assert_int_equal(m.shard[1].first, 24576);
    assert_int_equal(m.shard[1].extents, 2);
    assert_int_equal(m.shard[1].extent[1].offset, 96);
    assert_int_equal(m.shard[1].extent[1].tensor, 2);
    assert_int_equal(m.tensor[2].offset, 24672);
    lh_manifest_free(&m);
}

// Walks all extents in order: together they give the flat order, chunk by chunk.
static void check_layout(const struct lh_manifest *m)
{
    uint64_t flat = 0, least = UINT64_MAX, most = 0;
    for (uint32_t s = 0; s < m->shards; s++) {
        const struct lh_shard_layout *shard = &m->shard[s];
        uint64_t values = 0, chunks = 0;
        assert_int_equal(shard->shard, s);
        assert_int_equal(shard->first, flat);
        for (uint32_t e = 0; e < shard->extents; e++) {
            const struct lh_extent *x = &shard->extent[e];
            const struct lh_tensor *t = &m->tensor[x->tensor];
            assert_true(x->len > 0);
            assert_int_equal(x->offset, values);
            assert_true(flat >= t->offset && flat + x->len <= t->offset + t->len);
            assert_int_equal((flat - t->offset) % LH_CHUNK, 0);
            if (flat + x->len < t->offset + t->len) assert_int_equal(x->len % LH_CHUNK, 0);
            flat += x->len;
            values += x->len;
            chunks += (x->len + LH_CHUNK - 1) / LH_CHUNK;
        }
        assert_int_equal(shard->values, values);
        assert_int_equal(shard->chunks, chunks);
        least = chunks < least ? chunks : least;
        most = chunks > most ? chunks : most;
    }
    assert_int_equal(flat, m->values);
    assert_true(least >= 1 && most - least <= 1);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static void same_manifest(const struct lh_manifest *a, const struct lh_manifest *b)
{
    assert_true(lh_hash_equal(&a->hash, &b->hash));
    assert_int_equal(a->values, b->values);
    assert_int_equal(a->shards, b->shards);
    for (uint32_t i = 0; i < a->tensors; i++)
        assert_memory_equal(&a->tensor[i], &b->tensor[i], sizeof a->tensor[i]);
    if (a->model_json)
        assert_string_equal(a->model_json, b->model_json);
    else
        assert_null(b->model_json);
}

static void round_trip(const struct lh_manifest *m)
{
    struct lh_manifest again;
    struct lh_buf out = lh_buf(1 << 20), twice = lh_buf(1 << 20);
    assert_int_equal(lh_manifest_write(m, &out), LH_OK);
    assert_int_equal(lh_manifest_parse(&again, lh_buf_span(&out)), LH_OK);
    same_manifest(m, &again);
    assert_int_equal(lh_manifest_write(&again, &twice), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_buf_span(&twice)));
    lh_manifest_free(&again);
    lh_buf_free(&out);
    lh_buf_free(&twice);
}

enum { RANDOM_TENSORS = 24 };

static void random_model(uint64_t seed)
{
    char text[RANDOM_TENSORS][16];
    const char *name[RANDOM_TENSORS];
    uint64_t shape[RANDOM_TENSORS][5] = {{0}}, chunks = 0;
    uint32_t tensors = 1 + (uint32_t)(next_random(&seed) % RANDOM_TENSORS);
    for (uint32_t i = 0; i < tensors; i++) {
        static const uint64_t lens[] = {1, 95, 4095, 4096, 4097, 8192, 40961};
        snprintf(text[i], sizeof text[i], "t.%u", i);
        name[i] = text[i];
        uint64_t dims = 1 + next_random(&seed) % 4, len = lens[next_random(&seed) % LH_COUNT(lens)];
        shape[i][0] = len;
        for (uint64_t d = 1; d < dims; d++) len *= shape[i][d] = 1 + next_random(&seed) % 3;
        chunks += (len + LH_CHUNK - 1) / LH_CHUNK;
    }
    uint32_t shards = 1 + (uint32_t)(next_random(&seed) % chunks);
    struct lh_manifest m;
    const char *model = seed & 1 ? "{\"layers\":4,\"width\":96}" : NULL;
    assert_int_equal(
        lh_manifest_build(&m, tensors, name, (const uint64_t(*)[5])shape, shards, model), LH_OK);
    check_layout(&m);
    round_trip(&m);
    lh_manifest_free(&m);
    // One shard more than there are chunks is refused.
    assert_int_equal(lh_manifest_build(&m, tensors, name, (const uint64_t(*)[5])shape,
                                       (uint32_t)chunks + 1, NULL),
                     LH_ERR_INVALID);
}

TEST(layouts_cover_every_value_once)
{
    for (uint64_t seed = 0; seed < 500; seed++) random_model(seed);
}

#define HEAD "{\"schema\":\"longhaul.manifest/1\",\"chunk\":4096,"
#define T(name, shape) "{\"name\":\"" name "\",\"shape\":" shape "}"

TEST(bad_files_are_refused)
{
    static const struct {
        const char *json, *says;
        lh_err err;
    } bad[] = {
        {"", "not JSON", LH_ERR_MALFORMED},
        {"[]", "schema", LH_ERR_MALFORMED},
        {"{\"schema\":\"longhaul.manifest/2\"}", "longhaul.manifest/2", LH_ERR_MALFORMED},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[1]") "],\"shard\":1}", "unknown key \"shard\"",
         LH_ERR_MALFORMED},
        {"{\"schema\":\"longhaul.manifest/1\",\"chunk\":64,\"shards\":1,\"tensors\":[" T(
             "a", "[1]") "]}",
         "chunk", LH_ERR_INVALID},
        {HEAD "\"tensors\":[" T("a", "[1]") "]}", "shards", LH_ERR_INVALID},
        {HEAD "\"shards\":-1,\"tensors\":[" T("a", "[1]") "]}", "shards", LH_ERR_INVALID},
        {HEAD "\"shards\":65537,\"tensors\":[" T("a", "[1]") "]}", "shards", LH_ERR_INVALID},
        {HEAD "\"shards\":2,\"tensors\":[" T("a", "[4096]") "]}", "1 chunks", LH_ERR_INVALID},
        {HEAD "\"shards\":1}", "tensors", LH_ERR_MALFORMED},
        {HEAD "\"shards\":1,\"tensors\":[]}", "tensors", LH_ERR_MALFORMED},
        {HEAD "\"shards\":1,\"tensors\":[1]}", "tensor 0", LH_ERR_MALFORMED},
        {HEAD "\"shards\":1,\"tensors\":[{\"name\":\"a\",\"shape\":[1],\"x\":0}]}", "tensor 0",
         LH_ERR_MALFORMED},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[]") "]}", "0 dimensions", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[1,1,1,1,1]") "]}", "5 dimensions",
         LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[0]") "]}", "positive", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[1.5]") "]}", "positive", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("", "[1]") "]}", "empty", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a b", "[1]") "]}", "characters", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[1]") "," T("b", "[1]") "," T("a", "[2]") "]}",
         "named 'a'", LH_ERR_INVALID},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[4294967296,4294967296,4294967296]") "]}",
         "2^44", LH_ERR_TOO_LARGE},
        {HEAD "\"shards\":1,\"tensors\":[" T("a", "[17592186044416]") "," T("b", "[1]") "]}",
         "2^44", LH_ERR_TOO_LARGE},
        {HEAD "\"shards\":1,\"model\":3,\"tensors\":[" T("a", "[1]") "]}", "model", LH_ERR_INVALID},
        {HEAD "\"chunk\":4096,\"shards\":1,\"tensors\":[" T("a", "[1]") "]}", "not JSON",
         LH_ERR_MALFORMED}, // duplicate key
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_manifest m;
        lh_err err = lh_manifest_parse(&m, lh_span_str(bad[i].json));
        if (err != bad[i].err || !strstr(lh_err_text(err), bad[i].says))
            fail_msg("case %zu: %s: %s", i, lh_err_name(err), lh_err_text(err));
        assert_null(m.tensor); // nothing is left allocated
        assert_null(m.shard);
    }
}

TEST(long_names_are_refused)
{
    char name[130];
    memset(name, 'n', sizeof name);
    name[127] = 0;
    const char *const one[] = {name};
    const uint64_t shape[][5] = {{7}};
    struct lh_manifest m;
    assert_int_equal(lh_manifest_build(&m, 1, one, shape, 1, NULL), LH_OK);
    round_trip(&m);
    lh_manifest_free(&m);
    name[127] = 'n';
    name[128] = 0;
    assert_int_equal(lh_manifest_build(&m, 1, one, shape, 1, NULL), LH_ERR_INVALID);
}

// Every truncation of a good file is refused, except the loss of the final newline.
TEST(truncated_files_are_refused)
{
    struct lh_manifest m, part;
    struct lh_buf out = lh_buf(1 << 16);
    assert_int_equal(lh_manifest_build(&m, 3, names, shapes, 2, "{}"), LH_OK);
    assert_int_equal(lh_manifest_write(&m, &out), LH_OK);
    for (size_t n = 0; n + 1 < out.len; n++)
        assert_int_equal(lh_manifest_parse(&part, lh_span(out.data, n)), LH_ERR_MALFORMED);
    struct lh_buf small = lh_buf(64);
    assert_int_equal(lh_manifest_write(&m, &small), LH_ERR_TOO_LARGE);
    lh_buf_free(&small);
    lh_buf_free(&out);
    lh_manifest_free(&m);
}
