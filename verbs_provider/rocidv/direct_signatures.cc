// The plugin's implementation of rocidv.h: regions with T10 protection information.
#include "verbs_provider/rocidv/direct_list.h"

namespace roci::provider {
namespace {

static_assert(ROCIDV_SIG_CRC == int{ROCI_ABI_SIGNATURE_CRC});
static_assert(ROCIDV_SIG_CHECKSUM == int{ROCI_ABI_SIGNATURE_CHECKSUM});
static_assert(ROCIDV_SIG_REF_REMAP == ROCI_ABI_SIGNATURE_REF_COUNTS);
static_assert(ROCIDV_SIG_APP_ESCAPE == ROCI_ABI_SIGNATURE_APP_ESCAPE);
static_assert(ROCIDV_SIG_APP_REF_ESCAPE == ROCI_ABI_SIGNATURE_APP_REF_ESCAPE);
static_assert(ROCIDV_SIG_CHECK_GUARD == ROCI_ABI_SIGNATURE_CHECK_GUARD);
static_assert(ROCIDV_SIG_CHECK_APP_TAG == ROCI_ABI_SIGNATURE_CHECK_APP_TAG);
static_assert(ROCIDV_SIG_CHECK_REF_TAG == ROCI_ABI_SIGNATURE_CHECK_REF_TAG);
static_assert(ROCIDV_SIG_OK == int{ROCI_ABI_SIGNATURE_OK});
static_assert(ROCIDV_SIG_BAD_GUARD == int{ROCI_ABI_SIGNATURE_BAD_GUARD});
static_assert(ROCIDV_SIG_BAD_REF_TAG == int{ROCI_ABI_SIGNATURE_BAD_REF_TAG});
static_assert(ROCIDV_SIG_BAD_APP_TAG == int{ROCI_ABI_SIGNATURE_BAD_APP_TAG});

constexpr uint32_t kProtectionBytes = 8;  // of protection information for each block

bool IsBlockSize(uint32_t size) {
  constexpr uint32_t kSizes[] = ROCI_ABI_SIGNATURE_BLOCK_SIZES;
  for (const uint32_t known : kSizes) {
    if (known == size) return true;
  }
  return false;
}

bool IsWhole(uint32_t mask, uint32_t field) {
  return (mask & field) == field || (mask & field) == 0;
}

bool IsDomain(const rocidv_sig_domain& domain) {
  constexpr uint32_t kEscapes = ROCIDV_SIG_APP_ESCAPE | ROCIDV_SIG_APP_REF_ESCAPE;
  if (domain.type == ROCIDV_SIG_NONE) return true;
  return domain.type == ROCIDV_SIG_T10_DIF && domain.guard <= ROCIDV_SIG_CHECKSUM &&
         (domain.flags & ~(ROCIDV_SIG_REF_REMAP | kEscapes)) == 0 &&
         (domain.flags & kEscapes) != kEscapes;
}

bool IsSignature(const rocidv_sig_attr& attr) {
  constexpr uint32_t kChecks =
      ROCIDV_SIG_CHECK_GUARD | ROCIDV_SIG_CHECK_APP_TAG | ROCIDV_SIG_CHECK_REF_TAG;
  return IsBlockSize(attr.block_size) && (attr.check_mask & ~kChecks) == 0 &&
         IsWhole(attr.check_mask, ROCIDV_SIG_CHECK_GUARD) &&
         IsWhole(attr.check_mask, ROCIDV_SIG_CHECK_APP_TAG) &&
         IsWhole(attr.check_mask, ROCIDV_SIG_CHECK_REF_TAG) && IsDomain(attr.memory) &&
         IsDomain(attr.wire);
}

roci_abi_signature_domain ToAbi(const rocidv_sig_domain& domain) {
  roci_abi_signature_domain out = {};
  if (domain.type == ROCIDV_SIG_NONE) return out;
  out.is_present = 1;
  out.guard = domain.guard;
  out.seed = domain.seed;
  out.app_tag = domain.app_tag;
  out.app_tag_mask = domain.app_tag_check_mask;
  out.ref_tag = domain.ref_tag;
  out.flags = domain.flags;
  return out;
}

}  // namespace

rocidv_mr* AllocMrIntegrity(ibv_pd* pd, uint32_t max_entries, uint32_t max_protection_entries) {
  ListMr* list = MakeListMr(pd, max_entries, true, max_protection_entries);
  return list != nullptr ? &list->mr : nullptr;
}

int MapMrSgIntegrity(rocidv_mr* mr, const ibv_sge* data, uint32_t data_count,
                     const ibv_sge* protection, uint32_t protection_count,
                     const rocidv_sig_attr* attr, uint64_t iova) {
  ListMr* list = ToListMr(mr);
  const auto data_run = [data](uint32_t i) { return ToRun(data[i]); };
  const auto protection_run = [protection](uint32_t i) { return ToRun(protection[i]); };
  if (!list->has_signature || data_count == 0 || data_count > mr->max_entries ||
      protection_count > mr->max_protection_entries || !IsSignature(*attr)) {
    return EINVAL;
  }
  const bool in_memory = attr->memory.type != ROCIDV_SIG_NONE;
  const bool on_wire = attr->wire.type != ROCIDV_SIG_NONE;
  const bool is_interleaved = in_memory && protection_count == 0;
  const uint64_t stride = attr->block_size + (is_interleaved ? kProtectionBytes : 0);
  const uint64_t bytes = BytesOf(data_count, data_run);
  const uint64_t blocks = bytes / stride;
  if (bytes == 0 || bytes % stride != 0 || (protection_count != 0 && !in_memory) ||
      (protection_count != 0 &&
       BytesOf(protection_count, protection_run) != blocks * kProtectionBytes)) {
    return EINVAL;
  }
  const uint64_t length = blocks * (attr->block_size + (on_wire ? kProtectionBytes : 0));
  if (!IsRange(iova, length)) return EINVAL;
  for (uint32_t i = 0; i < data_count; ++i) list->runs[i] = data_run(i);
  for (uint32_t i = 0; i < protection_count; ++i) list->protection[i] = protection_run(i);
  *list->signature = {ToAbi(attr->memory), ToAbi(attr->wire), attr->block_size,
                      attr->check_mask,    protection_count,  0};
  list->count = data_count;
  mr->iova = iova;
  mr->length = length;
  return 0;
}

int CheckMrStatus(rocidv_mr* mr, rocidv_sig_error* error) {
  const ListMr* list = ToListMr(mr);
  if (!list->has_signature) return EINVAL;
  roci_abi_handle_request request = {};
  request.handle = list->handle;
  roci_abi_check_signature_mr_response response = {};
  const int failed = list->session->client.Call(ROCI_ABI_CHECK_SIGNATURE_MR, &request, &response);
  if (failed != 0) return failed;
  *error = {response.fault, response.key, response.expected, response.actual, response.offset};
  return 0;
}

}  // namespace roci::provider
