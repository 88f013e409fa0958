// The gRPC transport's authentication: which peers each side accepts, and the text of each refusal.
// Wrong role, wrong run, wrong CA, expired, no TLS.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "common/format/frame.h"
#include "common/net/grpc/transport_grpc_core.h"

// ---------------------------------------------------------------- what the server refuses

IN_PAIR(a_role_may_call_what_its_table_says, struct world *w)
{
    for (int rpc = 0; rpc < LH_RPC_COUNT; rpc++) {
        int before = w->asked;
        struct side s = call_once(w, w->link, (enum lh_rpc)rpc);
        if (lh_rpc_allowed((enum lh_rpc)rpc, LH_W)) {
            assert_int_equal(s.status, LH_OK);
            assert_int_equal(w->asked, before + 1);
        } else {
            assert_int_equal(s.status, LH_ERR_DENIED);
            assert_says(s.text, "a worker may not call");
            assert_says(s.text, lh_rpc_path((enum lh_rpc)rpc));
            assert_int_equal(w->asked, before); // the service never saw the call
        }
    }
}

struct answer {
    grpc_status_code code;
    char text[256];
};

static char *text_of(struct world *w, const char *path)
{
    struct lh_buf b = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(w->env, path, &b), LH_OK);
    lh_put_u8(&b, 0);
    return (char *)b.data;
}

static struct answer take_answer(grpc_call *call, grpc_completion_queue *queue)
{
    grpc_metadata_array first, last;
    grpc_slice details = grpc_empty_slice();
    struct answer a = {0};
    grpc_op op[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                     {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                     {.op = GRPC_OP_RECV_INITIAL_METADATA},
                     {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    grpc_metadata_array_init(&first);
    grpc_metadata_array_init(&last);
    op[2].data.recv_initial_metadata.recv_initial_metadata = &first;
    op[3].data.recv_status_on_client.trailing_metadata = &last;
    op[3].data.recv_status_on_client.status = &a.code;
    op[3].data.recv_status_on_client.status_details = &details;
    assert_int_equal(grpc_call_start_batch(call, op, 4, &a, NULL), GRPC_CALL_OK);
    grpc_event e = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    assert_int_equal(e.type, GRPC_OP_COMPLETE);
    lh_grpc_text(details, a.text, sizeof a.text);
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&first);
    grpc_metadata_array_destroy(&last);
    return a;
}

struct stranger { // a foreign client that accepts any server of the CA
    struct world *w;
    const char *path;
    struct paths files;
    struct answer answer;
    struct mark done;
};

static grpc_channel *stranger_channel(struct stranger *s)
{
    char *ca = text_of(s->w, s->files.ca), *cert = text_of(s->w, s->files.cert),
         *key = text_of(s->w, s->files.key), host[] = LH_CERTS_DNS,
         arg_key[] = GRPC_SSL_TARGET_NAME_OVERRIDE_ARG;
    grpc_ssl_pem_key_cert_pair pair = {key, cert};
    grpc_channel_credentials *credentials = grpc_ssl_credentials_create_ex(ca, &pair, NULL, NULL);
    grpc_arg arg = {.type = GRPC_ARG_STRING, .key = arg_key, .value.string = host};
    const grpc_channel_args args = {1, &arg};
    grpc_channel *channel = grpc_channel_create(s->w->bound, credentials, &args);
    grpc_channel_credentials_release(credentials);
    free(ca);
    free(cert);
    free(key);
    return channel;
}

static void *ask(void *arg)
{
    struct stranger *s = arg;
    gpr_timespec forever = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_channel *channel = stranger_channel(s);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    grpc_call *call = grpc_channel_create_call(
        channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue, grpc_slice_from_static_string(s->path), NULL,
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(10, GPR_TIMESPAN)), NULL);
    s->answer = take_answer(call, queue);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_completion_queue_shutdown(queue);
    while (grpc_completion_queue_next(queue, forever, NULL).type != GRPC_QUEUE_SHUTDOWN) continue;
    grpc_completion_queue_destroy(queue);
    lh_post(s->w->env, pass_mark, &s->done);
    return NULL;
}

static struct answer ask_as_stranger(struct world *w, const char *name, const char *path)
{
    struct stranger s = {.w = w, .path = path, .files = paths_of(w, name), .done = {.w = w}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, &s), 0);
    UNTIL(w, s.done.passed);
    pthread_join(thread, NULL);
    return s.answer;
}

