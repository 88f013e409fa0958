// Packets and their segments (TCP segmentation as a network card does it, RFC 9293). See packet.h.
//
// Trusts nothing from a region's kernel: checks headers against the length that was read before it
// uses them.
#include "deploy/wan/packet.h"

#include <arpa/inet.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>

// The sum of 16-bit words used in Internet checksums, in network order like its input.
static uint32_t sum16(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        uint16_t word;
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    return sum;
}

static uint16_t folded(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

static uint32_t ip_header_bytes(const struct dp_packet *packet)
{
    return (packet->ip[0] & 15) * 4u;
}

struct dp_packet *dp_packet_new(uint32_t length)
{
    struct dp_packet *packet = malloc(sizeof *packet + length);
    if (packet) packet->length = length;
    return packet;
}

struct dp_shape dp_packet_shape(const struct dp_packet *packet)
{
    struct dp_shape single = {.headers = packet->length, .segments = 1};
    struct tcphdr tcp;
    uint32_t mss = packet->offload.gso_size;
    if ((packet->offload.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_TCPV4 ||
        mss == 0 || packet->length < sizeof(struct iphdr))
        return single;
    uint32_t ip_header = ip_header_bytes(packet);
    if (ip_header < sizeof(struct iphdr) || packet->length < ip_header + sizeof tcp) return single;
    memcpy(&tcp, packet->ip + ip_header, sizeof tcp);
    uint32_t tcp_header = tcp.doff * 4u, headers = ip_header + tcp_header;
    if (tcp_header < sizeof tcp || packet->length <= headers) return single;
    uint32_t payload = packet->length - headers;
    return (struct dp_shape){headers, payload, mss, (payload + mss - 1) / mss};
}

static uint32_t payload_bytes(const struct dp_shape *shape, uint32_t first, uint32_t count)
{
    uint32_t start = first * shape->mss, bytes = count * shape->mss;
    return bytes < shape->payload - start ? bytes : shape->payload - start;
}

uint32_t dp_packet_wire_bytes(const struct dp_shape *shape, uint32_t first, uint32_t count)
{
    return count * shape->headers + payload_bytes(shape, first, count);
}

// Rewrites the headers of a slice whose payload begins at `start`.
static void fix_headers(struct dp_packet *part, uint32_t first, uint32_t start, bool last)
{
    uint32_t ip_header = ip_header_bytes(part);
    struct iphdr ip;
    struct tcphdr tcp;
    memcpy(&ip, part->ip, sizeof ip);
    memcpy(&tcp, part->ip + ip_header, sizeof tcp);
    tcp.seq = htonl(ntohl(tcp.seq) + start);
    tcp.fin = tcp.fin && last;
    tcp.psh = tcp.psh && last;
    if (first > 0) tcp.cwr = 0; // only the first segment reports a reduced congestion window
    ip.tot_len = htons((uint16_t)part->length);
    ip.id = htons((uint16_t)(ntohs(ip.id) + first));
    ip.check = 0;
    memcpy(part->ip, &ip, sizeof ip);
    ip.check = (uint16_t)~folded(sum16(part->ip, ip_header));
    memcpy(part->ip, &ip, sizeof ip);
    // Under the offload the field holds the sum over the pseudo-header only.
    uint32_t sum = sum16(part->ip + offsetof(struct iphdr, saddr), 8) + htons(IPPROTO_TCP) +
                   htons((uint16_t)(part->length - ip_header));
    tcp.check = folded(sum);
    memcpy(part->ip + ip_header, &tcp, sizeof tcp);
}

struct dp_packet *dp_packet_slice(const struct dp_packet *whole, const struct dp_shape *shape,
                                  uint32_t first, uint32_t count)
{
    uint32_t start = first * shape->mss, payload = payload_bytes(shape, first, count);
    struct dp_packet *part = dp_packet_new(shape->headers + payload);
    if (!part) return NULL;
    part->offload = whole->offload;
    memcpy(part->ip, whole->ip, shape->headers);
    memcpy(part->ip + shape->headers, whole->ip + shape->headers + start, payload);
    fix_headers(part, first, start, start + payload == shape->payload);
    if (first > 0) part->offload.gso_type &= (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
    if (count == 1) {
        part->offload.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        part->offload.gso_size = 0;
    }
    return part;
}

int dp_packet_region(const struct dp_packet *packet)
{
    const uint8_t *ip = packet->ip;
    if (packet->length < sizeof(struct iphdr) || ip[0] >> 4 != 4 || ip[16] != 10 || ip[17] != 77)
        return -1;
    return ip[18] - 1;
}
