// How long the plugin waits for an answer of the daemon.
#pragma once

// Then the plugin takes the daemon for dead, seconds.
#define ROCI_ABI_ANSWER_LIMIT_S 30
