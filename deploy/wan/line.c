// Delay lines. See line.h.
//
// Invariants:
//  1. Each offered packet ends as delivered, lost, overflowed or severed, so a link's counters add
//     up, with those in flight.
//  2. A link's packets arrive in the order sent, unless it reorders.
//  3. Memory in flight is bounded; packets above the bound, or without memory, overflow.
#include "deploy/wan/line.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "deploy/wan/packet.h"

enum {
    LARGE_PACKET = 8192, // from this length on a packet keeps the buffer it was read into
    READ_BATCH = 32,     // packets read from one region before the next has its turn
    FLIGHTS_MIN = 1024,
};
static const int64_t TRAIN = 1000000; // longest wire time of segments that travel as one packet
static const int64_t WAKE_LAG_STEP = 500, WAKE_LAG_MAX = 100000;
static const uint64_t MEMORY_MAX = 1ull << 30; // bytes in flight on all links

struct dp_flight {
    int64_t due;
    uint64_t number; // packets due at the same time keep their order
    struct dp_packet *packet;
};

// ---------------------------------------------------------------- flights

static bool earlier(const struct dp_flight *a, const struct dp_flight *b)
{
    return a->due != b->due ? a->due < b->due : a->number < b->number;
}

static bool reserve(struct dp_line *line)
{
    if (line->count < line->capacity) return true;
    size_t capacity = line->capacity ? 2 * line->capacity : FLIGHTS_MIN;
    struct dp_flight *flight = realloc(line->flight, capacity * sizeof *flight);
    if (!flight) return false;
    line->flight = flight;
    line->capacity = capacity;
    return true;
}

// The caller has reserved memory for it.
static void push_flight(struct dp_line *line, int64_t due, struct dp_packet *packet)
{
    struct dp_flight flight = {due, line->number++, packet};
    size_t at = line->count++;
    for (size_t parent; at > 0 && earlier(&flight, &line->flight[parent = (at - 1) / 2]);
         at = parent)
        line->flight[at] = line->flight[parent];
    line->flight[at] = flight;
    line->bytes += packet->length;
}

static struct dp_packet *pop_flight(struct dp_line *line)
{
    struct dp_flight *flight = line->flight;
    struct dp_packet *first = flight[0].packet;
    struct dp_flight last = flight[--line->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < line->count; at = child) {
        if (child + 1 < line->count && earlier(&flight[child + 1], &flight[child])) child++;
        if (!earlier(&flight[child], &last)) break;
        flight[at] = flight[child];
    }
    flight[at] = last;
    line->bytes -= first->length;
    return first;
}

void dp_line_free(struct dp_world *world)
{
    struct dp_line *line = &world->line;
    while (line->count) free(pop_flight(line));
    free(line->flight);
    free(line->buffer);
    *line = (struct dp_line){0};
}

// ---------------------------------------------------------------- time and chance

int64_t dp_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * DP_SECOND + time.tv_nsec;
}

// Uniform in [0, 1): splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
static double random_share(struct dp_line *line)
{
    uint64_t mix = line->chance += 0x9e3779b97f4a7c15;
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111eb;
    return (double)((mix ^ mix >> 31) >> 11) * 0x1p-53;
}

static double random_level(struct dp_line *line)
{
    return 2 * random_share(line) - 1;
}

// The deviation from the delay at a time. It drifts instead of jumping from packet to packet: its
// slope never falls below -1/2, so later packets never arrive earlier.
static int64_t jitter_at(struct dp_line *line, struct dp_world_link *link, int64_t time)
{
    int64_t jitter = link->settings.jitter;
    if (jitter == 0) return 0;
    if (link->settings.reorder) return (int64_t)((double)jitter * random_level(line));
    int64_t period = 4 * jitter;
    if (time - link->drift_start >= 2 * period) {
        link->drift_start = time - (int64_t)((double)period * random_share(line));
        link->drift_level = random_level(line);
        link->drift_next = random_level(line);
    } else if (time - link->drift_start >= period) {
        link->drift_start += period;
        link->drift_level = link->drift_next;
        link->drift_next = random_level(line);
    }
    double progress = (double)(time - link->drift_start) / (double)period;
    double level = link->drift_level + progress * (link->drift_next - link->drift_level);
    return (int64_t)((double)jitter * level);
}

