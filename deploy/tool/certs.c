// longhaul certs init|issue|request|sign|renew|ls|key|signer: manages a run's CA, its processes'
// certificates, and its keys.
//
// common/security/certs.h and common/security/seal.h define the files and their modes. Nothing is
// overwritten without --replace, and a job key never.
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "common/net/grpc/transport_grpc_revoked.h"
#include "common/security/certs.h"
#include "common/security/seal.h"
#include "common/security/sign.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

enum { CA_DAYS = 3650, LEAF_DAYS = 365, DAY_S = 86400 };
static const char DIR_DEFAULT[] = "certs";

static void tell(const char *out, const struct lh_peer *peer, uint64_t days)
{
    char uri[LH_URI_BYTES];
    lh_peer_uri(peer, uri);
    printf("%s/%s.pem  %s for %d days\n", out, peer->name, uri, (int)days);
}

// ---------------------------------------------------------------- init

static LH_MUST lh_err run_init(int argc, char **argv)
{
    const char *dir = DIR_DEFAULT, *domain = LH_DOMAIN_DEFAULT, *days_text = NULL;
    bool replace = false, help;
    uint64_t days = CA_DAYS;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &dir, "DIR", "where ca.pem and ca.key go (certs)"},
        {"--domain", DP_TEXT, &domain, "DOMAIN", "trust domain (" LH_DOMAIN_DEFAULT ")"},
        {"--days", DP_TEXT, &days_text, "N", "validity (3650)"},
        {"--replace", DP_SWITCH, &replace, NULL,
         "overwrite; all certificates that it issued become void"},
    };
    const struct dp_usage usage = {"longhaul certs init [--dir DIR] [--domain DOMAIN]",
                                   "Makes the certificate authority (CA) of a domain. With ca.key "
                                   "one can join any run of the domain.",
                                   flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--days", days_text, 1, LH_CERTS_DAYS_MAX, &days));
    LH_TRY(lh_certs_ca_create(dir, domain, (int)days, replace));
    printf("%s/ca.pem  CA of %s for %d days\n", dir, domain, (int)days);
    return LH_OK;
}

// ---------------------------------------------------------------- issue

static LH_MUST lh_err copy_name(char out[LH_NAME_BYTES], const char *flag, const char *text)
{
    if (!text) return lh_fail(LH_ERR_INVALID, "%s is missing", flag);
    if (snprintf(out, LH_NAME_BYTES, "%s", text) >= LH_NAME_BYTES)
        return lh_fail(LH_ERR_INVALID, "%s %.20s...: at most %d characters", flag, text,
                       LH_NAME_BYTES - 1);
    return LH_OK;
}

static LH_MUST lh_err fill_names(struct lh_peer *peer, const char *role, const char *run,
                                 const char *region, const char *name)
{
    if (!role) return lh_fail(LH_ERR_INVALID, "--role is missing");
    if (lh_role_parse(role, &peer->role))
        return lh_fail(LH_ERR_INVALID, "--role %.40s: want worker, server, coordinator or admin",
                       role);
    LH_TRY(copy_name(peer->run, "--run", run));
    LH_TRY(copy_name(peer->region, "--region", region));
    return copy_name(peer->name, "--name", name);
}

static LH_MUST lh_err fill_peer(struct lh_peer *peer, const char *dir, const char *role,
                                const char *run, const char *region, const char *name)
{
    struct lh_certs_info ca;
    char path[DP_PATH_BYTES];
    LH_TRY(fill_names(peer, role, run, region, name));
    LH_TRY(dp_path(path, "%s/ca.pem", dir));
    if (!dp_file_exists(path))
        return lh_fail(LH_ERR_NOT_FOUND,
                       "%s: no such file; `longhaul certs init --dir %s` makes it", path, dir);
    LH_TRY(lh_certs_inspect(path, &ca));
    LH_STATIC_ASSERT(sizeof ca.domain == sizeof peer->domain, "a domain is a domain");
    memcpy(peer->domain, ca.domain, sizeof peer->domain);
    return LH_OK;
}

