// Values of settings: text <-> fields of a settings struct. Internal to common/app/config*.c.
#ifndef LH_COMMON_CONFIG_VALUE_H
#define LH_COMMON_CONFIG_VALUE_H

#include "common/app/config.h"

// Parses `text` into the field at `field` (of the row's type; a string field borrows `text`).
// False: the text is no value of the type, or out of range; the field is unchanged.
bool lh_config_parse(const struct lh_config_row *row, const char *text, void *field);
// Describes a row's valid values: "a size from 4 KiB to 1 GiB", "one of text, json", ...
void lh_config_expected(const struct lh_config_row *row, char *out, size_t size);
enum { LH_CONFIG_EXPECTED_BYTES = 512 }; // enough for lh_config_expected()
// The enumeration's word nearest to `text`, into `out`; false: none is near enough, or the row is
// no enumeration.
bool lh_config_nearest_word(const struct lh_config_row *row, const char *text, char out[64]);
const char *lh_config_type_name(enum lh_config_type type);

#endif
