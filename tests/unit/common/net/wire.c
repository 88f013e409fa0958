// Tables of messages: each has every field of its message, with a member of the field's type; a
// written message reads back the same; a field that is too long or of a wrong length is refused.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/net/rpc.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "common/net/wire_table.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/test.h"

enum { TYPES_MAX = 128 };

// The messages of all RPCs, and those within them.
static const struct lh_wire_type *types[TYPES_MAX];
static size_t count;

static void collect(const struct lh_wire_type *type)
{
    for (size_t i = 0; i < count; i++)
        if (types[i] == type) return;
    assert_true(count < TYPES_MAX);
    types[count++] = type;
    for (size_t k = 0; k < type->rows; k++)
        if (type->row[k].sub) collect(type->row[k].sub);
}

TEST(all_messages_are_found)
{
    for (int rpc = 0; rpc < LH_RPC_COUNT; rpc++) {
        collect(lh_rpc_request((enum lh_rpc)rpc));
        collect(lh_rpc_answer((enum lh_rpc)rpc));
    }
    assert_true(count > 2 * LH_RPC_COUNT);
}

// ---------------------------------------------------------------- the tables

static bool has_type(enum lh_wire_kind kind, const ProtobufCFieldDescriptor *f)
{
    bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
    switch (f->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM: return kind == (many ? LH_WIRE_U32S : LH_WIRE_U32);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return kind == (many ? LH_WIRE_U64S : LH_WIRE_U64);
    case PROTOBUF_C_TYPE_BOOL: return kind == LH_WIRE_BOOL;
    case PROTOBUF_C_TYPE_FLOAT: return kind == LH_WIRE_F32;
    case PROTOBUF_C_TYPE_DOUBLE: return kind == LH_WIRE_F64;
    case PROTOBUF_C_TYPE_STRING: return kind == LH_WIRE_TEXT || kind == LH_WIRE_NAME;
    case PROTOBUF_C_TYPE_BYTES:
        if (many) return kind == LH_WIRE_SPANS;
        return kind == LH_WIRE_BYTES || kind == LH_WIRE_FIXED || kind == LH_WIRE_NEEDED;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (many) return kind == LH_WIRE_SUBS;
        return kind == LH_WIRE_SUB || kind == LH_WIRE_TRIP || kind == LH_WIRE_ESTIMATE;
    default: return false;
    }
}

TEST(each_table_has_every_field)
{
    for (size_t i = 0; i < count; i++) {
        const struct lh_wire_type *t = types[i];
        if (t->rows != t->of->n_fields) fail_msg("%s: %zu rows", t->of->name, t->rows);
        for (size_t k = 0; k < t->rows; k++) {
            const struct lh_wire_row *r = &t->row[k];
            const ProtobufCFieldDescriptor *f = &t->of->fields[k];
            if (r->number != f->id || !has_type(r->kind, f))
                fail_msg("%s: row %zu is not %s", t->of->name, k, f->name);
            if (r->kind == LH_WIRE_SUB || r->kind == LH_WIRE_SUBS)
                assert_ptr_equal(r->sub->of, f->descriptor);
        }
    }
}

// ---------------------------------------------------------------- there and back

enum { ELEMENTS = 3 };

static uint8_t bytes_of_all[256];

// Fills a plain struct with values that differ from each other and from 0 where possible.
static void fill(const struct lh_wire_type *type, void *plain, uint64_t *next, void *memory[],
                 size_t *used);

static void fill_array(const struct lh_wire_row *r, void *plain, uint64_t *next, void *memory[],
                       size_t *used)
{
    size_t each = r->kind == LH_WIRE_SUBS    ? r->sub->size
                  : r->kind == LH_WIRE_SPANS ? sizeof(struct lh_span)
                  : r->kind == LH_WIRE_U64S  ? sizeof(uint64_t)
                                             : sizeof(uint32_t);
    uint8_t *items = calloc(ELEMENTS, each);
    assert_non_null(items);
    memory[(*used)++] = items;
    for (size_t i = 0; i < ELEMENTS; i++) {
        void *at = items + i * each;
        if (r->kind == LH_WIRE_SUBS) fill(r->sub, at, next, memory, used);
        if (r->kind == LH_WIRE_SPANS) *(struct lh_span *)at = lh_span(bytes_of_all, 1 + i);
        if (r->kind == LH_WIRE_U64S) *(uint64_t *)at = (*next)++ << 33;
        if (r->kind == LH_WIRE_U32S) *(uint32_t *)at = (uint32_t)(*next)++;
    }
    *(const void **)((uint8_t *)plain + r->at) = items;
    *(size_t *)((uint8_t *)plain + r->has - 1) = ELEMENTS;
}