static LH_MUST lh_err run_issue(int argc, char **argv)
{
    const char *dir = DIR_DEFAULT, *out = NULL, *days_text = NULL;
    const char *run = NULL, *role = NULL, *region = NULL, *name = NULL;
    bool replace = false, help;
    uint64_t days = LEAF_DAYS;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &dir, "DIR", "folder with ca.pem and ca.key (certs)"},
        {"--run", DP_TEXT, &run, "RUN", "the run it may join"},
        {"--role", DP_TEXT, &role, "worker|server|coordinator|admin", "role of the process"},
        {"--region", DP_TEXT, &region, "REGION", "its region"},
        {"--name", DP_TEXT, &name, "NAME", "its name; the files are NAME.pem and NAME.key"},
        {"--days", DP_TEXT, &days_text, "N", "validity (365)"},
        {"--out", DP_TEXT, &out, "DIR", "where the files go (--dir)"},
        {"--replace", DP_SWITCH, &replace, NULL, "overwrite; running processes reload it"},
    };
    const struct dp_usage usage = {
        "longhaul certs issue --run RUN --role ROLE --region REGION --name NAME",
        "Issues a certificate for one process. Names have up to 63 characters of [a-z0-9._-].",
        flags, LH_COUNT(flags)};
    struct lh_peer peer = {0};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--days", days_text, 1, LH_CERTS_DAYS_MAX, &days));
    LH_TRY(fill_peer(&peer, dir, role, run, region, name));
    if (!out) out = dir;
    LH_TRY(lh_certs_issue(dir, &peer, (int)days, out, replace));
    tell(out, &peer, days);
    return LH_OK;
}

// ---------------------------------------------------------------- request, sign

static LH_MUST lh_err run_request(int argc, char **argv)
{
    const char *out = DIR_DEFAULT, *domain = LH_DOMAIN_DEFAULT;
    const char *run = NULL, *role = NULL, *region = NULL, *name = NULL;
    bool replace = false, help;
    const struct dp_flag flags[] = {
        {"--run", DP_TEXT, &run, "RUN", "the run it is to join"},
        {"--role", DP_TEXT, &role, "worker|server|coordinator|admin", "role of the process"},
        {"--region", DP_TEXT, &region, "REGION", "its region"},
        {"--name", DP_TEXT, &name, "NAME", "its name; the files are NAME.key and NAME.csr"},
        {"--domain", DP_TEXT, &domain, "DOMAIN", "the CA's domain (" LH_DOMAIN_DEFAULT ")"},
        {"--out", DP_TEXT, &out, "DIR", "where the files go (certs)"},
        {"--replace", DP_SWITCH, &replace, NULL, "overwrite"},
    };
    const struct dp_usage usage = {
        "longhaul certs request --run RUN --role ROLE --region REGION --name NAME",
        "Makes a process's key, on the host where it runs, and a request for its certificate.\n"
        "Send NAME.csr to the holder of the CA (`longhaul certs sign`); the key stays here.",
        flags, LH_COUNT(flags)};
    struct lh_peer peer = {0};
    char uri[LH_URI_BYTES];
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(fill_names(&peer, role, run, region, name));
    LH_TRY(copy_name(peer.domain, "--domain", domain));
    LH_TRY(lh_certs_request(&peer, out, replace));
    lh_peer_uri(&peer, uri);
    printf("%s/%s.csr  requests %s; the key stays in %s/%s.key\n", out, peer.name, uri, out,
           peer.name);
    return LH_OK;
}

static LH_MUST lh_err run_sign(int argc, char **argv)
{
    const char *dir = DIR_DEFAULT, *out = NULL, *days_text = NULL;
    const char *run = NULL, *role = NULL, *region = NULL, *name = NULL;
    bool replace = false, help;
    uint64_t days = LEAF_DAYS;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &dir, "DIR", "folder with ca.pem and ca.key (certs)"},
        {"--run", DP_TEXT, &run, "RUN", "the run that the request must name"},
        {"--role", DP_TEXT, &role, "worker|server|coordinator|admin",
         "the role that the request must name"},
        {"--region", DP_TEXT, &region, "REGION", "the region that the request must name"},
        {"--name", DP_TEXT, &name, "NAME",
         "the name that the request must name; the file is NAME.pem"},
        {"--days", DP_TEXT, &days_text, "N", "validity (365)"},
        {"--out", DP_TEXT, &out, "DIR", "where the file goes (--dir)"},
        {"--replace", DP_SWITCH, &replace, NULL, "overwrite"},
    };
    const struct dp_usage usage = {
        "longhaul certs sign FILE.csr --run RUN --role ROLE --region REGION --name NAME",
        "Makes a certificate from a partner's request. You state its identity: a request for\n"
        "another one is refused (exit code 7). Only the key is taken from the request.",
        flags, LH_COUNT(flags)};
    struct lh_peer peer = {0};
    struct dp_texts rest;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 1) return lh_fail(LH_ERR_INVALID, "which request? usage: %s", usage.line);
    LH_TRY(dp_number("--days", days_text, 1, LH_CERTS_DAYS_MAX, &days));
    LH_TRY(fill_peer(&peer, dir, role, run, region, name));
    if (!out) out = dir;
    LH_TRY(lh_certs_sign(dir, rest.at[0], &peer, (int)days, out, replace));
    tell(out, &peer, days);
    return LH_OK;
}

