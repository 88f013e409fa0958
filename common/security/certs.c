// Certificates: CA, leaves, inspection. See certs.h. No other file but the transport uses X.509.
//
// CA:   subject CN=longhaul CA, O=<domain>; URI SAN spiffe://<domain> (SPIFFE X509-SVID 5.2);
//       basicConstraints critical CA:TRUE,pathlen:0; keyUsage critical keyCertSign,cRLSign.
// Leaf: subject CN=<name>, O=<domain>; SAN URI:<identity>,DNS:longhaul.internal;
//       basicConstraints critical CA:FALSE; keyUsage critical digitalSignature (ECDHE only);
//       extendedKeyUsage serverAuth,clientAuth.
// Both: version 3, random serial of 127 bits, subject and authority key identifiers.
//
// Invariants:
//  1. A key gets its name before its certificate, and both are written by then. So a certificate on
//     disk has its key, and a full disk leaves a pair that is to be replaced as it is.
//  2. A CA signs only for its own domain.
#include "common/security/certs.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/security/keyfile.h"

enum { DAY_S = 86400, HOUR_S = 3600, SERIAL_BITS = 127 };
static const char URI_SCHEME[] = "spiffe://";

static lh_err openssl_failed(lh_err code, const char *what)
{
    char text[160] = "no reason given";
    unsigned long reason = ERR_peek_last_error();
    if (reason) ERR_error_string_n(reason, text, sizeof text);
    ERR_clear_error();
    return lh_fail(code, "%s: %s", what, text);
}

struct paths {
    char cert[LH_CERTS_PATH_BYTES], key[LH_CERTS_PATH_BYTES];
};

static lh_err make_paths(struct paths *p, const char *dir, const char *name)
{
    int n = snprintf(p->cert, sizeof p->cert, "%s/%s.pem", dir, name);
    snprintf(p->key, sizeof p->key, "%s/%s.key", dir, name);
    bool fits = n > 0 && (size_t)n < sizeof p->cert;
    return fits ? LH_OK : lh_fail(LH_ERR_INVALID, "path of %d bytes is too long", n);
}

// The only check of names: a URI made of them must parse.
static lh_err check_peer(const struct lh_peer *peer)
{
    char uri[LH_URI_BYTES];
    struct lh_peer parsed;
    lh_peer_uri(peer, uri);
    if (lh_peer_parse(lh_span_str(uri), &parsed))
        return lh_fail(LH_ERR_INVALID, "no identity to issue: %s (names of [a-z0-9._-], 1 to 63)",
                       uri);
    return LH_OK;
}

static lh_err check_domain(const char *domain)
{
    struct lh_peer probe = {.role = LH_A, .run = "r", .region = "r", .name = "n"};
    if (snprintf(probe.domain, sizeof probe.domain, "%s", domain) >= (int)sizeof probe.domain)
        return lh_fail(LH_ERR_INVALID, "domain of %zu bytes: at most 63", strlen(domain));
    return check_peer(&probe);
}

// ---------------------------------------------------------------- building

struct validity {
    int64_t from_s, to_s; // relative to now
};

static lh_err validity_of(int days, struct validity *v)
{
    if (days > LH_CERTS_DAYS_MAX || days < -LH_CERTS_DAYS_MAX)
        return lh_fail(LH_ERR_INVALID, "%d days of validity: at most %d", days, LH_CERTS_DAYS_MAX);
    *v = (struct validity){-LH_CERTS_BACKDATE_S, (int64_t)days * DAY_S};
    if (days <= 0) {
        v->to_s -= HOUR_S;
        v->from_s = v->to_s - DAY_S;
    }
    return LH_OK;
}

static bool set_serial(X509 *cert)
{
    BIGNUM *serial = BN_new();
    bool ok = serial && BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
              BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert));
    BN_free(serial);
    return ok;
}

