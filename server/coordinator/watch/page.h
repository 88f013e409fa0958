// The page of a run: one HTML file without outside fetches, which reads status.json, history.json
// and log of the HTTP server that gave it.
#ifndef PS_CO_PAGE_H
#define PS_CO_PAGE_H

extern const char ps_co_page[]; // ends with a zero

#endif
