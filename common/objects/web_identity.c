// An access key from a security token service. See web_identity.h.
//
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html. The
// request is not signed: the token proves who asks. It goes into the body, so no URL has it.
#include "common/objects/web_identity.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/objects/xml.h"
#include "common/security/keyfile.h"

enum { TOKEN_BYTES = 16 << 10, BODY_BYTES = 64 << 10, URL_BYTES = 300, ANSWER_MS = 30000 };

static const char *set(const struct lh_web_identity *w, const char *name)
{
    const char *value = w->variable(name);
    return value ? value : "";
}

bool lh_web_identity_is(const char *(*variable)(const char *))
{
    const struct lh_web_identity w = {.variable = variable};
    return set(&w, "AWS_WEB_IDENTITY_TOKEN_FILE")[0] && set(&w, "AWS_ROLE_ARN")[0] &&
           !set(&w, "AWS_ACCESS_KEY_ID")[0];
}

void lh_web_identity_forget(struct lh_web_identity *w)
{
    sodium_memzero(&w->keys, sizeof w->keys);
    w->until_s = 0;
}

static void put(struct lh_buf *body, const char *name, const char *value)
{
    if (body->len) lh_put(body, "&", 1);
    lh_put(body, name, strlen(name));
    lh_put(body, "=", 1);
    lh_sigv4_encode(body, value, false);
}

static LH_MUST lh_err make_body(const struct lh_web_identity *w, struct lh_buf *body)
{
    char token[TOKEN_BYTES + 1];
    size_t len = 0;
    const char *session = set(w, "AWS_ROLE_SESSION_NAME");
    const char *file = set(w, "AWS_WEB_IDENTITY_TOKEN_FILE");
    LH_TRY(lh_keyfile_read(file, LH_KEYFILE_PUBLIC, token, TOKEN_BYTES, &len));
    token[len] = 0;
    while (len && (token[len - 1] == '\n' || token[len - 1] == '\r')) token[--len] = 0;
    put(body, "Action", "AssumeRoleWithWebIdentity");
    put(body, "Version", "2011-06-15");
    put(body, "RoleArn", set(w, "AWS_ROLE_ARN"));
    put(body, "RoleSessionName", session[0] ? session : "longhaul");
    put(body, "WebIdentityToken", token);
    sodium_memzero(token, sizeof token);
    return len ? lh_buf_err(body) : lh_fail(LH_ERR_CONFIG, "%s has no token", file);
}

static LH_MUST lh_err url_of(const struct lh_web_identity *w, char out[URL_BYTES])
{
    const char *at = set(w, "AWS_ENDPOINT_URL_STS");
    if (!at[0]) at = set(w, "AWS_ENDPOINT_URL");
    int n = at[0] ? snprintf(out, URL_BYTES, "%s", at)
                  : snprintf(out, URL_BYTES, "https://sts.%s.amazonaws.com/", w->region);
    if (n < URL_BYTES && (!strncmp(out, "https://", 8) || !strncmp(out, "http://", 7)))
        return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%.100s: want an endpoint such as https://sts.example.org", at);
}

// "2026-01-31T12:00:00Z" as seconds since 1970; -1: another form.
static int64_t time_of(const char *text)
{
    struct tm t = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);
    if (!end || !strchr("Z.", *end) || !*end) return -1;
    return (int64_t)timegm(&t);
}

// Takes a field whole.
static bool field(struct lh_span xml, const char *name, char *out, size_t size)
{
    lh_xml_find(xml, name, NULL, out, size);
    size_t n = strlen(out);
    for (size_t i = 0; i < n; i++)
        if (out[i] <= ' ' || out[i] >= 127) return false;
    return n && n + 1 < size;
}

lh_err lh_web_identity_take(struct lh_web_identity *w, struct lh_span xml, const char *url)
{
    char expires[40];
    int64_t now = w->env->ops->wall_s(w->env);
    struct lh_sigv4_keys *k = &w->keys;
    bool fine = field(xml, "AccessKeyId", k->id, sizeof k->id) &&
                field(xml, "SecretAccessKey", k->secret, sizeof k->secret) &&
                field(xml, "SessionToken", k->token, sizeof k->token) &&
                field(xml, "Expiration", expires, sizeof expires);
    int64_t end = fine ? time_of(expires) : -1;
    if (end > now) {
        w->until_s = now + (end - now) * 3 / 4;
        return LH_OK;
    }
    lh_web_identity_forget(w);
    return lh_fail(LH_ERR_MALFORMED, "%s: the answer has no currently valid key%s", url,
                   end < 0 ? "" : ": is this machine's clock right?");
}

static LH_MUST lh_err meaning(const char *url, const struct lh_transfer_reply *reply)
{
    char code[64], text[200];
    if (reply->status == 200) return LH_OK;
    lh_xml_find(lh_buf_span(&reply->body), "Code", NULL, code, sizeof code);
    lh_xml_find(lh_buf_span(&reply->body), "Message", NULL, text, sizeof text);
    bool later = reply->status >= 500 || reply->status == 429 || !strcmp(code, "Throttling");
    return lh_fail(later ? LH_ERR_UNAVAILABLE : LH_ERR_DENIED,
                   "%s answers %ld %s: %s: check AWS_ROLE_ARN, and who may assume that role", url,
                   reply->status, code, text);
}

static LH_MUST lh_err ask(struct lh_web_identity *w)
{
    char url[URL_BYTES];
    struct lh_transfer_reply reply = {.body = lh_buf(0)};
    struct lh_buf body = lh_buf(BODY_BYTES);
    LH_TRY(url_of(w, url));
    lh_err err = make_body(w, &body);
    if (!err) {
        const struct lh_transfer_request r = {
            .method = "POST",
            .url = url,
            .header = {"content-type: application/x-www-form-urlencoded", "expect:"},
            .headers = 2,
            .has_body = true,
            .body = lh_buf_span(&body),
            .most_ms = ANSWER_MS};
        err = lh_transfer_do(w->transfer, &r, &reply);
    }
    if (!err) err = meaning(url, &reply);
    if (!err) err = lh_web_identity_take(w, lh_buf_span(&reply.body), url);
    if (body.data) sodium_memzero(body.data, body.len);
    if (reply.body.data) sodium_memzero(reply.body.data, reply.body.len);
    lh_buf_free(&body);
    lh_buf_free(&reply.body);
    return err;
}

lh_err lh_web_identity_keys(struct lh_web_identity *w, struct lh_sigv4_keys *out)
{
    if (w->env->ops->wall_s(w->env) >= w->until_s) LH_TRY(ask(w));
    *out = w->keys;
    return LH_OK;
}
