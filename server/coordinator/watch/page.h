// The page of a run: one HTML file that fetches only status.json, history.json and log from its own
// HTTP server.
#ifndef PS_CO_PAGE_H
#define PS_CO_PAGE_H

extern const char ps_co_page[]; // ends with a zero

#endif
