// The hook's call: see hook_call.h.
//
// A webhook is a POST of the notice's bytes with the header X-Longhaul-Signature, which has what
// LONGHAUL_SIGNATURE has for a command. Any answer 2xx means "told". It ends after LH_HOOK_MS.
#include "server/coordinator/watch/hook_call.h"

#include <stdio.h>
#include <string.h>

#include "common/objects/transfer.h"

enum { SIGNATURE_BYTES = 64 + LH_HMAC_HEX_BYTES };

lh_err ps_hook_check_url(const char *url)
{
    bool tls = !strncmp(url, "https://", 8), plain = !strncmp(url, "http://", 7);
    const char *host = url + (tls ? 8 : 7);
    if (!url[0]) return LH_OK;
    if ((!tls && !plain) || !host[0] || strchr("/:@?#", host[0]) || strpbrk(url, " \t\r\n\"<>"))
        return lh_fail(LH_ERR_CONFIG,
                       "coordinator.hook_url: \"%.100s\" is not valid, expected "
                       "https://HOST/PATH, or http://HOST/PATH",
                       url);
    if (strchr(host, '@')) // it would stand in logs
        return lh_fail(LH_ERR_CONFIG, "coordinator.hook_url: no names and passwords in the URL; "
                                      "coordinator.hook_secret signs what is sent");
    return LH_OK;
}

// "sha256=" and the signature in hexadecimal; "": it is not signed.
static void sign(const struct ps_hook_call *h, struct lh_span body, char out[SIGNATURE_BYTES])
{
    char hex[LH_HMAC_HEX_BYTES];
    out[0] = 0;
    if (!h->secret.bytes) return;
    lh_hmac_hex(&h->secret, body, hex);
    snprintf(out, SIGNATURE_BYTES, "sha256=%s", hex);
}

void ps_hook_tell_end(const struct ps_command_end *is, int bound_ms, struct ps_co_call_end *end)
{
    static const char *const fate[] = {
        [PS_COMMAND_EXITED] = "ended with",
        [PS_COMMAND_KILLED] = "was killed by signal",
        [PS_COMMAND_TOO_LATE] = "took too long",
        [PS_COMMAND_STOPPED] = "is ended with the coordinator: signal",
        [PS_COMMAND_NO_START] = "does not start: errno",
    };
    char bound[48] = "";
    if (is->fate == PS_COMMAND_TOO_LATE)
        snprintf(bound, sizeof bound, " (over %d s): signal", bound_ms / 1000);
    end->ok = is->fate == PS_COMMAND_EXITED && is->number == 0;
    snprintf(end->says, sizeof end->says, "the command %s%s %d after %.1f s%s%s", fate[is->fate],
             bound, is->number, (double)is->took_ns / LH_SECOND, is->says[0] ? ", saying: " : "",
             is->says);
}

static void run(const struct ps_hook_call *h, const struct ps_co_notice *notice,
                const char *signature, const atomic_bool *stop, struct ps_co_call_end *end)
{
    char name[160], member[32 + LH_NAME_BYTES], region[32 + LH_NAME_BYTES], state[48];
    char signed_by[SIGNATURE_BYTES + 32];
    snprintf(name, sizeof name, "LONGHAUL_RUN=%s", h->run);
    snprintf(member, sizeof member, "LONGHAUL_MEMBER=%s", notice->name);
    snprintf(region, sizeof region, "LONGHAUL_REGION=%s", notice->region);
    snprintf(state, sizeof state, "LONGHAUL_STATE=%s", notice->to);
    snprintf(signed_by, sizeof signed_by, "LONGHAUL_SIGNATURE=%s", signature);
    char *const extra[] = {name, member, region, state, signed_by, NULL};
    struct ps_command_end is;
    ps_command_run(&h->command, h->env, extra, lh_span(notice->body, notice->bytes),
                   LH_HOOK_MS * LH_MS, stop, &is);
    ps_hook_tell_end(&is, LH_HOOK_MS, end);
}

static void post(const struct ps_hook_call *h, const struct ps_co_notice *notice,
                 const char *signature, const atomic_bool *stop, struct ps_co_call_end *end)
{
    char header[SIGNATURE_BYTES + 32];
    struct lh_transfer *t = NULL;
    struct lh_transfer_reply reply = {.status = 0};
    struct lh_transfer_request q = {.method = "POST",
                                    .url = h->url,
                                    .header = {"Content-Type: application/json", "Expect:", header},
                                    .headers = signature[0] ? 3 : 2,
                                    .has_body = true,
                                    .body = lh_span(notice->body, notice->bytes),
                                    .most_ms = LH_HOOK_MS};
    snprintf(header, sizeof header, "X-Longhaul-Signature: %s", signature);
    lh_err err = lh_transfer_open(stop, "", &t);
    if (!err) err = lh_transfer_do(t, &q, &reply);
    end->ok = !err && reply.status >= 200 && reply.status < 300;
    if (err)
        snprintf(end->says, sizeof end->says, "the webhook: %s", lh_err_text(err));
    else
        snprintf(end->says, sizeof end->says, "the webhook answered %ld", reply.status);
    lh_buf_free(&reply.body);
    lh_transfer_close(t);
}

int64_t ps_hook_call(void *arg, const struct ps_co_notice *notice, const atomic_bool *stop,
                     struct ps_co_call_end *end)
{
    const struct ps_hook_call *h = arg;
    char signature[SIGNATURE_BYTES];
    sign(h, lh_span(notice->body, notice->bytes), signature);
    end->ok = true;
    if (h->command.words) run(h, notice, signature, stop, end);
    if (end->ok && h->url[0]) post(h, notice, signature, stop, end);
    return 0;
}
