// Held: fetches the state that only the standby may hold. See held.c.
#ifndef PS_HELD_H
#define PS_HELD_H

struct ps_rebuild;

// Starts or continues fetching the whole state of the standby in sync; ends with ps_rebuild_took().
// A standby that sends nothing for the grace time is asked again.
void ps_held_fetch(struct ps_rebuild *b);
void ps_held_end(struct ps_rebuild *b); // drops the transfer
// Logs once per standby that the shard waits for it. A take-over takes only a moment; after that
// the standby's server must come back, or an operator must act.
void ps_held_tell(struct ps_rebuild *b);

#endif
