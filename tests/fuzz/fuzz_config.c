// Settings files: any bytes are a valid server.yaml or are refused with their place. Each accepted
// value lies in its row's range.
#include <string.h>

#include "common/app/config_value.h"
#include "common/base/check.h"
#include "server/settings.h"
#include "tests/fuzz/fuzz.h"

static void check_ranges(const struct lh_config *c)
{
    const uint8_t *settings = lh_config_settings(c);
    for (unsigned i = 0; i < ps_settings_table.rows; i++) {
        const struct lh_config_row *row = &ps_settings_table.row[i];
        const char *text = lh_config_value(c, row->key, NULL, 0);
        bool limited = row->min != row->max;
        if (row->type == LH_CONFIG_SIZE || row->type == LH_CONFIG_DURATION) {
            int64_t v;
            memcpy(&v, settings + row->offset, sizeof v);
            LH_ASSERT(!limited || ((double)v >= row->min && (double)v <= row->max));
        }
        union { // the text that `explain` shows must parse again
            int64_t i;
            double d;
            const char *s;
            struct lh_ints ints;
        } field;
        LH_ASSERT(!text || lh_config_parse(row, text, &field));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_config *c;
    if (lh_config_create(&ps_settings_table, &c)) return 0;
    lh_err err = lh_config_text(c, "f", lh_span(data, size));
    if (err == LH_ERR_CONFIG) LH_ASSERT(!strncmp(lh_err_text(err), "f:", 2));
    check_ranges(c);
    if (!err) err = lh_config_finish(c);
    lh_config_destroy(c);
    return 0;
}
