// Shared by the tests of the gRPC transport: certificates of a made-up run in a folder of its own,
// a loop with a server and a client, and owners of calls that count their callbacks.
#ifndef LH_TESTS_UNIT_TRANSPORT_GRPC_H
#define LH_TESTS_UNIT_TRANSPORT_GRPC_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/crypto.h>

#include "common/base/check.h"
#include "common/base/sanitizer.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/security/certs.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

enum { MIB = 1 << 20, PATIENCE_S = 30, SIDES = 512 };

// A sanitizer keeps freed memory, so the size of the process tells nothing.
#if defined LH_ASAN || defined LH_TSAN
enum { MEMORY_IS_SEEN = false };
#else
enum { MEMORY_IS_SEEN = true };
#endif

// LeakSanitizer finds OpenSSL's per-thread objects (random generators, error queue) unreferenced if
// a thread ends during its scan. gRPC 1.51 does not wait for its event engine's threads, so this
// happens once in about a hundred runs, and these programs ignore it. Our own use of OpenSSL is
// checked by the tests without gRPC.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcrypto.so\n";
}

// One side of one call: how it behaves, and what it received.
struct side {
    struct world *w;
    struct lh_call *call;
    // behaviour
    bool lazy;            // reads only when the test tells it to
    bool echo;            // sends every message back
    bool hold;            // server: does not finish at the half close
    struct lh_blob *bulk; // bulk of its messages; borrowed from the test
    int to_send;          // messages left to send, each with the whole bulk, one at a time
    bool finish_after;    // finishes when all of them are handed over
    lh_err end;           // server: the status it finishes with
    void (*hook)(struct side *s, const char *event); // runs inside every callback, last
    // received
    int messages, sent, half_closes, closes;
    uint64_t bytes;
    uint32_t crc; // CRC-32C of all bytes
    lh_err status;
    char text[512], last[64]; // text of the status; first bytes of the last message
};

struct world {
    char dir[64], bound[128];
    struct lh_env *env;
    struct lh_transport *server, *client;
    struct lh_link *link;
    struct lh_service service;
    struct side plan; // copied to each accepted side
    lh_err refuse;    // the result of on_call
    const char *out;  // name of a peer to refuse; NULL: none
    struct side accepted[SIDES];
    enum lh_rpc rpc[SIDES];
    struct lh_peer peer[SIDES];
    int accepts, asked;
    bool out_of_patience;
};

// ---------------------------------------------------------------- sides

// Makes the test check its condition again.
static inline void wake(struct world *w)
{
    lh_env_real_stop(w->env);
}

static inline void heard(struct side *s, const char *event)
{
    if (s->hook) s->hook(s, event);
    wake(s->w);
}

static inline void send_next(struct side *s)
{
    if (s->to_send <= 0 || s->closes) return;
    const struct lh_out out = {.head = lh_span_str("head"), s->bulk, 0, s->bulk->len};
    if (lh_call_send(s->call, &out)) return; // the call is over; on_close says why
    if (--s->to_send == 0 && s->finish_after) lh_call_finish(s->call, s->end, "all sent");
}

static inline void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct side *s = self;
    assert_ptr_equal(call, s->call);
    assert_int_equal(s->closes, 0);
    s->messages++;
    for (size_t i = 0; i < msg->parts; i++) {
        s->crc = lh_crc32c(s->crc, msg->part[i].data, msg->part[i].len);
        s->bytes += msg->part[i].len;
    }
    size_t n = msg->len < sizeof s->last - 1 ? msg->len : sizeof s->last - 1;
    assert_true(lh_msg_copy(msg, 0, s->last, n));
    s->last[n] = 0;
    if (s->echo) {
        const struct lh_out out = {.head = lh_span(s->last, n)};
        assert_int_equal(lh_call_send(call, &out), LH_OK);
    }
    if (!s->lazy && !s->echo) lh_call_read(call);
    heard(s, "message");
}

static inline void on_half_close(void *self, struct lh_call *call)
{
    struct side *s = self;
    assert_int_equal(s->closes, 0);
    s->half_closes++;
    if (!s->hold) lh_call_finish(call, s->end, "as planned");
    heard(s, "half_close");
}

