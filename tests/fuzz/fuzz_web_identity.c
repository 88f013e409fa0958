// An answer of a security token service yields a valid, complete, printable key, or is refused and
// leaves no key.
#include <string.h>

#include "common/base/check.h"
#include "common/objects/web_identity.h"
#include "tests/fuzz/fuzz.h"

enum { NOW_S = 1769860800 }; // 2026-01-31T12:00:00Z

static int64_t wall_s(struct lh_env *env)
{
    (void)env;
    return NOW_S;
}

static void check_text(const char *text, size_t size)
{
    LH_ASSERT(text[0] && memchr(text, 0, size));
    for (; *text; text++) LH_ASSERT(*text > ' ' && *text < 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct lh_env_ops ops = {.wall_s = wall_s};
    struct lh_env env = {.ops = &ops};
    struct lh_web_identity w = {.env = &env};
    if (size > 1 << 16) return 0;
    lh_err err = lh_web_identity_take(&w, lh_span(data ? data : (const uint8_t *)"", size), "u");
    LH_ASSERT(!err || err == LH_ERR_MALFORMED);
    LH_ASSERT(err ? !w.until_s && !w.keys.id[0] && !w.keys.secret[0] : w.until_s >= NOW_S);
    if (err) return 0;
    check_text(w.keys.id, sizeof w.keys.id);
    check_text(w.keys.secret, sizeof w.keys.secret);
    check_text(w.keys.token, sizeof w.keys.token);
    return 0;
}