static bool set_name(X509 *cert, const char *common_name, const char *organization)
{
    X509_NAME *name = X509_get_subject_name(cert);
    return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                      (const unsigned char *)common_name, -1, -1, 0) &&
           X509_NAME_add_entry_by_NID(name, NID_organizationName, MBSTRING_UTF8,
                                      (const unsigned char *)organization, -1, -1, 0);
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool ok = extension && X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return ok;
}

static bool add_san(X509 *cert, int type, const char *text)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *value = ASN1_IA5STRING_new();
    if (!names) names = sk_GENERAL_NAME_new_null();
    bool ok = names && name && value && ASN1_STRING_set(value, text, -1);
    if (ok) {
        GENERAL_NAME_set0_value(name, type, value);
        value = NULL;
        ok = sk_GENERAL_NAME_push(names, name);
        if (ok) name = NULL;
    }
    ok = ok && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_REPLACE) == 1;
    ASN1_IA5STRING_free(value);
    GENERAL_NAME_free(name);
    GENERAL_NAMES_free(names);
    return ok;
}

// Begins a certificate of either kind. `issuer` is the certificate itself for a CA.
static bool begin_cert(X509 *cert, X509 *issuer, EVP_PKEY *key, const char *common_name,
                       const char *organization, struct validity v)
{
    return X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
           set_name(cert, common_name, organization) &&
           X509_set_issuer_name(cert, X509_get_subject_name(issuer)) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), (long)v.from_s) &&
           X509_gmtime_adj(X509_getm_notAfter(cert), (long)v.to_s) && X509_set_pubkey(cert, key) &&
           add_extension(cert, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(cert, issuer, NID_authority_key_identifier, "keyid:always");
}

static bool build_ca(X509 *cert, EVP_PKEY *key, const char *domain, struct validity v)
{
    char uri[LH_URI_BYTES];
    snprintf(uri, sizeof uri, "%s%s", URI_SCHEME, domain);
    return begin_cert(cert, cert, key, "longhaul CA", domain, v) &&
           add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_san(cert, GEN_URI, uri) && X509_sign(cert, key, EVP_sha256());
}

static bool build_leaf(X509 *cert, EVP_PKEY *key, const struct lh_peer *peer, X509 *ca,
                       EVP_PKEY *ca_key, struct validity v)
{
    char uri[LH_URI_BYTES];
    lh_peer_uri(peer, uri);
    return begin_cert(cert, ca, key, peer->name, peer->domain, v) &&
           add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, ca, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_san(cert, GEN_URI, uri) && add_san(cert, GEN_DNS, LH_CERTS_DNS) &&
           X509_sign(cert, ca_key, EVP_sha256());
}

// ---------------------------------------------------------------- files

static struct lh_keyfile file_of(const char *path, enum lh_keyfile_kind kind, bool replace,
                                 BIO *bio)
{
    char *data = NULL;
    long len = BIO_get_mem_data(bio, &data);
    return (struct lh_keyfile){path, kind, replace, lh_span(data, (size_t)len)};
}

// Writes a key and, under invariant 1, what belongs to it. Without `replace` neither may exist.
static lh_err write_pair(const char *path, BIO *pem, const char *key_path, EVP_PKEY *key,
                         bool replace)
{
    BIO *key_pem = BIO_new(BIO_s_secmem()); // wiped when freed
    lh_err err = LH_OK;
    if (!key_pem || !PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL))
        err = openssl_failed(LH_ERR_INTERNAL, "encode a key");
    else if (!replace && (access(path, F_OK) == 0 || access(key_path, F_OK) == 0))
        err =
            lh_fail(LH_ERR_EXISTS, "%s or its key exists already; --replace overwrites both", path);
    if (!err)
        err = lh_keyfile_write_pair(
            (const struct lh_keyfile[2]){file_of(key_path, LH_KEYFILE_SECRET, replace, key_pem),
                                         file_of(path, LH_KEYFILE_PUBLIC, replace, pem)});
    BIO_free(key_pem);
    return err;
}

// Without it OpenSSL would ask the terminal for the passphrase of an encrypted key.
static int no_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing, (void)arg;
    return -1;
}