static inline void on_sent(void *self, struct lh_call *call)
{
    struct side *s = self;
    (void)call;
    assert_int_equal(s->closes, 0);
    s->sent++;
    if (s->echo) lh_call_read(s->call); // one read per echo
    send_next(s);
    heard(s, "sent");
}

static inline void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct side *s = self;
    (void)call;
    assert_int_equal(s->closes, 0);
    s->closes++;
    s->status = status;
    snprintf(s->text, sizeof s->text, "%s", text);
    heard(s, "close");
}

__attribute__((unused)) static const struct lh_call_ops side_ops = {on_message, on_half_close,
                                                                    on_sent, on_close};

static inline void side_start(struct side *s)
{
    if (!s->lazy) lh_call_read(s->call);
    for (int i = 0; i < LH_CALL_SENDS_MAX; i++) send_next(s);
}

LH_MUST static inline lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                                     const struct lh_peer *peer, const struct lh_call_ops **ops,
                                     void **call_self)
{
    struct world *w = self;
    w->asked++;
    wake(w);
    if (w->refuse) return lh_fail(w->refuse, "refused by plan");
    if (w->out && !strcmp(peer->name, w->out)) return lh_fail(LH_ERR_BUSY, "it is kept out");
    struct side *s = &w->accepted[w->accepts % SIDES];
    *s = w->plan;
    s->w = w;
    s->call = call;
    w->rpc[w->accepts % SIDES] = rpc;
    w->peer[w->accepts % SIDES] = *peer;
    w->accepts++;
    *ops = &side_ops;
    *call_self = s;
    side_start(s);
    return LH_OK;
}

static inline void side_open(struct world *w, struct side *s, enum lh_rpc rpc, int64_t deadline_ns)
{
    s->w = w;
    assert_int_equal(lh_call_open(w->link, rpc, deadline_ns, &side_ops, s, &s->call), LH_OK);
    side_start(s);
}

static inline void side_say(struct side *s, const char *text)
{
    const struct lh_out out = {.head = lh_span_str(text)};
    assert_int_equal(lh_call_send(s->call, &out), LH_OK);
}

// ---------------------------------------------------------------- waiting

static inline void lose_patience(void *world)
{
    struct world *w = world;
    w->out_of_patience = true;
    wake(w);
}

