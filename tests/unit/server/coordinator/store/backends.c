// server/coordinator/store: what both backends promise, over a file and over an etcd in memory;
// then what the etcd backend promises besides, when an answer is lost, a leader was replaced, or
// the process dies at any request. With etcd://HOST:PORT/PREFIX and a folder of secrets (or "") as
// its arguments the program runs the first part against that etcd (tests/e2e/etcd.py).
#include <stdio.h>

#include "server/coordinator/store/etcd_wire.h"
#include "tests/unit/server/coordinator/store/rig.h"

// ---------------------------------------------------------------- both

static void committed_rows_survive_a_reopen(enum kind kind)
{
    struct rig *r = start(kind);
    put(r, "a", "one");
    put(r, "b", "");
    put(r, "c", "three");
    commit(r);
    put(r, "a", "another, longer one");
    assert_int_equal(ps_store_remove(r->store, "c"), LH_OK);
    assert_int_equal(ps_store_remove(r->store, "never put"), LH_OK);
    commit(r);
    put(r, "a", "lost");
    open_store(r);
    assert_true(holds(r, "a", "another, longer one") && holds(r, "b", "") && holds(r, "c", NULL));
    put(r, "c", "again");
    commit(r);
    open_store(r);
    assert_true(holds(r, "c", "again") && holds(r, "b", ""));
    finish(r);
}

static void changes_made_meanwhile_belong_to_the_next_commit(enum kind kind)
{
    struct rig *r = start(kind);
    bool begun;
    put(r, "a", "one");
    assert_int_equal(ps_store_begin(r->store, &begun), LH_OK);
    assert_true(begun);
    put(r, "a", "two");
    assert_int_equal(ps_store_write(r->store), LH_OK);
    ps_store_end(r->store, LH_OK);
    assert_int_equal(ps_store_durable(r->store), 1);
    assert_int_equal(ps_store_changed(r->store), 2);
    open_store(r);
    assert_true(holds(r, "a", "one"));
    finish(r);
}

static void join(void *arg, const char *key, struct lh_span value)
{
    char *out = arg;
    size_t n = strlen(out);
    snprintf(out + n, 200 - n, "%s=%.*s ", key, (int)value.len, (const char *)value.data);
}

static void each_gives_the_keys_of_a_prefix_in_order(enum kind kind)
{
    struct rig *r = start(kind);
    char all[200] = "";
    put(r, "shard/2", "two");
    put(r, "shard/1", "one");
    put(r, "shards", "other");
    commit(r);
    open_store(r);
    assert_int_equal(ps_store_each(r->store, "shard/", join, all), LH_OK);
    assert_string_equal(all, "shard/1=one shard/2=two ");
    finish(r);
}

static uint64_t digest_of(struct rig *r)
{
    struct lh_buf all = lh_buf(64 << 20);
    char key[40];
    for (int k = 0; k < 64; k++) {
        struct lh_span value;
        snprintf(key, sizeof key, "row/%d", k);
        if (!ps_store_get(r->store, key, &value)) continue;
        lh_put_str(&all, key);
        lh_put(&all, value.data, value.len);
    }
    assert_int_equal(lh_buf_err(&all), LH_OK);
    uint64_t digest = lh_crc32c(0, all.data, all.len) + all.len * UINT64_C(0x100000000);
    lh_buf_free(&all);
    return digest;
}

// Rows of all sizes are put and removed, and the log is replaced several times meanwhile. After
// each reopen the rows are the same.
static void rows_survive_when_the_log_is_replaced(enum kind kind)
{
    struct rig *r = start(kind);
    static uint8_t value[3 << 20];
    uint32_t x = 12345;
    char key[40];
    for (int i = 0; i < 400; i++) {
        for (int k = 0; k < 1 + i % 5; k++) {
            x = x * 1664525 + 1013904223;
            snprintf(key, sizeof key, "row/%u", x >> 26);
            size_t n = i % 100 == 50 && !k ? sizeof value - (x >> 20) : x >> 19 & 4095;
            memset(value, (int)(x & 255), n);
            if (x >> 8 & 3)
                assert_int_equal(ps_store_put(r->store, key, lh_span(value, n)), LH_OK);
            else
                assert_int_equal(ps_store_remove(r->store, key), LH_OK);
        }
        commit(r);
        if (i % 40 != 39) continue;
        uint64_t before = digest_of(r);
        open_store(r);
        assert_int_equal(digest_of(r), before);
    }
    if (kind == ON_FAKE) assert_true(r->fake.bytes_max <= (1 << 20) + 1000);
    if (kind == ON_FAKE) assert_true(r->fake.count < 400); // the older log is gone
    finish(r);
}

