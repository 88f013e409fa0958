// common/security/sign.c: a signature is valid for its message and key only; malformed key files
// are refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/security/sign.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

static char root[] = "/tmp/longhaul-sign-XXXXXX";

static const char *in_root(const char *name)
{
    static char path[4][128];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", root, name);
    return out;
}

static void put_text(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(in_root(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(in_root(name), mode), 0);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_tree(root);
}

TEST(a_signature_holds_for_its_message_and_key_alone)
{
    struct lh_signer *a, *b;
    struct lh_trusted trusted;
    uint8_t signature[LH_SIGN_BYTES];
    char text[] = "one message", hex[2 * LH_SIGN_PUBLIC_BYTES + 1];
    struct lh_span parts[] = {lh_span(text, 4), lh_span(text + 4, sizeof text - 5)},
                   whole = lh_span_str("one message");
    assert_int_equal(lh_sign_generate(in_root("a"), "shard-0 of a run"), LH_OK);
    assert_int_equal(lh_sign_generate(in_root("b"), "b"), LH_OK);
    assert_int_equal(lh_sign_generate(in_root("a"), "again"), LH_ERR_EXISTS);
    assert_int_equal(lh_signer_load(in_root("a"), &a), LH_OK);
    assert_int_equal(lh_signer_load(in_root("b"), &b), LH_OK);
    struct lh_public pa = lh_signer_public(a), pb = lh_signer_public(b);
    lh_sign(a, parts, 2, signature);
    assert_true(lh_sign_holds(&pa, parts, 2, signature));
    assert_true(lh_sign_holds(&pa, &whole, 1, signature));
    assert_false(lh_sign_holds(&pb, parts, 2, signature));
    for (size_t i = 0; i < sizeof signature; i++) {
        signature[i] ^= 4;
        assert_false(lh_sign_holds(&pa, parts, 2, signature));
        signature[i] ^= 4;
    }
    text[1] ^= 1;
    assert_false(lh_sign_holds(&pa, parts, 2, signature));

    // as it was before the key that was refused
    assert_int_equal(lh_trusted_load(in_root("a.pub"), &trusted), LH_OK);
    assert_true(lh_trusts(&trusted, &pa));
    assert_false(lh_trusts(&trusted, &pb));
    lh_public_hex(&pa, hex);
    assert_int_equal(strlen(hex), 2 * LH_SIGN_PUBLIC_BYTES);
    lh_signer_destroy(a);
    lh_signer_destroy(b);
    lh_signer_destroy(NULL);
}

static lh_err load(const char *name)
{
    struct lh_signer *s;
    lh_err err = lh_signer_load(in_root(name), &s);
    lh_signer_destroy(s);
    return err;
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

TEST(bad_key_files_are_refused)
{
    put_text("good", "ed25519 " DIGITS "\n", 0600);
    put_text("bare", "ed25519 " DIGITS, 0600);
    put_text("open", "ed25519 " DIGITS "\n", 0644);
    put_text("short", "ed25519 0123\n", 0600);
    put_text("long", "ed25519 " DIGITS "0\n", 0600);
    put_text("longer", "ed25519 " DIGITS DIGITS "\n", 0600);
    put_text("word", "ed25518 " DIGITS "\n", 0600);
    put_text("digits", "ed25519 x" DIGITS "\n", 0600);
    put_text("letters", "ed25519 zzzz456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
             0600);
    assert_int_equal(load("good"), LH_OK);
    assert_int_equal(load("bare"), LH_OK);
    assert_int_equal(load("open"), LH_ERR_DENIED);
    assert_int_equal(load("none"), LH_ERR_NOT_FOUND);
    assert_int_equal(load("short"), LH_ERR_CONFIG);
    assert_int_equal(load("long"), LH_ERR_CONFIG);
    assert_int_equal(load("longer"), LH_ERR_CONFIG);
    assert_int_equal(load("word"), LH_ERR_CONFIG);
    assert_int_equal(load("digits"), LH_ERR_CONFIG);
    assert_int_equal(load("letters"), LH_ERR_CONFIG);
}

static lh_err trust(const char *text, struct lh_trusted *out)
{
    put_text("list", text, 0644);
    return lh_trusted_load(in_root("list"), out);
}

TEST(a_list_of_keys_is_read_line_by_line)
{
    struct lh_trusted t;
    char many[(LH_TRUSTED_MAX + 1) * 66 + 1];
    size_t used = 0;
    assert_int_equal(trust("# whose\n\n" DIGITS " shard-0\r\n" DIGITS, &t), LH_OK);
    assert_int_equal(t.count, 2);
    assert_int_equal(trust("\n# nobody\n", &t), LH_ERR_CONFIG);
    assert_int_equal(trust(DIGITS "\n0123\n", &t), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "list:2:"));
    assert_int_equal(trust(DIGITS "x\n", &t), LH_ERR_CONFIG);
    assert_int_equal(trust("zz" DIGITS "\n", &t), LH_ERR_CONFIG);
    assert_int_equal(lh_trusted_load(in_root("none"), &t), LH_ERR_NOT_FOUND);
    for (int i = 0; i <= LH_TRUSTED_MAX; i++)
        used += (size_t)snprintf(many + used, sizeof many - used, "%s\n", DIGITS);
    assert_int_equal(trust(many, &t), LH_ERR_TOO_LARGE);
}

int main(void)
{
    return test_run(set_up, tear_down);
}