IN_PAIR(unlisted_methods_are_not_answered, struct world *w)
{
    static const char *const paths[] = {"/longhaul.v1.Shard/Steal", "/", "/longhaul.v1.Shard/Pus",
                                        "/longhaul.v1.Shard/Pushh", "/LONGHAUL.v1.Shard/Push"};
    for (size_t i = 0; i < LH_COUNT(paths); i++) {
        struct answer a = ask_as_stranger(w, "worker", paths[i]);
        assert_int_equal(a.code, GRPC_STATUS_UNIMPLEMENTED);
    }
    struct answer a = ask_as_stranger(w, "worker", "/longhaul.v1.Shard/Push");
    assert_int_equal(a.code, GRPC_STATUS_OK);
    assert_int_equal(w->asked, 1);
}

IN_PAIR(another_run_is_refused, struct world *w)
{
    issue(w, LH_W, "guest", "r2", 1);
    struct answer a = ask_as_stranger(w, "guest", "/longhaul.v1.Shard/Push");
    assert_int_equal(a.code, GRPC_STATUS_UNAVAILABLE); // the handshake fails
    assert_int_equal(w->asked, 0);
}

static void write_pem(struct world *w, const char *name, X509 *cert, EVP_PKEY *key)
{
    struct paths p = paths_of(w, name);
    FILE *f = fopen(p.cert, "w"), *k = fopen(p.key, "w");
    assert_true(f && k);
    assert_true(PEM_write_X509(f, cert) && PEM_write_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    fclose(k);
}

// Issues a certificate of our CA that our tools would not issue; `from` and `to` are in seconds
// from now.
static void issue_odd(struct world *w, const char *name, const char *san, long from, long to)
{
    char path[128];
    snprintf(path, sizeof path, "%s/ca.key", w->dir);
    char *ca_pem = text_of(w, paths_of(w, name).ca), *key_pem = text_of(w, path);
    BIO *ca_bio = BIO_new_mem_buf(ca_pem, -1), *key_bio = BIO_new_mem_buf(key_pem, -1);
    X509 *ca = PEM_read_bio_X509(ca_bio, NULL, NULL, NULL), *cert = X509_new();
    EVP_PKEY *ca_key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
    assert_true(ca && ca_key && key && e);
    assert_true(X509_set_version(cert, X509_VERSION_3) &&
                ASN1_INTEGER_set(X509_get_serialNumber(cert), 77) &&
                X509_set_issuer_name(cert, X509_get_subject_name(ca)) &&
                X509_gmtime_adj(X509_getm_notBefore(cert), from) &&
                X509_gmtime_adj(X509_getm_notAfter(cert), to) && X509_set_pubkey(cert, key) &&
                X509_add_ext(cert, e, -1) && X509_sign(cert, ca_key, EVP_sha256()));
    write_pem(w, name, cert, key);
    X509_EXTENSION_free(e);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    X509_free(cert);
    X509_free(ca);
    BIO_free(ca_bio);
    BIO_free(key_bio);
    free(ca_pem);
    free(key_pem);
}

IN_PAIR(odd_identities_are_refused, struct world *w)
{
    static const char *const odd[] = {
        "DNS:longhaul.internal",
        ("URI:spiffe://test.local/longhaul/r1/worker/eu/a,"
         "URI:spiffe://test.local/longhaul/r1/admin/eu/a"),
        "URI:spiffe://test.local/longhaul/r1/boss/eu/a",
        "URI:https://test.local/longhaul/r1/worker/eu/a",
        "URI:spiffe://else.where/longhaul/r1/worker/eu/a",
    };
    for (size_t i = 0; i < LH_COUNT(odd); i++) {
        issue_odd(w, "odd", odd[i], -60, 3600);
        struct answer a = ask_as_stranger(w, "odd", "/longhaul.v1.Shard/Push");
        assert_int_equal(a.code, GRPC_STATUS_UNAVAILABLE);
    }
    assert_int_equal(w->asked, 0);
    assert_works(w, w->link);
}

// ---------------------------------------------------------------- what the client refuses

IN_PAIR(a_server_of_another_role_is_not_believed, struct world *w)
{
    struct lh_link *link = dial(w->client, w->bound, LH_C);
    struct side s = call_once(w, link, LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, "spiffe://test.local/longhaul/r1/server/eu/server");
    assert_says(s.text, "a coordinator of run r1");
    assert_says(s.text, w->bound);
    assert_int_equal(w->asked, 0);
    s = call_once(w, link, LH_RPC_JOIN); // it fails on the same link again
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_works(w, w->link);
}

// Another server of the run has a valid certificate of the right role, but is not the expected
// server. It is refused also on a connection that exists already.
IN_PAIR(another_server_is_not_believed, struct world *w)
{
    struct lh_peer server = {.role = LH_S, .domain = "test.local", .run = "r1"};
    snprintf(server.region, sizeof server.region, "eu");
    snprintf(server.name, sizeof server.name, "server");
    assert_works(w, w->link);
    w->link->transport_ops->expect(w->link, lh_worker_id(&server));
    assert_works(w, w->link);
    int asked = w->asked;
    snprintf(server.name, sizeof server.name, "other");
    w->link->transport_ops->expect(w->link, lh_worker_id(&server));
    struct side s = call_once(w, w->link, LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, "spiffe://test.local/longhaul/r1/server/eu/server");
    assert_int_equal(w->asked, asked);
    w->link->transport_ops->expect(w->link, 0);
    assert_works(w, w->link);
}

// A server that names another one's address as its own keeps nobody from that one.
IN_PAIR(two_identities_at_one_address_do_not_disturb_each_other, struct world *w)
{
    struct lh_peer server = {.role = LH_S, .domain = "test.local", .run = "r1"};
    snprintf(server.region, sizeof server.region, "eu");
    snprintf(server.name, sizeof server.name, "server");
    const uint64_t there = lh_worker_id(&server), elsewhere = there + 1;
    struct lh_link *first = dial(w->client, w->bound, LH_S), *false_one = NULL, *second = NULL;
    for (int i = 0; i < 3; i++) { // as with each answer of the coordinator
        first->transport_ops->expect(first, there);
        if (!false_one) false_one = dial(w->client, w->bound, LH_S);
        false_one->transport_ops->expect(false_one, elsewhere);
        if (!second) second = dial(w->client, w->bound, LH_S);
        second->transport_ops->expect(second, there);
        assert_works(w, first);
        assert_works(w, second);
        assert_int_equal(call_once(w, false_one, LH_RPC_JOIN).status, LH_ERR_UNAUTHENTICATED);
    }
    assert_ptr_equal(((struct lh_grpc_link *)first)->line, ((struct lh_grpc_link *)second)->line);
    false_one->transport_ops->expect(false_one, there); // its address belongs to that server now
    assert_works(w, false_one);
    assert_ptr_equal(((struct lh_grpc_link *)first)->line,
                     ((struct lh_grpc_link *)false_one)->line);
}

IN_PAIR(a_worker_is_no_server, struct world *w)
{
    struct lh_transport *liar;
    char bound[64];
    issue(w, LH_W, "liar", "r1", 1);
    assert_int_equal(create(w, "liar", &liar), LH_OK);
    assert_int_equal(liar->ops->listen(liar, "127.0.0.1:0", &w->service, bound, sizeof bound),
                     LH_OK);
    struct side s = call_once(w, dial(w->client, bound, LH_S), LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, "/worker/eu/liar");
    lh_transport_grpc_destroy(liar);
    assert_int_equal(w->asked, 0);
}

// The transport's clock; OpenSSL and gRPC use the real one.
static int64_t wall_before(struct lh_env *env)
{
    (void)env;
    return time(NULL) - 300;
}

// Creates a transport whose own checks see a past time.
static struct lh_transport *create_in_the_past(struct world *w, const char *name, const char *ca)
{
    const struct lh_env_ops *real = w->env->ops;
    struct lh_env_ops past = *real;
    past.wall_s = wall_before;
    struct paths p = paths_of(w, name);
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.ca = ca ? ca : p.ca;
    struct lh_transport *t = NULL;
    w->env->ops = &past;
    lh_err err = lh_transport_grpc_create(&conf, &t);
    w->env->ops = real;
    if (err) fail_msg("%s", lh_err_text(err));
    return t;
}

// Issues a certificate that expired a minute ago and was valid five minutes ago.
static void issue_expired(struct world *w, enum lh_role role, const char *name)
{
    char san[200];
    snprintf(san, sizeof san, "URI:spiffe://test.local/longhaul/r1/%s/eu/%s,DNS:" LH_CERTS_DNS,
             lh_role_name(role), name);
    issue_odd(w, name, san, -400, -60);
}

IN_PAIR(an_expired_server_is_not_believed, struct world *w)
{
    char bound[64];
    issue_expired(w, LH_S, "old");
    struct lh_transport *old = create_in_the_past(w, "old", NULL);
    assert_int_equal(old->ops->listen(old, "127.0.0.1:0", &w->service, bound, sizeof bound), LH_OK);
    struct side s = call_once(w, dial(w->client, bound, LH_S), LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, bound);
    assert_says(s.text, "expired");
    lh_transport_grpc_destroy(old);
    assert_int_equal(w->asked, 0);
}

IN_PAIR(a_server_of_another_ca_is_not_believed, struct world *w)
{
    struct world *other = other_world();
    struct paths p = paths_of(other, "server");
    const struct lh_grpc_conf conf = conf_of(w, &p);
    struct lh_transport *t;
    char bound[64];
    assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_OK);
    assert_int_equal(t->ops->listen(t, "127.0.0.1:0", &w->service, bound, sizeof bound), LH_OK);
    struct side s = call_once(w, dial(w->client, bound, LH_S), LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, bound);
    assert_says(s.text, "did not sign it");
    assert_says(s.text, paths_of(w, "worker").ca);
    lh_transport_grpc_destroy(t);
    assert_int_equal(w->asked, 0);
    void *state2 = other;
    drop_world(&state2);
}

