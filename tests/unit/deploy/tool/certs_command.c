// `longhaul certs`: the files it writes, its output, the requests it refuses, and its exit codes.
#include <jansson.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/security/certs.h"
#include "common/security/seal.h"
#include "deploy/tool/cli.h"
#include "tests/remove_tree.h"
#include "tests/test.h"

struct scene {
    char dir[32];
    char out[16384]; // stdout and stderr of the last command
};

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    if (!s) return -1;
    snprintf(s->dir, sizeof s->dir, "/tmp/certcmd-XXXXXX");
    *state = s;
    return mkdtemp(s->dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    int failed = remove_tree(s->dir);
    free(s);
    return failed;
}

// Runs `longhaul certs` with the words of `line`, in which @ stands for the folder.
static int certs(struct scene *s, const char *line)
{
    char text[1024] = "", *argv[40] = {"longhaul", "certs"}, *rest = text;
    int argc = 2;
    for (size_t n = 0; *line && n + sizeof s->dir < sizeof text; line++)
        n += (size_t)snprintf(text + n, sizeof text - n, *line == '@' ? "%s" : "%.1s",
                              *line == '@' ? s->dir : line);
    for (char *word; argc < 39 && (word = strtok_r(rest, " ", &rest));) argv[argc++] = word;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int out = dup(1), err = dup(2);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    int code = dp_main(argc, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    rewind(file);
    s->out[fread(s->out, 1, sizeof s->out - 1, file)] = 0;
    fclose(file);
    return code;
}

static void prints(const struct scene *s, const char *text)
{
    if (!strstr(s->out, text)) fail_msg("\"%s\" is not in:\n%s", text, s->out);
}

#define W1 "issue --dir @ --run demo --role worker --region eu --name w1"

#define IN_SCENE(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_SCENE(init_issue_ls, struct scene *s)
{
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    prints(s, "CA of example.org for 3650 days");
    assert_int_equal(certs(s, W1 " --days 10"), DP_OK);
    prints(s, "spiffe://example.org/longhaul/demo/worker/eu/w1 for 10 days");
    assert_int_equal(certs(s, "ls --dir @"), DP_OK);
    prints(s, "w1.pem");
    prints(s, "worker");
    prints(s, "valid");
    assert_int_equal(certs(s, "ls --dir @ -o json"), DP_OK);
    json_t *rows = json_loads(s->out, 0, NULL);
    assert_int_equal(json_array_size(rows), 2);
    json_t *w1 = json_array_get(rows, 1);
    assert_string_equal(json_string_value(json_object_get(w1, "file")), "w1.pem");
    assert_string_equal(json_string_value(json_object_get(w1, "region")), "eu");
    assert_string_equal(json_string_value(json_object_get(w1, "state")), "valid");
    assert_in_range(json_integer_value(json_object_get(w1, "days_left")), 9, 10);
    json_decref(rows);
}

IN_SCENE(bad_certificates_set_the_exit_code, struct scene *s)
{
    struct lh_peer peer = {LH_W, "example.org", "demo", "eu", "old"};
    char path[64];
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(lh_certs_issue(s->dir, &peer, 0, s->dir, false), LH_OK);
    assert_int_equal(certs(s, "ls --dir @"), DP_UNVERIFIED);
    prints(s, "expired");
    prints(s, "1 of 2 certificates");
    snprintf(path, sizeof path, "%s/x.pem", s->dir);
    FILE *file = fopen(path, "w");
    fputs("nothing\n", file);
    fclose(file);
    assert_int_equal(certs(s, "ls --dir @ -o json"), DP_UNVERIFIED);
    prints(s, "unreadable");
    assert_int_equal(certs(s, "ls --dir @/none"), DP_MISSING);
}

IN_SCENE(nothing_is_overwritten_unasked, struct scene *s)
{
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_FAILED);
    prints(s, "exists already; --replace overwrites both");
    assert_int_equal(certs(s, W1), DP_OK);
    assert_int_equal(certs(s, W1), DP_FAILED);
    assert_int_equal(certs(s, W1 " --replace"), DP_OK);
    assert_int_equal(certs(s, "key --out @/job.key"), DP_OK);
    assert_int_equal(certs(s, "key --out @/job.key"), DP_FAILED);
}

IN_SCENE(the_job_key_loads, struct scene *s)
{
    struct lh_keyring *ring;
    struct stat st;
    char path[64];
    assert_int_equal(certs(s, "key --out @/job.key"), DP_OK);
    snprintf(path, sizeof path, "%s/job.key", s->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(lh_keyring_create(&ring), LH_OK);
    assert_int_equal(lh_keyring_load(ring, path), LH_OK);
    assert_int_equal(lh_keyring_first(ring), 1);
    lh_keyring_destroy(ring);
}

// Gives the serial of @/NAME, in the form that `ls` shows.
static void serial_of(const struct scene *s, const char *name, char out[LH_CERTS_SERIAL_BYTES])
{
    struct lh_certs_info info;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    assert_int_equal(lh_certs_inspect(path, &info), LH_OK);
    memcpy(out, info.serial, LH_CERTS_SERIAL_BYTES);
}

static void write_line(const struct scene *s, const char *name, const char *line)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", line);
    fclose(file);
}