static void *decode_cert(BIO *bio)
{
    return PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
}

static void *decode_request(BIO *bio)
{
    return PEM_read_bio_X509_REQ(bio, NULL, no_passphrase, NULL);
}

static void *decode_key(BIO *bio)
{
    return PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
}

// Decodes the PEM text of `name`. NULL: *err is set.
static void *decode_pem(const char *name, struct lh_span pem, void *(*decode)(BIO *bio),
                        const char *what, lh_err *err)
{
    BIO *bio = pem.len <= LH_KEYFILE_BYTES_MAX ? BIO_new_mem_buf(pem.data, (int)pem.len) : NULL;
    void *out = bio ? decode(bio) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    *err = out ? LH_OK : lh_fail(LH_ERR_MALFORMED, "%s holds no %s", name, what);
    return out;
}

static void *read_pem(const char *path, enum lh_keyfile_kind kind, void *(*decode)(BIO *bio),
                      const char *what, lh_err *err)
{
    char pem[LH_KEYFILE_BYTES_MAX];
    size_t len;
    *err = lh_keyfile_read(path, kind, pem, sizeof pem, &len);
    void *out = *err ? NULL : decode_pem(path, lh_span(pem, len), decode, what, err);
    OPENSSL_cleanse(pem, sizeof pem);
    return out;
}

// Returns a certificate, to be freed with X509_free(); NULL: *err is set.
static X509 *read_cert(const char *path, lh_err *err)
{
    return read_pem(path, LH_KEYFILE_PUBLIC, decode_cert, "PEM certificate", err);
}

// ---------------------------------------------------------------- inspection

// Copies the one URI SAN out. False: none, several, or not a text of at most this length. Takes
// `names`.
static bool only_uri_of(GENERAL_NAMES *names, char out[LH_URI_BYTES])
{
    int found = 0;
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) continue;
        const ASN1_IA5STRING *uri = name->d.uniformResourceIdentifier;
        size_t n = (size_t)ASN1_STRING_length(uri);
        const unsigned char *text = ASN1_STRING_get0_data(uri);
        if (++found > 1 || n >= LH_URI_BYTES || memchr(text, 0, n)) {
            found = 2;
            break;
        }
        memcpy(out, text, n);
        out[n] = 0;
    }
    GENERAL_NAMES_free(names);
    return found == 1;
}

static bool only_uri(X509 *cert, char out[LH_URI_BYTES])
{
    return only_uri_of(X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL), out);
}

static lh_err ca_domain(const char *path, const char *uri, char out[LH_NAME_BYTES])
{
    size_t scheme = strlen(URI_SCHEME);
    if (strncmp(uri, URI_SCHEME, scheme) != 0 || check_domain(uri + scheme))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s: a CA '%s' is not Longhaul's", path, uri);
    snprintf(out, LH_NAME_BYTES, "%.63s", uri + scheme); // check_domain: at most 63
    return LH_OK;
}

static bool seconds_of(const ASN1_TIME *time, int64_t *out)
{
    struct tm parts;
    if (!ASN1_TIME_to_tm(time, &parts)) return false;
    *out = (int64_t)timegm(&parts);
    return true;
}

static bool serial_of(X509 *cert, char out[LH_CERTS_SERIAL_BYTES])
{
    BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *hex = n ? BN_bn2hex(n) : NULL;
    bool good = hex && snprintf(out, LH_CERTS_SERIAL_BYTES, "%s", hex) < LH_CERTS_SERIAL_BYTES;
    OPENSSL_free(hex);
    BN_free(n);
    return good;
}

