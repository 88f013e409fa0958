// The gRPC transport's own certificates: checked at the start, renewed while connections stand.
#include "tests/unit/common/net/grpc/transport_grpc.h"

// ---------------------------------------------------------------- our own files

static void assert_create_fails(struct world *w, struct paths p, const char *run, lh_err err,
                                const char *says)
{
    const struct lh_grpc_conf conf = {w->env, NULL,         p.ca, p.cert, p.key,
                                      run,    "test.local", 0,    0,      NULL};
    struct lh_transport *t;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), err);
    assert_says(lh_err_text(err), says);
}

static void bad_files_are_said_at_the_start(void **state)
{
    struct world *w = *state, *other = other_world();
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

static void a_server_renews_without_a_restart(void **state)
{
    struct world *w = *state;
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_FOLLOW, 0); // stands through it all
    UNTIL(w, w->accepts == 1);
    w->plan.hold = false;
    issue(w, LH_A, "server", "r1", 1); // what it is now can be seen from outside
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_A));
    side_say(&open, "still here");
    UNTIL(w, w->accepted[0].messages == 1);
    lh_call_cancel(open.call);
    UNTIL(w, open.closes);
    w->link->transport_ops->hangup(w->link); // its connection would be used on otherwise
    w->link = NULL;
    struct side s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
}

static void a_bad_renewal_changes_nothing(void **state)
{
    struct world *w = *state;
    struct paths p = paths_of(w, "server"), q = paths_of(w, "worker");
    assert_int_equal(rename(q.key, p.key), 0); // between the two files of a replacement
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

static void a_client_renews_without_a_restart(void **state)
{
    struct world *w = *state;
    w->plan.hold = true;
    struct side open = {0};
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    assert_int_equal(w->peer[0].role, LH_W);
    w->plan.hold = false;
    issue(w, LH_A, "worker", "r1", 1); // the same file, another role
    assert_int_equal(call_once(w, w->link, LH_RPC_DRAIN).status, LH_ERR_DENIED);
    assert_int_equal(lh_transport_grpc_reload(w->client), LH_OK);
    assert_int_equal(call_once(w, w->link, LH_RPC_DRAIN).status, LH_OK);
    assert_int_equal(open.closes, 0); // the old connection's calls go on
    side_say(&open, "still here");
    UNTIL(w, w->accepted[0].messages == 1);
    lh_call_cancel(open.call);
    UNTIL(w, open.closes);
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
    const struct lh_grpc_conf conf = {w->env, NULL,         p.ca, p.cert, p.key,
                                      "r1",   "test.local", 0,    0,      list};
    lh_transport_grpc_destroy(*t);
    assert_int_equal(lh_transport_grpc_create(&conf, t), LH_OK);
}

static void a_revoked_client_is_heard_no_more_and_its_open_calls_end(void **state)
{
    struct world *w = *state;
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
    write_serial(list, paths_of(w, "server").cert); // somebody else's
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_S));
    assert_int_equal(open.closes, 0);
    write_serial(list, paths_of(w, "worker").cert);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_int_equal(w->accepted[0].closes, 1);
    UNTIL(w, open.closes);
    struct side s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_says(s.text, "revoked");
    FILE *f = fopen(list, "w"); // what can't be read changes nothing
    fprintf(f, "no serial\n");
    fclose(f);
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_ERR_MALFORMED);
    assert_says(lh_err_text(LH_ERR_MALFORMED), "line 1");
    s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    write_serial(list, NULL); // it was a mistake
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_works(w, dial(w->client, w->bound, LH_S));
}

static void a_client_does_not_talk_to_a_revoked_server(void **state)
{
    struct world *w = *state;
    char list[128];
    snprintf(list, sizeof list, "%s/revoked", w->dir);
    write_serial(list, NULL);
    w->link->transport_ops->hangup(w->link);
    w->link = NULL;
    restart_with_list(w, &w->client, "worker", list);
    assert_works(w, dial(w->client, w->bound, LH_S));
    write_serial(list, paths_of(w, "server").cert);
    assert_int_equal(lh_transport_grpc_reload(w->client), LH_OK);
    struct side s = call_once(w, dial(w->client, w->bound, LH_S), LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAUTHENTICATED);
    assert_int_equal(unlink(list), 0);
    struct paths p = paths_of(w, "worker");
    const struct lh_grpc_conf conf = {w->env, NULL,         p.ca, p.cert, p.key,
                                      "r1",   "test.local", 0,    0,      list};
    struct lh_transport *t;
    assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(bad_files_are_said_at_the_start),
        IN_PAIR(a_server_renews_without_a_restart),
        IN_PAIR(a_bad_renewal_changes_nothing),
        IN_PAIR(a_client_renews_without_a_restart),
        IN_PAIR(a_revoked_client_is_heard_no_more_and_its_open_calls_end),
        IN_PAIR(a_client_does_not_talk_to_a_revoked_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
