// common/objects/web_identity.c against a token service in this process: the request, how long a
// key is used, and malformed answers.
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/objects/web_identity.h"
#include "tests/test.h"

enum { NOW_S = 1769860800 }; // 2026-01-31T12:00:00Z

struct rig {
    struct lh_env env;
    struct lh_env_ops ops;
    int64_t now_s;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;
    unsigned asked, status;
    char answer[1024], got[4096];
    char url[64], token_file[64];
    struct lh_transfer *transfer;
    struct lh_web_identity web;
};

static struct rig *its; // variable() returns its files

static const char *variable(const char *name)
{
    if (!strcmp(name, "AWS_WEB_IDENTITY_TOKEN_FILE")) return its->token_file;
    if (!strcmp(name, "AWS_ROLE_ARN")) return "arn:aws:iam::1:role/a+b";
    return strcmp(name, "AWS_ENDPOINT_URL_STS") ? NULL : its->url;
}

static const char *with_a_key(const char *name)
{
    return strcmp(name, "AWS_ACCESS_KEY_ID") ? variable(name) : "AKID";
}

static const char *nothing(const char *name)
{
    (void)name;
    return NULL;
}

static int64_t wall_s(struct lh_env *env)
{
    (void)env;
    return its->now_s;
}

struct request {
    struct lh_buf body;
};

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **own)
{
    struct rig *r = arg;
    struct request *q = *own;
    (void)url, (void)version;
    if (!q) {
        *own = q = calloc(1, sizeof *q);
        q->body = lh_buf(1 << 16);
        return MHD_YES;
    }
    if (*len) {
        lh_put(&q->body, data, *len);
        *len = 0;
        return MHD_YES;
    }
    pthread_mutex_lock(&r->lock);
    r->asked++;
    snprintf(r->got, sizeof r->got, "%s %.*s", method, (int)q->body.len,
             q->body.len ? (const char *)q->body.data : "");
    struct MHD_Response *is =
        MHD_create_response_from_buffer(strlen(r->answer), r->answer, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result done = MHD_queue_response(c, r->status, is);
    pthread_mutex_unlock(&r->lock);
    MHD_destroy_response(is);
    return done;
}

static void on_end(void *arg, struct MHD_Connection *c, void **own,
                   enum MHD_RequestTerminationCode code)
{
    struct request *q = *own;
    (void)arg, (void)c, (void)code;
    if (q) lh_buf_free(&q->body);
    free(q);
    *own = NULL;
}

static void answer(struct rig *r, unsigned status, const char *id, const char *expires)
{
    pthread_mutex_lock(&r->lock);
    r->status = status;
    snprintf(r->answer, sizeof r->answer,
             "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
             "<AccessKeyId>%s</AccessKeyId><SecretAccessKey>s/e+c</SecretAccessKey>"
             "<SessionToken>tok/en==</SessionToken><Expiration>%s</Expiration></Credentials>"
             "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
             id, expires);
    pthread_mutex_unlock(&r->lock);
}

static void write_token(struct rig *r, const char *text)
{
    FILE *f = fopen(r->token_file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    struct rig *r = its = *state = calloc(1, sizeof *r);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pthread_mutex_init(&r->lock, NULL);
    r->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, r,
                                 MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_NOTIFY_COMPLETED, on_end,
                                 NULL, MHD_OPTION_END);
    assert_non_null(r->daemon);
    snprintf(r->url, sizeof r->url, "http://127.0.0.1:%u",
             MHD_get_daemon_info(r->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    snprintf(r->token_file, sizeof r->token_file, "/tmp/longhaul-token-XXXXXX");
    int fd = mkstemp(r->token_file);
    assert_true(fd >= 0);
    close(fd);
    write_token(r, "head.body&x=1\n");
    r->now_s = NOW_S;
    r->ops = (struct lh_env_ops){.wall_s = wall_s};
    r->env.ops = &r->ops;
    assert_int_equal(lh_transfer_open(NULL, "", &r->transfer), LH_OK);
    r->web = (struct lh_web_identity){
        .env = &r->env, .variable = variable, .region = "eu-west-1", .transfer = r->transfer};
    answer(r, 200, "ASIA1", "2026-01-31T13:00:00Z");
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_transfer_close(r->transfer);
    MHD_stop_daemon(r->daemon);
    pthread_mutex_destroy(&r->lock);
    assert_int_equal(unlink(r->token_file), 0);
    free(r);
    return 0;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(a_key_is_asked_for_and_used_for_three_quarters_of_its_time, struct rig *r)
{
    struct lh_sigv4_keys k;
    assert_true(lh_web_identity_is(variable));
    assert_false(lh_web_identity_is(with_a_key));
    assert_false(lh_web_identity_is(nothing));
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_OK);
    assert_string_equal(k.id, "ASIA1");
    assert_string_equal(k.secret, "s/e+c");
    assert_string_equal(k.token, "tok/en==");
    assert_string_equal(r->got, "POST Action=AssumeRoleWithWebIdentity&Version=2011-06-15&"
                                "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa%2Bb&"
                                "RoleSessionName=longhaul&WebIdentityToken=head.body%26x%3D1");
    r->now_s = NOW_S + 2699;
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_OK);
    assert_int_equal(r->asked, 1);
    r->now_s = NOW_S + 2700;
    answer(r, 200, "ASIA2", "2026-01-31T14:00:00.000Z");
    write_token(r, "another");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_OK);
    assert_int_equal(r->asked, 2);
    assert_string_equal(k.id, "ASIA2");
    assert_non_null(strstr(r->got, "WebIdentityToken=another"));
    lh_web_identity_forget(&r->web);
    assert_string_equal(r->web.keys.secret, "");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_OK);
    assert_int_equal(r->asked, 3);
}

