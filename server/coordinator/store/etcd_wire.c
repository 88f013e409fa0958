// Connections to the members of a real etcd, and the setting that names them. See etcd.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/node.h"
#include "common/base/limits.h"
#include "common/net/grpc/engine.h"
#include "common/security/keyfile.h"
#include "server/coordinator/store/etcd.h"
#include "server/coordinator/store/etcd_wire.h"

static const char SCHEME[] = "etcd://";
static const char PREFIX[] = "longhaul";

struct pem {
    char text[LH_KEYFILE_BYTES_MAX + 1];
    bool is;
};

struct wire {
    struct lh_engine *member[PS_ETCD_MEMBERS_MAX];
    uint32_t members;
};

// ---------------------------------------------------------------- the setting

bool ps_etcd_is(const char *setting)
{
    return strncmp(setting, SCHEME, sizeof SCHEME - 1) == 0;
}

static LH_MUST lh_err take_member(struct ps_etcd_place *p, const char *at, size_t n)
{
    if (p->members == PS_ETCD_MEMBERS_MAX)
        return lh_fail(LH_ERR_CONFIG, "more than %d members", PS_ETCD_MEMBERS_MAX);
    if (!n || n >= sizeof p->member[0]) return lh_fail(LH_ERR_CONFIG, "want HOST:PORT");
    char *to = p->member[p->members++];
    memcpy(to, at, n);
    to[n] = 0;
    return lh_address_check("a member", to, false);
}

static LH_MUST lh_err take_prefix(struct ps_etcd_place *p, const char *at)
{
    size_t n = strlen(at);
    while (n && at[n - 1] == '/') n--;
    for (size_t i = 0; i < n; i++)
        if (at[i] <= ' ' || at[i] > '~') return lh_fail(LH_ERR_CONFIG, "a prefix is plain ASCII");
    if (n + 2 > sizeof p->prefix)
        return lh_fail(LH_ERR_CONFIG, "a prefix of %zu bytes, 126 at most", n);
    snprintf(p->prefix, sizeof p->prefix, "/%.*s", (int)(n ? n : sizeof PREFIX - 1),
             n ? at : PREFIX);
    return LH_OK;
}

lh_err ps_etcd_parse(const char *setting, struct ps_etcd_place *out)
{
    *out = (struct ps_etcd_place){0};
    if (!ps_etcd_is(setting))
        return lh_fail(LH_ERR_CONFIG, "want etcd://HOST:PORT[,HOST:PORT...][/PREFIX]");
    const char *at = setting + sizeof SCHEME - 1;
    size_t all = strcspn(at, "/");
    LH_TRY(take_prefix(out, at[all] ? at + all + 1 : ""));
    for (const char *end = at + all; at < end || !out->members;) {
        size_t n = strcspn(at, ",/");
        LH_TRY(take_member(out, at, n));
        at += n;
        if (at < end) at++;
    }
    return LH_OK;
}

// ---------------------------------------------------------------- secrets

// Reads a file of the folder; an absent one is fine.
static LH_MUST lh_err read_file(const char *folder, const char *name, enum lh_keyfile_kind kind,
                                char *out, size_t size, bool *is)
{
    char path[LH_PATH_BYTES];
    size_t n = 0;
    *is = false;
    if (!folder[0]) return LH_OK;
    LH_TRY(lh_path(path, sizeof path, folder, "%s", name));
    lh_err err = lh_keyfile_read(path, kind, out, size - 1, &n);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    if (err) return err;
    out[n] = 0;
    *is = true;
    return LH_OK;
}

lh_err ps_etcd_login(const char *secrets, char out[PS_ETCD_LOGIN_BYTES])
{
    bool is;
    LH_TRY(read_file(secrets, "login", LH_KEYFILE_SECRET, out, PS_ETCD_LOGIN_BYTES, &is));
    out[is ? strcspn(out, "\r\n") : 0] = 0;
    if (!out[0] || strchr(out, ':')) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s/login: want one line, USER:PASSWORD", secrets);
}

// ---------------------------------------------------------------- the wire

static lh_err call(void *self, uint32_t member, const char *path, const char *token,
                   struct lh_span request, int64_t timeout_ns, struct lh_buf *answer)
{
    const struct wire *w = self;
    return lh_engine_call(w->member[member], path, token, request, timeout_ns, answer);
}

static void wait_there(void *self, int64_t ns)
{
    lh_engine_wait(((struct wire *)self)->member[0], ns);
}

static void close_wire(void *self)
{
    struct wire *w = self;
    for (uint32_t i = 0; i < w->members; i++) lh_engine_close(w->member[i]);
    free(w);
}

static LH_MUST lh_err dial(struct wire *w, const struct ps_etcd_place *place, const struct pem *ca,
                           const struct pem *cert, const struct pem *key)
{
    for (uint32_t i = 0; i < place->members; i++) {
        const struct lh_engine_conf conf = {.address = place->member[i],
                                            .ca = ca->is ? ca->text : NULL,
                                            .cert = cert->is ? cert->text : NULL,
                                            .key = cert->is ? key->text : NULL};
        LH_TRY(lh_engine_dial(&conf, &w->member[i]));
        w->members++;
    }
    return LH_OK;
}

static LH_MUST lh_err read_pems(const char *secrets, struct pem *ca, struct pem *cert,
                                struct pem *key)
{
    LH_TRY(read_file(secrets, "ca.pem", LH_KEYFILE_PUBLIC, ca->text, sizeof ca->text, &ca->is));
    LH_TRY(read_file(secrets, "cert.pem", LH_KEYFILE_PUBLIC, cert->text, sizeof cert->text,
                     &cert->is));
    LH_TRY(read_file(secrets, "key.pem", LH_KEYFILE_SECRET, key->text, sizeof key->text, &key->is));
    if (cert->is == key->is && (ca->is || !cert->is)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s: TLS needs ca.pem, and cert.pem and key.pem both or neither",
                   secrets);
}

lh_err ps_etcd_wire_open(const struct ps_etcd_place *place, const char *secrets,
                         struct ps_etcd_wire *out)
{
    struct wire *w = calloc(1, sizeof *w);
    struct pem *pem = calloc(3, sizeof *pem);
    lh_err err = w && pem ? LH_OK : LH_ERR_NO_MEMORY;
    if (!err) err = read_pems(secrets, &pem[0], &pem[1], &pem[2]);
    if (!err) err = dial(w, place, &pem[0], &pem[1], &pem[2]);
    if (pem) explicit_bzero(pem, 3 * sizeof *pem);
    free(pem);
    if (err) {
        if (w) close_wire(w);
        return err;
    }
    *out = (struct ps_etcd_wire){w, w->members, call, wait_there, close_wire};
    return LH_OK;
}
