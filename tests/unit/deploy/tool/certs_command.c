// `longhaul certs`: what it writes, what it prints, what it refuses, with which exit code.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/security/certs.h"
#include "common/security/seal.h"
#include "deploy/tool/cli.h"

struct scene {
    char dir[32];
    char out[16384]; // what the last command printed, stdout and stderr
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
    char path[512];
    DIR *list = opendir(s->dir);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", s->dir, entry->d_name);
        unlink(path);
    }
    if (list) closedir(list);
    int failed = rmdir(s->dir);
    free(s);
    return failed;
}

// Runs `longhaul certs` with a line's words, in which @ stands for the folder.
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

static void init_issue_ls(void **state)
{
    struct scene *s = *state;
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

static void what_is_no_good_shows_in_the_exit_code(void **state)
{
    struct scene *s = *state;
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

static void nothing_is_overwritten_unasked(void **state)
{
    struct scene *s = *state;
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_OK);
    assert_int_equal(certs(s, "init --dir @ --domain example.org"), DP_FAILED);
    prints(s, "exists already; --replace overwrites both");
    assert_int_equal(certs(s, W1), DP_OK);
    assert_int_equal(certs(s, W1), DP_FAILED);
    assert_int_equal(certs(s, W1 " --replace"), DP_OK);
    assert_int_equal(certs(s, "key --out @/job.key"), DP_OK);
    assert_int_equal(certs(s, "key --out @/job.key"), DP_FAILED);
}

static void the_job_key_loads(void **state)
{
    struct scene *s = *state;
    struct lh_keyring *ring;
    struct stat st;
    char path[64];
    assert_int_equal(certs(s, "key --out @/job.key"), DP_OK);
    snprintf(path, sizeof path, "%s/job.key", s->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(lh_keyring_create(&ring), LH_OK);
    assert_int_equal(lh_keyring_load(ring, path), LH_OK);
    assert_true(lh_keyring_has(ring, 1));
    lh_keyring_destroy(ring);
}

static void wrong_lines_say_what_is_wanted(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *line, *says;
        int code;
    } wrong[] = {
        {"", "usage: longhaul certs init", DP_USAGE},
        {"make", "no make (one of: init issue request sign ls key signer)", DP_USAGE},
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
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int code = certs(s, wrong[i].line);
        if (code != wrong[i].code) fail_msg("certs %s: %d\n%s", wrong[i].line, code, s->out);
        prints(s, wrong[i].says);
    }
    assert_int_equal(certs(s, "init --dir @"), DP_OK);
    prints(s, LH_DOMAIN_DEFAULT); // the setting run.domain's default
    assert_int_equal(certs(s, "issue --dir @ --run a/b --role worker --region eu --name w1"),
                     DP_USAGE);
    assert_int_equal(certs(s, "issue --help"), DP_OK);
    prints(s, "--region REGION");
}

#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCENE(init_issue_ls),
        IN_SCENE(what_is_no_good_shows_in_the_exit_code),
        IN_SCENE(nothing_is_overwritten_unasked),
        IN_SCENE(the_job_key_loads),
        IN_SCENE(wrong_lines_say_what_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
