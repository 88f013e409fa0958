// wanem: wide-area links between network namespaces on one machine. See README.md.
//
// Each region is a network namespace whose only way out is a TUN device held by one daemon. The
// daemon moves IP packets between these devices through one delay line per directed pair.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/exit.h"
#include "deploy/wan/control.h"
#include "deploy/wan/daemon.h"
#include "deploy/wan/libraries.h"
#include "deploy/wan/region.h"
#include "deploy/wan/topology.h"

static const char USAGE[] =
    "usage: wanem [-n INSTANCE] COMMAND\n"
    "  up [-f] FILE                make the regions and links of a topology file (-f: stay in the "
    "foreground)\n"
    "  down [-k]                   remove them, also after a crash (-k: kill the processes "
    "inside)\n"
    "  exec REGION [--] PROGRAM... run a program inside a region\n"
    "  set A [to] B SETTING...     change links: rtt= delay= jitter= rate= queue= loss= reorder= "
    "up "
    "down\n"
    "  cut A [[to] B]              let nothing pass between A and B, or A and all others\n"
    "  heal A [[to] B]             undo a cut\n"
    "  show                        list regions and links\n"
    "  stats [-j]                  list traffic counters (-j: JSON Lines)\n"
    "  reset                       zero the counters\n"
    "'A B' means both directions, 'A to B' one; A and B are regions or 'all'.\n";

static int complain(const char *text)
{
    fprintf(stderr, "wanem: %s\n", text);
    return 1;
}

// Sets the links named by "A [[to] B]" up or down.
static int request_link_state(const char *instance, char **words, int count, char *state)
{
    char set[] = "set", every[] = "all", *all[6] = {set};
    int length = 1;
    if (count < 1 || count > 3 || (count == 2 && strcmp(words[1], "to") == 0))
        return complain("want a region, or two: A [[to] B]");
    for (int i = 0; i < count; i++) all[length++] = words[i];
    if (count == 1) all[length++] = every;
    all[length++] = state;
    return dp_control_request(instance, all, length);
}

static int print_usage(FILE *out, int status)
{
    fputs(USAGE, out);
    return status;
}

static bool is(const char *word, const char *name)
{
    return strcmp(word, name) == 0;
}

// Runs one command on an instance. Returns the exit status.
static int run(const char *instance, char **words, int count)
{
    const char *command = count > 0 ? words[0] : "", *option = count > 1 ? words[1] : "";
    char up[] = "up", down[] = "down";
    if (is(command, "up") && (count == 2 || (count == 3 && is(option, "-f"))))
        return dp_daemon_up(instance, words[count - 1], count == 3);
    if (is(command, "down") && (count == 1 || (count == 2 && is(option, "-k"))))
        return dp_daemon_down(instance, count == 2);
    if (is(command, "set")) return dp_control_request(instance, words, count);
    if (is(command, "cut")) return request_link_state(instance, words + 1, count - 1, down);
    if (is(command, "heal")) return request_link_state(instance, words + 1, count - 1, up);
    bool plain = is(command, "show") || is(command, "stats") || is(command, "reset");
    if ((plain && count == 1) || (is(command, "stats") && count == 2 && is(option, "-j")))
        return dp_control_request(instance, words, count);
    int program = count > 2 && is(words[2], "--") ? 3 : 2;
    if (is(command, "exec") && count > program)
        return dp_region_exec(instance, option, words + program);
    return print_usage(stderr, 2);
}

int main(int argc, char **argv)
{
    lh_open_streams();
    char **words = argv + 1;
    int count = argc - 1;
    const char *instance = getenv("WANEM_INSTANCE");
    if (count >= 2 && is(words[0], "-n")) {
        instance = words[1];
        words += 2;
        count -= 2;
    }
    if (!instance) instance = "wan";
    if (!dp_name_valid(instance)) {
        fprintf(stderr,
                "wanem: instance name '%s': want a letter, then letters, digits or '-', lower "
                "case, at most %d in all\n",
                instance, DP_WORLD_NAME_BYTES - 1);
        return 1;
    }
    if (count > 0 && (is(words[0], "-h") || is(words[0], "--help") || is(words[0], "help")))
        return print_usage(stdout, 0);
    if (geteuid() != 0) return complain("must be run as root");
    dp_libraries_clean();
    return run(instance, words, count);
}
