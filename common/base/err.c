// Error texts. See err.h.
#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"

static const struct {
    const char *name, *text;
    enum lh_err_class class;
} table[LH_ERR_COUNT] = {
#define LH_ERR_ROW(code, class_, text_) [code] = {#code, text_, LH_CLASS_##class_},
    LH_ERRORS(LH_ERR_ROW)
#undef LH_ERR_ROW
};

// The exception to "no mutable globals": like errno, it is per thread.
static _Thread_local struct lh_err_said last;

__attribute__((format(printf, 2, 0))) static void keep(lh_err code, const char *format,
                                                       va_list args)
{
    char text[sizeof last.text]; // an argument may be lh_err_text()'s
    vsnprintf(text, sizeof text, format, args);
    memcpy(last.text, text, strlen(text) + 1);
    last.code = code;
    lh_text_tame(last.text, strlen(last.text)); // the text may quote input
}

lh_err lh_fail(lh_err code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep(code, format, args);
    va_end(args);
    return code;
}

lh_err lh_fail_errno(int saved_errno, const char *format, ...)
{
    bool full = saved_errno == ENOSPC || saved_errno == EDQUOT;
    va_list args;
    va_start(args, format);
    keep(full ? LH_ERR_DISK_FULL : LH_ERR_IO, format, args);
    va_end(args);
    size_t used = strlen(last.text);
    snprintf(last.text + used, sizeof last.text - used, ": %s%s", strerror(saved_errno),
             full ? "; free some space" : "");
    return last.code;
}

const char *lh_err_name(lh_err code)
{
    return (unsigned)code < LH_ERR_COUNT ? table[code].name : "LH_ERR_?";
}

const char *lh_err_text(lh_err code)
{
    if ((unsigned)code >= LH_ERR_COUNT) return "unknown error";
    return last.code == code && code != LH_OK && last.text[0] ? last.text : table[code].text;
}

void lh_err_take(struct lh_err_said *out)
{
    out->code = last.code;
    memcpy(out->text, last.text, strlen(last.text) + 1);
    last.code = LH_OK;
    last.text[0] = 0;
}

void lh_err_give(const struct lh_err_said *said)
{
    if (said->code) last = *said;
}

enum lh_err_class lh_err_class(lh_err code)
{
    return (unsigned)code < LH_ERR_COUNT ? table[code].class : LH_CLASS_STOP;
}
