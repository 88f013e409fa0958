// A fake disk for targets whose bytes come from files: one node of a fake world.
#ifndef LH_TESTS_FUZZ_DISK_H
#define LH_TESTS_FUZZ_DISK_H

#include "tests/world/env_fake.h"

struct fuzz_disk {
    struct lh_fake_world *world;
    struct lh_env *env;
};

struct fuzz_disk fuzz_disk_create(void);
void fuzz_disk_destroy(struct fuzz_disk *d);
// Writes the file `dir`/`name`.
void fuzz_disk_put(struct fuzz_disk *d, const char *dir, const char *name, struct lh_span bytes);

// Writes the CRC-32C of bytes [from, to) at `to`. A fuzzer cannot guess a checksum, and the code
// behind the check has to be tested as well.
void fuzz_repair_crc(uint8_t *bytes, size_t from, size_t to);

#endif
