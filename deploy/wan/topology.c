// Topology files. See topology.h.
//
// Lines of words; # begins a comment:
//   region NAME [hosts=N]
//   link A [to] B SETTING...     regions come before links
//   mtu N
//   sysctl net.KEY=VALUE         set in every region
//
// Trusts nothing: lines, words, regions and sysctls are bounded, zero bytes are refused, and errors
// name file and line.
#include "deploy/wan/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
enum { MTU_DEFAULT = 1500, MTU_MIN = 576, MTU_MAX = 65535 };
static const double QUEUE_DEFAULT = 50e6; // ns

bool dp_name_valid(const char *name)
{
    return strspn(name, LETTERS) > 0 && strlen(name) < DP_WORLD_NAME_BYTES &&
           strlen(name) == strspn(name, LETTERS "0123456789-");
}

int dp_world_words(char *line, const char *separators, char **words)
{
    int count = 0;
    char *rest = line;
    for (char *word; count < DP_WORDS_MAX && (word = strtok_r(rest, separators, &rest));)
        words[count++] = word;
    return count;
}

static LH_MUST lh_err parse_count(const char *text, int least, int most, int *count)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < least || number > most)
        return lh_fail(LH_ERR_INVALID, "'%s': want a whole number from %d to %d", text, least,
                       most);
    *count = (int)number;
    return LH_OK;
}

static LH_MUST lh_err check_region_name(const struct dp_world *world, const char *name)
{
    static const char *const reserved[] = {"all", "to", "up", "down", "localhost"};
    if (!dp_name_valid(name))
        return lh_fail(LH_ERR_INVALID,
                       "region name '%s': want a letter, then letters, digits or '-', lower case, "
                       "at most %d in all",
                       name, DP_WORLD_NAME_BYTES - 1);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0)
            return lh_fail(LH_ERR_INVALID, "'%s' cannot name a region", name);
    for (int i = 0; i < world->regions; i++)
        if (strcmp(name, world->region[i].name) == 0)
            return lh_fail(LH_ERR_INVALID, "region '%s' exists already", name);
    return LH_OK;
}

static LH_MUST lh_err add_region(struct dp_world *world, char *const *words, int count)
{
    if (count < 1) return lh_fail(LH_ERR_INVALID, "want: region NAME [hosts=N]");
    LH_TRY(check_region_name(world, words[0]));
    if (world->regions == DP_WORLD_REGIONS_MAX)
        return lh_fail(LH_ERR_INVALID, "more than %d regions", DP_WORLD_REGIONS_MAX);
    int index = world->regions;
    struct dp_world_region *region = &world->region[index];
    *region = (struct dp_world_region){.hosts = 1, .tun = -1};
    for (int i = 1; i < count; i++) {
        if (strncmp(words[i], "hosts=", 6) != 0)
            return lh_fail(LH_ERR_INVALID, "'%s': want hosts=N", words[i]);
        LH_TRY(parse_count(words[i] + 6, 1, DP_WORLD_HOSTS_MAX, &region->hosts));
    }
    memcpy(region->name, words[0], strlen(words[0]) + 1);
    for (int other = 0; other <= index; other++) {
        struct dp_settings initial = {.queue = QUEUE_DEFAULT, .up = true};
        world->link[other][index] = (struct dp_world_link){.settings = initial, .to = index};
        world->link[index][other] = (struct dp_world_link){.settings = initial, .to = other};
    }
    world->regions++;
    return LH_OK;
}

static LH_MUST lh_err add_sysctl(struct dp_world *world, char *const *words, int count)
{
    if (count < 1 || strncmp(words[0], "net.", 4) != 0 || !strchr(words[0], '=') ||
        strchr(words[0], '/'))
        return lh_fail(LH_ERR_INVALID, "want: sysctl net.KEY=VALUE");
    if (world->sysctls == DP_WORLD_SYSCTLS_MAX)
        return lh_fail(LH_ERR_INVALID, "more than %d sysctls", DP_WORLD_SYSCTLS_MAX);
    char *line = world->sysctl[world->sysctls++];
    for (int i = 0, used = 0; i < count; i++)
        used += snprintf(line + used, DP_LINE_BYTES - (size_t)used, "%s%s", i ? " " : "", words[i]);
    return LH_OK;
}

static LH_MUST lh_err obey(struct dp_world *world, bool *links_begun, char *const *words, int count)
{
    if (strcmp(words[0], "link") == 0) {
        *links_begun = true;
        return dp_world_change(world, words + 1, count - 1);
    }
    if (strcmp(words[0], "region") == 0)
        return *links_begun ? lh_fail(LH_ERR_INVALID, "name regions before links")
                            : add_region(world, words + 1, count - 1);
    if (strcmp(words[0], "sysctl") == 0) return add_sysctl(world, words + 1, count - 1);
    if (strcmp(words[0], "mtu") == 0 && count == 2)
        return parse_count(words[1], MTU_MIN, MTU_MAX, &world->mtu);
    return lh_fail(LH_ERR_INVALID,
                   "'%s': want region NAME [hosts=N], link A [to] B SETTING..., mtu N or sysctl "
                   "net.KEY=VALUE",
                   words[0]);
}

// Reads a line without its end. *more: another follows.
static LH_MUST lh_err read_line(FILE *in, char line[DP_LINE_BYTES], bool *more)
{
    size_t length = 0;
    int byte;
    while ((byte = fgetc(in)) != EOF && byte != '\n') {
        if (byte == 0) return lh_fail(LH_ERR_INVALID, "a zero byte: this is not a text file");
        if (length == DP_LINE_BYTES - 1) return lh_fail(LH_ERR_INVALID, "the line is too long");
        line[length++] = (char)byte;
    }
    line[length] = 0;
    *more = byte != EOF;
    return LH_OK;
}

static LH_MUST lh_err obey_line(struct dp_world *world, bool *links_begun, char *line)
{
    char *words[DP_WORDS_MAX];
    line[strcspn(line, "#")] = 0;
    int count = dp_world_words(line, " \t\r", words);
    if (count == DP_WORDS_MAX) return lh_fail(LH_ERR_INVALID, "the line has too many words");
    return count ? obey(world, links_begun, words, count) : LH_OK;
}

lh_err dp_world_read(struct dp_world *world, const char *name, FILE *in)
{
    char line[DP_LINE_BYTES];
    bool links_begun = false, more = true;
    world->mtu = MTU_DEFAULT;
    for (int number = 1; more; number++) {
        lh_err err = read_line(in, line, &more);
        if (!err) err = obey_line(world, &links_begun, line);
        if (err) return lh_fail(err, "%s:%d: %s", name, number, lh_err_text(err));
    }
    if (ferror(in)) return lh_fail_errno(errno, "%s", name);
    if (world->regions < 2) return lh_fail(LH_ERR_INVALID, "%s: want at least two regions", name);
    return LH_OK;
}

lh_err dp_world_load(struct dp_world *world, const char *path)
{
    FILE *in = fopen(path, "re");
    if (!in) return lh_fail_errno(errno, "%s", path);
    lh_err err = dp_world_read(world, path, in);
    fclose(in);
    return err;
}
