// Certificates: those written verify, carry the right identity, and are never overwritten by
// default.
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/security/certs.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

static const struct lh_peer W1 = {LH_W, "example.org", "demo", "eu", "w1"};

struct dir {
    char path[64];
};

static int make_dir(void **state)
{
    struct dir *d = calloc(1, sizeof *d);
    if (!d) return -1;
    snprintf(d->path, sizeof d->path, "/tmp/certs-XXXXXX");
    *state = d;
    return mkdtemp(d->path) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct dir *d = *state;
    int failed = remove_tree(d->path);
    free(d);
    return failed;
}

static const char *in(const struct dir *d, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", d->path, name);
    return out;
}

static X509 *load(const struct dir *d, const char *name)
{
    char path[128];
    FILE *file = fopen(in(d, name, path), "r");
    assert_non_null(file);
    X509 *cert = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    assert_non_null(cert);
    return cert;
}

// The result of OpenSSL's own verification of a leaf under a CA, for one of the two TLS purposes.
static int verdict(const struct dir *d, const char *leaf, const char *ca, int purpose)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    X509 *root = load(d, ca), *cert = load(d, leaf);
    assert_true(X509_STORE_add_cert(store, root));
    assert_true(X509_STORE_CTX_init(context, store, cert, NULL));
    X509_STORE_CTX_set_flags(context, X509_V_FLAG_X509_STRICT);
    assert_true(X509_STORE_CTX_set_purpose(context, purpose));
    X509_verify_cert(context);
    int error = X509_STORE_CTX_get_error(context);
    X509_free(cert);
    X509_free(root);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return error;
}

#define IN_DIR(name, parameter) TEST_WITH(name, parameter, make_dir, remove_dir)

IN_DIR(verifies_for_both_sides, struct dir *d)
{
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(verdict(d, "w1.pem", "ca.pem", X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    assert_int_equal(verdict(d, "w1.pem", "ca.pem", X509_PURPOSE_SSL_SERVER), X509_V_OK);
    X509 *cert = load(d, "w1.pem");
    assert_int_equal(X509_check_host(cert, LH_CERTS_DNS, 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(cert, "w1", 0, 0, NULL), 0);
    X509_free(cert);
}

IN_DIR(carries_exactly_one_uri, struct dir *d)
{
    char uri[LH_URI_BYTES];
    int uris = 0, others = 0;
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    X509 *cert = load(d, "w1.pem");
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    lh_peer_uri(&W1, uri);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        others += name->type != GEN_URI;
        if (name->type != GEN_URI) continue;
        uris++;
        assert_int_equal(ASN1_STRING_length(name->d.uniformResourceIdentifier), strlen(uri));
        assert_memory_equal(ASN1_STRING_get0_data(name->d.uniformResourceIdentifier), uri,
                            strlen(uri));
    }
    assert_int_equal(uris, 1);
    assert_int_equal(others, 1);
    GENERAL_NAMES_free(names);
    X509_free(cert);
}

IN_DIR(inspection_gives_back_what_was_asked_for, struct dir *d)
{
    struct lh_certs_info info;
    char path[128];
    int64_t now = (int64_t)time(NULL);
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    int64_t after = (int64_t)time(NULL); // after the issue, however long that took
    assert_int_equal(lh_certs_inspect(in(d, "w1.pem", path), &info), LH_OK);
    assert_false(info.ca);
    assert_memory_equal(&info.peer, &W1, sizeof W1);
    assert_string_equal(info.domain, "example.org");
    assert_in_range(info.not_before + 600, now, after);
    assert_int_equal(info.not_after - info.not_before, 7 * 86400 + 600);
    assert_int_equal(lh_certs_inspect(in(d, "ca.pem", path), &info), LH_OK);
    assert_true(info.ca);
    assert_string_equal(info.domain, "example.org");
}

IN_DIR(inspection_refuses_what_is_not_ours, struct dir *d)
{
    struct lh_certs_info info;
    char path[128];
    assert_int_equal(lh_certs_inspect(in(d, "none.pem", path), &info), LH_ERR_NOT_FOUND);
    FILE *file = fopen(in(d, "x.pem", path), "w");
    fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", file);
    fclose(file);
    assert_int_equal(lh_certs_inspect(path, &info), LH_ERR_MALFORMED);
    assert_int_equal(lh_certs_inspect(d->path, &info), LH_ERR_INVALID); // a directory
}

IN_DIR(keys_are_for_their_owner, struct dir *d)
{
    struct stat st;
    char path[128];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(stat(in(d, "w1.key", path), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(in(d, "ca.key", path), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0640), 0);
    struct lh_peer w2 = {LH_W, "example.org", "demo", "eu", "w2"};
    assert_int_equal(lh_certs_issue(d->path, &w2, 7, d->path, false), LH_ERR_DENIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "chmod 600"));
}

IN_DIR(never_overwrites_unasked, struct dir *d)
{
    char path[128];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    X509 *first = load(d, "ca.pem");
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_ERR_EXISTS);
    X509 *second = load(d, "ca.pem");
    assert_int_equal(X509_cmp(first, second), 0);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_ERR_EXISTS);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, true), LH_OK);
    // a key without its certificate is protected as well
    assert_int_equal(unlink(in(d, "w1.pem", path)), 0);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_ERR_EXISTS);
    X509_free(first);
    X509_free(second);
}

