// Control messages between the provider plugin and the daemon over a SOCK_SEQPACKET Unix socket,
// one session (one ibv_context) per connection: a request, then its response, one at a time. Host
// byte order unless a field says otherwise.
//
// If the daemon refuses a connection, it sends one roci_abi_plain_response with serial 0 and the
// error (EUSERS: too many sessions; EAGAIN: too many sessions of this user; ENFILE: the daemon is
// out of descriptors), and closes the connection. It also closes a connection without a HELLO
// within a few seconds.
//
// Every request begins with roci_abi_request, every response with roci_abi_response; a message has
// exactly the size of its structure. File descriptors travel as SCM_RIGHTS of the message that
// names them.
//
// Includes all messages; there is one header for each subject.
#pragma once

#include "verbs_provider/abi/session_completion.h"
#include "verbs_provider/abi/session_device.h"
#include "verbs_provider/abi/session_flows.h"
#include "verbs_provider/abi/session_head.h"
#include "verbs_provider/abi/session_memory.h"
#include "verbs_provider/abi/session_queue_pairs.h"
#include "verbs_provider/abi/session_shared_queues.h"
#include "verbs_provider/abi/session_sharing.h"