IN_RIG(malformed_keys_are_refused, struct rig *r)
{
    struct lh_sigv4_keys k;
    char long_id[400];
    static const char *const times[] = {"", "soon", "2026-01-31T12:00:00Z", "2026-01-31T13:00:00",
                                        "2026-01-31 13:00:00Z"};
    for (size_t i = 0; i < LH_COUNT(times); i++) {
        answer(r, 200, "ASIA1", times[i]);
        assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_MALFORMED);
        assert_string_equal(r->web.keys.id, "");
    }
    memset(long_id, 'A', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = 0;
    answer(r, 200, long_id, "2026-01-31T13:00:00Z");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_MALFORMED);
    answer(r, 200, "a b", "2026-01-31T13:00:00Z");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_MALFORMED);
    answer(r, 200, "", "2026-01-31T13:00:00Z");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_MALFORMED);
}

IN_RIG(failures_are_told_apart, struct rig *r)
{
    struct lh_sigv4_keys k;
    static const struct {
        unsigned status;
        const char *body;
        lh_err err;
    } row[] = {
        {403, "<Error><Code>AccessDenied</Code><Message>not you</Message></Error>", LH_ERR_DENIED},
        {400, "<Error><Code>ExpiredTokenException</Code></Error>", LH_ERR_DENIED},
        {400, "<Error><Code>Throttling</Code></Error>", LH_ERR_UNAVAILABLE},
        {503, "", LH_ERR_UNAVAILABLE},
        {302, "", LH_ERR_DENIED},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        r->status = row[i].status;
        snprintf(r->answer, sizeof r->answer, "%s", row[i].body);
        assert_int_equal(lh_web_identity_keys(&r->web, &k), row[i].err);
    }
    write_token(r, "\n");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_CONFIG);
    unsigned asked = r->asked;
    snprintf(r->url, sizeof r->url, "sts.example.org");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_CONFIG);
    assert_int_equal(r->asked, asked);
    r->url[0] = 0;
    write_token(r, "token");
    snprintf(r->url, sizeof r->url, "http://127.0.0.1:1");
    assert_int_equal(lh_web_identity_keys(&r->web, &k), LH_ERR_UNAVAILABLE);
}