// ---------------------------------------------------------------- clients that the server refuses

IN_PAIR(an_expired_client_learns_why, struct world *w)
{
    issue_expired(w, LH_W, "old");
    struct lh_transport *old = create_in_the_past(w, "old", NULL);
    struct side s = call_once(w, dial(old, w->bound, LH_S), LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, "old.pem expired on");
    assert_int_equal(w->asked, 0);
    lh_transport_grpc_destroy(old);
    assert_works(w, w->link);
}

// Creates a client with the files of `certs` that trusts the CAs of both worlds.
static struct lh_transport *create_trusting(struct world *w, struct world *other,
                                            struct world *certs)
{
    char both[160];
    snprintf(both, sizeof both, "%s/both.pem", other->dir);
    char *a = text_of(w, paths_of(w, "x").ca), *b = text_of(w, paths_of(other, "x").ca);
    FILE *f = fopen(both, "w");
    assert_non_null(f);
    fprintf(f, "%s%s", a, b);
    fclose(f);
    free(a);
    free(b);
    struct paths p = paths_of(certs, "worker");
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.ca = both;
    struct lh_transport *t;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_OK);
    return t;
}

IN_PAIR(a_client_of_another_ca_is_thrown_out, struct world *w)
{
    struct world *other = other_world(); // the server trusts only its own CA
    struct lh_transport *t = create_trusting(w, other, other);
    struct side s = call_once(w, dial(t, w->bound, LH_S), LH_RPC_PUSH);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE); // a TLS 1.3 client's handshake succeeds
    assert_says(s.text, "may not accept our certificate");
    assert_int_equal(w->asked, 0);
    lh_transport_grpc_destroy(t);
    assert_works(w, w->link);
    void *state2 = other;
    drop_world(&state2);
}