IN_DIR(another_ca_does_not_verify, struct dir *d)
{
    char from[128], to[128];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(rename(in(d, "ca.key", from), in(d, "old.key", to)), 0);
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, true), LH_OK);
    assert_int_not_equal(verdict(d, "w1.pem", "ca.pem", X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    assert_int_equal(rename(to, from), 0); // a CA certificate with the key of another CA
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, true), LH_ERR_INVALID);
}

IN_DIR(expired_ones_are_expired, struct dir *d)
{
    struct lh_certs_info info;
    char path[128];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 0, d->path, false), LH_OK);
    assert_int_equal(verdict(d, "w1.pem", "ca.pem", X509_PURPOSE_SSL_CLIENT),
                     X509_V_ERR_CERT_HAS_EXPIRED);
    assert_int_equal(lh_certs_issue(d->path, &W1, -10, d->path, true), LH_OK);
    assert_int_equal(lh_certs_inspect(in(d, "w1.pem", path), &info), LH_OK);
    assert_in_range((int64_t)time(NULL) - info.not_after, 10 * 86400 + 3600, 11 * 86400);
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 0, true), LH_ERR_INVALID);
    assert_int_equal(lh_certs_issue(d->path, &W1, 99999, d->path, true), LH_ERR_INVALID);
}

IN_DIR(refuses_bad_names, struct dir *d)
{
    struct lh_peer peer = W1;
    assert_int_equal(lh_certs_ca_create(d->path, "Example.org", 30, false), LH_ERR_INVALID);
    assert_int_equal(lh_certs_ca_create(d->path, "a/b", 30, false), LH_ERR_INVALID);
    assert_int_equal(lh_certs_ca_create(d->path, "", 30, false), LH_ERR_INVALID);
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    snprintf(peer.name, sizeof peer.name, "../w1");
    assert_int_equal(lh_certs_issue(d->path, &peer, 7, d->path, false), LH_ERR_INVALID);
    snprintf(peer.name, sizeof peer.name, "ca");
    assert_int_equal(lh_certs_issue(d->path, &peer, 7, d->path, true), LH_ERR_INVALID);
    snprintf(peer.name, sizeof peer.name, "w1");
    snprintf(peer.domain, sizeof peer.domain, "example.net");
    assert_int_equal(lh_certs_issue(d->path, &peer, 7, d->path, false), LH_ERR_INVALID);
}

// An in-memory handshake at one version of TLS, in which each side requires and verifies the other.
static void shake_hands(const struct dir *d, int version)
{
    char path[128];
    SSL *end[2];
    BIO *bio[2];
    assert_true(BIO_new_bio_pair(&bio[0], 65536, &bio[1], 65536));
    for (int i = 0; i < 2; i++) {
        SSL_CTX *context = SSL_CTX_new(i ? TLS_client_method() : TLS_server_method());
        assert_true(SSL_CTX_set_min_proto_version(context, version));
        assert_true(SSL_CTX_set_max_proto_version(context, version));
        assert_true(SSL_CTX_load_verify_file(context, in(d, "ca.pem", path)));
        assert_int_equal(SSL_CTX_use_certificate_file(context, in(d, "w1.pem", path), 1), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(context, in(d, "w1.key", path), 1), 1);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        end[i] = SSL_new(context);
        SSL_CTX_free(context);
        SSL_set_bio(end[i], bio[i], bio[i]);
        if (i)
            SSL_set_connect_state(end[i]);
        else
            SSL_set_accept_state(end[i]);
    }
    assert_true(SSL_set1_host(end[1], LH_CERTS_DNS));
    int done = 0;
    for (int turn = 0; turn < 20 && done != 3; turn++)
        for (int i = 0; i < 2; i++)
            if (SSL_do_handshake(end[i]) == 1) done |= 1 << i;
    assert_int_equal(done, 3);
    assert_int_equal(SSL_version(end[0]), version);
    assert_int_equal(SSL_get_verify_result(end[1]), X509_V_OK);
    SSL_free(end[0]);
    SSL_free(end[1]);
}