static lh_err inspect(const char *path, X509 *cert, struct lh_certs_info *out)
{
    char uri[LH_URI_BYTES];
    *out = (struct lh_certs_info){.ca = X509_check_ca(cert) > 0};
    if (!seconds_of(X509_get0_notBefore(cert), &out->not_before) ||
        !seconds_of(X509_get0_notAfter(cert), &out->not_after))
        return lh_fail(LH_ERR_MALFORMED, "%s: unreadable validity", path);
    if (!only_uri(cert, uri))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s: want exactly one URI SAN", path);
    if (!serial_of(cert, out->serial))
        return lh_fail(LH_ERR_MALFORMED, "%s: a serial that is too long", path);
    if (out->ca) return ca_domain(path, uri, out->domain);
    LH_TRY(lh_peer_parse(lh_span_str(uri), &out->peer));
    snprintf(out->domain, sizeof out->domain, "%s", out->peer.domain);
    return LH_OK;
}

lh_err lh_certs_inspect(const char *path, struct lh_certs_info *out)
{
    lh_err err;
    *out = (struct lh_certs_info){0};
    X509 *cert = read_cert(path, &err);
    if (!err) err = inspect(path, cert, out);
    X509_free(cert);
    return err;
}

lh_err lh_certs_inspect_pem(const char *name, struct lh_span pem, struct lh_certs_info *out)
{
    *out = (struct lh_certs_info){0};
    lh_err err;
    X509 *cert = decode_pem(name, pem, decode_cert, "PEM certificate", &err);
    if (!err) err = inspect(name, cert, out);
    X509_free(cert);
    return err;
}

// ---------------------------------------------------------------- create, issue

lh_err lh_certs_ca_create(const char *dir, const char *domain, int days, bool replace)
{
    struct paths paths;
    struct validity validity = {0};
    if (days < 1) return lh_fail(LH_ERR_INVALID, "a CA for %d days: at least 1", days);
    LH_TRY(validity_of(days, &validity));
    LH_TRY(check_domain(domain));
    LH_TRY(make_paths(&paths, dir, "ca"));
    LH_TRY(lh_keyfile_make_dir(dir));
    X509 *cert = X509_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *pem = BIO_new(BIO_s_mem());
    bool ok = cert && key && pem && build_ca(cert, key, domain, validity) &&
              PEM_write_bio_X509(pem, cert);
    lh_err err = ok ? write_pair(paths.cert, pem, paths.key, key, replace)
                    : openssl_failed(LH_ERR_INTERNAL, "make a CA");
    BIO_free(pem);
    EVP_PKEY_free(key);
    X509_free(cert);
    return err;
}

// Loads the CA's certificate and key, which must match each other and the peer's domain.
static lh_err check_ca(const char *path, X509 *ca, EVP_PKEY *ca_key, const struct lh_peer *peer)
{
    struct lh_certs_info info;
    LH_TRY(inspect(path, ca, &info));
    if (!info.ca) return lh_fail(LH_ERR_INVALID, "%s is no CA certificate", path);
    if (X509_check_private_key(ca, ca_key) != 1) {
        ERR_clear_error();
        return lh_fail(LH_ERR_INVALID, "%s and its key do not belong together", path);
    }
    if (strcmp(info.domain, peer->domain) != 0)
        return lh_fail(LH_ERR_INVALID, "%s signs for domain %s, not for %s", path, info.domain,
                       peer->domain);
    return LH_OK;
}

static lh_err check_leaf(const struct lh_peer *peer)
{
    LH_TRY(check_peer(peer));
    if (strcmp(peer->name, "ca") != 0) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "the name 'ca' is taken by the CA's own files");
}

// Writes a certificate; `key` NULL: for a new key, which is written beside it.
static lh_err sign(const struct paths *out, bool replace, const struct lh_peer *peer, EVP_PKEY *key,
                   X509 *ca, EVP_PKEY *ca_key, struct validity validity)
{
    X509 *cert = X509_new();
    BIO *pem = BIO_new(BIO_s_mem());
    EVP_PKEY *made = key ? NULL : EVP_EC_gen("P-256"), *its = key ? key : made;
    bool ok = cert && pem && its && build_leaf(cert, its, peer, ca, ca_key, validity) &&
              PEM_write_bio_X509(pem, cert);
    struct lh_keyfile file = file_of(out->cert, LH_KEYFILE_PUBLIC, replace, pem);
    lh_err err = !ok    ? openssl_failed(LH_ERR_INTERNAL, "make a certificate")
                 : made ? write_pair(out->cert, pem, out->key, made, replace)
                        : lh_keyfile_write(&file);
    EVP_PKEY_free(made);
    BIO_free(pem);
    X509_free(cert);
    return err;
}