static void nothing(void *arg)
{
    (void)arg;
}

// Numbers rise while the clock stands still, over restarts, and after the store was restored from
// an old copy while the clock went on.
static void each_leader_has_a_higher_number(enum kind kind)
{
    struct rig *r = start(kind);
    uint64_t one = number_of(r), two = number_of(r);
    assert_true(one >= (uint64_t)r->env->ops->wall_s(r->env) * 1000 && two > one);
    open_store(r);
    uint64_t three = number_of(r);
    assert_true(three > two);
    assert_int_equal(ps_store_remove(r->store, "leader"), LH_OK);
    commit(r);
    lh_fake_at(r->world, 2 * LH_SECOND, nothing, NULL);
    lh_fake_run(r->world, 2 * LH_SECOND);
    assert_true(number_of(r) > three);
    put(r, "leader", "of no sense");
    commit(r);
    assert_int_equal(ps_store_number(r->env, r->store, &one), LH_ERR_CORRUPT);
    finish(r);
}

#define BOTH(test)                                                                                 \
    TEST(test##_file)                                                                              \
    {                                                                                              \
        test(ON_FILE);                                                                             \
    }                                                                                              \
    TEST(test##_etcd)                                                                              \
    {                                                                                              \
        test(real_address ? ON_REAL : ON_FAKE);                                                    \
    }
BOTH(committed_rows_survive_a_reopen)
BOTH(changes_made_meanwhile_belong_to_the_next_commit)
BOTH(each_gives_the_keys_of_a_prefix_in_order)
BOTH(rows_survive_when_the_log_is_replaced)
BOTH(each_leader_has_a_higher_number)

// ---------------------------------------------------------------- etcd alone

TEST(a_commit_without_space_is_taken_back)
{
    struct rig *r = start(ON_FAKE);
    put(r, "a", "one");
    commit(r);
    put(r, "a", "two");
    r->fake.full = true;
    assert_int_equal(try_to_commit(r), LH_ERR_DISK_FULL);
    assert_true(holds(r, "a", "one"));
    r->fake.full = false;
    put(r, "b", "three");
    commit(r);
    open_store(r);
    assert_true(holds(r, "a", "one") && holds(r, "b", "three"));
    finish(r);
}

// A single request finds no space, be it one of those that replace the log. Every acknowledged
// commit survives.
TEST(a_request_without_space_takes_nothing_away)
{
    enum { COMMITS = 20, VALUE = 8000 };
    static char value[VALUE];
    bool full = true;
    for (uint64_t n = 1; full; n++) {
        struct rig *r = start(ON_FAKE);
        uint64_t first = r->fake.requests;
        r->fake.fault = FAKE_FULL;
        r->fake.fault_at = first + n;
        r->fake.fault_count = 1;
        for (int i = 0; i < COMMITS; i++) {
            memset(value, 'a' + i % 26, sizeof value);
            assert_int_equal(ps_store_put(r->store, "a", lh_span(value, sizeof value)), LH_OK);
            lh_err err = try_to_commit(r);
            assert_true(!err || err == LH_ERR_DISK_FULL);
            if (err) i--; // once more
        }
        full = r->fake.requests >= r->fake.fault_at;
        open_store(r);
        struct lh_span got;
        assert_true(ps_store_get(r->store, "a", &got));
        assert_true(lh_span_equal(got, lh_span(value, sizeof value)));
        finish(r);
    }
}

// Every third request or answer is lost; the store then makes the same request again.
TEST(lost_requests_and_answers_change_nothing)
{
    for (int after = 0; after < 2; after++) {
        struct rig *r = start(ON_FAKE);
        char value[40];
        r->fake.fault = after ? FAKE_AFTER : FAKE_BEFORE;
        r->fake.every = 3;
        for (int i = 0; i < 50; i++) {
            snprintf(value, sizeof value, "%d", i);
            put(r, i % 2 ? "odd" : "even", value);
            commit(r);
        }
        open_store(r);
        assert_true(holds(r, "odd", "49") && holds(r, "even", "48"));
        r->fake.every = 0;
        finish(r);
    }
}

// An unanswered attempt may have been carried out, so a later "no space" does not prove that the
// commit was taken back.
TEST(no_space_after_a_lost_answer_is_not_known)
{
    struct rig *r = start(ON_FAKE);
    put(r, "a", "one");
    r->fake.fault = FAKE_BEFORE;
    r->fake.fault_at = r->fake.requests + 1;
    r->fake.fault_count = 1;
    r->fake.full = true;
    assert_int_equal(try_to_commit(r), LH_ERR_UNAVAILABLE);
    finish(r);
}

TEST(a_replaced_leader_changes_nothing)
{
    struct rig *r = start(ON_FAKE);
    put(r, "a", "one");
    commit(r);
    struct ps_store *old = r->store;
    int64_t was = r->created;
    r->store = NULL;
    size_t i = fake_find(&r->fake, LEADER, strlen(LEADER));
    fake_remove(&r->fake, i); // its lease is over
    assert_true(lead(r, "another") > was);
    open_store(r);
    put(r, "a", "two");
    commit(r);
    struct ps_store *fresh = r->store;
    r->store = old;
    put(r, "a", "three");
    assert_int_equal(try_to_commit(r), LH_ERR_CONFLICT);
    ps_store_close(old);
    r->store = fresh;
    open_store(r);
    assert_true(holds(r, "a", "two"));
    finish(r);
}

TEST(an_etcd_that_is_away_is_told)
{
    struct rig *r = start(ON_FAKE);
    r->patience_ns = 0;
    open_store(r);
    put(r, "a", "one");
    r->fake.away = true;
    assert_int_equal(try_to_commit(r), LH_ERR_UNAVAILABLE);
    assert_true(holds(r, "a", NULL)); // as after any failed commit
    assert_int_equal(try_to_open(r), LH_ERR_UNAVAILABLE);
    r->fake.away = false;
    open_store(r);
    put(r, "a", "two");
    ps_store_stop(r->store);
    assert_int_equal(try_to_commit(r), LH_ERR_CANCELLED);
    finish(r);
}

TEST(a_member_without_an_answer_gives_way_to_the_next)
{
    static const enum fake_fault faults[] = {FAKE_BEFORE, FAKE_BUSY, FAKE_AFTER};
    struct rig *r = start(ON_FAKE);
    for (size_t i = 0; i < LH_COUNT(faults); i++) {
        char value[8];
        snprintf(value, sizeof value, "%zu", i);
        open_store(r);
        put(r, "a", value);
        r->fake.fault = faults[i];
        r->fake.fault_at = r->fake.requests + 1;
        r->fake.fault_count = 2;
        commit(r);
        assert_true(r->fake.requests > r->fake.fault_at + 1);
        r->fake.fault_count = 0;
        open_store(r);
        assert_true(holds(r, "a", value));
    }
    finish(r);
}

// The process dies at its n-th request, which is carried out or not. Every acknowledged commit
// survives; the commit in flight is there as a whole or not at all.
TEST(it_may_end_at_any_request)
{
    static char large[(5 << 19) + 1];
    memset(large, 'x', sizeof large - 1);
    for (uint64_t n = 1, over = 0; !over; n++)
        for (int after = 0; after < 2; after++) {
            struct rig *r = start(ON_FAKE);
            int acknowledged = 0;
            char value[40];
            r->patience_ns = 0;
            open_store(r);
            r->fake.fault = after ? FAKE_AFTER : FAKE_BEFORE;
            r->fake.fault_at = r->fake.requests + n;
            r->fake.fault_count = 1;
            over = 1;
            for (int i = 1; i <= 9 && over; i++) { // the sixth commit begins to replace the log
                snprintf(value, sizeof value, "%d", i);
                put(r, "number", value);
                put(r, "large", i % 2 ? large : value);
                if (try_to_commit(r))
                    over = 0;
                else
                    acknowledged = i;
            }
            r->fake.fault_count = 0;
            open_store(r);
            struct lh_span got;
            int there = 0;
            if (ps_store_get(r->store, "number", &got)) there = got.data[0] - '0';
            assert_in_range(there, acknowledged, acknowledged + !over);
            snprintf(value, sizeof value, "%d", there);
            assert_true(!there || holds(r, "large", there % 2 ? large : value));
            put(r, "number", "after");
            commit(r);
            open_store(r);
            assert_true(holds(r, "number", "after"));
            finish(r);
        }
}

// All changes of a run, in order.
struct recorded {
    struct fake_etcd *fake;
    struct {
        uint8_t bytes[16384];
        size_t len;
    } change[200];
    size_t count;
};

static lh_err record(void *self, uint32_t member, const char *path, const char *token,
                     struct lh_span request, int64_t timeout_ns, struct lh_buf *answer)
{
    struct recorded *r = self;
    if (strstr(path, "Txn")) {
        assert_true(r->count < LH_COUNT(r->change));
        assert_true(request.len <= sizeof r->change[0].bytes);
        memcpy(r->change[r->count].bytes, request.data, request.len);
        r->change[r->count++].len = request.len;
    }
    return fake_call(r->fake, member, path, token, request, timeout_ns, answer);
}

// etcd may carry out an abandoned attempt at any later time, even long after a later attempt was
// answered. Here every attempt is carried out once more while its leader still leads.
TEST(late_copies_of_requests_do_no_harm)
{
    static struct recorded all;
    static char large[3001];
    static const char LOG[] = "/p/run/log";
    struct rig *r = start(ON_FAKE);
    struct ps_etcd_log_conf conf = {.base = BASE, .created = r->created};
    const struct ps_etcd_conf as = {.env = r->env,
                                    .wire = {&all, 3, record, fake_wait, fake_close},
                                    .login = "",
                                    .timeout_ns = LH_SECOND};
    memset(large, 'x', sizeof large - 1);
    all = (struct recorded){.fake = &r->fake};
    ps_store_close(r->store);
    assert_int_equal(ps_etcd_create(&as, &conf.etcd), LH_OK);
    assert_int_equal(ps_store_open_etcd(&conf, &r->store), LH_OK);
    char log[64], last[64];
    unsigned replaced = 0;
    for (int i = 0; replaced < 3; i++) { // until three logs were replaced
        struct fake_key *named = &r->fake.at[fake_find(&r->fake, LOG, strlen(LOG))];
        snprintf(log, sizeof log, "%.*s", (int)named->bytes, (const char *)named->value);
        replaced += i > 0 && strcmp(log, last) != 0;
        memcpy(last, log, sizeof last);
        put(r, "large", large);
        put(r, "a", i % 2 ? "one" : "two");
        commit(r);
    }
    put(r, "a", "last");
    commit(r);
    for (size_t i = 0; i < all.count; i++) {
        struct lh_buf answer = lh_buf(1 << 20);
        struct lh_span request = lh_span(all.change[i].bytes, all.change[i].len);
        assert_int_equal(fake_carry_out(&r->fake, "Txn", "", request, &answer), LH_OK);
        lh_buf_free(&answer);
        open_store(r);
        assert_true(holds(r, "a", "last"));
    }
    put(r, "a", "after");
    commit(r);
    open_store(r);
    assert_true(holds(r, "a", "after"));
    finish(r);
}

TEST(damage_is_refused)
{
    static const char *const why[] = {"the one before it is missing", "it is incomplete",
                                      "it is incomplete", "it is incomplete"};
    for (int way = 0; way < 4; way++) {
        struct rig *r = start(ON_FAKE);
        for (int i = 0; i < 4; i++) {
            put(r, "a", i % 2 ? "one" : "two");
            commit(r);
        }
        size_t second = r->fake.count - 3;
        if (way == 0 || way == 3) fake_remove(&r->fake, second);
        if (way == 1 || way == 3) r->fake.at[second].value[40] ^= 1; // 3: damages the next part
        if (way == 2) r->fake.at[second].bytes--;
        assert_int_equal(try_to_open(r), LH_ERR_CORRUPT);
        assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), why[way]));
        finish(r);
    }
}

