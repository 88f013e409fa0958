// Tables of links and counters. See report.h.
#include "deploy/wan/report.h"

#include <inttypes.h>

#include "deploy/wan/topology.h"

static const char *show_quantity(double value, const struct dp_unit *units, char text[static 32])
{
    const struct dp_unit *unit = units;
    while (unit[1].name && value >= unit[1].scale) unit++;
    snprintf(text, 32, "%.6g%s", value / unit->scale, unit->name);
    return text;
}

static void report_link(const struct dp_world *world, int from, int to, FILE *out)
{
    const struct dp_settings *s = &world->link[from][to].settings;
    const struct dp_unit *queue_units = s->queue_in_bytes ? dp_units_size : dp_units_time;
    char delay[32], jitter[32], rate[32] = "unlimited", queue[32] = "-", loss[32];
    if (s->rate > 0) {
        show_quantity(s->rate, dp_units_rate, rate);
        show_quantity(s->queue, queue_units, queue);
    }
    fprintf(out, "%-24s%-24s%-10s%-10s%-12s%-10s%-10s%s%s\n", world->region[from].name,
            world->region[to].name, show_quantity((double)s->delay, dp_units_time, delay),
            show_quantity((double)s->jitter, dp_units_time, jitter), rate, queue,
            show_quantity(s->loss, dp_units_share, loss), s->up ? "up" : "down",
            s->reorder ? ", reorders" : "");
}

void dp_report_settings(const struct dp_world *world, FILE *out)
{
    fprintf(out, "%-24s%s\n", "REGION", "ADDRESSES");
    for (int i = 0; i < world->regions; i++) {
        fprintf(out, "%-24s10.77.%d.1", world->region[i].name, i + 1);
        if (world->region[i].hosts > 1) fprintf(out, "-%d", world->region[i].hosts);
        fputc('\n', out);
    }
    fprintf(out, "\n%-24s%-24s%-10s%-10s%-12s%-10s%-10s%s\n", "FROM", "TO", "DELAY", "JITTER",
            "RATE", "QUEUE", "LOSS", "STATE");
    for (int from = 0; from < world->regions; from++)
        for (int to = 0; to < world->regions; to++)
            if (from != to) report_link(world, from, to, out);
}

static void report_count(const struct dp_world *world, int from, int to, FILE *out, bool json)
{
    const struct dp_world_link *link = &world->link[from][to];
    const struct dp_counters *c = &link->count;
    double late_max = (double)c->late_max / 1e3, late_avg = 0;
    if (c->handovers) late_avg = (double)c->late_total / 1e3 / (double)c->handovers;
    if (json)
        fprintf(out,
                "{\"from\":\"%s\",\"to\":\"%s\",\"offered_packets\":%" PRIu64
                ",\"offered_bytes\":%" PRIu64 ",\"delivered_packets\":%" PRIu64
                ",\"delivered_bytes\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"overflowed\":%" PRIu64
                ",\"severed\":%" PRIu64 ",\"in_flight\":%" PRIu64
                ",\"late_avg_us\":%.1f,\"late_max_us\":%.1f}\n",
                world->region[from].name, world->region[to].name, c->offered_packets,
                c->offered_bytes, c->delivered_packets, c->delivered_bytes, c->lost, c->overflowed,
                c->severed, link->in_flight, late_avg, late_max);
    else
        fprintf(out,
                "%-24s%-24s%12" PRIu64 " %15" PRIu64 " %12" PRIu64 " %15" PRIu64 " %10" PRIu64
                " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %7.0fus %7.0fus\n",
                world->region[from].name, world->region[to].name, c->offered_packets,
                c->offered_bytes, c->delivered_packets, c->delivered_bytes, c->lost, c->overflowed,
                c->severed, link->in_flight, late_avg, late_max);
}

void dp_report_counters(const struct dp_world *world, FILE *out, bool json)
{
    if (!json)
        fprintf(out, "%-24s%-24s%12s %15s %12s %15s %10s %10s %10s %10s %9s %9s\n", "FROM", "TO",
                "OFFERED", "BYTES", "DELIVERED", "BYTES", "LOST", "OVERFLOWED", "SEVERED",
                "IN-FLIGHT", "LATE-AVG", "LATE-MAX");
    for (int from = 0; from < world->regions; from++)
        for (int to = 0; to < world->regions; to++)
            if (from != to) report_count(world, from, to, out, json);
}
