// The gRPC transport's own certificates: checked at the start, and renewed while connections stay
// open.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <time.h>

// ---------------------------------------------------------------- files at the start

static void assert_create_fails(struct world *w, struct paths p, const char *run, lh_err err,
                                const char *says)
{
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.run = run;
    struct lh_transport *t;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), err);
    assert_says(lh_err_text(err), says);
}

IN_WORLD(bad_files_are_said_at_the_start, struct world *w)
{
    struct world *other = other_world();
    struct paths good = paths_of(w, "worker"), p = paths_of(w, "nobody");
    assert_create_fails(w, p, "r1", LH_ERR_NOT_FOUND, "nobody.pem");
    p = good;
    memcpy(p.key, paths_of(w, "server").key, sizeof p.key);
    assert_create_fails(w, p, "r1", LH_ERR_UNAUTHENTICATED, "is not the key of");
    p = good;
    memcpy(p.key, good.cert, sizeof p.key);
    assert_create_fails(w, p, "r1", LH_ERR_MALFORMED, "no plain PEM private key");
    p = good;
    memcpy(p.cert, good.key, sizeof p.cert);
    assert_create_fails(w, p, "r1", LH_ERR_MALFORMED, "no PEM certificate");
    p = good;
    memcpy(p.ca, good.key, sizeof p.ca);
    assert_create_fails(w, p, "r1", LH_ERR_MALFORMED, "worker.key holds no PEM certificate");
    p = good;
    memcpy(p.ca, paths_of(other, "x").ca, sizeof p.ca);
    assert_create_fails(w, p, "r1", LH_ERR_UNAUTHENTICATED, "did not sign");
    assert_create_fails(w, good, "r7", LH_ERR_UNAUTHENTICATED, "this is run r7");
    memcpy(p.ca, good.ca, sizeof p.ca);
    memcpy(p.cert, good.ca, sizeof p.cert);
    assert_create_fails(w, p, "r1", LH_ERR_UNAUTHENTICATED, "CA's certificate");
    issue(w, LH_W, "old", "r1", -1);
    assert_create_fails(w, paths_of(w, "old"), "r1", LH_ERR_UNAUTHENTICATED, "expired on 20");
    void *state2 = other;
    drop_world(&state2);
}

// ---------------------------------------------------------------- renewal

IN_PAIR(a_server_renews_without_a_restart, struct world *w)
{
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_FOLLOW, 0); // stays open throughout
    UNTIL(w, w->accepts == 1);
    w->plan.hold = false;
    issue(w, LH_A, "server", "r1", 1); // another role, which a client can see
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_A));
    side_say(&open, "still here");
    UNTIL(w, w->accepted[0].messages == 1);
    lh_call_cancel(open.call);
    UNTIL(w, open.closes);
    w->link->transport_ops->hangup(w->link); // otherwise a dial would reuse this connection
    w->link = NULL;
    struct side s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
}

IN_PAIR(a_bad_renewal_changes_nothing, struct world *w)
{
    struct paths p = paths_of(w, "server"), q = paths_of(w, "worker");
    assert_int_equal(rename(q.key, p.key), 0); // a state between replacing the two files
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_UNAUTHENTICATED);
    assert_says(lh_err_text(LH_ERR_UNAUTHENTICATED), "is not the key of");
    assert_works(w, dial(w->client, w->bound, LH_S));
    assert_int_equal(unlink(p.cert), 0);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_NOT_FOUND);
    assert_works(w, dial(w->client, w->bound, LH_S));
    issue(w, LH_S, "server", "r1", -1);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_UNAUTHENTICATED);
    assert_works(w, dial(w->client, w->bound, LH_S));
    issue(w, LH_S, "server", "r1", 1);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_S));
}

IN_PAIR(a_client_renews_without_a_restart, struct world *w)
{
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    assert_int_equal(w->peer[0].role, LH_W);
    w->plan.hold = false;
    issue(w, LH_A, "worker", "r1", 1); // the same file with another role
    assert_int_equal(call_once(w, w->link, LH_RPC_DRAIN).status, LH_ERR_DENIED);
    assert_int_equal(lh_transport_grpc_reload(w->client), LH_OK);
    assert_int_equal(call_once(w, w->link, LH_RPC_DRAIN).status, LH_OK);
    assert_int_equal(open.closes, 0); // calls on the old connection continue
    side_say(&open, "still here");
    UNTIL(w, w->accepted[0].messages == 1);
    lh_call_cancel(open.call);
    UNTIL(w, open.closes);
}

// ---------------------------------------------------------------- expiry

static int64_t later_s;

static int64_t wall_later(struct lh_env *env)
{
    (void)env;
    return time(NULL) + later_s;
}

static unsigned warnings(const struct world *w, const char *path)
{
    struct lh_buf text = lh_buf(1 << 16);
    unsigned n = 0;
    assert_int_equal(lh_file_load(w->env, path, &text), LH_OK);
    lh_put_u8(&text, 0);
    for (const char *at = (char *)text.data; (at = strstr(at, "net.certificate_ends")); at++) n++;
    lh_buf_free(&text);
    return n;
}

