// Packets, each from one read of a TUN device, and their division into segments.
#ifndef LH_DEPLOY_WAN_PACKET_H
#define LH_DEPLOY_WAN_PACKET_H

#include <linux/virtio_net.h>

#include "deploy/wan/world.h"

enum { DP_IP_BYTES_MAX = 65535, DP_OFFLOAD_BYTES = sizeof(struct virtio_net_hdr) };

// From `offload` on, the bytes as the device gives and takes them. Under TSO the IP packet stands
// for many segments, each a packet on the wire.
struct dp_packet {
    struct dp_world_link *link;
    uint32_t epoch;
    uint32_t wire_bytes;
    uint32_t length; // bytes of `ip`
    uint16_t segments;
    struct virtio_net_hdr offload;
    _Alignas(4) uint8_t ip[];
};

// How a packet divides into segments: each repeats the headers, all but the last carry mss bytes.
struct dp_shape {
    uint32_t headers, payload, mss, segments;
};

struct dp_packet *dp_packet_new(uint32_t length); // free() it; NULL: out of memory
struct dp_shape dp_packet_shape(const struct dp_packet *packet);
// Bytes on the wire of `count` segments from `first` on.
uint32_t dp_packet_wire_bytes(const struct dp_shape *shape, uint32_t first, uint32_t count);
// Makes a packet of some segments of a larger one. NULL: out of memory.
struct dp_packet *dp_packet_slice(const struct dp_packet *whole, const struct dp_shape *shape,
                                  uint32_t first, uint32_t count);
// The region a packet is addressed to (10.77.R.H), or -1.
int dp_packet_region(const struct dp_packet *packet);

#endif
