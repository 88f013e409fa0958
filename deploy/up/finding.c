// A line about one finding. See finding.h.
#include "deploy/up/finding.h"

#include <stdarg.h>

void dp_check_say(struct dp_check *c, enum dp_finding level, const char *format, ...)
{
    static const char *const word[] = {"ok    ", "warn  ", "FAIL  "};
    va_list args;
    c->warnings += level == DP_MAY_FAIL;
    c->failures += level == DP_FAILS;
    fprintf(c->out, "  %s ", word[level]);
    va_start(args, format);
    vfprintf(c->out, format, args);
    va_end(args);
    fputc('\n', c->out);
}
