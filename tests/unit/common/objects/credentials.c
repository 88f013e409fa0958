// common/objects/credentials.c: the sources of an access key, and incomplete keys.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/objects/credentials.h"
#include "tests/test.h"

static const char *names[8], *values[8]; // environment variables of this test

static void set(unsigned i, const char *name, const char *value)
{
    names[i] = name;
    values[i] = value;
}

static const char *variable(const char *name)
{
    for (unsigned i = 0; i < LH_COUNT(names); i++)
        if (names[i] && !strcmp(names[i], name)) return values[i];
    return NULL;
}

static const char FILE_TEXT[] = "# keys\n[default]\r\naws_access_key_id = AKID\r\n"
                                "aws_secret_access_key=se/c+ret\nregion = eu-west-1\n\n"
                                "[ other ]\naws_access_key_id = OTHER\n"
                                "aws_secret_access_key = s2\naws_session_token = tok/en==\n";

TEST(sections_are_read)
{
    struct lh_sigv4_keys k;
    static const char *const bad[] = {"",
                                      "[default]\n",
                                      "[default]\naws_access_key_id = a\n",
                                      "[default]\naws_access_key_id = a b\n"
                                      "aws_secret_access_key = c\n",
                                      "[default]\naws_access_key_id =\n"
                                      "aws_secret_access_key = c\n",
                                      "[default]\naws_access_key_id = a\n"
                                      "aws_secret_access_key = c\naws_session_token = d e\n",
                                      "[x]\naws_access_key_id = a\naws_secret_access_key = c\n"};
    assert_int_equal(lh_credentials_parse(lh_span_str(FILE_TEXT), "default", &k), LH_OK);
    assert_string_equal(k.id, "AKID");
    assert_string_equal(k.secret, "se/c+ret");
    assert_string_equal(k.token, "");
    assert_int_equal(lh_credentials_parse(lh_span_str(FILE_TEXT), "other", &k), LH_OK);
    assert_string_equal(k.token, "tok/en==");
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        assert_int_equal(lh_credentials_parse(lh_span_str(bad[i]), "default", &k), LH_ERR_CONFIG);
    assert_string_equal(k.id, "");
}

TEST(the_order_is_file_variables_shared_file)
{
    struct lh_sigv4_keys k;
    char path[] = "/tmp/longhaul-credentials-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, FILE_TEXT, sizeof FILE_TEXT - 1), sizeof FILE_TEXT - 1);
    close(fd);
    set(0, "HOME", "/nonexistent");
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "AWS_ACCESS_KEY_ID"));
    set(1, "AWS_SHARED_CREDENTIALS_FILE", path);
    assert_int_equal(lh_credentials_load(variable, &k), LH_OK);
    assert_string_equal(k.id, "AKID");
    set(2, "AWS_ACCESS_KEY_ID", "FROM-VARIABLE");
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_CONFIG); // no secret
    set(3, "AWS_SECRET_ACCESS_KEY", "s");
    assert_int_equal(lh_credentials_load(variable, &k), LH_OK);
    assert_string_equal(k.id, "FROM-VARIABLE");
    set(2, "AWS_ACCESS_KEY_ID", "");
    set(4, "AWS_PROFILE", "other");
    assert_int_equal(lh_credentials_load(variable, &k), LH_OK);
    assert_string_equal(k.id, "OTHER");
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_DENIED);
    assert_int_equal(unlink(path), 0);
}

static lh_err parse(const char *id, const char *secret, struct lh_sigv4_keys *k)
{
    char text[1000];
    int n = snprintf(text, sizeof text,
                     "aws_access_key_id = before\n[default]\n# aws_access_key_id = x\n"
                     ";aws_access_key_id = y\n  nested\n\taws_access_key_id =\t%s \n"
                     "aws_secret_access_key = %s",
                     id, secret); // the last line has no end
    assert_true(n < (int)sizeof text);
    return lh_credentials_parse(lh_span_str(text), "default", k);
}

TEST(values_have_bounds)
{
    struct lh_sigv4_keys k;
    char id[LH_SIGV4_ID_BYTES + 1] = "", secret[LH_SIGV4_SECRET_BYTES + 1] = "";
    memset(id, 'i', LH_SIGV4_ID_BYTES - 1);
    memset(secret, '~', LH_SIGV4_SECRET_BYTES - 1);
    assert_int_equal(parse(id, secret, &k), LH_OK);
    assert_string_equal(k.id, id);
    assert_string_equal(k.secret, secret);
    assert_int_equal(parse("!", "s", &k), LH_OK);
    assert_int_equal(parse("\x7f", "s", &k), LH_ERR_CONFIG);
    assert_int_equal(parse("\x1f", "s", &k), LH_ERR_CONFIG);
    assert_int_equal(parse("\xc3\xa4", "s", &k), LH_ERR_CONFIG);
    id[LH_SIGV4_ID_BYTES - 1] = 'i';
    assert_int_equal(parse(id, "s", &k), LH_ERR_CONFIG);
    secret[LH_SIGV4_SECRET_BYTES - 1] = 's';
    assert_int_equal(parse("i", secret, &k), LH_ERR_CONFIG);
    assert_string_equal(k.id, ""); // nothing of it is left
}

TEST(a_session_and_a_home_are_found)
{
    struct lh_sigv4_keys k;
    char home[] = "/tmp/longhaul-home-XXXXXX", path[64], far[LH_PATH_BYTES + 1] = "";
    memset(names, 0, sizeof names);
    set(0, "AWS_ACCESS_KEY_ID", "id");
    set(1, "AWS_SECRET_ACCESS_KEY", "s");
    set(2, "AWS_SESSION_TOKEN", "tok");
    assert_int_equal(lh_credentials_load(variable, &k), LH_OK);
    assert_string_equal(k.token, "tok");
    set(2, "AWS_SESSION_TOKEN", "t t");
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_CONFIG);
    memset(names, 0, sizeof names);
    assert_non_null(mkdtemp(home));
    snprintf(path, sizeof path, "%s/.aws", home);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.aws/credentials", home);
    FILE *file = fopen(path, "w");
    assert_true(file && !fchmod(fileno(file), 0600) && fputs(FILE_TEXT, file) >= 0);
    fclose(file);
    set(0, "HOME", home);
    assert_int_equal(lh_credentials_load(variable, &k), LH_OK);
    assert_string_equal(k.id, "AKID");
    set(1, "AWS_PROFILE", "absent");
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "[absent]"));
    memset(far, 'f', LH_PATH_BYTES);
    set(1, "AWS_SHARED_CREDENTIALS_FILE", far);
    assert_int_equal(lh_credentials_load(variable, &k), LH_ERR_TOO_LARGE);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/.aws", home);
    assert_true(!rmdir(path) && !rmdir(home));
}
