// longhaul get: asks a running coordinator, under an admin's certificate.
//
// The certificate says which run and domain are meant, so no flag does. With --dir, address and
// certificate are those of a folder of `longhaul up`; the address in it may be of a run that ended,
// and then nobody answers.
#include <jansson.h>
#include <string.h>

#include "common/certs.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/rpc.h"
#include "common/transport_grpc.h"
#include "deploy/commands.h"
#include "deploy/files.h"
#include "deploy/get.h"
#include "deploy/up_status.h"
#include "longhaul/v1/member.pb-c.h"

enum { WAIT_S = 10, ADDRESS_SIZE = 300 };

struct request {
    const char *part, *coordinator, *dir, *ca, *cert, *key, *format;
    char address[ADDRESS_SIZE];
    char path[3][DP_PATH_SIZE]; // of ca, cert, key where they come from --dir
};

// ---------------------------------------------------------------- the question

struct asked {
    struct lh_env *env;
    struct lh_buf *json;
    lh_err err;
};

static void on_answer(void *self, lh_err err, const ProtobufCMessage *m)
{
    struct asked *a = self;
    a->err = err;
    if (!err) {
        const char *json = ((const Longhaul__V1__StatusReply *)m)->json;
        lh_put(a->json, json, strlen(json));
        a->err = lh_buf_err(a->json);
    }
    lh_env_real_stop(a->env);
}

static LH_MUST lh_err ask_over(struct asked *a, struct lh_transport *t, const char *address)
{
    Longhaul__V1__StatusRequest request = LONGHAUL__V1__STATUS_REQUEST__INIT;
    struct lh_link *link;
    struct lh_unary *call;
    LH_TRY(t->ops->dial(t, address, LH_C, &link));
    LH_TRY(lh_unary_start(link, LH_RPC_STATUS, WAIT_S * LH_SECOND, &request.base,
                          &longhaul__v1__status_reply__descriptor, on_answer, a, &call));
    lh_env_real_run(a->env);
    if (lh_exit_of(a->err) == LH_EXIT_UNREACHABLE) {
        char why[200]; // the text belongs to the error that is being replaced
        snprintf(why, sizeof why, "%s", lh_err_text(a->err));
        return lh_fail(LH_ERR_UNAVAILABLE, "no coordinator answers (is the run up?): %s", why);
    }
    return a->err;
}

static LH_MUST lh_err ask(const struct request *q, struct lh_buf *json)
{
    struct asked a = {.json = json};
    struct lh_transport *t = NULL;
    struct lh_certs_info own;
    LH_TRY(lh_certs_inspect(q->cert, &own));
    LH_TRY(lh_env_real_create(&a.env));
    const struct lh_grpc_conf conf = {.env = a.env,
                                      .ca = q->ca,
                                      .cert = q->cert,
                                      .key = q->key,
                                      .domain = own.domain,
                                      .run = own.peer.run};
    lh_err err = lh_transport_grpc_create(&conf, &t);
    if (!err) err = ask_over(&a, t, q->address);
    if (t) lh_transport_grpc_destroy(t);
    lh_env_real_destroy(a.env);
    return err;
}

// ---------------------------------------------------------------- from a run's folder

static LH_MUST lh_err find_address(struct request *q)
{
    char path[DP_PATH_SIZE];
    struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
    LH_TRY(dp_path(path, "%s/coordinator/status.json", q->dir));
    lh_err err = dp_file_read(path, &bytes);
    json_t *o = err ? NULL : json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    const char *address = json_string_value(json_object_get(o, "address"));
    if (!err && !address) err = lh_fail(LH_ERR_MALFORMED, "%s names no address", path);
    if (!err && (size_t)snprintf(q->address, sizeof q->address, "%s", address) >= sizeof q->address)
        err = lh_fail(LH_ERR_MALFORMED, "%s: address too long", path);
    json_decref(o);
    lh_buf_free(&bytes);
    return err;
}

static LH_MUST lh_err complete(struct request *q)
{
    static const char *const file[] = {"ca.pem", "admin.pem", "admin.key"};
    const char **out[] = {&q->ca, &q->cert, &q->key};
    for (size_t i = 0; i < LH_COUNT(file); i++) {
        if (*out[i]) continue;
        if (!q->dir)
            return lh_fail(LH_ERR_INVALID, "--ca, --cert and --key are needed without --dir");
        LH_TRY(dp_path(q->path[i], "%s/secrets/%s", q->dir, file[i]));
        *out[i] = q->path[i];
    }
    if (!q->coordinator) return find_address(q);
    if ((size_t)snprintf(q->address, sizeof q->address, "%s", q->coordinator) >= sizeof q->address)
        return lh_fail(LH_ERR_INVALID, "--coordinator: address too long");
    return LH_OK;
}

static LH_MUST lh_err get(struct request *q)
{
    struct lh_buf status = lh_buf(LH_SMALL_BYTES), text = lh_buf(8 * (size_t)LH_SMALL_BYTES);
    lh_err err = complete(q);
    if (!err) err = ask(q, &status);
    if (!err) err = dp_get_show(q->part, lh_buf_span(&status), !strcmp(q->format, "json"), &text);
    if (!err) fwrite(text.data, 1, text.len, stdout);
    lh_buf_free(&status);
    lh_buf_free(&text);
    return err;
}

static LH_MUST lh_err run(int argc, char **argv)
{
    static const char *const parts[] = {"workers", "shards", "regions", "leases"};
    struct request q = {.format = "table"};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--coordinator", DP_TEXT, &q.coordinator, "HOST:PORT", "the coordinator's address"},
        {"--dir", DP_TEXT, &q.dir, "RUNDIR", "a run's folder: address and certificates"},
        {"--ca", DP_TEXT, &q.ca, "FILE", "the run's CA (RUNDIR/secrets/ca.pem)"},
        {"--cert", DP_TEXT, &q.cert, "FILE", "an admin's certificate (RUNDIR/secrets/admin.pem)"},
        {"--key", DP_TEXT, &q.key, "FILE", "its key (RUNDIR/secrets/admin.key)"},
        {"-o", DP_TEXT, &q.format, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul get workers|shards|regions|leases --coordinator HOST:PORT | --dir RUNDIR [flags]",
        "Asks a running coordinator who works, which shards stand where, what each region does\n"
        "and how far the units are. Exit code 4 when it does not answer.",
        flags, LH_COUNT(flags)};
    bool help, known = false;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    for (size_t i = 0; rest.count == 1 && i < LH_COUNT(parts); i++)
        known |= !strcmp(rest.at[0], parts[i]);
    bool form = !strcmp(q.format, "table") || !strcmp(q.format, "json");
    if (!known || !form || (!q.coordinator && !q.dir))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    q.part = rest.at[0];
    return get(&q);
}

int dp_cmd_get(int argc, char **argv)
{
    lh_err err = run(argc, argv);
    return err ? (int)dp_complain("get", err) : DP_OK;
}
