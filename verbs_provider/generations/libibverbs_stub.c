/* A stand-in for libibverbs that plugins are linked with: it gives the names and versions of the
 * symbols that a plugin uses. No program loads it. */
#define JOIN_EXPANDED(a, b) a##b
#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define STUB(name) \
  void name(void); \
  void name(void) {}

STUB(JOIN(verbs_register_driver_, ROCI_PRIVATE_ABI))
STUB(_verbs_init_and_alloc_context)
STUB(verbs_set_ops)
STUB(verbs_uninit_context)
STUB(ibv_get_sysfs_path)