IN_PAIR(a_server_that_came_back_with_another_ca_may_refuse_us, struct world *w)
{
    struct world *other = other_world();
    struct lh_transport *t = create_trusting(w, other, w);
    struct lh_link *link = dial(t, w->bound, LH_S);
    assert_works(w, link);
    lh_transport_grpc_destroy(w->server);
    struct paths p = paths_of(other, "server");
    const struct lh_grpc_conf conf = conf_of(w, &p);
    assert_int_equal(lh_transport_grpc_create(&conf, &w->server), LH_OK);
    listen_at(w, w->bound);
    struct side s = {0};
    for (int i = 0; i < 100 && !strstr(s.text, "may not accept our certificate"); i++) {
        s = call_once(w, link, LH_RPC_PUSH); // the first call may use the old connection
        assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    }
    assert_says(s.text, "may not accept our certificate");
    lh_transport_grpc_destroy(t);
    void *state2 = other;
    drop_world(&state2);
}

// ---------------------------------------------------------------- no TLS

struct plain { // a server without TLS: sends `line` to every client and hangs up
    int fd;
    const char *line; // NULL: sends nothing and keeps the connection open
    char address[64];
    pthread_t thread;
};

static void *answer_plainly(void *arg)
{
    struct plain *p = arg;
    for (int fd; (fd = accept(p->fd, NULL, NULL)) >= 0; close(fd)) {
        char rest[4096];
        if (p->line && write(fd, p->line, strlen(p->line)) >= 0) shutdown(fd, SHUT_WR);
        while (read(fd, rest, sizeof rest) > 0) continue;
    }
    return NULL;
}