// ---------------------------------------------------------------- renew

// `list` NULL: DIR/revoked, if it exists.
static LH_MUST lh_err refuse_revoked(const char *dir, const char *list,
                                     const struct lh_certs_info *info)
{
    char path[DP_PATH_BYTES], uri[LH_URI_BYTES];
    struct lh_grpc_revoked *revoked;
    LH_TRY(dp_path(path, "%s/revoked", dir));
    if (!list && !dp_file_exists(path)) return LH_OK;
    struct lh_env *env;
    LH_TRY(lh_env_real_create(&env));
    lh_err err = lh_grpc_revoked_open(env, list ? list : path, &revoked);
    bool is = !err && lh_grpc_revoked_has(revoked, info->serial);
    if (!err) lh_grpc_revoked_close(revoked);
    lh_env_real_destroy(env);
    if (!is) return err;
    lh_peer_uri(&info->peer, uri);
    return lh_fail(LH_ERR_DENIED,
                   "the certificate %s of %s is revoked (%s); if it is to come back, issue another "
                   "one with a new key",
                   info->serial, uri, list ? list : path);
}

static LH_MUST lh_err run_renew(int argc, char **argv)
{
    const char *dir = DIR_DEFAULT, *out = NULL, *days_text = NULL, *request = NULL, *list = NULL;
    bool replace = false, help;
    uint64_t days = LEAF_DAYS;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &dir, "DIR", "folder with ca.pem and ca.key (certs)"},
        {"--csr", DP_TEXT, &request, "FILE.csr",
         "for the key of this request, which must name the same identity; make sure of its sender"},
        {"--revoked", DP_TEXT, &list, "FILE",
         "file of serials that are not renewed, as for tls.revoked (DIR/revoked, if it exists)"},
        {"--days", DP_TEXT, &days_text, "N", "validity (365)"},
        {"--out", DP_TEXT, &out, "DIR", "where NAME.pem goes (--dir)"},
        {"--replace", DP_SWITCH, &replace, NULL, "overwrite; running processes reload it"},
    };
    const struct dp_usage usage = {
        "longhaul certs renew FILE.pem [--dir DIR] [--out DIR] [--replace]",
        "Makes a new certificate with the identity and the key of one that this CA made. The\n"
        "key file is not needed. A revoked certificate is refused (exit code 7).",
        flags, LH_COUNT(flags)};
    struct lh_certs_info info;
    struct dp_texts rest;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 1) return lh_fail(LH_ERR_INVALID, "which certificate? usage: %s", usage.line);
    LH_TRY(dp_number("--days", days_text, 1, LH_CERTS_DAYS_MAX, &days));
    LH_TRY(lh_certs_inspect(rest.at[0], &info));
    LH_TRY(refuse_revoked(dir, list, &info));
    if (!out) out = dir;
    LH_TRY(lh_certs_renew(dir, rest.at[0], request, (int)days, out, replace));
    tell(out, &info.peer, days);
    return LH_OK;
}

// ---------------------------------------------------------------- ls

struct listing {
    int64_t now;
    json_t *rows;   // NULL: a table
    unsigned bad;   // expired, not valid yet, unreadable
    unsigned count; // certificates seen
};

static const char *state_of(const struct lh_certs_info *info, int64_t now)
{
    if (now > info->not_after) return "expired";
    return now < info->not_before ? "not-yet" : "valid";
}

static void format_time(int64_t seconds, char out[32])
{
    struct tm parts;
    time_t time = (time_t)seconds;
    if (!gmtime_r(&time, &parts) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts)) *out = 0;
}

static void list_one(struct listing *l, const char *file, const struct lh_certs_info *info)
{
    const char *role = info->ca ? "ca" : lh_role_name(info->peer.role);
    const char *state = state_of(info, l->now);
    char until[32];
    int64_t days = (info->not_after - l->now) / DAY_S;
    format_time(info->not_after, until);
    l->bad += strcmp(state, "valid") != 0;
    if (!l->rows) {
        printf("%-24s %-12s %-12s %-16s %-20s %6lld  %-8s %s\n", file, role, info->peer.region,
               info->peer.run, until, (long long)days, state, info->serial);
        return;
    }
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "file", file, "serial",
                  info->serial, "state", state, "role", role, "domain", info->domain, "run",
                  info->peer.run, "region", info->peer.region, "name", info->peer.name, "not_after",
                  until, "days_left", (json_int_t)days);
    json_array_append_new(l->rows, row);
}

static void list_unreadable(struct listing *l, const char *file, lh_err err)
{
    l->bad++;
    if (l->rows)
        json_array_append_new(l->rows, json_pack("{s:s, s:s, s:s}", "file", file, "state",
                                                 "unreadable", "error", lh_err_text(err)));
    else
        printf("%-24s %s\n", file, lh_err_text(err));
}

