// Settings that have gone: what a file that still has one is to have instead.
#ifndef LH_COMMON_CONFIG_GONE_H
#define LH_COMMON_CONFIG_GONE_H

// Words that follow "no setting KEY any more: "; NULL: there never was such a setting.
const char *lh_config_instead(const char *key);

#endif
