#include "textflag.h"

// func pause()
// PAUSE tells the core that this is a spin loop: its sibling gets the units.
TEXT ·pause(SB), NOSPLIT, $0-0
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	RET
