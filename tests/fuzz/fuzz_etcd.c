// Answers of etcd: any bytes are values within their limits or are refused, and reading a prefix
// ends. Byte 0 is the call that they answer. The same bytes are also parsed as etcd's address.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/store/etcd.h"
#include "server/coordinator/store/etcd_wire.h"
#include "tests/fuzz/fuzz.h"

enum { CALLS_MAX = 1000 };

struct member {
    struct lh_span bytes;
    unsigned calls;
};

static lh_err answer(void *self, uint32_t member, const char *path, const char *token,
                     struct lh_span request, int64_t timeout_ns, struct lh_buf *out)
{
    struct member *m = self;
    (void)member, (void)path, (void)token, (void)request, (void)timeout_ns;
    LH_ASSERT(++m->calls < CALLS_MAX);
    lh_put(out, m->bytes.data, m->bytes.len);
    return lh_buf_err(out);
}

static int64_t now_ns(struct lh_env *env)
{
    (void)env;
    return LH_SECOND;
}

static void pause_for(void *self, int64_t ns)
{
    (void)self, (void)ns;
}

static void close_wire(void *self)
{
    (void)self;
}

static lh_err note(void *arg, const char *key, struct lh_span value)
{
    char *last = arg;
    LH_ASSERT(strlen(key) < PS_ETCD_KEY_BYTES && !strncmp(key, "/p/", 3));
    LH_ASSERT(strcmp(key, last) > 0); // rising keys, so reading them ends
    LH_ASSERT(!value.len || value.data);
    snprintf(last, PS_ETCD_KEY_BYTES, "%s", key);
    return LH_OK;
}

static void ask(struct ps_etcd *e, unsigned what)
{
    const struct ps_etcd_fence fence = {.key = "/p/leader", .created = 7};
    char last[PS_ETCD_KEY_BYTES] = "";
    struct lh_buf value = lh_buf(1 << 16);
    int64_t number;
    lh_err err = LH_OK;
    switch (what % 6) {
    case 0: err = ps_etcd_read(e, "/p/", note, last); break;
    case 1: err = ps_etcd_get(e, "/p/x", &value, &number); break;
    case 2: err = ps_etcd_change(e, &fence, "/p/x", lh_span_str("v"), 0, "/p/old"); break;
    case 3: err = ps_etcd_grant(e, 5, &number); break;
    case 4: err = ps_etcd_keep_alive(e, 3); break;
    default: err = ps_etcd_revoke(e, 3);
    }
    (void)err; // any result is allowed
    lh_buf_free(&value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_etcd_place place;
    struct ps_etcd *e;
    if (!size || size > 1 << 16) return 0;
    struct member m = {.bytes = lh_span(data + 1, size - 1)};
    static const struct lh_env_ops ops = {.now_ns = now_ns};
    struct lh_env env = {.ops = &ops};
    const struct ps_etcd_conf conf = {
        .env = &env,
        .wire = {.self = &m, .members = 1, .call = answer, .wait = pause_for, .close = close_wire},
        .login = data[0] & 0x80 ? "user:word" : "",
        .timeout_ns = LH_SECOND,
        .patience_ns = LH_SECOND};
    LH_ASSERT(!ps_etcd_create(&conf, &e));
    ask(e, data[0] & 0x7f);
    ps_etcd_destroy(e);

    char *setting = malloc(size);
    LH_ASSERT(setting);
    memcpy(setting, data + 1, size - 1);
    setting[size - 1] = 0;
    if (!ps_etcd_parse(setting, &place))
        LH_ASSERT(place.members && place.members <= PS_ETCD_MEMBERS_MAX && place.prefix[0] == '/');
    free(setting);
    return 0;
}