// Issues a certificate of the CA in ca_dir; `key`: as in sign().
static lh_err make_leaf(const char *ca_dir, EVP_PKEY *key, const struct lh_peer *peer, int days,
                        const char *out_dir, bool replace)
{
    struct paths ca_paths, paths;
    struct validity validity = {0};
    EVP_PKEY *ca_key = NULL;
    lh_err err;
    LH_TRY(validity_of(days, &validity));
    LH_TRY(check_leaf(peer));
    LH_TRY(make_paths(&ca_paths, ca_dir, "ca"));
    LH_TRY(make_paths(&paths, out_dir, peer->name));
    LH_TRY(lh_keyfile_make_dir(out_dir));
    X509 *ca = read_cert(ca_paths.cert, &err);
    if (!err)
        ca_key =
            read_pem(ca_paths.key, LH_KEYFILE_SECRET, decode_key, "plain PEM private key", &err);
    if (!err) err = check_ca(ca_paths.cert, ca, ca_key, peer);
    if (!err) err = sign(&paths, replace, peer, key, ca, ca_key, validity);
    EVP_PKEY_free(ca_key);
    X509_free(ca);
    return err;
}

lh_err lh_certs_issue(const char *ca_dir, const struct lh_peer *peer, int days, const char *out_dir,
                      bool replace)
{
    return make_leaf(ca_dir, NULL, peer, days, out_dir, replace);
}

// ---------------------------------------------------------------- request, sign

static lh_err request_path(char out[LH_CERTS_PATH_BYTES], const char *dir, const char *name)
{
    int n = snprintf(out, LH_CERTS_PATH_BYTES, "%s/%s.csr", dir, name);
    return n < LH_CERTS_PATH_BYTES ? LH_OK : lh_fail(LH_ERR_INVALID, "a path that is too long");
}

static bool build_request(X509_REQ *request, EVP_PKEY *key, const struct lh_peer *peer)
{
    char san[LH_URI_BYTES + 8] = "URI:";
    lh_peer_uri(peer, san + 4);
    X509_NAME *name = X509_REQ_get_subject_name(request);
    STACK_OF(X509_EXTENSION) *all = sk_X509_EXTENSION_new_null();
    X509_EXTENSION *uri = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
    bool ok = name && all && uri && sk_X509_EXTENSION_push(all, uri);
    if (ok) uri = NULL;
    ok = ok && X509_REQ_set_version(request, X509_REQ_VERSION_1) &&
         X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                    (const unsigned char *)peer->name, -1, -1, 0) &&
         X509_REQ_set_pubkey(request, key) && X509_REQ_add_extensions(request, all) &&
         X509_REQ_sign(request, key, EVP_sha256());
    X509_EXTENSION_free(uri);
    sk_X509_EXTENSION_pop_free(all, X509_EXTENSION_free);
    return ok;
}

lh_err lh_certs_request(const struct lh_peer *peer, const char *out_dir, bool replace)
{
    struct paths paths;
    char path[LH_CERTS_PATH_BYTES];
    LH_TRY(check_leaf(peer));
    LH_TRY(make_paths(&paths, out_dir, peer->name));
    LH_TRY(request_path(path, out_dir, peer->name));
    LH_TRY(lh_keyfile_make_dir(out_dir));
    X509_REQ *request = X509_REQ_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *pem = BIO_new(BIO_s_mem());
    bool ok = request && key && pem && build_request(request, key, peer) &&
              PEM_write_bio_X509_REQ(pem, request);
    lh_err err = ok ? write_pair(path, pem, paths.key, key, replace)
                    : openssl_failed(LH_ERR_INTERNAL, "make a request");
    BIO_free(pem);
    EVP_PKEY_free(key);
    X509_REQ_free(request);
    return err;
}

