// The head of RPC calls and replies.
#include "tests/interop/rpcrdma/nfs/nfs_service.h"

#include <onc_rpc.h>
#include <sys/random.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kRpcVersion = 2;

std::array<char, 8> RandomVerifier() {
  std::array<char, 8> verifier;
  if (getrandom(verifier.data(), verifier.size(), 0) != static_cast<ssize_t>(verifier.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  return verifier;
}

RpcReply Drop() {
  RpcReply reply;
  reply.drop = true;
  return reply;
}

Reply Denied(uint32_t xid, uint32_t why) {
  Reply reply;
  for (const uint32_t word : {xid, uint32_t{REPLY}, uint32_t{MSG_DENIED}, why}) reply.PutWord(word);
  return reply;
}

RpcReply WrongRpcVersion(uint32_t xid) {
  Reply reply = Denied(xid, RPC_MISMATCH);
  reply.PutWord(kRpcVersion);
  reply.PutWord(kRpcVersion);
  return reply.Take();
}

RpcReply WrongCredential(uint32_t xid) {
  Reply reply = Denied(xid, AUTH_ERROR);
  reply.PutWord(AUTH_BADCRED);
  return reply.Take();
}

// Where the accept_stat lies in a reply with an empty verifier.
constexpr size_t kAcceptOffset = 20;

void PutAccepted(uint32_t xid, Reply* reply) {
  for (const uint32_t word :
       {xid, uint32_t{REPLY}, uint32_t{MSG_ACCEPTED}, uint32_t{AUTH_NONE}, 0u, uint32_t{SUCCESS}}) {
    reply->PutWord(word);
  }
}

uint32_t AcceptStatus(Ran ran) {
  switch (ran) {
    case Ran::kNoSuchProcedure:
      return PROC_UNAVAIL;
    case Ran::kGarbageArguments:
      return GARBAGE_ARGS;
    default:
      return SUCCESS;
  }
}

}  // namespace

NfsService::NfsService(const std::string& path, const SipKey& key)
    : path_(std::filesystem::canonical(path)),
      folder_(path_, key),
      nfs_(&folder_, RandomVerifier()),
      mount_(&folder_, path_),
      replies_(key) {}

RpcReply NfsService::Answer(std::span<const std::byte> call) {
  ++counters_.calls;
  if (call.size() == Padded(call.size())) return AnswerCall(call);
  // A Read chunk may come without its XDR padding (RFC 8166, 3.4.5).
  std::vector<std::byte> padded(call.begin(), call.end());
  padded.resize(Padded(call.size()));
  return AnswerCall(padded);
}

RpcReply NfsService::AnswerCall(std::span<const std::byte> call) {
  Arguments in(call);
  const auto start = in.Take(xdr_CallStart);
  if (!start || start->direction != CALL) {
    ++counters_.not_a_call;
    return Drop();
  }
  if (start->rpc_version != kRpcVersion) {
    ++counters_.rpc_version_mismatch;
    return WrongRpcVersion(start->xid);
  }
  const auto target = in.Take(xdr_CallTarget);
  if (!target) {
    ++counters_.not_a_call;
    return Drop();
  }
  Caller caller{};
  if (!ReadCaller(&in, &caller)) {
    ++counters_.bad_credential;
    return WrongCredential(start->xid);
  }
  const Target wanted{start->xid, target->program_number, target->program_version,
                      target->procedure};
  if (wanted.program != NfsProcedures::kProgram || NfsProcedures::IsRepeatable(wanted.procedure)) {
    return Accept(wanted, caller, &in);
  }
  // One at a time, so that a call that comes again meanwhile waits for the reply.
  const std::scoped_lock lock(mutex_);
  const auto now = ReplyCache::Clock::now();
  RpcReply reply;
  if (const auto* kept = replies_.Find(call, now)) {
    ++counters_.repeated;
    reply.message = *kept;
    return reply;
  }
  reply = Accept(wanted, caller, &in);
  replies_.Keep(call, reply.message, now);
  return reply;
}

// AUTH_NONE and AUTH_SYS only (RFC 5531, 8.2 and appendix A). The verifier of a call is not used.
bool NfsService::ReadCaller(Arguments* in, Caller* caller) const {
  const auto auths = in->Take(xdr_CallAuths);
  if (!auths) return false;
  const CallAuth& credential = auths->credential;
  caller->flavor = credential.flavor;
  if (credential.flavor == AUTH_NONE) return true;
  if (credential.flavor != AUTH_SYS) return false;
  Arguments body(std::as_bytes(std::span(credential.body.body_val, credential.body.body_len)));
  const auto sys = body.Take(xdr_AuthSys);
  if (!sys) return false;
  caller->name.assign(sys->machine.machine_val, sys->machine.machine_len);
  return true;
}

RpcReply NfsService::Accept(const Target& target, const Caller& caller, Arguments* in) {
  Reply out;
  PutAccepted(target.xid, &out);
  const size_t head = out.size();
  uint32_t status = Run(target, caller, in, &out);
  if (status == SUCCESS && !out.complete()) status = SYSTEM_ERR;
  if (status == SUCCESS) return out.Take();
  out.Truncate(head);
  out.SetBulk(0, 0);
  out.PutAt(kAcceptOffset, xdr_u_int, status);
  if (status == PROG_MISMATCH) {
    // Both programs have version 3 only.
    out.PutWord(NfsProcedures::kVersion);
    out.PutWord(NfsProcedures::kVersion);
  }
  return out.Take();
}

uint32_t NfsService::Run(const Target& target, const Caller& caller, Arguments* in, Reply* out) {
  const bool nfs = target.program == NfsProcedures::kProgram;
  if (!nfs && target.program != MountProcedures::kProgram) {
    ++counters_.no_such_program;
    return PROG_UNAVAIL;
  }
  if (target.version != (nfs ? NfsProcedures::kVersion : MountProcedures::kVersion)) {
    ++counters_.program_version_mismatch;
    return PROG_MISMATCH;
  }
  const Ran ran = nfs ? nfs_.Run(target.procedure, in, out)
                      : mount_.Run(target.procedure, caller.name, in, out);
  if (ran == Ran::kNoSuchProcedure) ++counters_.no_such_procedure;
  if (ran == Ran::kGarbageArguments) ++counters_.garbage_arguments;
  return AcceptStatus(ran);
}

}  // namespace rpcrdma
