// longhaul data prepare: its flags. The work is in data.c.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/text/data.h"
#include "deploy/tool/commands.h"

static LH_MUST lh_err read_documents(const char *text, const char *sequence,
                                     struct dp_data_prepare_conf *c)
{
    static const char *const name[] = {
        [DP_FILE] = "file", [DP_LINE] = "line", [DP_BLANK] = "blank"};
    if (!text) return LH_OK;
    for (size_t i = DP_FILE; i < LH_COUNT(name); i++)
        if (!strcmp(text, name[i])) c->documents = (enum dp_documents)i;
    if (!c->documents)
        return lh_fail(LH_ERR_INVALID, "--documents %.40s: file, line or blank", text);
    if (sequence)
        return lh_fail(LH_ERR_INVALID, "--sequence: a unit of --documents is as long as its "
                                       "document; leave it out");
    c->sequence = 1;
    return LH_OK;
}

lh_err dp_cmd_data(int argc, char **argv)
{
    const char *unit = NULL, *sequence = NULL, *limit = NULL, *file = NULL, *bits = NULL;
    const char *documents = NULL;
    struct dp_texts staying = {.count = 0}, rest;
    struct dp_data_prepare_conf conf = {.unit_tokens = 8192,
                                        .sequence = 128,
                                        .file_tokens = UINT64_C(1) << 26,
                                        .token_bytes = 2,
                                        .staying = &staying,
                                        .says = stdout};
    const struct dp_flag flags[] = {
        {"--text", DP_TEXT, &conf.text, "DIR", "<region>/<language>/*.txt, heldout/<language>.txt"},
        {"--out", DP_TEXT, &conf.out, "DIR", "output folder for token files and units.json"},
        {"--documents", DP_TEXT, &documents, "file|line|blank",
         "make each document a unit, as for a private region's records; a document ends with its "
         "file, its line, or at an empty line"},
        {"--unit-tokens", DP_TEXT, &unit, "N",
         "tokens of a unit; maximum of a document, the rest is dropped (8192)"},
        {"--sequence", DP_TEXT, &sequence, "N", "units are multiples of this (128)"},
        {"--limit-bytes-per-language", DP_TEXT, &limit, "N", "use at most this much text (all)"},
        {"--tokens-per-file", DP_TEXT, &file, "N", "begin a new file after this (67108864)"},
        {"--bits", DP_TEXT, &bits, "16|32", "of a token (16)"},
        {"--stays", DP_EACH, &staying, "REGION",
         "this region's units may not leave it; may repeat"},
    };
    const struct dp_usage usage = {
        "longhaul data prepare --text DIR --out DIR [flags]",
        "Makes token files and the manifest of their units from text (bytes are the tokens). A\n"
        "language belongs to one region. Text that does not fill a unit is dropped and reported.",
        flags, sizeof flags / sizeof flags[0]};
    bool help;
    uint64_t width = 16;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 1 || strcmp(rest.at[0], "prepare") != 0 || !conf.text || !conf.out)
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(read_documents(documents, sequence, &conf));
    LH_TRY(dp_number("--unit-tokens", unit, 0, UINT64_MAX, &conf.unit_tokens));
    LH_TRY(dp_number("--sequence", sequence, 0, UINT64_MAX, &conf.sequence));
    LH_TRY(dp_number("--limit-bytes-per-language", limit, 0, UINT64_MAX, &conf.limit_bytes));
    LH_TRY(dp_number("--tokens-per-file", file, 0, UINT64_MAX, &conf.file_tokens));
    LH_TRY(dp_number("--bits", bits, 0, UINT64_MAX, &width));
    if (width != 16 && width != 32) return lh_fail(LH_ERR_INVALID, "--bits %.40s: 16 or 32", bits);
    conf.token_bytes = width == 16 ? 2 : 4;
    return dp_data_prepare(&conf);
}
