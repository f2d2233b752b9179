// Control messages between the provider plugin and the daemon over a SOCK_SEQPACKET Unix socket,
// one session (one ibv_context) per connection: a request, then its response, one at a time. Host
// byte order unless a field says so.
//
// A connection that the daemon cannot take gets, unasked, one roci_abi_plain_response with serial 0
// and the error (EUSERS: too many sessions; EAGAIN: too many of this user; ENFILE: the daemon is
// out of descriptors), and is closed. One that says no HELLO within some seconds is closed.
//
// Every request begins with roci_abi_request, every response with roci_abi_response; a message has
// exactly the size of its structure. File descriptors travel as SCM_RIGHTS beside the message that
// names them.
//
// All of them; the messages of one subject are in a header each.
#pragma once

#include "verbs_provider/abi/session_completion.h"
#include "verbs_provider/abi/session_device.h"
#include "verbs_provider/abi/session_flows.h"
#include "verbs_provider/abi/session_head.h"
#include "verbs_provider/abi/session_memory.h"
#include "verbs_provider/abi/session_queue_pairs.h"
#include "verbs_provider/abi/session_shared_queues.h"
#include "verbs_provider/abi/session_sharing.h"
