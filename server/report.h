// Report: what the coordinator hears of the shards.
#ifndef PS_REPORT_H
#define PS_REPORT_H

#include <stdint.h>

struct lh_unary;
struct ps_server;

// Reports that may be under way at once: as many as are due within the deadline of one.
enum { PS_REPORTS_MAX = 32 };
struct ps_report {
    struct ps_server *server;
    struct lh_unary *call; // NULL: this one is free
    uint64_t number;       // the report's number, ascending
};

void ps_report_start(struct ps_server *s);
void ps_report_now(struct ps_server *s);    // does not wait for its time
void ps_report_forget(struct ps_server *s); // the answers to what is under way

#endif