// Copies the request's URI out, for comparison only; nothing else of the request is used.
static bool requested_uri(X509_REQ *request, char out[LH_URI_BYTES])
{
    STACK_OF(X509_EXTENSION) *all = X509_REQ_get_extensions(request);
    GENERAL_NAMES *names = all ? X509V3_get_d2i(all, NID_subject_alt_name, NULL, NULL) : NULL;
    sk_X509_EXTENSION_pop_free(all, X509_EXTENSION_free);
    return only_uri_of(names, out);
}

static lh_err check_request(const char *path, X509_REQ *request, const struct lh_peer *peer)
{
    char uri[LH_URI_BYTES], wanted[LH_URI_BYTES], curve[32] = "";
    EVP_PKEY *key = X509_REQ_get0_pubkey(request);
    bool p256 = key && EVP_PKEY_is_a(key, "EC") &&
                EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1 &&
                strcmp(curve, "prime256v1") == 0;
    bool is_signed = p256 && X509_REQ_verify(request, key) == 1;
    ERR_clear_error();
    if (!p256)
        return lh_fail(LH_ERR_INVALID,
                       "%s has a key of another type than P-256; make it with `longhaul "
                       "certs request`",
                       path);
    if (!is_signed)
        return lh_fail(LH_ERR_MALFORMED, "%s is not signed by its own key: it was altered", path);
    if (!requested_uri(request, uri))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s: want exactly one URI SAN", path);
    lh_peer_uri(peer, wanted);
    if (strcmp(uri, wanted) == 0) return LH_OK;
    return lh_fail(LH_ERR_DENIED, "%s is a request for %s, not for %s", path, uri, wanted);
}

lh_err lh_certs_sign(const char *ca_dir, const char *request_file, const struct lh_peer *peer,
                     int days, const char *out_dir, bool replace)
{
    lh_err err;
    LH_TRY(check_leaf(peer));
    X509_REQ *request =
        read_pem(request_file, LH_KEYFILE_PUBLIC, decode_request, "PEM certificate request", &err);
    if (err) return err;
    err = check_request(request_file, request, peer);
    if (!err) err = make_leaf(ca_dir, X509_REQ_get0_pubkey(request), peer, days, out_dir, replace);
    X509_REQ_free(request);
    return err;
}

// ---------------------------------------------------------------- renew

static lh_err check_signed(const char *ca_dir, const char *path, X509 *cert,
                           struct lh_certs_info *info)
{
    struct paths paths;
    lh_err err;
    LH_TRY(inspect(path, cert, info));
    if (info->ca)
        return lh_fail(LH_ERR_INVALID,
                       "%s is a CA's certificate; `longhaul certs init` makes these", path);
    LH_TRY(make_paths(&paths, ca_dir, "ca"));
    X509 *ca = read_cert(paths.cert, &err);
    if (err) return err;
    bool ours = X509_verify(cert, X509_get0_pubkey(ca)) == 1;
    X509_free(ca);
    ERR_clear_error();
    if (ours) return LH_OK;
    return lh_fail(LH_ERR_UNAUTHENTICATED, "the CA in %s did not sign %s", ca_dir, path);
}

lh_err lh_certs_renew(const char *ca_dir, const char *path, const char *request, int days,
                      const char *out_dir, bool replace)
{
    struct lh_certs_info info;
    lh_err err;
    X509 *cert = read_cert(path, &err);
    if (err) return err;
    err = check_signed(ca_dir, path, cert, &info);
    if (!err)
        err = request
                  ? lh_certs_sign(ca_dir, request, &info.peer, days, out_dir, replace)
                  : make_leaf(ca_dir, X509_get0_pubkey(cert), &info.peer, days, out_dir, replace);
    X509_free(cert);
    return err;
}