IN_SCENE(a_certificate_is_renewed_for_its_key, struct scene *s)
{
    struct lh_peer peer = {LH_W, "example.org", "demo", "eu", "old"};
    char before[LH_CERTS_SERIAL_BYTES], after[LH_CERTS_SERIAL_BYTES];
    struct lh_certs_info info;
    char path[128];
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(lh_certs_issue(s->dir, &peer, 0, s->dir, false), LH_OK); // already expired
    serial_of(s, "old.pem", before);
    assert_int_equal(certs(s, "renew @/old.pem --dir @"), DP_FAILED);
    prints(s, "exists already");
    assert_int_equal(certs(s, "renew @/old.pem --dir @ --days 40 --replace"), DP_OK);
    prints(s, "spiffe://example.org/longhaul/demo/worker/eu/old for 40 days");
    serial_of(s, "old.pem", after);
    assert_string_not_equal(before, after);
    snprintf(path, sizeof path, "%s/old.pem", s->dir);
    assert_int_equal(lh_certs_inspect(path, &info), LH_OK);
    assert_memory_equal(&info.peer, &peer, sizeof peer);
    assert_int_equal(certs(s, "ls --dir @"), DP_OK);
    FILE *cert = fopen(path, "r");
    X509 *x = PEM_read_X509(cert, NULL, NULL, NULL);
    fclose(cert);
    snprintf(path, sizeof path, "%s/old.key", s->dir);
    FILE *key = fopen(path, "r");
    EVP_PKEY *k = PEM_read_PrivateKey(key, NULL, NULL, NULL);
    fclose(key);
    assert_int_equal(X509_check_private_key(x, k), 1); // the key has not changed
    EVP_PKEY_free(k);
    X509_free(x);
}

IN_SCENE(a_renewal_takes_a_request_of_the_same_identity, struct scene *s)
{
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(certs(s, W1), DP_OK);
    assert_int_equal(certs(s, "issue --dir @ --run demo --role worker --region eu --name w2"),
                     DP_OK);
    assert_int_equal(certs(s, "request --run demo --role worker --region eu --name w1 --domain "
                              "example.org --out @ --replace"),
                     DP_OK);
    assert_int_equal(certs(s, "renew @/w2.pem --csr @/w1.csr --dir @ --replace"), DP_DENIED);
    prints(s, "not for spiffe://example.org/longhaul/demo/worker/eu/w2");
    assert_int_equal(certs(s, "renew @/w1.pem --csr @/w1.csr --dir @ --replace"), DP_OK);
    prints(s, "spiffe://example.org/longhaul/demo/worker/eu/w1 for 365 days");
}

IN_SCENE(revoked_or_foreign_certificates_are_not_renewed, struct scene *s)
{
    char serial[LH_CERTS_SERIAL_BYTES];
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(certs(s, W1), DP_OK);
    serial_of(s, "w1.pem", serial);
    write_line(s, "list", "# nobody");
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --revoked @/none --replace"), DP_MISSING);
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --revoked @/list --out @ --replace"), DP_OK);
    write_line(s, "list", serial);
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --revoked @/list --replace"), DP_OK);
    serial_of(s, "w1.pem", serial); // each renewal gets its own serial
    write_line(s, "list", serial);
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --revoked @/list --replace"), DP_DENIED);
    prints(s, "is revoked");
    write_line(s, "revoked", serial); // the CA's folder has a list
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --replace"), DP_DENIED);
    write_line(s, "revoked", "no serial");
    assert_int_equal(certs(s, "renew @/w1.pem --dir @ --replace"), DP_UNVERIFIED);
    write_line(s, "revoked", "#");
    assert_int_equal(certs(s, "renew @/ca.pem --dir @ --replace"), DP_USAGE);
    prints(s, "CA's certificate");
    assert_int_equal(certs(s, "init --dir @ --domain example.org --replace"), DP_OK);
    assert_int_not_equal(certs(s, "renew @/w1.pem --dir @ --replace"), DP_OK);
    prints(s, "did not sign");
}

IN_SCENE(wrong_lines_say_what_is_wanted, struct scene *s)
{
    static const struct {
        const char *line, *says;
        int code;
    } wrong[] = {
        {"", "usage: longhaul certs init", DP_USAGE},
        {"make", "no make (one of: init issue request sign renew ls key signer)", DP_USAGE},
        {"init --dir @ extra", "usage: longhaul certs init", DP_USAGE},
        {"init --dir @ --domain UPPER", "[a-z0-9._-]", DP_USAGE},
        {"init --dir @ --days 0", "from 1 to 36500", DP_USAGE},
        {"init --dir @ --days 1x", "from 1 to 36500", DP_USAGE},
        {"issue --dir @", "--role is missing", DP_USAGE},
        {"issue --dir @ --role boss", "worker, server, coordinator or admin", DP_USAGE},
        {"issue --dir @ --role worker", "--run is missing", DP_USAGE},
        {W1, "ca.pem: no such file; `longhaul certs init", DP_MISSING},
        {"ls --dir @ -o yaml", "table or json", DP_USAGE},
        {"ls --dri @", "did you mean --dir", DP_USAGE},
        {"key", "--out is missing", DP_USAGE},
        {"renew --dir @", "which certificate?", DP_USAGE},
        {"renew @/none.pem --dir @", "none.pem", DP_MISSING},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int code = certs(s, wrong[i].line);
        if (code != wrong[i].code) fail_msg("certs %s: %d\n%s", wrong[i].line, code, s->out);
        prints(s, wrong[i].says);
    }
    assert_int_equal(certs(s, "init --dir @"), DP_OK);
    prints(s, LH_DOMAIN_DEFAULT);
    assert_int_equal(certs(s, "issue --dir @ --run a/b --role worker --region eu --name w1"),
                     DP_USAGE);
    assert_int_equal(certs(s, "issue --help"), DP_OK);
    prints(s, "--region REGION");
}