int64_t dp_line_patience(const struct dp_world *world)
{
    const struct dp_line *line = &world->line;
    if (line->count == 0) return INT64_MAX;
    int64_t limit = line->flight[0].due - line->wake_lag - dp_now();
    return limit > 0 ? limit : 0;
}

void dp_line_slept(struct dp_world *world, int64_t limit, int64_t slept, bool idle)
{
    struct dp_line *line = &world->line;
    if (idle && limit > 0) {
        line->wake_lag += slept - limit > line->wake_lag ? WAKE_LAG_STEP : -WAKE_LAG_STEP;
        if (line->wake_lag < 0) line->wake_lag = 0;
        if (line->wake_lag > WAKE_LAG_MAX) line->wake_lag = WAKE_LAG_MAX;
    }
    line->arrival_lag = slept < line->wake_lag ? slept : line->wake_lag;
}

// ---------------------------------------------------------------- onto the wire

// Sends a packet whose last bit leaves the wire's near end at wire_free. Takes ownership.
static void launch(struct dp_line *line, struct dp_world_link *link, struct dp_packet *packet,
                   const struct dp_shape *shape, uint32_t first, uint32_t count)
{
    if (!packet || !reserve(line)) { // out of memory
        link->count.overflowed += count;
        free(packet);
        return;
    }
    packet->link = link;
    packet->epoch = link->epoch;
    packet->segments = (uint16_t)count;
    packet->wire_bytes = dp_packet_wire_bytes(shape, first, count);
    int64_t due = link->wire_free + link->settings.delay + jitter_at(line, link, link->wire_free);
    if (!link->settings.reorder && due < link->last_due) due = link->last_due;
    link->last_due = due;
    link->in_flight += count;
    push_flight(line, due, packet);
}

static void launch_slice(struct dp_line *line, struct dp_world_link *link,
                         const struct dp_packet *whole, const struct dp_shape *shape,
                         uint32_t first, uint32_t count)
{
    if (count > 0)
        launch(line, link, dp_packet_slice(whole, shape, first, count), shape, first, count);
}

// Queueing and loss act on single segments. Neighbours that survive go on as one packet, unless the
// wire takes so long over them that they should part. Takes ownership.
static void transmit(struct dp_line *line, struct dp_world_link *link, struct dp_packet *packet,
                     const struct dp_shape *shape)
{
    const struct dp_settings *settings = &link->settings;
    int64_t arrival = dp_now() - line->arrival_lag;
    if (link->wire_free < arrival) link->wire_free = arrival;
    double ns_per_byte = settings->rate > 0 ? 8e9 / settings->rate : 0;
    double backlog_max = settings->queue * (settings->queue_in_bytes ? ns_per_byte : 1);
    bool memory_full = line->bytes > MEMORY_MAX;
    uint32_t first = 0; // first segment of the train now forming
    int64_t train_start = link->wire_free;
    for (uint32_t i = 0; i < shape->segments; i++) {
        bool queue_full = ns_per_byte > 0 && (double)(link->wire_free - arrival) > backlog_max;
        bool full = memory_full || queue_full;
        bool lost = !full && settings->loss > 0 && random_share(line) < settings->loss;
        bool parted = link->wire_free - train_start >= TRAIN;
        if (full || lost || parted) {
            launch_slice(line, link, packet, shape, first, i - first);
            first = full || lost ? i + 1 : i;
            train_start = link->wire_free;
        }
        link->count.overflowed += full;
        link->count.lost += lost;
        if (!full)
            link->wire_free += (int64_t)(dp_packet_wire_bytes(shape, i, 1) * ns_per_byte + 0.5);
    }
    if (first == 0) {
        launch(line, link, packet, shape, 0, shape->segments);
    } else {
        launch_slice(line, link, packet, shape, first, shape->segments - first);
        free(packet);
    }
}