IN_WORLD(our_certificates_end_is_told_a_month_before_once_a_day, struct world *w)
{
    enum { DAY_S = 86400, DAYS = 40 };
    struct lh_log *log;
    struct lh_transport *t;
    char path[128];
    snprintf(path, sizeof path, "%s/log", w->dir);
    issue(w, LH_W, "long", "r1", DAYS);
    struct paths p = paths_of(w, "long");
    assert_int_equal(lh_log_open(&log, w->env, "worker", LH_INFO, false, path), LH_OK);
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.log = log;
    const struct lh_env_ops *real = w->env->ops;
    struct lh_env_ops later = *real;
    later.wall_s = wall_later;
    later_s = 0;
    w->env->ops = &later;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_OK);
    for (int day = 0; day < DAYS; day++) {
        later_s = (int64_t)day * DAY_S + 3600;
        for (int look = 0; look < 3; look++) assert_int_equal(lh_transport_grpc_reload(t), LH_OK);
        assert_int_equal(warnings(w, path), day < 10 ? 0 : day - 9);
    }
    issue(w, LH_W, "long", "r1", 90);
    assert_int_equal(lh_transport_grpc_reload(t), LH_OK);
    later_s += DAY_S + 3600;
    assert_int_equal(lh_transport_grpc_reload(t), LH_OK);
    assert_int_equal(warnings(w, path), 30);
    w->env->ops = real;
    lh_transport_grpc_destroy(t);
    lh_log_close(log);
}

// ---------------------------------------------------------------- revoked

static void write_serial(const char *path, const char *cert)
{
    struct lh_certs_info info;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "# whom nobody trusts any more\n");
    if (cert) {
        assert_int_equal(lh_certs_inspect(cert, &info), LH_OK);
        fprintf(f, "\n00:%s # lost\n", info.serial);
    }
    fclose(f);
}

static void restart_with_list(struct world *w, struct lh_transport **t, const char *name,
                              const char *list)
{
    struct paths p = paths_of(w, name);
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.revoked = list;
    lh_transport_grpc_destroy(*t);
    assert_int_equal(lh_transport_grpc_create(&conf, t), LH_OK);
}

// The handshake is refused; with TLS 1.3 a client learns that only when the connection ends.
static void assert_refused(struct world *w)
{
    int asked = w->asked;
    struct side s = {0};
    do {
        s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
        assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    } while (!strstr(s.text, "revoked"));
    assert_int_equal(w->asked, asked);
}

IN_PAIR(a_revoked_client_is_heard_no_more_and_its_open_calls_end, struct world *w)
{
    char list[128], bound[sizeof w->bound];
    snprintf(list, sizeof list, "%s/revoked", w->dir);
    write_serial(list, NULL);
    memcpy(bound, w->bound, sizeof bound);
    restart_with_list(w, &w->server, "server", list);
    listen_at(w, bound);
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    w->plan.hold = false;
    write_serial(list, paths_of(w, "server").cert); // another node's certificate
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_S));
    assert_int_equal(open.closes, 0);
    write_serial(list, paths_of(w, "worker").cert);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_int_equal(w->accepted[0].closes, 1);
    UNTIL(w, open.closes);
    assert_refused(w);
    struct side s;
    FILE *f = fopen(list, "w"); // an unreadable list changes nothing
    fprintf(f, "no serial\n");
    fclose(f);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_MALFORMED);
    assert_says(lh_err_text(LH_ERR_MALFORMED), "line 1");
    assert_refused(w);
    write_serial(list, NULL); // takes the revocation back
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    do s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    while (s.status == LH_ERR_UNAVAILABLE); // the refused attempt
    assert_int_equal(s.status, LH_OK);
}

IN_PAIR(the_list_is_read_whatever_is_wrong_with_our_own_files, struct world *w)
{
    char list[128], bound[sizeof w->bound];
    snprintf(list, sizeof list, "%s/revoked", w->dir);
    write_serial(list, NULL);
    memcpy(bound, w->bound, sizeof bound);
    restart_with_list(w, &w->server, "server", list);
    listen_at(w, bound);
    write_serial(list, paths_of(w, "worker").cert);
    assert_int_equal(unlink(paths_of(w, "server").cert), 0);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_NOT_FOUND);
    assert_says(lh_err_text(LH_ERR_NOT_FOUND), "server.pem");
    assert_refused(w);
}

IN_PAIR(a_client_does_not_talk_to_a_revoked_server, struct world *w)
{
    char list[128];
    snprintf(list, sizeof list, "%s/revoked", w->dir);
    write_serial(list, NULL);
    w->link->transport_ops->hangup(w->link);
    w->link = NULL;
    restart_with_list(w, &w->client, "worker", list);
    struct side open = {0};
    w->link = dial(w->client, w->bound, LH_S);
    assert_works(w, w->link);
    w->plan.hold = true;
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 2);
    write_serial(list, paths_of(w, "server").cert);
    assert_int_equal(lh_transport_grpc_reload(w->client), LH_OK);
    assert_int_equal(open.closes, 1);
    assert_int_equal(open.status, LH_ERR_UNAUTHENTICATED);
    w->plan.hold = false;
    struct side s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_int_equal(unlink(list), 0);
    struct paths p = paths_of(w, "worker");
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.revoked = list;
    struct lh_transport *t;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_ERR_NOT_FOUND);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