static int is_pem(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 4 && strcmp(entry->d_name + n - 4, ".pem") == 0;
}

static LH_MUST lh_err list_dir(struct listing *l, const char *dir)
{
    struct dirent **entry = NULL;
    struct lh_certs_info info;
    char path[DP_PATH_BYTES];
    int count = scandir(dir, &entry, is_pem, alphasort);
    if (count < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "no folder %s", dir);
    if (count < 0) return lh_fail_errno(errno, "%s", dir);
    if (!l->rows && count)
        printf("%-24s %-12s %-12s %-16s %-20s %6s  %-8s %s\n", "FILE", "ROLE", "REGION", "RUN",
               "NOT AFTER", "DAYS", "STATE", "SERIAL");
    for (int i = 0; i < count; i++) {
        lh_err err = dp_path(path, "%s/%s", dir, entry[i]->d_name);
        if (!err) err = lh_certs_inspect(path, &info);
        if (err)
            list_unreadable(l, entry[i]->d_name, err);
        else
            list_one(l, entry[i]->d_name, &info);
        free(entry[i]);
    }
    free(entry);
    l->count = (unsigned)count;
    return LH_OK;
}

static LH_MUST lh_err run_ls(int argc, char **argv)
{
    const char *dir = DIR_DEFAULT;
    bool help, json = false;
    const struct dp_flag flags[] = {
        {"--dir", DP_TEXT, &dir, "DIR", "the folder to list (certs)"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {"longhaul certs ls [--dir DIR] [-o table|json]",
                                   "Lists certificates. Exit code 5 when one has expired, is not "
                                   "valid yet or can't be read.",
                                   flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    struct listing l = {.now = (int64_t)time(NULL), .rows = json ? json_array() : NULL};
    lh_err err = list_dir(&l, dir);
    if (!err && json) {
        json_dumpf(l.rows, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
    }
    json_decref(l.rows);
    if (!err && l.bad)
        err = lh_fail(LH_ERR_MALFORMED, "%u of %u certificates in %s are not valid", l.bad, l.count,
                      dir);
    return err;
}

// ---------------------------------------------------------------- key

static LH_MUST lh_err run_key(int argc, char **argv)
{
    const char *out = NULL;
    bool help;
    const struct dp_flag flags[] = {{"--out", DP_TEXT, &out, "FILE", "the key file to write"}};
    const struct dp_usage usage = {"longhaul certs key --out FILE",
                                   "Writes a new job key. Every holder can read every update of "
                                   "the run; keep it outside the data directories.",
                                   flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    if (!out) return lh_fail(LH_ERR_INVALID, "--out is missing");
    LH_TRY(lh_key_generate(out));
    printf("%s  a new job key\n", out);
    return LH_OK;
}

// ---------------------------------------------------------------- signer

static LH_MUST lh_err run_signer(int argc, char **argv)
{
    const char *out = NULL, *name = "";
    bool help;
    const struct dp_flag flags[] = {
        {"--out", DP_TEXT, &out, "FILE", "the key file to write; FILE.pub is its public key"},
        {"--name", DP_TEXT, &name, "NAME", "name of its owner, in FILE.pub"},
    };
    const struct dp_usage usage = {
        "longhaul certs signer --out FILE [--name NAME]",
        "Writes a new key with which a server signs its checkpoints (setting\n"
        "checkpoint.sign_key). Collect the FILE.pub of all servers of a run in one file, for\n"
        "the setting checkpoint.signers and for `checkpoint verify --signers`.",
        flags, LH_COUNT(flags)};
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    if (!out) return lh_fail(LH_ERR_INVALID, "--out is missing");
    LH_TRY(lh_sign_generate(out, name));
    printf("%s  a new signing key\n%s.pub  its public key\n", out, out);
    return LH_OK;
}

lh_err dp_cmd_certs(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {{"init", run_init},       {"issue", run_issue},
                                           {"request", run_request}, {"sign", run_sign},
                                           {"renew", run_renew},     {"ls", run_ls},
                                           {"key", run_key},         {"signer", run_signer}};
    const struct dp_usage usage = {
        "longhaul certs init | issue | request | sign | renew | ls | key | signer [flags]",
        "init    make a certificate authority\n"
        "issue   issue the certificate of one process\n"
        "request make a key here, and a request for its certificate\n"
        "sign    make a certificate from a partner's request\n"
        "renew   replace a certificate that is about to expire\n"
        "ls      list certificates and when they expire\n"
        "key     write a new job key\n"
        "signer  write a new key for signing checkpoints\n\n"
        "`longhaul certs VERB --help` lists the flags of each.",
        NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