// Runs the loop until the condition holds; checks it after every callback.
#define UNTIL(w, condition)                                                                        \
    do {                                                                                           \
        uint64_t patience_ = lh_after((w)->env, PATIENCE_S * LH_SECOND, lose_patience, (w));       \
        while (!(condition) && !(w)->out_of_patience) lh_env_real_run((w)->env);                   \
        lh_cancel((w)->env, &patience_);                                                           \
        if ((w)->out_of_patience) fail_msg("waited in vain for %s", #condition);                   \
    } while (0)

struct mark {
    struct world *w;
    bool passed;
};

static inline void pass_mark(void *arg)
{
    struct mark *m = arg;
    m->passed = true;
    wake(m->w);
}

// Runs everything that has been posted so far.
static inline void settle(struct world *w)
{
    struct mark m = {.w = w};
    lh_post(w->env, pass_mark, &m);
    UNTIL(w, m.passed);
}

static inline void pass_ms(struct world *w, int64_t ms)
{
    struct mark m = {.w = w};
    lh_after(w->env, ms * LH_MS, pass_mark, &m);
    UNTIL(w, m.passed);
}

// Releases the blob. gRPC's threads release its last slice a little later, so it waits for that.
static inline void let_go(struct world *w, struct lh_blob *b)
{
    for (int64_t start = lh_now(w->env); atomic_load(&b->owners) > 1;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        pass_ms(w, 1);
    }
    lh_blob_release(b);
}

// ---------------------------------------------------------------- worlds

static inline void issue(struct world *w, enum lh_role role, const char *name, const char *run,
                         int days)
{
    struct lh_peer p = {.role = role, .domain = "test.local", .region = "eu"};
    snprintf(p.run, sizeof p.run, "%s", run);
    snprintf(p.name, sizeof p.name, "%s", name);
    assert_int_equal(lh_certs_issue(w->dir, &p, days, w->dir, true), LH_OK);
}

struct paths {
    char ca[128], cert[128], key[128];
};

static inline struct paths paths_of(struct world *w, const char *name)
{
    struct paths p;
    snprintf(p.ca, sizeof p.ca, "%s/ca.pem", w->dir);
    snprintf(p.cert, sizeof p.cert, "%s/%s.pem", w->dir, name);
    snprintf(p.key, sizeof p.key, "%s/%s.key", w->dir, name);
    return p;
}

static inline struct lh_grpc_conf conf_of(const struct world *w, const struct paths *p)
{
    return (struct lh_grpc_conf){.env = w->env,
                                 .ca = p->ca,
                                 .cert = p->cert,
                                 .key = p->key,
                                 .run = "r1",
                                 .domain = "test.local"};
}

LH_MUST static inline lh_err create(struct world *w, const char *name, struct lh_transport **out)
{
    struct paths p = paths_of(w, name);
    const struct lh_grpc_conf conf = conf_of(w, &p);
    return lh_transport_grpc_create(&conf, out);
}

static inline int make_world(void **state)
{
    struct world *w = test_calloc(1, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/lh_grpc.XXXXXX");
    if (!mkdtemp(w->dir) || lh_env_real_create(&w->env)) return -1;
    if (lh_certs_ca_create(w->dir, "test.local", 365, true)) return -1;
    issue(w, LH_S, "server", "r1", 1);
    issue(w, LH_W, "worker", "r1", 1);
    w->service = (struct lh_service){w, on_call};
    *state = w;
    return 0;
}

static inline void listen_at(struct world *w, const char *address)
{
    lh_err err = w->server->ops->listen(w->server, address, &w->service, w->bound, sizeof w->bound);
    if (err) fail_msg("%s", lh_err_text(err));
}

static inline int make_pair(void **state)
{
    if (make_world(state)) return -1;
    struct world *w = *state;
    if (create(w, "server", &w->server) || create(w, "worker", &w->client)) return -1;
    listen_at(w, "127.0.0.1:0");
    return w->client->ops->dial(w->client, w->bound, LH_S, LH_LINE_FIRST, &w->link) ? -1 : 0;
}

static inline int drop_world(void **state)
{
    struct world *w = *state;
    if (w->client) lh_transport_grpc_destroy(w->client);
    if (w->server) lh_transport_grpc_destroy(w->server);
    settle(w);
    if (remove_tree(w->dir)) return -1;
    lh_env_real_destroy(w->env);
    test_free(w);
    return 0;
}

// ---------------------------------------------------------------- a whole program

// gRPC's threads may free a connection while the process exits. By then OpenSSL's exit handler
// would have removed what is needed to free the data attached to a connection.
static inline int keep_openssl(void **state)
{
    (void)state;
    return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) ? 0 : -1;
}

// ---------------------------------------------------------------- asking

// Makes one call without messages over `link` and returns its side.
static inline struct side call_once(struct world *w, struct lh_link *link, enum lh_rpc rpc)
{
    struct side s = {0};
    struct lh_link *usual = w->link;
    w->link = link;
    side_open(w, &s, rpc, 10 * LH_SECOND);
    w->link = usual;
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes);
    return s;
}

static inline struct lh_link *dial(struct lh_transport *t, const char *address, enum lh_role role)
{
    struct lh_link *link;
    assert_int_equal(t->ops->dial(t, address, role, LH_LINE_FIRST, &link), LH_OK);
    return link;
}

static inline void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("\"%s\" does not say \"%s\"", text, what);
}

static inline void assert_works(struct world *w, struct lh_link *link)
{
    struct side s = call_once(w, link, LH_RPC_JOIN);
    if (s.status) fail_msg("%s", s.text);
}

// A second CA with the same domain and run.
static inline struct world *other_world(void)
{
    void *other = NULL;
    assert_int_equal(make_world(&other), 0);
    return other;
}

#define IN_PAIR(name, parameter) TEST_WITH(name, parameter, make_pair, drop_world)
#define IN_WORLD(name, parameter) TEST_WITH(name, parameter, make_world, drop_world)

#endif
