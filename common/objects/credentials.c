// The access key of an S3 store. See credentials.h.
#include "common/objects/credentials.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/security/keyfile.h"

struct line {
    const char *at;
    size_t len;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct line trimmed(const char *at, size_t len)
{
    while (len && is_blank(*at)) at++, len--;
    while (len && is_blank(at[len - 1])) len--;
    return (struct line){at, len};
}

static bool is_word(struct line l, const char *word)
{
    return l.len == strlen(word) && !memcmp(l.at, word, l.len);
}

// Copies a value of printable characters without blanks. Gives false for any other value.
static bool take(struct line value, char *out, size_t size)
{
    bool fits = value.len > 0 && value.len < size;
    for (size_t i = 0; fits && i < value.len; i++) fits = value.at[i] > ' ' && value.at[i] < 127;
    if (!fits) return false;
    memcpy(out, value.at, value.len);
    out[value.len] = 0;
    return true;
}

static bool take_line(struct line l, struct lh_sigv4_keys *out)
{
    const char *equals = memchr(l.at, '=', l.len);
    if (!equals) return true; // Values that other programs nest.
    struct line name = trimmed(l.at, (size_t)(equals - l.at));
    struct line value = trimmed(equals + 1, l.len - (size_t)(equals + 1 - l.at));
    if (is_word(name, "aws_access_key_id")) return take(value, out->id, sizeof out->id);
    if (is_word(name, "aws_secret_access_key")) return take(value, out->secret, sizeof out->secret);
    if (is_word(name, "aws_session_token")) return take(value, out->token, sizeof out->token);
    return true;
}

lh_err lh_credentials_parse(struct lh_span text, const char *section, struct lh_sigv4_keys *out)
{
    const char *at = text.len ? (const char *)text.data : "", *end = at + text.len;
    bool inside = false, fine = true;
    *out = (struct lh_sigv4_keys){.id = ""};
    while (at < end && fine) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct line l = trimmed(at, (size_t)((stop ? stop : end) - at));
        at = stop ? stop + 1 : end;
        if (l.len > 1 && l.at[0] == '[' && l.at[l.len - 1] == ']')
            inside = is_word(trimmed(l.at + 1, l.len - 2), section);
        else if (inside && l.len && l.at[0] != '#' && l.at[0] != ';')
            fine = take_line(l, out);
    }
    if (fine && out->id[0] && out->secret[0]) return LH_OK;
    sodium_memzero(out, sizeof *out);
    return lh_fail(LH_ERR_CONFIG,
                   "section [%.60s] %s: want lines `aws_access_key_id = ...` and "
                   "`aws_secret_access_key = ...`",
                   section, fine ? "has no access key" : "has a value that is no key");
}

static const char *set(const char *(*variable)(const char *), const char *name)
{
    const char *value = variable(name);
    return value ? value : "";
}

static LH_MUST lh_err from_file(const char *path, const char *(*variable)(const char *),
                                struct lh_sigv4_keys *out)
{
    char text[LH_KEYFILE_BYTES_MAX];
    size_t len = 0;
    const char *profile = set(variable, "AWS_PROFILE");
    lh_err err = lh_keyfile_read(path, LH_KEYFILE_SECRET, text, sizeof text, &len);
    if (!err) {
        err = lh_credentials_parse(lh_span(text, len), profile[0] ? profile : "default", out);
        if (err) err = lh_fail(err, "%s: %s", path, lh_err_text(err));
    }
    sodium_memzero(text, sizeof text);
    return err;
}

static LH_MUST lh_err from_variables(const char *(*variable)(const char *),
                                     struct lh_sigv4_keys *out)
{
    static const char *const name[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                       "AWS_SESSION_TOKEN"};
    char *to[] = {out->id, out->secret, out->token};
    const size_t size[] = {sizeof out->id, sizeof out->secret, sizeof out->token};
    for (size_t i = 0; i < LH_COUNT(name); i++) {
        const char *value = set(variable, name[i]);
        if (!value[0] && i == 2) continue;
        if (!take((struct line){value, strlen(value)}, to[i], size[i]))
            return lh_fail(LH_ERR_CONFIG, "the variable %s holds no key", name[i]);
    }
    return LH_OK;
}

lh_err lh_credentials_load(const char *(*variable)(const char *), struct lh_sigv4_keys *out)
{
    char path[LH_PATH_BYTES];
    const char *shared = set(variable, "AWS_SHARED_CREDENTIALS_FILE");
    const char *home = set(variable, "HOME");
    *out = (struct lh_sigv4_keys){.id = ""};
    if (set(variable, "AWS_ACCESS_KEY_ID")[0]) return from_variables(variable, out);
    int n = shared[0] ? snprintf(path, sizeof path, "%s", shared)
                      : snprintf(path, sizeof path, "%s/.aws/credentials", home);
    lh_err err = n < (int)sizeof path ? from_file(path, variable, out) : LH_ERR_TOO_LARGE;
    if (err != LH_ERR_NOT_FOUND) return err;
    return lh_fail(LH_ERR_CONFIG,
                   "no access key for the store: name its file in AWS_SHARED_CREDENTIALS_FILE, or "
                   "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; %s is not there",
                   path);
}
