// A handle's errors and its owner check: every other file of the library calls this one, and it
// calls none of them. See handle.h.
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "worker/client/handle.h"

const char *longhaul_error_name(int error)
{
    static const char *const names[LONGHAUL_ERRORS] = {
        "LONGHAUL_OK",        "LONGHAUL_E_INVALID",     "LONGHAUL_E_STATE",
        "LONGHAUL_E_FORKED",  "LONGHAUL_E_UNSUPPORTED", "LONGHAUL_E_NO_MEMORY",
        "LONGHAUL_E_SYSTEM",  "LONGHAUL_E_VERSION",     "LONGHAUL_E_MODEL",
        "LONGHAUL_E_BUSY",    "LONGHAUL_E_REFUSED",     "LONGHAUL_E_RESTART",
        "LONGHAUL_E_TIMEOUT", "LONGHAUL_E_AGAIN",       "LONGHAUL_E_DRAINED",
        "LONGHAUL_E_DAMAGED",
    };
    return error >= 0 && error < LONGHAUL_ERRORS ? names[error] : "unknown";
}

const char *longhaul_text(const struct longhaul *c)
{
    return c ? c->text : "no handle";
}

int wk_client_fail(struct longhaul *c, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof c->text, format, args);
    va_end(args);
    return error;
}

bool wk_client_mine(const struct longhaul *c)
{
    return c && c->owner == getpid();
}
