// Rows: the settings of each map in a topology file. topology.c reads the maps by these tables.
#ifndef DP_TOPOLOGY_ROWS_H
#define DP_TOPOLOGY_ROWS_H

#include "deploy/up/topology.h"

extern const struct lh_config_table dp_run_table;    // struct dp_run_settings: the top
extern const struct lh_config_table dp_region_table; // struct dp_region
extern const struct lh_config_table dp_server_table; // struct dp_server
extern const struct lh_config_table dp_link_table;   // struct dp_link

#endif