static void fill(const struct lh_wire_type *type, void *plain, uint64_t *next, void *memory[],
                 size_t *used)
{
    for (size_t i = 0; i < type->rows; i++) {
        const struct lh_wire_row *r = &type->row[i];
        void *at = (uint8_t *)plain + r->at;
        uint64_t v = (*next)++;
        switch (r->kind) {
        case LH_WIRE_U32: *(uint32_t *)at = (uint32_t)v; break;
        case LH_WIRE_U64: *(uint64_t *)at = v << 40 | v; break;
        case LH_WIRE_BOOL: *(bool *)at = true; break;
        case LH_WIRE_F32: *(float *)at = (float)v / 8; break;
        case LH_WIRE_F64: *(double *)at = (double)v / 8; break;
        case LH_WIRE_TEXT: *(const char **)at = "a text"; break;
        case LH_WIRE_NAME: memcpy(at, "a name", 7); break;
        case LH_WIRE_BYTES: *(struct lh_span *)at = lh_span(bytes_of_all, 9); break;
        case LH_WIRE_FIXED:
        case LH_WIRE_NEEDED: memcpy(at, bytes_of_all, r->size); break;
        case LH_WIRE_SUB: fill(r->sub, at, next, memory, used); break;
        case LH_WIRE_TRIP: *(struct lh_trip *)at = (struct lh_trip){5000 * (int64_t)v, 3000}; break;
        case LH_WIRE_ESTIMATE:
            *(struct lh_estimate *)at = (struct lh_estimate){(double)v, 2};
            break;
        default: fill_array(r, plain, next, memory, used); continue;
        }
        if (r->has) *(bool *)((uint8_t *)plain + r->has - 1) = true;
    }
}

TEST(messages_read_back_as_written)
{
    for (size_t i = 0; i < sizeof bytes_of_all; i++) bytes_of_all[i] = (uint8_t)(i + 1);
    for (size_t i = 0; i < count; i++) {
        void *plain = calloc(1, types[i]->size), *memory[512];
        struct lh_buf first = lh_buf(LH_SMALL_BYTES), again = lh_buf(LH_SMALL_BYTES);
        struct lh_got got;
        uint64_t next = 1;
        size_t used = 0;
        fill(types[i], plain, &next, memory, &used);
        assert_int_equal(lh_wire_put(types[i], plain, &first), LH_OK);
        assert_int_equal(lh_wire_get(types[i], lh_buf_span(&first), &got), LH_OK);
        assert_int_equal(lh_wire_put(types[i], got.message, &again), LH_OK);
        // protobuf-c can read it, and finds every field.
        ProtobufCMessage *m = protobuf_c_message_unpack(types[i]->of, NULL, first.len, first.data);
        assert_non_null(m);
        assert_int_equal(protobuf_c_message_get_packed_size(m), first.len);
        assert_true(first.len >= 2 * types[i]->rows);
        protobuf_c_message_free_unpacked(m, NULL);
        assert_int_equal(first.len, again.len);
        if (first.len) assert_memory_equal(first.data, again.data, first.len);
        lh_got_free(&got);
        lh_buf_free(&first);
        lh_buf_free(&again);
        while (used) free(memory[--used]);
        free(plain);
    }
}

// For a struct of zeros only the fields that are always present are written.
TEST(zeros_are_absent)
{
    for (size_t i = 0; i < count; i++) {
        void *plain = calloc(1, types[i]->size);
        struct lh_buf b = lh_buf(LH_SMALL_BYTES);
        struct lh_got got;
        size_t needed = 0;
        for (size_t k = 0; k < types[i]->rows; k++)
            if (types[i]->row[k].kind == LH_WIRE_NEEDED) needed += 2 + types[i]->row[k].size;
        assert_int_equal(lh_wire_put(types[i], plain, &b), LH_OK);
        assert_int_equal(b.len, needed);
        lh_err err = lh_wire_get(types[i], (struct lh_span){0}, &got);
        assert_int_equal(err, needed ? LH_ERR_MALFORMED : LH_OK);
        lh_got_free(&got);
        lh_buf_free(&b);
        free(plain);
    }
}

// ---------------------------------------------------------------- bounds

static lh_err get_packed(const struct lh_wire_type *type, const ProtobufCMessage *m,
                         struct lh_got *out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    assert_non_null(bytes);
    protobuf_c_message_pack(m, bytes);
    lh_err err = lh_wire_get(type, lh_span(bytes, n), out);
    free(bytes);
    return err;
}

TEST(a_point_names_a_whole_chain_or_none)
{
    Longhaul__V1__Point m = LONGHAUL__V1__POINT__INIT;
    m.version = 20;
    for (size_t n = 0; n <= LH_HASH_BYTES + 1; n++) {
        struct lh_got got;
        m.chain = (ProtobufCBinaryData){n, bytes_of_all};
        lh_err err = get_packed(&lh_wire_shard_point, &m.base, &got);
        const struct lh_shard_point *p = got.message;
        assert_int_equal(err, n && n != LH_HASH_BYTES ? LH_ERR_MALFORMED : LH_OK);
        if (!err) assert_true(p->at.version == 20 && p->chained == (n == LH_HASH_BYTES));
        lh_got_free(&got);
    }
}