TEST(a_login_is_renewed)
{
    struct rig *r = start(ON_FAKE);
    r->fake.password = "secret";
    struct ps_etcd *e = fake_client(&r->fake, "user:secret", 0);
    struct lh_buf value = lh_buf(100);
    int64_t created;
    assert_int_equal(ps_etcd_get(e, LEADER, &value, &created), LH_OK);
    r->fake.logins++; // the token is no longer valid
    assert_int_equal(ps_etcd_get(e, LEADER, &value, &created), LH_OK);
    ps_etcd_destroy(e);
    e = fake_client(&r->fake, "user:wrong", 0);
    assert_int_equal(ps_etcd_get(e, LEADER, &value, &created), LH_ERR_INVALID);
    ps_etcd_destroy(e);
    r->fake.password = NULL;
    lh_buf_free(&value);
    finish(r);
}

TEST(a_key_ends_with_its_lease)
{
    struct rig *r = start(ON_FAKE);
    struct ps_etcd *e = fake_client(&r->fake, "", 0);
    const struct ps_etcd_fence none = {"/p/k", 0};
    struct lh_buf value = lh_buf(100);
    int64_t lease, created;
    assert_int_equal(ps_etcd_grant(e, 5, &lease), LH_OK);
    assert_int_equal(ps_etcd_change(e, &none, "/p/k", lh_span_str("v"), lease, NULL), LH_OK);
    assert_int_equal(ps_etcd_change(e, &none, "/p/k", lh_span_str("w"), lease, NULL),
                     LH_ERR_CONFLICT);
    assert_int_equal(ps_etcd_keep_alive(e, lease), LH_OK);
    assert_int_equal(ps_etcd_get(e, "/p/k", &value, &created), LH_OK);
    assert_int_equal(ps_etcd_revoke(e, lease), LH_OK);
    assert_int_equal(ps_etcd_get(e, "/p/k", &value, &created), LH_ERR_NOT_FOUND);
    assert_int_equal(ps_etcd_keep_alive(e, lease), LH_ERR_NOT_FOUND);
    ps_etcd_destroy(e);
    lh_buf_free(&value);
    finish(r);
}

TEST(the_setting_is_read)
{
    struct ps_etcd_place p;
    assert_int_equal(ps_etcd_parse("etcd://a:1,[::1]:2/x/y/", &p), LH_OK);
    assert_int_equal(p.members, 2);
    assert_string_equal(p.member[1], "[::1]:2");
    assert_string_equal(p.prefix, "/x/y");
    assert_int_equal(ps_etcd_parse("etcd://a:1", &p), LH_OK);
    assert_string_equal(p.prefix, "/longhaul");
    const char *const bad[] = {"",
                               "etcd:/a:1",
                               "etcd://",
                               "etcd:///x",
                               "etcd://a",
                               "etcd://a:1,,b:2",
                               "etcd://a:1,b/x",
                               "etcd://a:0/x",
                               "etcd://a:1/x y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ps_etcd_parse(bad[i], &p), LH_ERR_CONFIG);
}

int main(int argc, char **argv)
{
    if (argc > 2) real_address = argv[1];
    if (argc > 2) real_secrets = argv[2];
    if (real_address) cmocka_set_test_filter("*_etcd");
    return test_run(NULL, NULL);
}
