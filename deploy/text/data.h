// Text to tokens: the work of `longhaul data prepare`.
//
// In:  DIR/<region>/<language>/*.txt (a language has one home region), DIR/heldout/<language>.txt
// Out: OUT/<region>-<language>-NNN.bin, OUT/heldout-<language>.bin, OUT/units.json
// (common/format/units.h),
//      written last. The same text gives the same bytes, so the manifest's hash names the data.
#ifndef DP_DATA_H
#define DP_DATA_H

#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"
#include "deploy/tool/cli.h"

// The place where a document ends. A unit is then one document, a private region's record
// (deploy/docs/privacy.md). DP_STREAM: units are equal pieces of each language's text.
enum dp_documents { DP_STREAM, DP_FILE, DP_LINE, DP_BLANK };

struct dp_data_prepare_conf {
    const char *text, *out;         // folders; `out` is made
    enum dp_documents documents;    // DP_BLANK: a document ends at an empty line
    uint64_t unit_tokens;           // tokens of every unit; of a document at most
    uint64_t sequence;              // tokens the trainer takes at a time: unit_tokens is a multiple
    uint64_t limit_bytes;           // bytes of text taken per language, 0: all
    uint64_t file_tokens;           // most tokens of one .bin, rounded down to whole units
    uint32_t token_bytes;           // 2 or 4
    const struct dp_texts *staying; // regions whose units may not leave; NULL: all may
    FILE *says;                     // the table of what was done; NULL: nowhere
};

// Byte vocabulary: ids 0..255. Each language's last, incomplete unit is dropped and counted; of a
// document what is beyond unit_tokens. Unit
// ids run through the regions in order; inside a region, languages alternate in proportion to size.
// Everything written is read back through the workers' loader before it counts as done.
// LH_ERR_NOT_FOUND: no text there; LH_ERR_INVALID: the configuration; LH_ERR_MALFORMED: the
// folders.
LH_MUST lh_err dp_data_prepare(const struct dp_data_prepare_conf *conf);

#endif