// A temporary file that can't be written stands for a full disk.
IN_DIR(a_pair_that_is_not_replaced_stays, struct dir *d)
{
    char path[128];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(mkdir(in(d, "w1.pem.tmp", path), 0700), 0);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, true), LH_ERR_IO);
    assert_int_equal(rmdir(path), 0);
    shake_hands(d, TLS1_3_VERSION);
}

IN_DIR(tls_takes_them, struct dir *d)
{
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_issue(d->path, &W1, 7, d->path, false), LH_OK);
    shake_hands(d, TLS1_2_VERSION);
    shake_hands(d, TLS1_3_VERSION);
}

IN_DIR(a_request_is_signed_for_whom_the_holder_states, struct dir *d)
{
    char csr[128], key[128], wrong[128];
    struct stat kept;
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_request(&W1, d->path, false), LH_OK);
    assert_int_equal(lh_certs_request(&W1, d->path, false), LH_ERR_EXISTS);
    in(d, "w1.csr", csr);
    in(d, "w1.key", key);
    assert_int_equal(stat(key, &kept), 0);
    assert_int_equal(kept.st_mode & 0777, 0600);
    struct lh_peer other = W1;
    other.role = LH_S; // the operator's identity differs from that in the request
    assert_int_equal(lh_certs_sign(d->path, csr, &other, 7, d->path, false), LH_ERR_DENIED);
    other = W1;
    snprintf(other.name, sizeof other.name, "w2");
    assert_int_equal(lh_certs_sign(d->path, csr, &other, 7, d->path, false), LH_ERR_DENIED);
    assert_int_equal(access(in(d, "w1.pem", wrong), F_OK), -1);
    assert_int_equal(lh_certs_sign(d->path, csr, &W1, 7, d->path, false), LH_OK);
    assert_int_equal(lh_certs_sign(d->path, csr, &W1, 7, d->path, false), LH_ERR_EXISTS);
    assert_int_equal(verdict(d, "w1.pem", "ca.pem", X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    struct stat now;
    assert_int_equal(stat(key, &now), 0);
    assert_int_equal(now.st_ino, kept.st_ino); // the key was not touched
    X509 *cert = load(d, "w1.pem");
    FILE *file = fopen(key, "r");
    assert_non_null(file);
    EVP_PKEY *pair = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    assert_int_equal(X509_check_private_key(cert, pair), 1);
    assert_int_equal(X509_check_ca(cert), 0);
    EVP_PKEY_free(pair);
    X509_free(cert);
    struct lh_certs_info info;
    assert_int_equal(lh_certs_inspect(in(d, "w1.pem", wrong), &info), LH_OK);
    assert_true(strlen(info.serial) >= 16);
}

IN_DIR(bad_requests_are_refused, struct dir *d)
{
    char csr[128], text[4096];
    assert_int_equal(lh_certs_ca_create(d->path, "example.org", 30, false), LH_OK);
    assert_int_equal(lh_certs_request(&W1, d->path, false), LH_OK);
    in(d, "w1.csr", csr);
    FILE *file = fopen(csr, "r+");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text, file);
    text[n / 2] = text[n / 2] == 'A' ? 'B' : 'A'; // damaged in transit
    rewind(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
    assert_int_not_equal(lh_certs_sign(d->path, csr, &W1, 7, d->path, false), LH_OK);
    in(d, "ca.pem", csr); // not a request
    assert_int_equal(lh_certs_sign(d->path, csr, &W1, 7, d->path, false), LH_ERR_MALFORMED);
    // A handmade request for another kind of key.
    EVP_PKEY *key = EVP_RSA_gen(1024);
    X509_REQ *request = X509_REQ_new();
    assert_true(X509_REQ_set_pubkey(request, key) && X509_REQ_sign(request, key, EVP_sha256()));
    in(d, "rsa.csr", csr);
    file = fopen(csr, "w");
    assert_true(PEM_write_X509_REQ(file, request));
    fclose(file);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    assert_int_equal(lh_certs_sign(d->path, csr, &W1, 7, d->path, false), LH_ERR_INVALID);
}