// Puts a packet on a link. Takes ownership.
static void admit(struct dp_line *line, struct dp_world_link *link, struct dp_packet *packet)
{
    struct dp_shape shape = dp_packet_shape(packet);
    link->count.offered_packets += shape.segments;
    link->count.offered_bytes += dp_packet_wire_bytes(&shape, 0, shape.segments);
    if (link->settings.up) {
        transmit(line, link, packet, &shape);
    } else {
        link->count.severed += shape.segments;
        free(packet);
    }
}

// ---------------------------------------------------------------- devices

static void deliver(struct dp_world *world, struct dp_packet *packet, int64_t late)
{
    struct dp_world_link *link = packet->link;
    struct dp_counters *count = &link->count;
    struct iovec parts[] = {{&packet->offload, DP_OFFLOAD_BYTES}, {packet->ip, packet->length}};
    link->in_flight -= packet->segments;
    if (packet->epoch != link->epoch) {
        count->severed += packet->segments;
    } else if (writev(world->region[link->to].tun, parts, 2) > 0) {
        count->delivered_packets += packet->segments;
        count->delivered_bytes += packet->wire_bytes;
        count->handovers++;
        count->late_total += late;
        if (late > count->late_max) count->late_max = late;
    } else {
        count->overflowed += packet->segments;
    }
    free(packet);
}

void dp_line_deliver(struct dp_world *world)
{
    struct dp_line *line = &world->line;
    int64_t late;
    while (line->count > 0 && (late = dp_now() - line->flight[0].due) >= -line->wake_lag)
        deliver(world, pop_flight(line), late);
}

// The link that a packet from a region takes; NULL: it is not addressed to another region.
static struct dp_world_link *link_for(struct dp_world *world, int from,
                                      const struct dp_packet *packet)
{
    int to = dp_packet_region(packet);
    return to >= 0 && to < world->regions && to != from ? &world->link[from][to] : NULL;
}

// Reads the next packet into the line's buffer. False: there was none, or no memory for it.
static bool read_packet(struct dp_line *line, int tun)
{
    if (!line->buffer) line->buffer = dp_packet_new(DP_IP_BYTES_MAX);
    if (!line->buffer) return false;
    struct iovec parts[] = {{&line->buffer->offload, DP_OFFLOAD_BYTES},
                            {line->buffer->ip, DP_IP_BYTES_MAX}};
    ssize_t size = readv(tun, parts, 2);
    if (size < DP_OFFLOAD_BYTES) return false;
    line->buffer->length = (uint32_t)(size - DP_OFFLOAD_BYTES);
    return true;
}

// The packet just read: a large one keeps its buffer, a small one is copied. NULL: out of memory.
static struct dp_packet *take_packet(struct dp_line *line)
{
    struct dp_packet *packet = line->buffer;
    if (packet->length >= LARGE_PACKET) {
        line->buffer = NULL;
        return packet;
    }
    packet = dp_packet_new(line->buffer->length);
    if (packet) memcpy(packet, line->buffer, sizeof *packet + line->buffer->length);
    return packet;
}

void dp_line_take_in(struct dp_world *world, int from)
{
    struct dp_line *line = &world->line;
    for (int i = 0; i < READ_BATCH && read_packet(line, world->region[from].tun); i++) {
        struct dp_world_link *link = link_for(world, from, line->buffer);
        struct dp_packet *packet = link ? take_packet(line) : NULL;
        if (!packet) continue;
        admit(line, link, packet);
        dp_line_deliver(world);
    }
}
