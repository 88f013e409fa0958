// common/objects/credentials.c: the sources of an access key, and incomplete keys.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/objects/credentials.h"

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

static void sections_are_read(void **state)
{
    (void)state;
    struct lh_sigv4_keys k;
    static const char *const bad[] = {"",
                                      "[default]\n",
                                      "[default]\naws_access_key_id = a\n",
                                      "[default]\naws_access_key_id = a b\n"
                                      "aws_secret_access_key = c\n",
                                      "[default]\naws_access_key_id =\n"
                                      "aws_secret_access_key = c\n",
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

static void the_order_is_file_variables_shared_file(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_are_read),
        cmocka_unit_test(the_order_is_file_variables_shared_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
