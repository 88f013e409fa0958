// The page of the coordinator's HTTP server: page.html from the tree.
#include "server/coordinator/watch/page.h"

__asm__(".pushsection .rodata\n"
        ".global ps_co_page\n"
        ".type ps_co_page, %object\n"
        "ps_co_page: .incbin \"" PS_CO_PAGE_FILE "\"\n"
        ".byte 0\n"
        ".size ps_co_page, . - ps_co_page\n"
        ".popsection\n");