static void plain_start(struct plain *p, const char *line)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    p->line = line;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(p->fd, 8), 0);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&at, &n), 0);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&p->thread, NULL, answer_plainly, p), 0);
}

static void plain_stop(struct plain *p)
{
    shutdown(p->fd, SHUT_RDWR); // makes accept() return
    pthread_join(p->thread, NULL);
    close(p->fd);
}

IN_PAIR(a_peer_without_tls_is_named, struct world *w)
{
    struct plain p;
    plain_start(&p, "HTTP/1.0 400 Bad Request\r\n\r\n");
    struct side s = call_once(w, dial(w->client, p.address, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_says(s.text, p.address);
    assert_says(s.text, "without TLS");
    plain_stop(&p);
}

IN_PAIR(a_peer_that_hangs_up_is_unavailable, struct world *w)
{
    struct plain p;
    plain_start(&p, "");
    struct side s = call_once(w, dial(w->client, p.address, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_says(s.text, p.address);
    plain_stop(&p);
}

IN_PAIR(a_peer_that_says_nothing_is_given_up, struct world *w)
{
    struct plain p;
    plain_start(&p, NULL);
    struct side hasty = {0}, s = {0};
    struct lh_link *usual = w->link;
    w->link = dial(w->client, p.address, LH_S);
    int64_t start = lh_now(w->env);
    side_open(w, &s, LH_RPC_JOIN, 0);
    side_open(w, &hasty, LH_RPC_JOIN, 100 * LH_MS);
    UNTIL(w, hasty.closes);
    assert_int_equal(hasty.status, LH_ERR_DEADLINE);
    assert_int_equal(s.closes, 0); // still connecting
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_true(lh_now(w->env) - start < 2 * LH_GRPC_CONNECT_MS * LH_MS);
    w->link->transport_ops->hangup(w->link);
    w->link = usual;
    plain_stop(&p);
}

static int connect_to(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtol(strrchr(address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

IN_PAIR(garbage_at_the_door_does_no_harm, struct world *w)
{
    static const char *const said[] = {"", "GET / HTTP/1.1\r\n\r\n",
                                       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x7f\xff"};
    for (size_t i = 0; i < LH_COUNT(said); i++) {
        int fd = connect_to(w->bound);
        assert_int_equal(write(fd, said[i], strlen(said[i])), (ssize_t)strlen(said[i]));
        close(fd);
    }
    char noise[5000];
    lh_random(w->env, noise, sizeof noise);
    int fd = connect_to(w->bound);
    assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
    assert_works(w, w->link); // while the stranger's connection is open
    close(fd);
    assert_works(w, w->link);
    assert_int_equal(w->asked, 2);
}

// ---------------------------------------------------------------- versions of TLS

struct handshake {
    struct world *w;
    int version; // highest version offered
    bool certificate, ok;
    int spoken;
    struct mark done;
};

static void *shake(void *arg)
{
    struct handshake *h = arg;
    struct paths p = paths_of(h->w, "worker");
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0); // OpenSSL's default level does not offer 1.1
    SSL_CTX_set_max_proto_version(context, h->version);
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    bool ready = SSL_CTX_use_certificate_file(context, p.cert, SSL_FILETYPE_PEM) == 1 &&
                 SSL_CTX_use_PrivateKey_file(context, p.key, SSL_FILETYPE_PEM) == 1;
    SSL *ssl = SSL_new(context);
    int fd = connect_to(h->w->bound);
    static const unsigned char h2[] = "\x02h2";
    SSL_set_alpn_protos(ssl, h2, 3);
    SSL_set_fd(ssl, fd);
    h->ok = ready && SSL_connect(ssl) == 1;
    h->spoken = SSL_version(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    lh_post(h->w->env, pass_mark, &h->done);
    return NULL;
}

static struct handshake shake_hands(struct world *w, int version)
{
    struct handshake h = {.w = w, .version = version, .done = {.w = w}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, shake, &h), 0);
    UNTIL(w, h.done.passed);
    pthread_join(thread, NULL);
    return h;
}

IN_PAIR(tls_is_1_2_or_newer, struct world *w)
{
    struct handshake h = shake_hands(w, TLS1_3_VERSION);
    assert_true(h.ok);
    assert_int_equal(h.spoken, TLS1_3_VERSION);
    h = shake_hands(w, TLS1_2_VERSION);
    assert_true(h.ok);
    assert_int_equal(h.spoken, TLS1_2_VERSION);
    assert_false(shake_hands(w, TLS1_1_VERSION).ok);
    assert_false(shake_hands(w, TLS1_VERSION).ok);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