TEST(a_stream_has_its_length)
{
    Longhaul__V1__Seal m = LONGHAUL__V1__SEAL__INIT;
    for (size_t n = 0; n <= 17; n++) {
        struct lh_got got;
        m.stream = (ProtobufCBinaryData){n, bytes_of_all};
        lh_err err = get_packed(&lh_wire_seal, &m.base, &got);
        assert_int_equal(err, n == 16 ? LH_OK : LH_ERR_MALFORMED);
        lh_got_free(&got);
    }
}

TEST(lists_have_a_bound)
{
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__Held held = LONGHAUL__V1__HELD__INIT, *list[LH_HELD_MAX + 1];
    for (size_t i = 0; i <= LH_HELD_MAX; i++) list[i] = &held;
    m.held = list;
    for (m.n_held = LH_HELD_MAX; m.n_held <= LH_HELD_MAX + 1; m.n_held++) {
        struct lh_got got;
        lh_err err = get_packed(&lh_wire_follow_request, &m.base, &got);
        assert_int_equal(err, m.n_held > LH_HELD_MAX ? LH_ERR_MALFORMED : LH_OK);
        lh_got_free(&got);
    }
}

static void put_varint(struct lh_buf *b, uint64_t v)
{
    for (; v >= 128; v >>= 7) lh_put_u8(b, (uint8_t)(v | 128));
    lh_put_u8(b, (uint8_t)v);
}

// A message that is one field with these bytes.
static struct lh_buf within(uint32_t number, struct lh_buf *bytes)
{
    struct lh_buf out = lh_buf(LH_SMALL_BYTES);
    put_varint(&out, number << 3 | 2);
    put_varint(&out, bytes->len);
    lh_put(&out, bytes->data, bytes->len);
    lh_buf_free(bytes);
    return out;
}

// A field may have two bytes and take a hundred of memory: a message of very many is refused before
// any takes some, at any depth, and of fields that nobody knows too.
TEST(fields_have_a_bound)
{
    enum { DURABLE = 10, PATHS = 22, TRIP = 2, UNKNOWN = 99 };
    for (int kind = 0; kind < 4; kind++) {
        struct lh_buf b = lh_buf(LH_SMALL_BYTES);
        while (b.len < LH_SMALL_BYTES - 32) {
            put_varint(&b, kind ? UNKNOWN << 3 : DURABLE << 3 | 2);
            lh_put_u8(&b, 0);
        }
        if (kind > 1) b = within(kind > 2 ? TRIP : PATHS, &b);
        if (kind > 2) b = within(PATHS, &b);
        struct lh_got got;
        assert_int_equal(lh_buf_err(&b), LH_OK);
        assert_int_equal(lh_wire_get(&lh_wire_lease_request, lh_buf_span(&b), &got),
                         LH_ERR_TOO_LARGE);
        assert_null(got.unpacked);
        lh_buf_free(&b);
    }
}

// Free texts are truncated and made printable; an address that is too long is refused.
TEST(texts_have_a_bound)
{
    char text[LH_ADDRESS_BYTES + 1] = "\033[31m";
    memset(text + 5, 'x', sizeof text - 6);
    Longhaul__V1__JoinRequest join = LONGHAUL__V1__JOIN_REQUEST__INIT;
    Longhaul__V1__Machine machine = LONGHAUL__V1__MACHINE__INIT;
    Longhaul__V1__ShardAddress at = LONGHAUL__V1__SHARD_ADDRESS__INIT;
    struct lh_got got;
    join.machine = &machine;
    machine.codec = at.address = text;
    assert_int_equal(get_packed(&lh_wire_join_request, &join.base, &got), LH_OK);
    const struct lh_join_request *m = got.message;
    assert_true(m->has_machine);
    assert_memory_equal(m->machine.codec, "?[31mx", 6);
    assert_int_equal(strlen(m->machine.codec), sizeof m->machine.codec - 1);
    lh_got_free(&got);
    assert_int_equal(get_packed(&lh_wire_shard_address, &at.base, &got), LH_ERR_MALFORMED);
    text[LH_ADDRESS_BYTES - 1] = 0;
    assert_int_equal(get_packed(&lh_wire_shard_address, &at.base, &got), LH_OK);
    assert_int_equal(strlen(((const struct lh_shard_address *)got.message)->address),
                     LH_ADDRESS_BYTES - 1);
    lh_got_free(&got);
}

TEST(a_number_that_is_none_reads_as_0)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < LH_COUNT(wrong); i++) {
        struct lh_got got;
        Longhaul__V1__PushReply m = LONGHAUL__V1__PUSH_REPLY__INIT;
        m.scale = wrong[i];
        assert_int_equal(get_packed(&lh_wire_push_reply, &m.base, &got), LH_OK);
        assert_true(((const struct lh_push_reply *)got.message)->scale == 0);
        lh_got_free(&got);
    }
}
