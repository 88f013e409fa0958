// Command lines: any text splits into words within their limits or is refused. Filling placeholders
// keeps the number of words, and words without a placeholder stay the same.
#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/words.h"
#include "tests/fuzz/fuzz.h"

static void check_words(const struct dp_words *w)
{
    LH_ASSERT(w->count <= DP_WORDS_MAX && !w->at[w->count] && w->used <= sizeof w->bytes);
    for (unsigned i = 0; i < w->count; i++) {
        LH_ASSERT(w->at[i] >= w->bytes && w->at[i] < w->bytes + w->used);
        LH_ASSERT(memchr(w->at[i], 0, (size_t)(w->bytes + w->used - w->at[i])));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char line[1 << 16];
    static struct dp_words words, filled;
    static const struct dp_placeholder list[] = {{"worker", "asia-0"}, {"dir", "/d"}, {NULL, NULL}};
    if (size >= sizeof line) return 0;
    memcpy(line, data, size);
    line[size] = 0;
    lh_err err = dp_words_split(line, &words);
    LH_ASSERT(!err || err == LH_ERR_CONFIG);
    if (err) return 0;
    check_words(&words);
    err = dp_words_fill(&words, list, &filled);
    LH_ASSERT(!err || err == LH_ERR_CONFIG);
    if (err) return 0;
    check_words(&filled);
    LH_ASSERT(filled.count == words.count);
    for (unsigned i = 0; i < words.count; i++)
        LH_ASSERT(strchr(words.at[i], '{') || !strcmp(words.at[i], filled.at[i]));
    return 0;
}
